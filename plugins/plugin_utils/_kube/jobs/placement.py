# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decides which nodes of a cluster a job may run on, and why not on the others, before anything is submitted.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import collections
import dataclasses
import typing as t
from types import MappingProxyType

from ....module_utils._model import advice
from ....module_utils._model.errors import RefusedError
from ....module_utils._model.fabric_gate import FEDERATED
from ....module_utils._model.job import Job, Mount
from ..api.kinds import JsonObject, KubeObject
from .spec import FABRIC_LABEL, ISLAND_LABEL, LANE_LABEL, NETWORK_LABEL

# GPU feature discovery writes these.
_PRODUCT, _MEMORY, _FAMILY = "nvidia.com/gpu.product", "nvidia.com/gpu.memory", "nvidia.com/gpu.family"
# A card sold as 80 GiB reports a little less.
_MEMORY_SHARE = 0.95
_SHOWN = 12
# Engines with one more pod beside those of the ranks: mpirun's, Ray's head.
_ENGINES_WITH_EXTRA_POD = ("mpijob", "rayjob")
_STATE_TAINTS = frozenset(f"node.kubernetes.io/{state}" for state in ("not-ready", "unreachable", "unschedulable"))


@dataclasses.dataclass(frozen=True, slots=True)
class PlacementResult:
    """A node and the reasons why the job cannot run on it, none when it can.

    ``room``: for how many pods of the job its GPUs suffice, None for a job without GPUs. ``island``: by its label.
    """

    node: str
    reasons: tuple[str, ...]
    room: int | None = None
    island: str | None = None


def judge_nodes(
    job: Job,
    nodes: t.Iterable[KubeObject],
    gpu_resource: str = "nvidia.com/gpu",
    tolerations: t.Sequence[t.Mapping[str, object]] = (),
    node_labels: t.Mapping[str, str] = MappingProxyType({}),
    *,
    fabric: bool = True,
) -> tuple[PlacementResult, ...]:
    """Return the placement result of each live Node, in the order of their names.

    :param tolerations: those that a queue adds to the pods' own.
    :param node_labels: the node selector that the queue adds.
    :param fabric: whether the last verification of the nodes' network counts; it does not for the next verification.
    """
    results = []
    for node in nodes:
        room = gpu_count(node, gpu_resource) // job.gpus_per_node if job.gpus_per_node else None
        reasons = [*_node_reasons(job, node, gpu_resource, tolerations), *_flavor_reasons(node, node_labels)]
        reasons += _network_reasons(job, node) if fabric else []
        results.append(PlacementResult(node["metadata"]["name"], tuple(reasons), room, _labels(node).get(ISLAND_LABEL)))
    return tuple(sorted(results, key=lambda item: item.node))


def require_placement(job: Job, verdicts: t.Sequence[PlacementResult], one_a_node: bool = False) -> None:
    """Raise when the job cannot be placed on these nodes, with a table of the nodes.

    :param one_a_node: whether a node takes one pod of the job only; else as many as its GPUs suffice for.
    :raises RefusedError: with all in one line.
    """
    if job.engine == "rayjob" and job.placement.network_mode == "host" and len(verdicts) <= _pod_count(job):
        raise RefusedError(
            f"job.placement.network_mode: with host a Ray cluster of {_pod_count(job)} workers needs "
            f"{_pod_count(job) + 1} nodes, one for its head, and there are {len(verdicts)}",
            "Use network_mode: pod, or ask for fewer nodes",
        )
    fitting = [item for item in verdicts if not item.reasons]
    needed, rooms = _pod_count(job), _capacities(job, fitting, one_a_node)
    if sum(rooms) >= needed:
        return
    words = dict(zip((item.node for item in fitting), rooms, strict=True))
    each = "fits" if one_a_node or not job.gpus_per_node else "room for {}"
    table = [f"{item.node} ({', '.join(item.reasons) or each.format(words[item.node])})" for item in verdicts]
    shown = "; ".join(table[:_SHOWN]) + (f"; and {len(table) - _SHOWN} more" if len(table) > _SHOWN else "")
    short = f"{needed} are needed" if one_a_node else "at least one is needed"
    if fitting and not one_a_node:
        short = f"with room for {sum(rooms)} of {needed} pods"
    raise RefusedError(
        f"job.placement: {len(fitting)} of {len(verdicts)} nodes fit, {short}: {shown or 'no nodes'}",
        "Add nodes, or request what they offer"
        + ("; jobs of a queue tolerate a taint when its ResourceFlavor does" if "(taint " in shown else ""),
    )


