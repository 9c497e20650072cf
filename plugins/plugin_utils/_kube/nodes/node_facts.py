# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Facts of a cluster's nodes: a short pod on each that asks its kernel, and what the Node object itself says.

The pod uses the node's own network where the namespace allows it, so that it sees the node's interfaces. It asks for no
device, and so runs beside a job that holds all of them. Pure: the same values give the same objects.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import dataclasses
import shlex
import typing as t
from collections.abc import Mapping, Sequence

from ..api.kinds import KubeObject

CONTAINER = "facts"
LABEL = "muster.training/facts"
_PLACE = "/muster/request"
_GPU = "nvidia.com/gpu"
# Enough for an image that a node has not yet.
_DEADLINE_S = 600


@dataclasses.dataclass(frozen=True, slots=True)
class NodeFactsRequest:
    """What the pods share. ``command`` is a shell command that reads ``request`` on its standard input."""

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


def pod_name(asked: NodeFactsRequest, index: int) -> str:
    """Return the name of the pod on the node at a place of the list."""
    return f"{asked.name}-{index}"


def build_objects(asked: NodeFactsRequest, nodes: Sequence[str]) -> list[KubeObject]:
    """Return the request as a ConfigMap, and a pod for each node, in their order."""
    return [_build_config_map(asked), *(_build_pod(asked, index, node) for index, node in enumerate(nodes))]


def node_record(node: Mapping[str, t.Any]) -> dict[str, t.Any]:
    """Return what a live Node tells for the record of a node: what a pod without devices cannot see, or not surely."""
    meta, status = node["metadata"], node.get("status") or {}
    labels = meta.get("labels") or {}
    count = str((status.get("allocatable") or {}).get(_GPU, ""))
    memory = str(labels.get(f"{_GPU}.memory", ""))
    gpu = {
        "count": int(count) if count.isdecimal() else 0,
        "model": labels.get(f"{_GPU}.product"),
        "memory_gib": round(int(memory) / 1024, 1) if memory.isdecimal() else None,
        "arch": labels.get(f"{_GPU}.family"),
    }
    lan = [{"address": item["address"]} for item in status.get("addresses") or [] if item.get("type") == "InternalIP"]
    return {
        "name": meta["name"],
        "gpu": {key: value for key, value in gpu.items() if value is not None},
        "region": labels.get("topology.kubernetes.io/region"),
        "addresses": {"lan": lan},
        "kernel": (status.get("nodeInfo") or {}).get("kernelVersion"),
    }


def merge_record(facts: Mapping[str, t.Any], node: Mapping[str, t.Any], *, host_network: bool) -> dict[str, t.Any]:
    """Return the record of a node from its pod's facts and its Node object.

    Without the node's own network a pod has seen interfaces and addresses that are the pod's: those are left out, and
    the address that the Node object names is what is known.
    """
    own = node_record(node)
    seen = dict(facts)
    if not host_network:
        for key in ("addresses", "interfaces", "network_types", "interface_for", "mesh_path"):
            seen.pop(key, None)
        seen["nics"] = [item for item in seen.get("nics") or [] if item.get("rdma")]
    found = {**{key: value for key, value in own.items() if value is not None}, **seen, "name": own["name"]}
    found["gpu"] = {**(seen.get("gpu") or {}), **own["gpu"]}
    return found


def _build_config_map(asked: NodeFactsRequest) -> KubeObject:
    meta = {"name": asked.name, "namespace": asked.namespace, "labels": {LABEL: asked.name}}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"request": asked.request}}


def _build_pod(asked: NodeFactsRequest, index: int, node: str) -> KubeObject:
    here = {"key": "metadata.name", "operator": "In", "values": [node]}
    term = {"nodeSelectorTerms": [{"matchFields": [here]}]}
    container: KubeObject = {
        "name": CONTAINER,
        "image": asked.image,
        "command": ["sh", "-c", f"{asked.command} < {shlex.quote(_PLACE + '/request')}"],
        "resources": {"requests": {"cpu": "10m", "memory": "64Mi"}, "limits": {"memory": "256Mi"}},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "volumeMounts": [{"name": "request", "mountPath": _PLACE, "readOnly": True}],
    }
    spec: KubeObject = {
        "restartPolicy": "Never",
        "activeDeadlineSeconds": _DEADLINE_S,
        "terminationGracePeriodSeconds": 1,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": term}},
        "tolerations": [{"key": _GPU, "operator": "Exists", "effect": "NoSchedule"}],
        "containers": [container],
        "volumes": [{"name": "request", "configMap": {"name": asked.name}}],
    }
    if asked.host_network:
        spec.update(hostNetwork=True, dnsPolicy="ClusterFirstWithHostNet")
    if asked.pull_secrets:
        spec["imagePullSecrets"] = [{"name": name} for name in asked.pull_secrets]
    meta = {"name": pod_name(asked, index), "namespace": asked.namespace, "labels": {LABEL: asked.name}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}
