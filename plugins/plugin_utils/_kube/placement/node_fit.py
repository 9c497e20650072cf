# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Judges each node of a cluster: can it take a pod of a job, and if not, why? Nothing is submitted yet."""

from __future__ import annotations

import collections
import dataclasses
import typing as t
from decimal import Decimal
from types import MappingProxyType

from ....module_utils._model.gpu_stack_plan import REPLICAS, SHARING, describe_sharing
from ....module_utils._model.job import Job
from ....module_utils._model.quantity import parse_quantity
from ....module_utils._model.rdma_resources import list_resources, read_annotation
from ..api.kinds import JsonObject, KubeObject
from ..jobs.spec import FABRIC_LABEL, ISLAND_LABEL, LANE_LABEL, NETWORK_LABEL
from ..nodes.gpu_claims import read_device_class

# GPU feature discovery writes these.
_PRODUCT, _MEMORY, _FAMILY = "nvidia.com/gpu.product", "nvidia.com/gpu.memory", "nvidia.com/gpu.family"
# In the product's name of GPUs in slices, with the strategy single.
_MIG = "-MIG-"
# A card sold as 80 GiB reports a little less.
_MEMORY_SHARE = 0.95
_STATE_TAINTS = frozenset(f"node.kubernetes.io/{state}" for state in ("not-ready", "unreachable", "unschedulable"))


@dataclasses.dataclass(frozen=True, slots=True)
class NodeFit:
    """A node and the reasons why the job cannot run on it, none when it can.

    ``room``: for how many pods of the job its GPUs suffice, None for a job without GPUs. ``island``: by its label.
    ``is_able``: nothing of the node itself keeps the job off; its network or the queue may. ``rdma``: its RDMA
    resources, by name.
    """

    node: str
    reasons: tuple[str, ...]
    room: int | None = None
    island: str | None = None
    is_able: bool = True
    rdma: tuple[str, ...] = ()
    uid: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class JudgedNodes:
    """The nodes of a cluster as a job sees them, judged once.

    ``fits``: each node. ``expressions``: what a node selector asks of them. ``rdma_resource``: of which each pod gets
    one, None without RDMA. ``whole_node``: a pod takes all of a node. ``is_readable``: this user may read nodes; else
    the scheduler alone decides. ``device_class``: by which pods claim GPUs (DRA), None where they request them.
    """

    fits: tuple[NodeFit, ...]
    expressions: tuple[JsonObject, ...] = ()
    rdma_resource: str | None = None
    whole_node: bool = False
    is_readable: bool = True
    device_class: str | None = None


def judge_cluster(
    job: Job,
    nodes: t.Sequence[KubeObject] | None,
    tolerations: t.Sequence[t.Mapping[str, object]] = (),
    node_labels: t.Mapping[str, str] = MappingProxyType({}),
    *,
    fabric: bool = True,
) -> JudgedNodes:
    """Return a cluster's nodes as the job sees them; the parameters are those of :func:`judge_nodes`.

    :param nodes: the live Nodes, None where they cannot be read.
    """
    live = nodes or ()
    fits = judge_nodes(job, live, tolerations=tolerations, node_labels=node_labels, fabric=fabric)
    return JudgedNodes(
        fits,
        expressions=node_expressions(job, live, fabric=fabric),
        rdma_resource=find_rdma_resource(job, fits),
        whole_node=takes_whole_node(job, live),
        is_readable=nodes is not None,
        device_class=read_device_class(live) if job.gpus_per_node else None,
    )


def judge_nodes(
    job: Job,
    nodes: t.Iterable[KubeObject],
    gpu_resource: str = "nvidia.com/gpu",
    tolerations: t.Sequence[t.Mapping[str, object]] = (),
    node_labels: t.Mapping[str, str] = MappingProxyType({}),
    *,
    fabric: bool = True,
) -> tuple[NodeFit, ...]:
    """Return how each live Node fits, in the order of their names.

    :param tolerations: those that a queue adds to the pods' own.
    :param node_labels: the node selector that the queue adds.
    :param fabric: whether the last verification of the nodes' network counts; it does not for the next verification.
    """
    results = []
    for node in nodes:
        room = gpu_count(node, gpu_resource) // job.gpus_per_node if job.gpus_per_node else None
        own = tuple(_node_reasons(job, node, gpu_resource, tolerations))
        reasons = (*own, *_flavor_reasons(node, node_labels), *(_network_reasons(job, node) if fabric else ()))
        island, rdma = _labels(node).get(ISLAND_LABEL), tuple(_rdma_resources(job, node))
        name = str(node["metadata"]["name"])
        results.append(NodeFit(name, reasons, room, island, not own, rdma, str(node["metadata"].get("uid") or name)))
    return tuple(sorted(results, key=lambda item: item.node))


def find_rdma_resource(job: Job, fits: t.Iterable[NodeFit]) -> str | None:
    """Return the RDMA resource of which each pod gets one, None for a job without RDMA.

    A job that requests it gets it; a job with GPUs that does not say gets it when every node that it may run on offers
    it. A job without GPUs that does not say gets none: a queue could refuse it for that.
    """
    if job.resources.rdma is False or (job.resources.rdma is None and not job.gpus_per_node):
        return None
    able = [item for item in fits if item.is_able]
    offered = collections.Counter(name for item in able for name in item.rdma)
    name, count = next(iter(offered.most_common(1)), (None, 0))
    return name if job.resources.rdma or count == len(able) else None


