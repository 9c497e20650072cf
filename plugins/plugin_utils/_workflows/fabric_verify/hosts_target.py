# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where the tests run: the interface of a target, and hosts over Ansible's own connections."""

from __future__ import annotations

import dataclasses
import typing as t

from ....module_utils._model.errors import MusterError
from ....module_utils._model.island import PairPath
from ....module_utils._model.node import Node
from ....module_utils._model.node_report import NodeReport
from ..._fabric.bench.plan import BenchStage
from ..._fabric.topology import reachability
from ..._fabric.topology.node_labels import NodePatch
from ..._fabric.topology.reachability import ReachAnswer
from ..._fabric.topology.unreachable import AbsentNode
from ..._hosts.node_client import NodeClient, most_telling_error, on_each_node
from ..training_job import run as training_job
from . import bench_group
from .bench_group import Bench, GroupRun

_REACH_S = 2.0
_FIX = "Check that the machine is running and reachable over SSH, then verify again"


@dataclasses.dataclass(frozen=True, slots=True)
class TargetNodes:
    """The nodes that gave their facts, the names of those with a running job, and the nodes that gave no facts."""

    nodes: tuple[Node, ...]
    busy: frozenset[str] = frozenset()
    absent: tuple[AbsentNode, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class PublishResult:
    """The result of writing verdicts to node labels: whether a label changed, Ansible's diff, a note for the user."""

    changed: bool = False
    diff: tuple[dict[str, str], ...] = ()
    note: str = ""


class FabricTarget(t.Protocol):
    """The nodes under test and how processes get there. ``own_network``: processes use the nodes' own interfaces.

    ``cluster_id``: which cluster they are of, empty for plain hosts.
    """

    own_network: bool
    cluster_id: str

    def find_nodes(self) -> TargetNodes:
        """Return the nodes; raise the first node's error when none of them answers."""

    def names(self) -> t.Collection[str]:
        """Return the names of the nodes that would be tested, without a request to any of them."""

    def find_paths(self, nodes: t.Sequence[Node]) -> list[PairPath]:
        """Return which nodes reach each other, as far as a short connection attempt shows it."""

    def addresses(self, names: t.Iterable[str]) -> dict[str, str]:
        """Return the addresses that the user declared."""

    def all_names(self) -> t.Container[str]:
        """Return the names of all nodes of this target: verdicts on other nodes are dropped."""

    def run_group(self, group: tuple[str, ...], stage: BenchStage, bench: Bench, run_id: str) -> GroupRun:
        """Run the bench on some nodes."""

    def publish(self, patches: t.Mapping[str, NodePatch], check: bool) -> PublishResult:
        """Write labels and annotations of nodes where there are any; with ``check`` only return what would change."""


def _ask_facts(remote: NodeClient) -> NodeReport:
    return NodeReport.from_dict(remote.call("info", facts=True))


class HostsTarget:
    """The hosts of the play, over Ansible's own connections."""

    own_network = True
    cluster_id = ""

    def __init__(self, request: training_job.RunRequest) -> None:
        self._request = request
        self._remotes: list[NodeClient] = []

    def find_nodes(self) -> TargetNodes:
        """Return the facts of all hosts; a host that does not answer is listed as absent and the others are tested."""
        request = self._request
        self._remotes = list(request.connect(request.hosts))
        reports, errors = on_each_node(self._remotes, _ask_facts)
        if not reports and errors:
            raise most_telling_error(errors)
        nodes = tuple(request.node(name, reports[name].facts) for name in request.hosts if name in reports)
        absent = tuple(self._absent_node(name, errors[name]) for name in request.hosts if name in errors)
        return TargetNodes(nodes, frozenset(name for name, report in reports.items() if report.live_runs), absent)

    def names(self) -> t.Collection[str]:
        """Return the hosts of the play."""
        return self._request.hosts

    def find_paths(self, nodes: t.Sequence[Node]) -> list[PairPath]:
        """Return which nodes reach each other, from short connection attempts to their addresses."""
        targets = reachability.connection_targets(nodes, self.addresses(node.name for node in nodes))

        def connect(remote: NodeClient) -> ReachAnswer:
            ends = [list(end) for peers in targets[remote.name].values() for end in peers]
            mesh = reachability.mesh_addresses(nodes, remote.name)
            return ReachAnswer.from_dict(remote.call("reach", targets=ends, mesh=mesh, seconds=_REACH_S))

        answers, _unused = on_each_node([remote for remote in self._remotes if remote.name in targets], connect)
        paths = reachability.read_paths(nodes, targets, answers)
        for path in paths:
            if path.path == "none":
                self._request.progress.say(f"{path.b} did not answer {path.a}: they are not treated as one LAN")
        return paths

    def addresses(self, names: t.Iterable[str]) -> dict[str, str]:
        """Return the addresses that the user declared for the nodes of a job."""
        addresses = {name: self._request.hostvars[name].get("muster_address") for name in names}
        return {name: str(address) for name, address in addresses.items() if address}

    def all_names(self) -> t.Container[str]:
        """Return the names of the inventory."""
        return self._request.hostvars

    def run_group(self, group: tuple[str, ...], stage: BenchStage, bench: Bench, run_id: str) -> GroupRun:
        """Run the bench as a job on hosts."""
        return bench_group.run_group(self._request, group, stage, bench, run_id)

    def publish(self, patches: t.Mapping[str, NodePatch], check: bool) -> PublishResult:
        """Do nothing: hosts have no labels, their variables are in the result."""
        return PublishResult()

    def _absent_node(self, name: str, error: MusterError) -> AbsentNode:
        return AbsentNode(self._request.node(name), error.message, error.fix or _FIX)
