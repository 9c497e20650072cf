# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which addresses to try between nodes before islands are formed, and what the answers say. Pure rules.

Homes and clouds use the same private ranges, so that addresses alone can put unrelated nodes into one LAN. An answer (a
refused connection is one) shows that there is a path; no answer from any LAN address of a node shows that there is no
LAN. A path that the facts call a mesh stays one.
"""

from __future__ import annotations

import dataclasses
import itertools
import typing as t

from ....module_utils._model.island import NetworkPath, PairPath
from ....module_utils._model.node import Node
from ....module_utils._model.node_address import find_shared_addresses
from .links import Paths, is_one_machine

# SSH, and the rendezvous port of jobs, on which nothing listens before they start: a refused connection is an answer.
PORTS = (22, 29500)
# With more nodes only neighbours on a ring are tried: the bench finds what that misses.
ALL_PAIRS_LIMIT = 64
End = tuple[str, int]


@dataclasses.dataclass(frozen=True, slots=True)
class ReachAnswer:
    """What a node's agent answered to ``reach``: the ends that answered, and mesh address -> direct or relayed."""

    ends: frozenset[End]
    mesh: t.Mapping[str, str] = dataclasses.field(default_factory=dict)

    @classmethod
    def from_dict(cls, answer: t.Mapping[str, t.Any]) -> ReachAnswer:
        """Return the answer of ``reach`` as the agent sent it."""
        ends = ((str(item["address"]), int(item["port"])) for item in answer.get("answers", []) if item.get("ok"))
        return cls(frozenset(ends), answer.get("mesh") or {})


def connection_targets(nodes: t.Sequence[Node], declared: t.Mapping[str, str]) -> dict[str, dict[str, list[End]]]:
    """Return node -> other node -> (address, port) to try; pairs on one machine and without addresses are left out.

    :param declared: addresses that the user declared for nodes; they are tried first.
    """
    targets: dict[str, dict[str, list[End]]] = {}
    for a, b in _node_pairs(nodes):
        # At an address that both have, a node reaches itself.
        ends = _targets(b, declared.get(b.name), find_shared_addresses((a, b))) if not is_one_machine(a, b) else []
        if ends:
            targets.setdefault(a.name, {})[b.name] = ends
    return targets


def mesh_addresses(nodes: t.Sequence[Node], name: str) -> list[str]:
    """Return the mesh addresses of all nodes but ``name``."""
    return [item.address for node in nodes if node.name != name for item in node.addresses.mesh]


def read_paths(
    nodes: t.Sequence[Node],
    targets: t.Mapping[str, t.Mapping[str, t.Sequence[End]]],
    answers: t.Mapping[str, ReachAnswer],
) -> list[PairPath]:
    """Return the paths of the pairs that were tried, as far as the answers show them.

    :param targets: as :func:`connection_targets` returned them.
    :param answers: by node; nodes that did not answer are left out.
    """
    by_name = {node.name: node for node in nodes}
    inferred = Paths(by_name, ())
    reaches = []
    for a, peers in targets.items():
        if a not in answers:
            continue
        for b, ends in peers.items():
            path = _judge_path(inferred.path(a, b), by_name[b], set(ends) & answers[a].ends, answers[a].mesh)
            if path:
                reaches.append(PairPath(a, b, path))
    return reaches


def _node_pairs(nodes: t.Sequence[Node]) -> t.Iterator[tuple[Node, Node]]:
    ordered = sorted(nodes, key=lambda node: node.name)
    if len(ordered) <= ALL_PAIRS_LIMIT:
        yield from itertools.combinations(ordered, 2)
    else:
        yield from zip(ordered, ordered[1:], strict=False)


def _targets(node: Node, declared: str | None, repeated: t.Container[str]) -> list[End]:
    listed = (*node.addresses.lan, *node.addresses.mesh)
    addresses = [item.address for item in listed if item.address not in repeated]
    candidates = [declared, *addresses] if declared else addresses
    unique = dict.fromkeys(address for address in candidates if not _is_local(address))
    return [(address, port) for address in unique for port in PORTS]


def _is_local(address: str) -> bool:
    return address.startswith(("127.", "169.254.", "fe80:")) or address == "::1"


def _judge_path(
    inferred: NetworkPath, other: Node, ends: t.Collection[End], mesh: t.Mapping[str, str]
) -> NetworkPath | None:
    """Return the path that the answers show; None where they add nothing to the facts."""
    answered = {address for address, _port in ends}
    peer_addresses = {item.address for item in other.addresses.mesh}
    mesh_kinds = {mesh.get(address) for address in peer_addresses}
    over_mesh: NetworkPath | None = None
    if answered & peer_addresses:
        over_mesh = "mesh_relayed" if "relayed" in mesh_kinds and "direct" not in mesh_kinds else "mesh_direct"
    if inferred == "lan":
        return "lan" if answered - peer_addresses else over_mesh or "none"
    if inferred in ("mesh_direct", "mesh_relayed") and over_mesh:
        return over_mesh
    return None