def read_hcas(nodes: t.Iterable[KubeObject]) -> dict[str, dict[str, str]]:
    """Return the variables of nodes of whose HCAs pods get a part: pods see all, and can open these only."""
    facts = {
        str(node["metadata"]["name"]): read_annotation(node["metadata"].get("annotations") or {}) for node in nodes
    }
    return {name: {"NCCL_IB_HCA": item.nccl_ib_hca} for name, item in facts.items() if item and item.nccl_ib_hca}


def node_expressions(job: Job, nodes: t.Sequence[KubeObject], *, fabric: bool = True) -> tuple[JsonObject, ...]:
    """Return the node selector expressions of the job's requirements, by labels that every fitting node has.

    A gang avoids nodes that failed verification and slow networks, unless it allows them. The job names part of a GPU's
    model, which a label selector cannot match: all products that fit are listed.
    """
    expressions: list[JsonObject] = []
    if job.placement.island:
        expressions.append(island_expression(job.placement.island))
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
    if is_gpu_gang(job):
        expressions += _unshared_expressions(nodes)
    sliced = sorted({name for node in nodes if _MIG in (name := _labels(node).get(_PRODUCT, ""))})
    if sliced and job.gpus_per_node > 1:
        expressions.append({"key": _PRODUCT, "operator": "NotIn", "values": sliced})
    return tuple(expressions)


def _unshared_expressions(nodes: t.Iterable[KubeObject]) -> t.Iterator[JsonObject]:
    """Yield what keeps pods from nodes whose GPUs are shared; nothing where there are none."""
    shared = [labels for node in nodes if describe_sharing(labels := _labels(node))]
    for key in (SHARING, REPLICAS):
        values = {labels.get(key, "") for labels in shared} - {"", "none", "0", "1"}
        if values:
            yield {"key": key, "operator": "NotIn", "values": sorted(values)}


def is_gpu_gang(job: Job) -> bool:
    """Return whether several processes of a job have a GPU each: two of them on one GPU cannot form a gang (NCCL)."""
    return job.nodes * job.gpus_per_node > 1


def takes_whole_node(job: Job, nodes: t.Iterable[KubeObject]) -> bool:
    """Return whether a pod takes all GPUs of every node that has enough of them."""
    counts = [gpu_count(node) for node in nodes] if job.gpus_per_node else []
    return max((count for count in counts if count >= job.gpus_per_node), default=0) == job.gpus_per_node > 0


def pods_that_fit(job: Job, node: KubeObject, gpu_resource: str = "nvidia.com/gpu") -> int | None:
    """Return how many of the job's pods an empty node could take by their requests, None without any request."""
    has = node.get("status", {}).get("allocatable") or {}
    wanted = {gpu_resource: job.gpus_per_node, "cpu": job.resources.cpu or 0, "memory": job.resources.memory or 0}
    rooms = [
        int((parse_quantity(str(has.get(name) or "0")) or Decimal(0)) / Decimal(str(amount)))
        for name, amount in wanted.items()
        if amount
    ]
    return min(rooms, default=None)


def island_expression(island: str) -> JsonObject:
    """Return the node selector expression that keeps a gang on an island."""
    return _in_expression(ISLAND_LABEL, island)


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
    if job.resources.rdma and not _rdma_resources(job, node):
        yield f"no {job.resources.rdma}" if isinstance(job.resources.rdma, str) else "no RDMA device"
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


def _rdma_resources(job: Job, node: KubeObject) -> list[str]:
    """Return the RDMA resources of a node that a job may get: the one that it names, else all of them."""
    offered, named = node.get("status", {}).get("allocatable") or {}, job.resources.rdma
    if isinstance(named, str):
        return [named] if str(offered.get(named, "0")) != "0" else []
    return list_resources(offered)


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
    if is_gpu_gang(job) and (sharing := describe_sharing(labels)):
        yield f"GPUs shared between pods ({sharing})"
    if job.gpus_per_node > 1 and _MIG in labels.get(_PRODUCT, ""):
        yield f"MIG slices ({labels[_PRODUCT]}), of which a pod's program can use one"
    if job.gpu.arch and labels.get(_FAMILY) != job.gpu.arch.lower():
        yield f"GPU family {labels.get(_FAMILY) or 'unknown'}"


def gpu_count(node: KubeObject, gpu_resource: str = "nvidia.com/gpu") -> int:
    """Return how many GPUs a live Node has for pods."""
    return int((node.get("status", {}).get("allocatable") or {}).get(gpu_resource, "0"))


def gpu_requests(pod: KubeObject, gpu_resource: str = "nvidia.com/gpu") -> int:
    """Return how many GPUs a pod requests."""
    containers = (pod.get("spec") or {}).get("containers") or ()
    return sum(int(((item.get("resources") or {}).get("limits") or {}).get(gpu_resource) or 0) for item in containers)


def has_ended(pod: KubeObject) -> bool:
    """Return whether a pod has ended, so that what it requested is free."""
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def _labels(node: KubeObject) -> dict[str, str]:
    return node["metadata"].get("labels") or {}


def _is_model(product: str, wanted: str) -> bool:
    """Return whether a product label is of the wanted model; labels have dashes for spaces."""
    return wanted.lower().replace(" ", "-") in product.lower()


def _in_expression(key: str, *values: str) -> JsonObject:
    return {"key": key, "operator": "In", "values": list(values)}