def island_capacity(
    job: Job, verdicts: t.Sequence[PlacementResult], one_a_node: bool, *, by_queue: bool
) -> dict[str, int]:
    """Return how many pods of the gang each island has room for; empty when the islands do not matter.

    :param by_queue: whether the queue has a topology of islands, so that the whole gang is admitted to one of them.
    """
    if not _needs_one_island(job, by_queue):
        return {}
    fitting = [item for item in verdicts if not item.reasons]
    capacity: collections.Counter[str] = collections.Counter()
    for item, room in zip(fitting, _capacities(job, fitting, one_a_node), strict=True):
        if item.island:
            capacity[item.island] += room
        elif not by_queue:
            # A node that was never verified may be on any island, and is used.
            return {}
    return dict(sorted(capacity.items())) if by_queue or len(capacity) > 1 else {}


def islands_with_room(job: Job, rooms: t.Mapping[str, int]) -> tuple[str, ...]:
    """Return the islands that have room for the whole gang."""
    return tuple(name for name, room in rooms.items() if room >= _pod_count(job))


def require_island(job: Job, rooms: t.Mapping[str, int], *, by_queue: bool) -> None:
    """Raise when a gang fits into no island, or into several and the job names none of them.

    A queue of islands admits a single pod to one of them, too: without labels it would wait there for ever.

    :raises RefusedError: with the room of each island.
    """
    fitting = islands_with_room(job, rooms)
    if not fitting and not rooms and _needs_one_island(job, by_queue) and by_queue:
        raise RefusedError(
            f"job.nodes: no island has room for {_pod_count(job)} pods (no node has an island label)",
            "Verify the fabric first (playbook verify_fabric): it labels the nodes",
        )
    if not fitting and rooms:
        table = ", ".join(f"{name} has room for {room}" for name, room in rooms.items())
        fix = f"Ask for fewer nodes so that one island has room, {'or ' if by_queue else ''}{FEDERATED}"
        more = "" if by_queue else ", or set job.placement.allow_slow_network: true"
        problem = f"job.nodes: no island has room for {_pod_count(job)} pods ({table}); on several islands: "
        raise RefusedError(problem + advice.describe_slow_step(job), fix + more)
    if len(fitting) > 1 and not by_queue:
        raise RefusedError(
            f"job.placement.island: several islands have room ({', '.join(fitting)}), and without a choice the gang "
            "could be split by a slow network",
            "Name one of them, use a queue whose topology has islands, or set job.placement.allow_slow_network: true",
        )


def _needs_one_island(job: Job, by_queue: bool) -> bool:
    """Return whether the gang has to be on one island that the job does not name."""
    return not job.placement.island and (by_queue or (job.nodes > 1 and not job.placement.allow_slow_network))


def _pod_count(job: Job) -> int:
    """Return for how many pods there must be room: an elastic gang starts with fewer."""
    return job.elastic.min or job.nodes


def _capacities(job: Job, fitting: t.Sequence[PlacementResult], one_a_node: bool) -> list[int]:
    """Return how many pods each node takes; pods without GPUs are left to the scheduler."""
    return [1 if one_a_node else _pod_count(job) if item.room is None else item.room for item in fitting]


def rdma_resource(
    job: Job, nodes: t.Sequence[KubeObject], tolerations: t.Sequence[t.Mapping[str, object]] = ()
) -> str | None:
    """Return the RDMA resource of which each pod gets one, None for a job without RDMA.

    A job that requests it gets it; a job with GPUs that does not say gets it when every node that it may run on offers
    it. A job without GPUs that does not say gets none: a queue could refuse it for that.
    """
    if job.resources.rdma is False or (job.resources.rdma is None and not job.gpus_per_node):
        return None
    fitting = [node for node in nodes if not any(_node_reasons(job, node, "nvidia.com/gpu", tolerations))]
    offered = collections.Counter(name for node in fitting for name in _rdma_resources(node))
    name, count = next(iter(offered.most_common(1)), (None, 0))
    return name if job.resources.rdma or count == len(fitting) else None


