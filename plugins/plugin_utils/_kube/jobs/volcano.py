# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Builds a Volcano Job: its own scheduler places all pods or none, and the gang restarts when one of them fails.

``queue`` is one of Volcano's. All pods have the name of its scheduler; another scheduler would place them singly.
"""

from __future__ import annotations

from ....module_utils._model.pod_spec import EXIT_REFUSED
from ..api.kinds import JsonObject, KubeObject
from . import jobset, pod_template, supporting_objects
from .spec import KubePlan

ROLE = jobset.ROLE
SCHEDULER = "volcano"
_RETRIES = "metadata.annotations['volcano.sh/job-retry-count']"


def build(plan: KubePlan) -> list[KubeObject]:
    """Return the Job after its supporting objects."""
    spec = supporting_objects.complete_spec(plan, ROLE, coordinator=f"{plan.name}-{ROLE}-0.{plan.name}")
    supporting = supporting_objects.build_all(plan, {ROLE: spec})
    template = pod_template.build_template(
        plan, ROLE, supporting, restarts=_RETRIES, index=None, more={"schedulerName": SCHEDULER}
    )
    if plan.job.timeout_s is not None:
        # A Volcano Job knows no time limit; its pods do.
        template["spec"]["activeDeadlineSeconds"] = plan.job.timeout_s
    task: JsonObject = {
        "name": ROLE,
        "replicas": plan.job.nodes,
        "minAvailable": plan.job.nodes,
        "template": template,
        "policies": [{"event": "TaskCompleted", "action": "CompleteJob"}],
    }
    body: JsonObject = {
        "schedulerName": SCHEDULER,
        "minAvailable": plan.job.nodes,
        # Volcano counts every restart, whatever its cause.
        "maxRetry": plan.job.restart.max_crashes + plan.job.lost_budget,
        "policies": build_policies(plan),
        # svc makes the Service and the pods' names, env their indices (VC_TASK_INDEX); the policy is our own.
        "plugins": {"env": [], "svc": ["--publish-not-ready-addresses=true", "--disable-network-policy=true"]},
        "ttlSecondsAfterFinished": jobset.ttl(plan.job),
        "tasks": [task],
    }
    if plan.job.placement.queue:
        body["queue"] = plan.job.placement.queue
    if plan.job.placement.priority:
        body["priorityClassName"] = plan.job.placement.priority
    meta = plan.metadata(plan.name)
    return [*supporting, {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": meta, "spec": body}]


def build_policies(plan: KubePlan) -> list[JsonObject]:
    """Return the failure policies; the first match counts, so fatal exit codes come before failures."""
    codes = sorted({*plan.job.restart.fatal_exit_codes, EXIT_REFUSED})
    lost = "RestartJob" if plan.job.lost_budget else "AbortJob"
    failed = "RestartJob" if plan.job.restart.max_crashes else "AbortJob"
    fatal = [{"exitCode": code, "action": "AbortJob"} for code in codes]
    return [*fatal, {"event": "PodEvicted", "action": lost}, {"event": "PodFailed", "action": failed}]
