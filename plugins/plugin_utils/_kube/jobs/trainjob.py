# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Kubeflow Trainer v2: a TrainJob and a runtime of its own, with the failure policy that the default runtimes lack.

The runtime holds what a JobSet would. The TrainJob names no trainer of its own, so that the operator adds none of its
variables. Neither gets a time to live: the operator makes a JobSet that expired again (kubeflow/trainer#2991).

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

from ..api.kinds import JsonObject, KubeObject
from . import jobset, pod_template, supporting_objects
from .spec import KubePlan

API = "trainer.kubeflow.org/v1alpha1"
ROLE = jobset.ROLE


def build(plan: KubePlan) -> list[KubeObject]:
    """Return the TrainJob after its runtime and supporting objects."""
    spec = supporting_objects.complete_spec(plan, ROLE, coordinator=jobset.coordinator(plan.name))
    supporting = supporting_objects.build_all(plan, {ROLE: spec})
    inner = jobset.job_spec(plan.job, pod_template.build_template(plan, ROLE, supporting))
    # The number of nodes is the policy's: the operator sets these two from it.
    for key in ("completions", "parallelism", "activeDeadlineSeconds"):
        inner.pop(key, None)
    ancestor = {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
    group = {"name": ROLE, "replicas": 1, "template": {"metadata": {"labels": ancestor}, "spec": inner}}
    template = {
        "network": dict(jobset.NETWORK),
        "replicatedJobs": [group],
        # A TrainJob does not say how often its JobSet started again: nobody could count lost nodes.
        "failurePolicy": jobset.failure_policy(plan.job, followed=False),
    }
    runtime: KubeObject = {
        "apiVersion": API,
        "kind": "TrainingRuntime",
        "metadata": plan.metadata(plan.name),
        "spec": {"mlPolicy": {"numNodes": plan.job.nodes}, "template": {"spec": template}},
    }
    body: JsonObject = {"runtimeRef": {"apiGroup": API.partition("/")[0], "kind": "TrainingRuntime", "name": plan.name}}
    if plan.job.timeout_s is not None:
        body["activeDeadlineSeconds"] = plan.job.timeout_s
    meta = plan.metadata(plan.name, **pod_template.queue_labels(plan))
    return [*supporting, runtime, {"apiVersion": API, "kind": "TrainJob", "metadata": meta, "spec": body}]