def node_expressions(
    job: Job, nodes: t.Iterable[KubeObject], island: str | None = None, *, fabric: bool = True
) -> tuple[JsonObject, ...]:
    """Return the node selector expressions of the job's requirements, by labels that every fitting node has.

    A gang avoids nodes that failed verification and slow networks, unless it allows them. ``island`` is the gang's
    island when the job names none. The job names part of a GPU's model, which a label selector cannot match: all
    products that fit are listed.
    """
    expressions: list[JsonObject] = []
    chosen = job.placement.island or island
    if chosen:
        expressions.append(_in_expression(ISLAND_LABEL, chosen))
    for kind in job.placement.required_network_types:
        expressions.append(_in_expression(NETWORK_LABEL.format(kind), "true"))
    if job.nodes > 1 and fabric:
        slow = job.placement.allow_slow_network
        expressions.append({"key": LANE_LABEL, "operator": "NotIn", "values": ["E"] if slow else ["D", "E"]})
        if not slow:
            expressions.append({"key": FABRIC_LABEL, "operator": "NotIn", "values": ["fail"]})
    if job.gpu.model:
        products = {_labels(node).get(_PRODUCT, "") for node in nodes}
        fitting = sorted(name for name in products if _is_model(name, str(job.gpu.model)))
        expressions.append(_in_expression(_PRODUCT, *(fitting or [job.gpu.model])))
    if job.gpu.memory_gib_min:
        limit = int(job.gpu.memory_gib_min * 1024 * _MEMORY_SHARE)
        expressions.append({"key": _MEMORY, "operator": "Gt", "values": [str(limit - 1)]})
    if job.gpu.arch:
        expressions.append(_in_expression(_FAMILY, job.gpu.arch.lower()))
    return tuple(expressions)


def pending_storage_class(claim: KubeObject) -> str:
    """Return the StorageClass of a claim that has no volume yet, empty for other claims."""
    waits = (claim.get("status") or {}).get("phase") == "Pending"
    return str((claim.get("spec") or {}).get("storageClassName") or "") if waits else ""


def check_volumes(
    job: Job, live: t.Mapping[str, KubeObject], namespace: str, classes: t.Collection[str] | None = None
) -> None:
    """Raise for claims that will get no volume or that several pods cannot use at the same time.

    :param live: the PersistentVolumeClaims of the job's namespace by name.
    :param classes: the names of the cluster's StorageClasses, None when they were not read.
    :raises RefusedError: naming the claim.
    """
    for mount in job.mounts:
        if mount.pvc is None:
            continue
        if mount.pvc not in live:
            raise RefusedError(
                f"{_pvc_title(mount)} does not exist in the namespace {namespace}",
                "Create it, name another, or set placement.namespace",
            )
        _check_volume(job, mount, live[mount.pvc], classes)


def _pvc_title(mount: Mount) -> str:
    return f"job.mounts.{mount.name}: PersistentVolumeClaim {mount.pvc}"


def _check_volume(job: Job, mount: Mount, claim: KubeObject, classes: t.Collection[str] | None) -> None:
    title = _pvc_title(mount)
    if (claim.get("status") or {}).get("phase") == "Lost" or claim["metadata"].get("deletionTimestamp"):
        raise RefusedError(f"{title} is being deleted or has lost its volume")
    wanted = pending_storage_class(claim)
    if classes is not None and wanted and wanted not in classes:
        names = f"the cluster has {', '.join(sorted(classes))}" if classes else "the cluster has none"
        raise RefusedError(
            f"{title} has no volume, and its StorageClass {wanted} does not exist ({names})",
            "Create the claim again with a StorageClass of the cluster, or name another claim",
        )
    modes = set(claim["spec"].get("accessModes") or ())
    enough = {"ReadWriteMany", *(["ReadOnlyMany"] if mount.read_only else [])}
    # A single worker and the extra pod of its engine may run on the one node that has the volume.
    if job.nodes > 1 and not modes & enough:
        count = job.nodes + (1 if job.engine in _ENGINES_WITH_EXTRA_POD else 0)
        raise RefusedError(
            f"{title} allows {', '.join(sorted(modes))}, but {count} pods, possibly on several nodes, would mount it",
            "Use a claim with access mode ReadWriteMany",
        )
    if modes == {"ReadOnlyMany"} and not mount.read_only:
        raise RefusedError(f"{title} is read-only", "Set read_only: true")


