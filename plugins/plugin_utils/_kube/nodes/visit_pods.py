# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Builds a short pod on each of some nodes, each with a request of its own that no other pod reads.

They are in the network of pods, as those of a job are. Pure: the same values give the same objects.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import dataclasses
import typing as t

from ..api.kinds import JsonObject, KubeObject, ObjectMeta
from ..objects.secrets import build_secret
from ..objects.short_pod import build_short_pod_spec

CONTAINER: t.Final = "visit"
LABEL: t.Final = "muster.training/visit"
_REQUEST: t.Final = "/muster/request"
_PROGRAM: t.Final = "/muster/program"
_GPU: t.Final = "nvidia.com/gpu"


@dataclasses.dataclass(frozen=True, slots=True)
class Visit:
    """Short pods. ``command`` is a shell command that reads ``program`` and then a request on its standard input."""

    name: str
    namespace: str
    image: str
    command: str
    program: str
    pull_secrets: tuple[str, ...] = ()

    @property
    def selector(self) -> str:
        """Return the label selector of the pods."""
        return f"{LABEL}={self.name}"

    def pod_name(self, index: int) -> str:
        """Return the name of the pod on the node with this index in the list."""
        return f"{self.name}-{index}"


def build_objects(visit: Visit, requests: t.Mapping[str, bytes]) -> list[KubeObject]:
    """Return the program as a ConfigMap, and for each node (name -> request) a Secret and a pod, the pods last."""
    rows = [(visit.pod_name(index), node, text) for index, (node, text) in enumerate(requests.items())]
    secrets = [build_secret(_meta(visit, name), "Opaque", {"request": text.decode()}, {}) for name, _node, text in rows]
    program: KubeObject = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": _meta(visit, visit.name),
        "data": {"program": visit.program},
    }
    return [program, *secrets, *(_build_pod(visit, name, node) for name, node, _text in rows)]


def takes_jobs(node: KubeObject) -> bool:
    """Return whether pods of jobs may come to a node: it is ready and has no taint but that of GPU nodes."""
    spec: t.Any = node.get("spec") or {}
    conditions: t.Any = (node.get("status") or {}).get("conditions") or []
    ready = any(item.get("type") == "Ready" and item.get("status") == "True" for item in conditions)
    closed = [item for item in spec.get("taints") or [] if item.get("effect") in ("NoSchedule", "NoExecute")]
    return ready and not spec.get("unschedulable") and all(item.get("key") == _GPU for item in closed)


def _meta(visit: Visit, name: str) -> ObjectMeta:
    return {"name": name, "namespace": visit.namespace, "labels": {LABEL: visit.name}}


def _build_pod(visit: Visit, name: str, node: str) -> KubeObject:
    container: JsonObject = {
        "name": CONTAINER,
        "image": visit.image,
        "command": ["sh", "-c", f"cat {_PROGRAM}/program {_REQUEST}/request | ({visit.command})"],
        "resources": {"requests": {"cpu": "10m", "memory": "64Mi"}, "limits": {"memory": "512Mi"}},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "volumeMounts": [
            {"name": "program", "mountPath": _PROGRAM, "readOnly": True},
            {"name": "request", "mountPath": _REQUEST, "readOnly": True},
        ],
    }
    volumes: list[JsonObject] = [
        {"name": "program", "configMap": {"name": visit.name}},
        {"name": "request", "secret": {"secretName": name}},
    ]
    spec = build_short_pod_spec(container, volumes, visit.pull_secrets, node=node)
    return {"apiVersion": "v1", "kind": "Pod", "metadata": _meta(visit, name), "spec": spec}
