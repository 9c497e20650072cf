# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads the facts of a cluster's nodes: by a short pod on each node, and from its Node object.

The pod uses the node's own network where the namespace allows it, so that it sees the node's interfaces. It requests no
device, so that it can run beside a job that holds all of them. Pure: the same values give the same objects.
"""

from __future__ import annotations

import dataclasses
import shlex
import typing as t
from collections.abc import Mapping, Sequence

from ....module_utils._model.node import Node
from ....module_utils._model.node_facts import merge_facts
from ..api.kinds import JsonObject, KubeObject, ObjectMeta
from ..objects.short_pod import build_short_pod_spec

CONTAINER = "facts"
LABEL = "muster.training/facts"
_MOUNT_PATH = "/muster/request"
_GPU = "nvidia.com/gpu"


@dataclasses.dataclass(frozen=True, slots=True)
class NodeFactsRequest:
    """The request for facts. ``command`` is a shell command that reads ``request`` on its standard input."""

    name: str
    namespace: str
    image: str
    command: str
    request: str
    host_network: bool = True
    pull_secrets: tuple[str, ...] = ()

    @property
    def selector(self) -> str:
        """Return the label selector of the pods."""
        return f"{LABEL}={self.name}"


def pod_name(request: NodeFactsRequest, index: int) -> str:
    """Return the name of the pod on the node with this index in the list."""
    return f"{request.name}-{index}"


def build_objects(request: NodeFactsRequest, nodes: Sequence[str]) -> list[KubeObject]:
    """Return the request as a ConfigMap, and a pod for each node, in their order."""
    return [_build_config_map(request), *(_build_pod(request, index, node) for index, node in enumerate(nodes))]


def node_record(node: KubeObject) -> dict[str, object]:
    """Return the part of a node's record that comes from its live Node: what a pod without devices cannot read."""
    meta, status = node["metadata"], node.get("status") or {}
    labels = meta.get("labels") or {}
    lan = [{"address": item["address"]} for item in status.get("addresses") or [] if item.get("type") == "InternalIP"]
    return {
        "name": meta["name"],
        "gpu": _gpu_record(status, labels),
        "region": labels.get("topology.kubernetes.io/region"),
        "addresses": {"lan": lan},
        "kernel": (status.get("nodeInfo") or {}).get("kernelVersion"),
    }


def _gpu_record(status: Mapping[str, object], labels: Mapping[str, str]) -> dict[str, object]:
    allocatable = status.get("allocatable")
    count = str(allocatable.get(_GPU, "") if isinstance(allocatable, Mapping) else "")
    memory = str(labels.get(f"{_GPU}.memory", ""))
    record = {
        "count": int(count) if count.isdecimal() else 0,
        "model": labels.get(f"{_GPU}.product"),
        "memory_gib": round(int(memory) / 1024, 1) if memory.isdecimal() else None,
        "arch": labels.get(f"{_GPU}.family"),
    }
    return {key: value for key, value in record.items() if value is not None}


def read_node(facts: Mapping[str, t.Any], node: KubeObject, *, host_network: bool) -> Node:
    """Return what was measured of a node: by its pod, and by its kubelet, which knows of devices that the pod lacks.

    Without the node's own network the interfaces and addresses in the facts are the pod's: they are left out, and the
    address of the Node object is used.
    """
    from_node, from_pod = node_record(node), dict(facts)
    # It is in the image, of which every pod of the job has one.
    from_pod.pop("topology_file", None)
    if not host_network:
        for key in ("addresses", "interfaces", "network_types", "interface_for", "mesh_path"):
            from_pod.pop(key, None)
        from_pod["nics"] = [item for item in from_pod.get("nics") or [] if item.get("rdma")]
    name = str(from_node["name"])
    gpu = {**(from_pod.get("gpu") or {}), **t.cast("dict[str, object]", from_node["gpu"])}
    measured = Node.from_dict({**from_pod, "gpu": gpu, "name": name}, f"node {name}")
    return merge_facts(Node.from_dict(from_node, f"node {name}"), measured)


def _build_config_map(request: NodeFactsRequest) -> KubeObject:
    meta: ObjectMeta = {"name": request.name, "namespace": request.namespace, "labels": {LABEL: request.name}}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"request": request.request}}


def _build_pod(request: NodeFactsRequest, index: int, node: str) -> KubeObject:
    container: JsonObject = {
        "name": CONTAINER,
        "image": request.image,
        "command": ["sh", "-c", f"{request.command} < {shlex.quote(_MOUNT_PATH + '/request')}"],
        "resources": {"requests": {"cpu": "10m", "memory": "64Mi"}, "limits": {"memory": "256Mi"}},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "volumeMounts": [{"name": "request", "mountPath": _MOUNT_PATH, "readOnly": True}],
    }
    volumes: list[JsonObject] = [{"name": "request", "configMap": {"name": request.name}}]
    spec = build_short_pod_spec(container, volumes, request.pull_secrets, node=node)
    if request.host_network:
        spec.update(hostNetwork=True, dnsPolicy="ClusterFirstWithHostNet")
    meta: ObjectMeta = {
        "name": pod_name(request, index),
        "namespace": request.namespace,
        "labels": {LABEL: request.name},
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}