def _node_reasons(
    job: Job, node: KubeObject, gpu_resource: str, tolerations: t.Sequence[t.Mapping[str, object]]
) -> t.Iterator[str]:
    """Yield why a node cannot take one of the job's pods; tolerated taints are no reason."""
    own: JsonObject = {"key": gpu_resource, "operator": "Exists", "effect": "NoSchedule"}
    yield from _state_reasons(node, [*([own] if job.gpus_per_node else []), *tolerations])
    labels = _labels(node)
    if job.placement.island and labels.get(ISLAND_LABEL) != job.placement.island:
        yield f"island {labels.get(ISLAND_LABEL) or 'unknown'}"
    for kind in job.placement.required_network_types:
        if labels.get(NETWORK_LABEL.format(kind)) != "true":
            yield f"no {kind} network"
    if job.resources.rdma and not _rdma_resources(node):
        yield "no RDMA device"
    yield from _gpu_reasons(job, node, gpu_resource)


def _network_reasons(job: Job, node: KubeObject) -> t.Iterator[str]:
    """Yield why the last verification of the node's network excludes a gang, by the rules of plain hosts."""
    lane, outcome = _labels(node).get(LANE_LABEL), _labels(node).get(FABRIC_LABEL)
    if job.nodes < 2:
        return
    if lane == "E" or (lane == "D" and not job.placement.allow_slow_network):
        yield f"lane {lane}"
    if outcome == "fail" and not job.placement.allow_slow_network:
        yield "fabric failed verification"


def _flavor_reasons(node: KubeObject, wanted: t.Mapping[str, str]) -> t.Iterator[str]:
    """Yield which labels of the queue's flavor the node does not have."""
    for key, value in wanted.items():
        if _labels(node).get(key) != value:
            yield f"not of the queue's flavor ({key}={value})"


def _rdma_resources(node: KubeObject) -> list[str]:
    offered = (node.get("status", {}).get("allocatable") or {}).items()
    return [name for name, count in offered if "rdma/" in name and str(count) != "0"]


def _state_reasons(node: KubeObject, tolerations: t.Sequence[t.Mapping[str, object]]) -> t.Iterator[str]:
    conditions = {item["type"]: item["status"] for item in node.get("status", {}).get("conditions") or ()}
    if conditions.get("Ready") != "True":
        yield "not ready"
    spec = node.get("spec") or {}
    if spec.get("unschedulable"):
        yield "cordoned"
    for taint in spec.get("taints") or ():
        # Taints of the node's state are reported above; the queue or the job may tolerate others.
        tolerated = taint["key"] in _STATE_TAINTS or any(_is_tolerated(item, taint) for item in tolerations)
        if taint["effect"] != "PreferNoSchedule" and not tolerated:
            yield f"taint {taint['key']}"


def _is_tolerated(toleration: t.Mapping[str, object], taint: t.Mapping[str, str]) -> bool:
    """Return whether a toleration tolerates a taint, by Kubernetes' rules."""
    if toleration.get("effect") not in (None, "", taint["effect"]):
        return False
    if toleration.get("operator") == "Exists":
        return toleration.get("key") in (None, "", taint["key"])
    return (toleration.get("key"), toleration.get("value") or "") == (taint["key"], taint.get("value") or "")


def _gpu_reasons(job: Job, node: KubeObject, gpu_resource: str) -> t.Iterator[str]:
    if not job.gpus_per_node:
        return
    labels = _labels(node)
    count = gpu_count(node, gpu_resource)
    if count < job.gpus_per_node:
        yield f"{count} GPUs"
    if job.gpu.model and not _is_model(labels.get(_PRODUCT, ""), job.gpu.model):
        yield labels.get(_PRODUCT) or "GPU unknown"
    if job.gpu.memory_gib_min:
        memory = labels.get(_MEMORY, "")
        if not memory.isdecimal() or int(memory) < int(job.gpu.memory_gib_min * 1024 * _MEMORY_SHARE):
            yield f"{int(memory) // 1024} GiB of GPU memory" if memory.isdecimal() else "GPU memory unknown"
    if job.gpu.arch and labels.get(_FAMILY) != job.gpu.arch.lower():
        yield f"GPU family {labels.get(_FAMILY) or 'unknown'}"


def gpu_count(node: KubeObject, gpu_resource: str = "nvidia.com/gpu") -> int:
    """Return how many GPUs a live Node has for pods."""
    return int((node.get("status", {}).get("allocatable") or {}).get(gpu_resource, "0"))


def _labels(node: KubeObject) -> dict[str, str]:
    return node["metadata"].get("labels") or {}


def _is_model(product: str, wanted: str) -> bool:
    """Return whether a product label is of the wanted model; labels have dashes for spaces."""
    return wanted.lower().replace(" ", "-") in product.lower()


def _in_expression(key: str, *values: str) -> JsonObject:
    return {"key": key, "operator": "In", "values": list(values)}
