# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where a fabric test runs: what the verification asks of any ground, and the hosts of a play as one.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import dataclasses
import typing as t

from ....module_utils._model.errors import InputError, MusterError
from ....module_utils._model.island import PairPath
from ....module_utils._model.node import Node
from ..._fabric.bench.plan import Stage
from ..._fabric.topology import reachability
from ..._fabric.topology.unreachable import Absent
from ..._hosts.node_client import NodeClient, most_telling_error, on_each_node
from ..training_job import run as training_job
from . import bench_group
from .bench_group import Bench, GroupRun

Dict = dict[str, t.Any]
_REACH_S = 2.0
_FIX = "Look whether the machine runs and its SSH answers, then verify again"


@dataclasses.dataclass(frozen=True, slots=True)
class Fleet:
    """The nodes that gave their facts, the names of those on which a run lives, and the nodes that gave none."""

    nodes: tuple[Node, ...]
    busy: frozenset[str] = frozenset()
    absent: tuple[Absent, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Published:
    """What became of the verdicts where others read them: whether something changed there, Ansible's diff, a note."""

    changed: bool = False
    diff: tuple[dict[str, str], ...] = ()
    note: str = ""


class Ground(t.Protocol):
    """The nodes under test and how processes get there. ``own_network``: processes use the nodes' own interfaces."""

    own_network: bool

    def fleet(self) -> Fleet:
        """Return the nodes; raise the first node's error when none of them answers."""

    def reached(self, nodes: t.Sequence[Node]) -> list[PairPath]:
        """Return which nodes reach each other, as far as a quick try shows it."""

    def addresses(self, names: t.Iterable[str]) -> dict[str, str]:
        """Return the addresses that the user declared."""

    def known(self) -> t.Container[str]:
        """Return the names that belong to this ground: verdicts on others are dropped."""

    def run_group(self, group: tuple[str, ...], stage: Stage, bench: Bench, run_id: str) -> GroupRun:
        """Run the bench on some nodes."""

    def publish(self, patches: t.Mapping[str, Dict], check: bool) -> Published:
        """Write labels and annotations of nodes where there are any; with ``check`` only say what would change."""


class Hosts:
    """The hosts of the play, over Ansible's own connections."""

    own_network = True

    def __init__(self, request: training_job.Request) -> None:
        self._request = request
        self._remotes: list[NodeClient] = []

    def fleet(self) -> Fleet:
        """Return the facts of all hosts; one that does not answer is named and the others are tested."""
        request = self._request
        self._remotes = list(request.connect(request.hosts))

        def ask(remote: NodeClient) -> tuple[Dict, bool]:
            answer = remote.call("info", facts=True)
            return answer["facts"], bool(answer["live_runs"])

        answers, errors = on_each_node(self._remotes, ask)
        if not answers and errors:
            raise most_telling_error(errors)
        nodes = tuple(self._node(name, answers[name][0]) for name in request.hosts if name in answers)
        gone = tuple(self._absent(name, errors[name]) for name in request.hosts if name in errors)
        return Fleet(nodes, frozenset(name for name, (_unused, lives) in answers.items() if lives), gone)

    def reached(self, nodes: t.Sequence[Node]) -> list[PairPath]:
        """Return which nodes reach each other, by a quick try of their addresses; what nobody tells stays open."""
        asked = reachability.questions(nodes, self.addresses(node.name for node in nodes))

        def ask(remote: NodeClient) -> Dict:
            targets = [list(item) for ends in asked[remote.name].values() for item in ends]
            mesh = reachability.mesh_addresses(nodes, remote.name)
            return remote.call("reach", targets=targets, mesh=mesh, seconds=_REACH_S)

        answers, _unused = on_each_node([remote for remote in self._remotes if remote.name in asked], ask)
        found = reachability.paths(nodes, asked, answers)
        for item in (item for item in found if item.path == "none"):
            self._request.progress.say(f"{item.a} gets no answer from {item.b}: they are not taken for one LAN")
        return found

    def addresses(self, names: t.Iterable[str]) -> dict[str, str]:
        """Return the addresses that the user declared for the nodes of a job."""
        found = {name: self._request.hostvars[name].get("muster_address") for name in names}
        return {name: str(address) for name, address in found.items() if address}

    def known(self) -> t.Container[str]:
        """Return the inventory."""
        return self._request.hostvars

    def run_group(self, group: tuple[str, ...], stage: Stage, bench: Bench, run_id: str) -> GroupRun:
        """Run the bench as a job on hosts."""
        return bench_group.run_group(self._request, group, stage, bench, run_id)

    def publish(self, patches: t.Mapping[str, Dict], check: bool) -> Published:
        """Do nothing: hosts have no labels, their variables are in the result."""
        return Published()

    def _node(self, name: str, facts: Dict) -> Node:
        record = dict(self._request.hostvars[name].get("muster_node") or {})
        known = {key: value for key, value in record.items() if value not in (None, [], {})}
        return Node.from_dict({**facts, **known, "name": name}, f"{name}.muster_node")

    def _absent(self, name: str, error: MusterError) -> Absent:
        try:
            node = self._node(name, {})
        except InputError:
            # What the inventory says of it may need its facts to be whole.
            node = Node.from_dict({"name": name})
        return Absent(node, error.message, error.fix or _FIX)
