# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Builds a TrainJob (Kubeflow Trainer v2) and its own runtime, with the failure policy that default runtimes lack.

The runtime has the content of a JobSet. The TrainJob names no trainer, so that the operator adds none of its variables.
Neither has ttlSecondsAfterFinished: the operator creates an expired JobSet again (kubeflow/trainer#2991).
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
    inner = {**jobset.job_spec(plan.job), "template": pod_template.build_template(plan, ROLE, supporting)}
    # The operator sets these from the ML policy.
    for key in ("completions", "parallelism", "activeDeadlineSeconds"):
        inner.pop(key, None)
    ancestor = {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
    group = {"name": ROLE, "replicas": 1, "template": {"metadata": {"labels": ancestor}, "spec": inner}}
    template = {
        "network": dict(jobset.NETWORK),
        "replicatedJobs": [group],
        # A TrainJob does not report the restarts of its JobSet: lost nodes could not be counted.
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
    meta = plan.metadata(plan.name, **plan.queue_labels)
    return [*supporting, runtime, {"apiVersion": API, "kind": "TrainJob", "metadata": meta, "spec": body}]
