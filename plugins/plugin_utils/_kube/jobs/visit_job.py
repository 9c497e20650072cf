# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Builds a short Job of one pod on each of some nodes: visits, each with a request of its own, and tests of devices.

Visits are in the network of pods, as those of a job are, and outside its queue, as its network test is. A member of a
team may make Jobs, and no pod of his own. Pure: the same values give the same objects.
"""

from __future__ import annotations

import dataclasses
import typing as t

from ....module_utils._model.gpu_stack_plan import GPU
from ..api.kinds import JsonObject, KubeObject, ObjectMeta
from ..objects import device_claims
from ..objects.secrets import build_secret
from ..objects.short_pod import build_short_pod_spec
from . import limit_range, pod_template

CONTAINER: t.Final = "visit"
LABEL: t.Final = "muster.training/visit"
# The label by which Kubernetes says which Job a pod is of.
JOB_LABEL: t.Final = "batch.kubernetes.io/job-name"
# Jobs that test devices, and the containers of their pods.
TEST_LABEL: t.Final = "muster.training/device-test"
WITH_DEVICES: t.Final = "devices"
WITHOUT: t.Final = "bare"
# In place of a node's name: the scheduler chooses.
ANY_NODE: t.Final = "any-node"
_REQUEST: t.Final = "/muster/request"
_PROGRAM: t.Final = "/muster/program"
_CORDON: t.Final[JsonObject] = {
    "key": "node.kubernetes.io/unschedulable",
    "operator": "Exists",
    "effect": "NoSchedule",
}
_DEADLINE_S: t.Final = 600
_TTL_S: t.Final = 60
_SIZE: t.Final[limit_range.Resources] = {"requests": {"cpu": "10m", "memory": "64Mi"}, "limits": {"memory": "512Mi"}}


@dataclasses.dataclass(frozen=True, slots=True)
class Visit:
    """Short Jobs. ``command`` is a shell command that reads ``program`` and then a request on its standard input.

    ``ranges``: the namespace's LimitRanges. ``folders``: of the node, in the pod at the same path; with ``claim``
    the one folder is the volume of this claim.
    """

    name: str
    namespace: str
    image: str
    command: str
    program: str
    pull_secrets: tuple[str, ...] = ()
    ranges: tuple[KubeObject, ...] = ()
    folders: tuple[str, ...] = ()
    claim: str = ""

    @property
    def selector(self) -> str:
        """Return the label selector of the Jobs and of their pods."""
        return f"{LABEL}={self.name}"

    def job_name(self, index: int) -> str:
        """Return the name of the Job for the node with this index in the list."""
        return f"{self.name}-{index}"


def build_objects(visit: Visit, requests: t.Mapping[str, bytes]) -> list[KubeObject]:
    """Return the program as a ConfigMap, and for each node (name -> request) a Secret and a Job, the Jobs last."""
    rows = [(visit.job_name(index), node, text) for index, (node, text) in enumerate(requests.items())]
    secrets = [build_secret(_meta(visit, name), "Opaque", {"request": text.decode()}, {}) for name, _node, text in rows]
    program: KubeObject = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": _meta(visit, visit.name),
        "data": {"program": visit.program},
    }
    return [program, *secrets, *(_build_job(visit, name, node) for name, node, _text in rows)]


def _meta(visit: Visit, name: str) -> ObjectMeta:
    return {"name": name, "namespace": visit.namespace, "labels": {LABEL: visit.name}}


def _build_job(visit: Visit, name: str, node: str) -> KubeObject:
    security: JsonObject = {"allowPrivilegeEscalation": False}
    if not visit.folders:
        # Files are used with what a job's own pods may do.
        security["capabilities"] = {"drop": ["ALL"]}
    shared = {f"folder-{number}": path for number, path in enumerate(visit.folders)}
    container: JsonObject = {
        "name": CONTAINER,
        "image": visit.image,
        "command": ["sh", "-c", f"cat {_PROGRAM}/program {_REQUEST}/request | ({visit.command})"],
        "resources": limit_range.apply_limits(_SIZE, visit.ranges),
        "securityContext": security,
        "volumeMounts": [
            {"name": "program", "mountPath": _PROGRAM, "readOnly": True},
            {"name": "request", "mountPath": _REQUEST, "readOnly": True},
            *({"name": key, "mountPath": path, **pod_template.SEEN_LATER} for key, path in shared.items()),
        ],
    }
    volumes: list[JsonObject] = [
        {"name": "program", "configMap": {"name": visit.name}},
        {"name": "request", "secret": {"secretName": name}},
        *({"name": key, **_build_folder(visit, path)} for key, path in shared.items()),
    ]
    place = None if node == ANY_NODE else node
    spec = build_short_pod_spec(container, volumes, visit.pull_secrets, node=place, deadline_s=_DEADLINE_S)
    meta = _meta(visit, name)
    body: JsonObject = {
        "backoffLimit": 0,
        "activeDeadlineSeconds": _DEADLINE_S,
        "ttlSecondsAfterFinished": _TTL_S,
        "template": {"metadata": {"labels": meta["labels"]}, "spec": spec},
    }
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": body}


def _build_folder(visit: Visit, path: str) -> JsonObject:
    if visit.claim:
        return {"persistentVolumeClaim": {"claimName": visit.claim}}
    return pod_template.build_node_folder(path)


@dataclasses.dataclass(frozen=True, slots=True)
class DeviceTest:
    """Short Jobs that run ``script``, a shell program. ``runtime_class``: of the pods, empty for none.

    ``cordoned``: whether they come to nodes that are cordoned, too. ``device_class``: by which they claim GPUs (DRA),
    None where they request them.
    """

    name: str
    namespace: str
    image: str
    script: str
    deadline_s: int
    runtime_class: str = ""
    pull_secrets: tuple[str, ...] = ()
    ranges: tuple[KubeObject, ...] = ()
    cordoned: bool = False
    device_class: str | None = None

    @property
    def selector(self) -> str:
        """Return the label selector of the Jobs and of their pods."""
        return f"{TEST_LABEL}={self.name}"

    def job_name(self, index: int) -> str:
        """Return the name of the Job for the node with this index in the list."""
        return f"{self.name}-{index}"


def build_device_tests(
    test: DeviceTest, devices: t.Mapping[str, t.Mapping[str, int]], node_network: t.Collection[str] = ()
) -> list[KubeObject]:
    """Return a Job for each node (name -> resource -> count), after the template of its claims where it has some.

    Its pod lists what it got; a second container requests no device, and must see none.

    :param node_network: nodes whose devices belong to their own network, in which the pod has to be.
    """
    jobs = [_build_device_test(test, index, node, counts) for index, (node, counts) in enumerate(devices.items())]
    for job, node in zip(jobs, devices, strict=True):
        if node in node_network:
            job["spec"]["template"]["spec"]["hostNetwork"] = True
    return [*_build_claims(test, devices), *jobs]


def _build_claims(test: DeviceTest, devices: t.Mapping[str, t.Mapping[str, int]]) -> t.Iterator[KubeObject]:
    """Yield a template for each node: it has as many GPUs as are free there."""
    for index, counts in enumerate(devices.values()):
        if test.device_class and GPU in counts:
            name = device_claims.template_name(test.job_name(index))
            meta: t.Any = {"name": name, "namespace": test.namespace, "labels": {TEST_LABEL: test.name}}
            yield device_claims.build_template(meta, test.device_class, counts[GPU])


def _build_device_test(test: DeviceTest, index: int, node: str, counts: t.Mapping[str, int]) -> KubeObject:
    container = _build_container(test, WITH_DEVICES, counts)
    spec = build_short_pod_spec(container, [], test.pull_secrets, node=node, deadline_s=test.deadline_s)
    spec["containers"] = [container, _build_container(test, WITHOUT, {})]
    if test.cordoned:
        spec["tolerations"] = [*t.cast("list[JsonObject]", spec["tolerations"]), _CORDON]
    if test.runtime_class:
        spec["runtimeClassName"] = test.runtime_class
    if test.device_class and GPU in counts:
        spec["resourceClaims"] = device_claims.build_pod_claims(device_claims.template_name(test.job_name(index)))
    labels = {TEST_LABEL: test.name}
    body: JsonObject = {
        "backoffLimit": 0,
        "activeDeadlineSeconds": test.deadline_s,
        "ttlSecondsAfterFinished": _TTL_S,
        "template": {"metadata": {"labels": labels}, "spec": spec},
    }
    meta: t.Any = {"name": test.job_name(index), "namespace": test.namespace, "labels": labels}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": body}


def _build_container(test: DeviceTest, name: str, counts: t.Mapping[str, int]) -> JsonObject:
    size = limit_range.apply_limits(_SIZE, test.ranges)
    capabilities: JsonObject = {"drop": ["ALL"]}
    if any(resource != GPU for resource in counts):
        # Programs with RDMA lock memory.
        capabilities["add"] = ["IPC_LOCK"]
    claimed = {GPU} & counts.keys() if test.device_class else set()
    devices = {resource: str(count) for resource, count in counts.items() if resource not in claimed}
    claims: JsonObject = {"claims": device_claims.build_container_claims()} if claimed else {}
    return {
        "name": name,
        "image": test.image,
        "command": ["sh", "-c", test.script],
        "resources": {**size, "limits": {**(size.get("limits") or {}), **devices}, **claims},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": capabilities},
    }
