# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Builds an MPIJob v2beta1: mpirun in a launcher's pod, an sshd in each worker's.

Workers are deleted when the launcher has ended (the operator's default keeps them, and their GPUs, for ever). The
launcher is created when all workers are ready. The operator restarts the launcher after a crash, as often as the job
may crash; it knows no fatal exit codes, so the controller that follows the run ends it after one.
"""

from __future__ import annotations

from ....module_utils._model import pod_spec
from ..api.kinds import JsonObject, KubeObject
from . import jobset, limit_range, pod_template, supporting_objects
from .spec import KubePlan

LAUNCHER, WORKER = "launcher", "worker"
# Of the launcher: mpirun waits most of the time. (request, limit) by resource.
_SMALL = {"cpu": ("10m", "1"), "memory": ("64Mi", "1Gi")}


def build(plan: KubePlan) -> list[KubeObject]:
    """Return the MPIJob after its supporting objects."""
    first = f"{plan.name}-{WORKER}-0.{plan.name}"
    specs = {role: supporting_objects.complete_spec(plan, role, coordinator=first) for role in (LAUNCHER, WORKER)}
    supporting = supporting_objects.build_all(plan, specs)
    launcher = pod_template.build_template(plan, LAUNCHER, supporting, restarts=None, index=None, devices=False)
    launcher["spec"]["containers"][0]["resources"] = _launcher_resources(plan)
    worker = pod_template.build_template(plan, WORKER, supporting, restarts=None, index=None)
    policy: JsonObject = {
        "cleanPodPolicy": "Running",
        "backoffLimit": plan.job.restart.max_crashes,
        "ttlSecondsAfterFinished": jobset.ttl(plan.job),
    }
    if plan.job.timeout_s is not None:
        policy["activeDeadlineSeconds"] = plan.job.timeout_s
    replicas = {"Launcher": (1, launcher), "Worker": (plan.job.nodes, worker)}
    body: JsonObject = {
        "mpiImplementation": "OpenMPI",
        "slotsPerWorker": plan.job.nproc,
        "sshAuthMountPath": pod_spec.SSH_DIR,
        "launcherCreationPolicy": "WaitForWorkersReady",
        "runPolicy": policy,
        "mpiReplicaSpecs": {
            kind: {"replicas": count, "restartPolicy": "Never", "template": template}
            for kind, (count, template) in replicas.items()
        },
    }
    meta = plan.metadata(plan.name, **plan.queue_labels)
    return [*supporting, {"apiVersion": "kubeflow.org/v2beta1", "kind": "MPIJob", "metadata": meta, "spec": body}]


def _launcher_resources(plan: KubePlan) -> limit_range.Resources:
    """Return the launcher's resources: a ResourceQuota may require some, and a queue admits only those it covers."""
    covered = plan.queue.quota_resources or frozenset() if plan.queue else frozenset(_SMALL)
    amounts = {name: both for name, both in _SMALL.items() if name in covered}
    if not amounts:
        return {}
    small = {
        "requests": {name: request for name, (request, _unused) in amounts.items()},
        "limits": {name: limit for name, (_unused, limit) in amounts.items()},
    }
    return limit_range.apply_limits(small, plan.ranges)
