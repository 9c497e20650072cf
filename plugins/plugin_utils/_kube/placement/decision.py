# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decides once where a gang may run: on which nodes and islands, with what its pods ask of them, or why nowhere.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import collections
import dataclasses
import typing as t

from ....module_utils._model import advice
from ....module_utils._model.errors import RefusedError
from ....module_utils._model.fabric_gate import FEDERATED
from ....module_utils._model.job import Job
from ..api.kinds import KubeObject
from ..jobs.spec import EligibleNodes
from .node_fit import NodeFit, find_rdma_resource, gpu_count, node_expressions

_SHOWN = 12


@dataclasses.dataclass(frozen=True, slots=True)
class PlacementDecision:
    """Where a job may run, decided once for a plan.

    ``nodes``: every node with what keeps the job off it. ``islands``: those that its gang may be placed to, empty where
    any is possible. ``node_uids``: the uids of the nodes that fit. ``target``: what the pods ask of their nodes.
    ``problem``: why the gang cannot be placed, None when it can, or when nodes cannot be read.
    """

    nodes: tuple[NodeFit, ...]
    islands: tuple[str, ...]
    node_uids: frozenset[str]
    target: EligibleNodes
    problem: RefusedError | None = None

    @property
    def usable_nodes(self) -> tuple[NodeFit, ...]:
        """Return the nodes that can take a pod of the job."""
        return tuple(item for item in self.nodes if not item.reasons)


def decide_placement(
    job: Job, nodes: t.Sequence[KubeObject] | None, fits: tuple[NodeFit, ...], *, by_queue: bool, fabric: bool = True
) -> PlacementDecision:
    """Return where the gang of a job may run.

    :param nodes: the live Nodes, None where they cannot be read: then the scheduler alone decides.
    :param fits: what :func:`node_fit.judge_nodes` says of them.
    :param by_queue: whether the queue has a topology of islands, so that the whole gang is admitted to one of them.
    :param fabric: whether the last verdict on the nodes' network counts, which it does not for the next one.
    """
    live = nodes or ()
    whole_node = takes_whole_node(job, live)
    one_a_node = job.placement.network_mode == "host" or whole_node
    rooms = island_capacity(job, fits, one_a_node, by_queue=by_queue)
    roomy = tuple(name for name, room in rooms.items() if room >= _pod_count(job))
    island = roomy[0] if len(roomy) == 1 and not by_queue else None
    fitting = {item.node for item in fits if not item.reasons}
    metadata = [node["metadata"] for node in live if node["metadata"]["name"] in fitting]
    target = EligibleNodes(
        node_expressions(job, live, island, fabric=fabric),
        rdma_resource=find_rdma_resource(job, fits),
        whole_node=whole_node,
    )
    problem = None
    if nodes is not None:
        problem = find_shortage(job, fits, one_a_node) or find_island_problem(job, rooms, by_queue=by_queue)
    uids = frozenset(str(meta.get("uid") or meta["name"]) for meta in metadata)
    named = (job.placement.island,) if job.placement.island else roomy
    return PlacementDecision(fits, named, uids, target, problem)


def find_shortage(job: Job, fits: t.Sequence[NodeFit], one_a_node: bool = False) -> RefusedError | None:
    """Return why a job has too few nodes, with a table of them in one line, None when they suffice.

    :param one_a_node: whether a node takes one pod of the job only; else as many as its GPUs suffice for.
    """
    needed = _pod_count(job)
    if job.engine == "rayjob" and job.placement.network_mode == "host" and len(fits) <= needed:
        return RefusedError(
            f"job.placement.network_mode: with host a Ray cluster of {needed} workers needs "
            f"{needed + 1} nodes, one for its head, and there are {len(fits)}",
            "Use network_mode: pod, or ask for fewer nodes",
        )
    fitting = [item for item in fits if not item.reasons]
    rooms = _capacities(job, fitting, one_a_node)
    if sum(rooms) >= needed:
        return None
    words = dict(zip((item.node for item in fitting), rooms, strict=True))
    each = "fits" if one_a_node or not job.gpus_per_node else "room for {}"
    table = [f"{item.node} ({', '.join(item.reasons) or each.format(words[item.node])})" for item in fits]
    shown = "; ".join(table[:_SHOWN]) + (f"; and {len(table) - _SHOWN} more" if len(table) > _SHOWN else "")
    short = f"{needed} are needed" if one_a_node else "at least one is needed"
    if fitting and not one_a_node:
        short = f"with room for {sum(rooms)} of {needed} pods"
    return RefusedError(
        f"job.placement: {len(fitting)} of {len(fits)} nodes fit, {short}: {shown or 'no nodes'}",
        "Add nodes, or request what they offer"
        + ("; jobs of a queue tolerate a taint when its ResourceFlavor does" if "(taint " in shown else ""),
    )


