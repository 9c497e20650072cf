# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Builds a RayJob (KubeRay): a Ray cluster for one run with the user's script as its driver, deleted afterwards.

The head takes no work: losing it loses the run. A retry is a new cluster; it resumes from the user's shared storage
(see ``_launch/ray.py``), where it also finds the number of its attempt.
"""

from __future__ import annotations

import shlex
import typing as t

from ....module_utils._model import pod_spec
from ....module_utils._model.pod_spec import PodSpec
from ..api.kinds import JsonObject, KubeObject
from . import limit_range, pod_template, quantities, supporting_objects
from .spec import CONTAINER, ROLE_LABEL, KubePlan, PodTemplate, find_secret

DRIVER, HEAD, WORKER, SUBMITTER = "driver", "head", "worker", "submitter"
_HEAD_MEMORY = 4 << 30
# How long the Ray cluster, with its workers' GPUs, is kept after its job: enough to read the driver's last lines.
_LINGER_S = 60
_DASHBOARD = 8265
# KubeRay's operator reads the job's state from the head's dashboard. Its chart and manifests label it differently.
_OPERATOR = {
    "from": [
        {
            "namespaceSelector": {},
            "podSelector": {"matchLabels": {f"app.kubernetes.io/{key}": "kuberay-operator"}},
        }
        for key in ("name", "component")
    ],
    "ports": [{"protocol": "TCP", "port": _DASHBOARD}],
}


def build(plan: KubePlan) -> list[KubeObject]:
    """Return the RayJob after its supporting objects."""
    spec = supporting_objects.complete_spec(plan, DRIVER)
    supporting = supporting_objects.build_all(plan, {DRIVER: spec}, reached_by=[_OPERATOR])
    body: JsonObject = {
        "entrypoint": shlex.join(pod_template.pod_command(plan.job, DRIVER)),
        "submissionMode": "K8sJobMode",
        "shutdownAfterJobFinishes": True,
        "ttlSecondsAfterFinished": _LINGER_S,
        "backoffLimit": plan.job.restart.max_crashes,
        "rayClusterSpec": {
            "headGroupSpec": {
                "rayStartParams": {"dashboard-host": "0.0.0.0", "num-cpus": "0", "num-gpus": "0"},
                "template": _ray_pod(plan, HEAD, spec, supporting),
            },
            "workerGroupSpecs": [
                {
                    "groupName": WORKER,
                    "replicas": plan.job.nodes,
                    "minReplicas": plan.job.nodes,
                    "maxReplicas": plan.job.nodes,
                    "rayStartParams": {},
                    "template": _ray_pod(plan, WORKER, spec, supporting),
                }
            ],
        },
        "submitterPodTemplate": _submitter_pod(plan),
    }
    if plan.job.timeout_s is not None:
        body["activeDeadlineSeconds"] = plan.job.timeout_s
    meta = plan.metadata(plan.name, **plan.queue_labels)
    return [*supporting, {"apiVersion": "ray.io/v1", "kind": "RayJob", "metadata": meta, "spec": body}]


def _ray_pod(plan: KubePlan, role: str, spec: PodSpec, supporting: t.Sequence[KubeObject]) -> PodTemplate:
    """Return the pod of a Ray node: an init container places the code, KubeRay adds what starts Ray."""
    devices = role == WORKER
    template = pod_template.build_template(
        plan, role, supporting, restarts=None, index=None, devices=devices, spec_of=DRIVER
    )
    main = template["spec"]["containers"][0]
    if role == HEAD:
        memory = min(_HEAD_MEMORY, plan.job.resources.memory or _HEAD_MEMORY)
        amounts = {"cpu": "1", "memory": quantities.format_bytes(memory)}
        main["resources"] = limit_range.apply_limits({"requests": dict(amounts), "limits": dict(amounts)}, plan.ranges)
    # A pod requests the larger of its init containers and its other containers, so that the same amounts add nothing;
    # a ResourceQuota may require some.
    place = {key: main[key] for key in ("image", "volumeMounts", "resources")}
    argv = [*pod_template.pod_command(plan.job, DRIVER), "prepare"]
    plain = {"allowPrivilegeEscalation": False}
    template["spec"]["initContainers"] = [{"name": "code", "command": argv, "securityContext": plain, **place}]
    del main["command"]
    main["env"] += [{"name": key, "value": value} for key, value in _worker_environment(plan, spec).items()]
    main["env"] += _secret_variables(plan)
    if plan.host_network:
        # Head and workers listen at the same ports.
        template["spec"]["affinity"]["podAntiAffinity"] = pod_template.anti_affinity(plan)
    return template


def _worker_environment(plan: KubePlan, spec: PodSpec) -> dict[str, str]:
    """Return the environment of Ray's workers; they import the code as from a script's own folder."""
    own = {key: value for key, value in spec.env.items() if key.startswith("MUSTER_")}
    user = dict(plan.job.env)
    places = [spec.workdir, *filter(None, [user.pop("PYTHONPATH", "")])]
    return {**own, **plan.stream, **user, "PYTHONPATH": ":".join(places)}


def _secret_variables(plan: KubePlan) -> list[JsonObject]:
    """Return secrets for processes that Ray starts: read from the Secret, as the pod's program starts none."""
    variables: list[JsonObject] = []
    for ref in plan.job.secret_refs:
        if ref.deliver == "file":
            variables.append({"name": f"{ref.name}_FILE", "value": f"{pod_spec.SECRETS_DIR}/{ref.name}"})
        elif ref.deliver == "env":
            name, key = find_secret(plan, ref)
            source = {"name": name, "key": key}
            variables.append({"name": ref.name, "valueFrom": {"secretKeyRef": source}})
    known = {ref.name for ref in plan.job.secret_refs}
    for item in plan.pods[DRIVER].secrets:
        if item["deliver"] == "env" and item["name"] not in known:
            # Of a store that is streamed: they are in the run's own Secret.
            source = {"name": plan.secret, "key": item["name"]}
            variables.append({"name": item["name"], "valueFrom": {"secretKeyRef": source}})
    return variables


def _submitter_pod(plan: KubePlan) -> PodTemplate:
    """Return the pod that submits the driver and prints its output, which carries the marked lines."""
    labels = {**plan.labels, ROLE_LABEL: SUBMITTER}
    amounts = {"cpu": "100m", "memory": "512Mi"}
    main = {
        # KubeRay takes the first container, whatever its name: logs are read from one name in every pod.
        "name": CONTAINER,
        "image": plan.image,
        "resources": limit_range.apply_limits(
            {"requests": amounts, "limits": {"cpu": "1", "memory": "512Mi"}}, plan.ranges
        ),
        "securityContext": {"allowPrivilegeEscalation": False},
    }
    spec: JsonObject = {"restartPolicy": "Never", "automountServiceAccountToken": False, "containers": [main]}
    if plan.pull_secrets:
        spec["imagePullSecrets"] = [{"name": name} for name in plan.pull_secrets]
    return {"metadata": {"labels": labels}, "spec": spec}
