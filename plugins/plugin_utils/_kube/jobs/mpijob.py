# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""MPIJob v2beta1: mpirun in a launcher's pod, an sshd in each worker's.

Workers are removed when the launcher has ended (the operator's default keeps them, and their GPUs, for ever). The
launcher is made when all workers answer. The operator starts the launcher again after a crash, as often as the job may
crash; a fatal exit code it does not know, so whoever follows the run must end it.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import copy

from ....module_utils._model import pod_spec
from . import companions, jobset, pods
from .contract import KubePlan, Object

LAUNCHER, WORKER = "launcher", "worker"
# mpirun waits most of the time. A quota of the namespace may insist on amounts.
_LAUNCHER_RESOURCES: Object = {
    "requests": {"cpu": "10m", "memory": "64Mi"},
    "limits": {"cpu": "1", "memory": "1Gi"},
}


def build(plan: KubePlan) -> list[Object]:
    """Return the MPIJob behind its companions."""
    first = f"{plan.name}-{WORKER}-0.{plan.name}"
    specs = {role: companions.completed(plan, role, coordinator=first) for role in (LAUNCHER, WORKER)}
    around = companions.around(plan, specs)
    launcher = pods.template(plan, LAUNCHER, around, restarts=None, index=None, devices=False)
    launcher["spec"]["containers"][0]["resources"] = copy.deepcopy(_LAUNCHER_RESOURCES)
    worker = pods.template(plan, WORKER, around, restarts=None, index=None)
    ssh = plan.pods[WORKER].ssh or {}
    worker["spec"]["containers"][0]["readinessProbe"] = {"tcpSocket": {"port": ssh["port"]}, "periodSeconds": 1}
    policy: Object = {
        "cleanPodPolicy": "Running",
        "backoffLimit": plan.job.restart.max_crashes,
        "ttlSecondsAfterFinished": jobset.ttl(plan.job),
    }
    if plan.job.timeout_s is not None:
        policy["activeDeadlineSeconds"] = plan.job.timeout_s
    replicas = {"Launcher": (1, launcher), "Worker": (plan.job.nodes, worker)}
    body: Object = {
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
    meta = plan.meta(plan.name, **pods.queue_labels(plan))
    return [*around, {"apiVersion": "kubeflow.org/v2beta1", "kind": "MPIJob", "metadata": meta, "spec": body}]