def island_capacity(job: Job, fits: t.Sequence[NodeFit], one_a_node: bool, *, by_queue: bool) -> dict[str, int]:
    """Return for how many pods of the gang each island has room; empty when the islands do not matter."""
    if not _needs_one_island(job, by_queue):
        return {}
    fitting = [item for item in fits if not item.reasons]
    capacity: collections.Counter[str] = collections.Counter()
    for item, room in zip(fitting, _capacities(job, fitting, one_a_node), strict=True):
        if item.island:
            capacity[item.island] += room
        elif not by_queue:
            # A node that was never verified may be on any island, and is used.
            return {}
    return dict(sorted(capacity.items())) if by_queue or len(capacity) > 1 else {}


def find_island_problem(job: Job, rooms: t.Mapping[str, int], *, by_queue: bool) -> RefusedError | None:
    """Return why a gang has no island: it fits into none, or into several and the job names none of them.

    A queue of islands admits a single pod to one of them, too: without labels it would wait there for ever.

    :param rooms: for how many pods each island has room.
    """
    fitting = [name for name, room in rooms.items() if room >= _pod_count(job)]
    if not rooms and by_queue and _needs_one_island(job, by_queue):
        return RefusedError(
            f"job.nodes: no island has room for {_pod_count(job)} pods (no node has an island label)",
            "Verify the fabric first (playbook verify_fabric): it labels the nodes",
        )
    if not fitting and rooms:
        table = ", ".join(f"{name} has room for {room}" for name, room in rooms.items())
        fix = f"Ask for fewer nodes so that one island has room, {'or ' if by_queue else ''}{FEDERATED}"
        more = "" if by_queue else ", or set job.placement.allow_slow_network: true"
        problem = f"job.nodes: no island has room for {_pod_count(job)} pods ({table}); on several islands: "
        return RefusedError(problem + advice.describe_slow_step(job), fix + more)
    if len(fitting) > 1 and not by_queue:
        return RefusedError(
            f"job.placement.island: several islands have room ({', '.join(fitting)}), and without a choice the gang "
            "could be split by a slow network",
            "Name one of them, use a queue whose topology has islands, or set job.placement.allow_slow_network: true",
        )
    return None


def takes_whole_node(job: Job, nodes: t.Iterable[KubeObject]) -> bool:
    """Return whether a pod takes all GPUs of every node that has enough of them."""
    counts = [gpu_count(node) for node in nodes] if job.gpus_per_node else []
    return max((count for count in counts if count >= job.gpus_per_node), default=0) == job.gpus_per_node > 0


def _needs_one_island(job: Job, by_queue: bool) -> bool:
    """Return whether the gang has to be on one island that the job does not name."""
    return not job.placement.island and (by_queue or (job.nodes > 1 and not job.placement.allow_slow_network))


def _pod_count(job: Job) -> int:
    """Return for how many pods there must be room: an elastic gang starts with fewer."""
    return job.elastic.min or job.nodes


def _capacities(job: Job, fitting: t.Sequence[NodeFit], one_a_node: bool) -> list[int]:
    """Return how many pods each node takes; pods without GPUs are left to the scheduler."""
    return [1 if one_a_node else _pod_count(job) if item.room is None else item.room for item in fitting]
