# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decides once where a gang may run: on which nodes and islands, with what its pods ask of them, or why nowhere."""

from __future__ import annotations

import collections
import dataclasses
import sys
import typing as t

from ....module_utils._model import advice, job_backends
from ....module_utils._model.errors import RefusedError
from ....module_utils._model.fabric_gate import PER_ISLAND
from ....module_utils._model.job import Job
from ....module_utils._model.rdma_resources import IB, needs_node_network
from ....module_utils._model.wording import name_some
from ..api.kinds import KubeObject
from ..jobs.spec import EligibleNodes
from .node_fit import JudgedNodes, NodeFit, island_expression, pods_that_fit

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

    @property
    def possible_nodes(self) -> tuple[str, ...]:
        """Return the names of the usable nodes on the islands that the gang may be placed to."""
        return tuple(item.node for item in self.usable_nodes if not self.islands or item.island in self.islands)


def decide_network(
    job: Job, resource: str | None, enforced: str | None, networks: t.Collection[str] = ()
) -> tuple[Job, str]:
    """Return the job with the network that ``placement.network_mode: auto`` stands for, and a line that reports it.

    A shared RDMA device (k8s-rdma-shared-dev-plugin) belongs to the network of its node: RoCE needs the addresses of
    the node's own interfaces, InfiniBand none. A device of a network (SR-IOV) is moved into the pod. A job that names
    its network is returned as it is, with an empty line.

    :param resource: the RDMA resource of which each pod gets one, None without RDMA.
    :param enforced: the Pod Security level of the job's namespace, None where it cannot be read.
    :param networks: those that take the resource.
    """
    if job.placement.network_mode != "auto":
        return job, ""
    mode, reason = "pod", "the job gets no RDMA device"
    if resource:
        reason = f"{resource} needs no network of the node" if resource == IB else f"{resource} is moved into the pod"
    if resource and needs_node_network(resource, networks):
        mode, reason = _judge_security(enforced, resource)
    placement = dataclasses.replace(job.placement, network_mode=mode)
    return dataclasses.replace(job, placement=placement), f"placement.network_mode: auto is {mode}: {reason}"


def _judge_security(level: str | None, resource: str) -> tuple[str, str]:
    if level is None:
        return "pod", f"the namespace cannot be read, and may refuse the nodes' network, to which {resource} belongs"
    if level in ("baseline", "restricted"):
        return "pod", f"the namespace enforces {level}, which refuses the nodes' network, to which {resource} belongs"
    return "host", f"{resource} is shared and belongs to the nodes' network"


def decide_placement(
    job: Job, judged: JudgedNodes, *, by_queue: bool, networks: tuple[str, ...] = ()
) -> PlacementDecision:
    """Return where the gang of a job may run.

    :param by_queue: whether the queue has a topology of islands, so that the whole gang is admitted to one of them.
    :param networks: those that take the pods' RDMA resource.
    """
    fits = judged.fits
    one_a_node = job.placement.network_mode == "host" or judged.whole_node or job_backends.spreads_pods(job)
    rooms = island_capacity(job, fits, one_a_node, by_queue=by_queue)
    roomy = tuple(name for name, room in rooms.items() if room >= _pod_count(job))
    island = roomy[0] if len(roomy) == 1 and not by_queue else None
    problem = None
    if judged.is_readable:
        problem = find_shortage(job, fits, one_a_node) or find_island_problem(job, rooms, by_queue=by_queue)
    own = job.placement.island
    target = EligibleNodes(
        (*([island_expression(island)] if island and not own else ()), *judged.expressions),
        rdma_resource=judged.rdma_resource,
        rdma_networks=networks,
        whole_node=judged.whole_node,
        device_class=judged.device_class,
    )
    uids = frozenset(item.uid for item in fits if not item.reasons)
    return PlacementDecision(fits, (own,) if own else roomy, uids, target, problem)


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
    shown = name_some(table, _SHOWN, "; ")
    short = f"{needed} are needed" if one_a_node else "at least one is needed"
    more = "; or set job.placement.share_machines: true, if pods may share a machine" if _may_share(job) else ""
    if fitting and not one_a_node:
        short = f"with room for {sum(rooms)} of {needed} pods"
    return RefusedError(
        f"job.placement: {len(fitting)} of {len(fits)} nodes fit, {short}: {shown or 'no nodes'}",
        "Add nodes, or request what they offer"
        + ("; jobs of a queue tolerate a taint when its ResourceFlavor does" if "(taint " in shown else "")
        + (more if fitting else ""),
    )


def _may_share(job: Job) -> bool:
    return job_backends.spreads_pods(job) and job.placement.network_mode != "host"


def find_packing(job: Job, nodes: t.Sequence[KubeObject], usable: t.Collection[str], queue: str) -> RefusedError | None:
    """Return why a gang whose pods have a machine each cannot go to a queue that places pods by topology.

    Kueue knows nothing of pods that keep apart: it fills a machine before it takes the next one, and the scheduler then
    refuses what it placed there.

    :param usable: the names of the nodes that can take a pod of the job.
    """
    rooms = {str(node["metadata"]["name"]): pods_that_fit(job, node) for node in nodes}
    roomy = {name: room for name, room in rooms.items() if name in usable and (room is None or room > 1)}
    if not roomy or not job_backends.spreads_pods(job):
        return None
    name = max(sorted(roomy), key=lambda item: roomy[item] or sys.maxsize)
    room = f"{roomy[name]} pods" if roomy[name] is not None else "any number of pods"
    own = "gpus_per_node, " if job.gpus_per_node else ""
    return RefusedError(
        f"job.nodes: {job.nodes} nodes are not certain to be {job.nodes} machines in the queue {queue}, which places "
        f"pods by topology: {name} has room for {room} of the job",
        f"Request more than half of a machine ({own}resources.cpu or resources.memory), ask for fewer and larger "
        "nodes, or set job.placement.share_machines: true, if pods may share a machine",
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
            "Verify the fabric first (playbook verify_fabric), or have an administrator do it: it labels the nodes",
        )
    if not fitting and rooms:
        table = ", ".join(f"{name} has room for {room}" for name, room in rooms.items())
        fix = f"Ask for fewer nodes so that one island has room, {'or ' if by_queue else ''}{PER_ISLAND}"
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


def _needs_one_island(job: Job, by_queue: bool) -> bool:
    """Return whether the gang has to be on one island that the job does not name."""
    return not job.placement.island and (by_queue or (job.nodes > 1 and not job.placement.allow_slow_network))


def _pod_count(job: Job) -> int:
    """Return for how many pods there must be room: an elastic gang starts with fewer."""
    return job.elastic.min or job.nodes


def _capacities(job: Job, fitting: t.Sequence[NodeFit], one_a_node: bool) -> list[int]:
    """Return how many pods each node takes; pods without GPUs are left to the scheduler."""
    return [1 if one_a_node else _pod_count(job) if item.room is None else item.room for item in fitting]
