# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Builds a JobSet: the gang fails and restarts as a whole, with separate budgets for crashes and lost nodes.

No pod of the Job is replaced alone (backoffLimit 0, one failed pod fails it): a fixed-size gang does not survive that.
After a node was drained, preempted or lost the JobSet restarts the gang without counting. It counts all other restarts,
also that of a gang whose other ranks failed before the loss was noticed: its limit (``maxRestarts``) is both budgets
together, and the controller that follows the run counts crashes and lost nodes.
"""

from __future__ import annotations

from ....module_utils._model import job_backends
from ....module_utils._model.job import Job
from ....module_utils._model.pod_spec import EXIT_REFUSED
from ..api.kinds import JsonObject, KubeObject
from . import pod_template, supporting_objects
from .spec import CONTAINER, KubePlan

ROLE = "node"
NETWORK = {"enableDNSHostnames": True, "publishNotReadyAddresses": True}
_TTL_S = 24 * 3600
# The Job controller's message names the rule of the pod failure policy; the first is the one on exit codes.
_FATAL_MESSAGE = "matching .* rule at index 0"


def build(plan: KubePlan) -> list[KubeObject]:
    """Return the JobSet after its supporting objects."""
    inner = job_spec(plan.job)
    outer: JsonObject = {
        "network": dict(NETWORK),
        "replicatedJobs": [{"name": ROLE, "replicas": 1, "template": {"spec": inner}}],
        "failurePolicy": failure_policy(plan.job, plan.followed),
        "ttlSecondsAfterFinished": ttl(plan.job),
    }
    spec = supporting_objects.complete_spec(plan, ROLE, coordinator=coordinator(plan.name))
    supporting = supporting_objects.build_all(plan, {ROLE: spec})
    inner["template"] = pod_template.build_template(plan, ROLE, supporting)
    meta = plan.metadata(plan.name, **plan.queue_labels)
    return [*supporting, {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": meta, "spec": outer}]


def coordinator(name: str) -> str:
    """Return the name of the first pod in the JobSet's own domain."""
    return f"{name}-{ROLE}-0-0.{name}"


def gang_job_name(name: str) -> str:
    """Return the name of the Job that a JobSet makes of its only group."""
    return f"{name}-{ROLE}-0"


def job_spec(job: Job) -> JsonObject:
    """Return the Job of the gang without its pod template: as many pods as nodes, all or none."""
    elastic = job_backends.is_elastic(job)
    spec: JsonObject = {
        "completionMode": "Indexed",
        "completions": job.nodes,
        "parallelism": job.nodes,
        # An elastic gang lets single pods come and go; any other one fails with its first pod.
        "backoffLimit": job.restart.max_crashes + job.restart.max_lost_nodes if elastic else 0,
        "podReplacementPolicy": "Failed",
        "podFailurePolicy": {"rules": pod_failure_rules(job)},
    }
    if job.timeout_s is not None:
        spec["activeDeadlineSeconds"] = job.timeout_s
    if elastic:
        spec["successPolicy"] = {"rules": [{"succeededCount": job.elastic.min}]}
    return spec


def pod_failure_rules(job: Job) -> list[JsonObject]:
    """Return the pod failure policy: a fatal exit code and a disruption fail the Job, each with its own message."""
    codes = sorted({*job.restart.fatal_exit_codes, EXIT_REFUSED})
    disrupted = "Ignore" if job_backends.is_elastic(job) else "FailJob"
    return [
        {
            "action": "FailJob",
            "onExitCodes": {"containerName": CONTAINER, "operator": "In", "values": codes},
        },
        {"action": disrupted, "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
    ]


def failure_policy(job: Job, followed: bool = True) -> JsonObject:
    """Return the JobSet's failure policy.

    A JobSet has no budget for lost nodes: the controller that follows the run ends it when one of the two is used up.
    Without such a controller all restarts are counted, so that they end.
    """
    lost = "RestartJobSetAndIgnoreMaxRestarts" if followed else "RestartJobSet"
    rules: list[JsonObject] = [
        {
            "name": "fatal",
            "action": "FailJobSet",
            "onJobFailureReasons": ["PodFailurePolicy"],
            "onJobFailureMessagePatterns": [_FATAL_MESSAGE],
        },
        {
            "name": "lost",
            "action": lost if job.lost_budget else "FailJobSet",
            "onJobFailureReasons": ["PodFailurePolicy"],
        },
        {"name": "deadline", "action": "FailJobSet", "onJobFailureReasons": ["DeadlineExceeded"]},
    ]
    most = job.restart.max_crashes + job.lost_budget
    return {"maxRestarts": most, "restartStrategy": "Recreate", "rules": rules}


def ttl(job: Job) -> int:
    """Return for how many seconds finished objects are kept; the run record does not need them."""
    return _TTL_S if job.ttl_after_finished_s is None else job.ttl_after_finished_s
