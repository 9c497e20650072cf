# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which addresses to try between nodes before islands are formed, and what the answers say. Pure rules.

Two homes and two clouds use the same private ranges, so that addresses alone can put strangers into one LAN. An answer
(a refused connection is one) shows that there is a path; silence of all LAN addresses of a node shows that there is no
LAN. A path that facts call a mesh stays one.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import itertools
import typing as t

from ....module_utils._model.island import NetworkPath, PairPath
from ....module_utils._model.node import Node
from .links import Paths, one_machine

# SSH is open where we come from; the other is one that jobs use and that nothing holds before they start.
PORTS = (22, 29500)
# Of more nodes only neighbours on a ring are tried: the bench finds what that misses.
ALL_PAIRS_LIMIT = 64
Dict = dict[str, t.Any]


def questions(nodes: t.Sequence[Node], declared: t.Mapping[str, str]) -> dict[str, dict[str, list[tuple[str, int]]]]:
    """Return node -> other node -> (address, port) to try; pairs on one machine and without addresses are left out.

    :param declared: addresses that the user declared for nodes; they are tried first.
    """
    found: dict[str, dict[str, list[tuple[str, int]]]] = {}
    for a, b in _pairs(nodes):
        targets = _targets(b, declared.get(b.name)) if not one_machine(a, b) else []
        if targets:
            found.setdefault(a.name, {})[b.name] = targets
    return found


def mesh_addresses(nodes: t.Sequence[Node], name: str) -> list[str]:
    """Return the mesh addresses of all nodes but ``name``."""
    return [item.address for node in nodes if node.name != name for item in node.addresses.mesh]


def paths(
    nodes: t.Sequence[Node],
    asked: t.Mapping[str, t.Mapping[str, t.Sequence[tuple[str, int]]]],
    answers: t.Mapping[str, Dict],
) -> list[PairPath]:
    """Return what is known of the pairs that were tried; a node that gave no answer says nothing.

    :param answers: node -> what its agent's ``reach`` returned.
    """
    known = {node.name: node for node in nodes}
    inferred = Paths(known, ())
    found = []
    for a, targets in asked.items():
        if a not in answers:
            continue
        ok = {(str(item["address"]), int(item["port"])) for item in answers[a].get("answers", []) if item.get("ok")}
        mesh = answers[a].get("mesh") or {}
        for b, wanted in targets.items():
            path = _path(inferred.path(a, b), known[b], set(wanted) & ok, mesh)
            if path:
                found.append(PairPath(a, b, path))
    return found


def _pairs(nodes: t.Sequence[Node]) -> t.Iterator[tuple[Node, Node]]:
    ordered = sorted(nodes, key=lambda node: node.name)
    if len(ordered) <= ALL_PAIRS_LIMIT:
        yield from itertools.combinations(ordered, 2)
    else:
        yield from zip(ordered, ordered[1:], strict=False)


def _targets(node: Node, declared: str | None) -> list[tuple[str, int]]:
    addresses = [item.address for item in (*node.addresses.lan, *node.addresses.mesh)]
    tried = dict.fromkeys(item for item in ([declared] if declared else []) + addresses if not _local(item))
    return [(address, port) for address in tried for port in PORTS]


def _local(address: str) -> bool:
    return address.startswith(("127.", "169.254.", "fe80:")) or address == "::1"


def _path(
    inferred: NetworkPath, other: Node, ok: set[tuple[str, int]], mesh: t.Mapping[str, str]
) -> NetworkPath | None:
    """Return the path that the answers show; None where they say nothing new."""
    answered = {address for address, _unused in ok}
    over_mesh = [item.address for item in other.addresses.mesh]
    told = {mesh.get(address) for address in over_mesh}
    on_mesh: NetworkPath | None = None
    if answered & set(over_mesh):
        on_mesh = "mesh_relayed" if "relayed" in told and "direct" not in told else "mesh_direct"
    if inferred == "lan":
        return "lan" if answered - set(over_mesh) else on_mesh or "none"
    if inferred in ("mesh_direct", "mesh_relayed") and on_mesh:
        return on_mesh
    return None
