# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Builds the network test: a short gang that tests names and every port between pods, on the job's nodes and policy."""

from __future__ import annotations

import dataclasses

from ....module_utils._model.job import Checkpoints
from ....module_utils._model.pod_spec import PodSpec
from ..api.kinds import JsonObject, KubeObject
from . import limit_range, pod_template, supporting_objects
from .spec import NETWORK_TEST, KubePlan

ROLE = NETWORK_TEST
_TTL_S = 600
# Enough to pull an image; the test itself takes less than a minute.
_DEADLINE_S = 600


def job_name(run: str) -> str:
    """Return the name of a run's network test."""
    return f"{run}-probe"


def build(plan: KubePlan, *, wait_s: int = 60) -> list[KubeObject]:
    """Return the network test's Job after its supporting objects; ``wait_s``: how long its first pod waits."""
    test_name = job_name(plan.name)
    member = next(iter(plan.pods.values()))
    spec = PodSpec(
        mode="probe",
        run_id=plan.run_id,
        attempt=member.attempt,
        nodes=plan.job.nodes,
        port=member.port,
        argv=(),
        env={},
        workdir="/",
        checkpoint_dir="/",
        coordinator=f"{test_name}-0.{test_name}",
        wait_s=wait_s,
    )
    # The test needs no secrets, no volumes and no disk.
    job = dataclasses.replace(plan.job, secret_refs=(), mounts=(), checkpoints=Checkpoints())
    bare = dataclasses.replace(plan, job=job, secret=None, store_keys=(), archive=b"", pods={ROLE: spec})
    supporting = supporting_objects.build_all(
        bare, {ROLE: spec}, supporting_objects.build_headless_service(bare, ROLE, test_name)
    )
    admitted = pod_template.admission_fields(bare)
    template = pod_template.build_template(
        bare, ROLE, supporting, restarts=None, devices=False, more={**admitted, "subdomain": test_name}
    )
    main = template["spec"]["containers"][0]
    main["resources"] = limit_range.apply_limits(limit_range.SMALL_POD, plan.ranges)
    # Also in the pods: by it they count against a team's quota for pods beside the queue.
    template["spec"]["activeDeadlineSeconds"] = _DEADLINE_S
    # One pod on each node if possible: two pods on one node do not test the network between nodes.
    template["spec"]["topologySpreadConstraints"] = [
        {
            "maxSkew": 1,
            "topologyKey": "kubernetes.io/hostname",
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": template["metadata"]["labels"]},
        }
    ]
    body: JsonObject = {
        "completionMode": "Indexed",
        "completions": plan.job.nodes,
        "parallelism": plan.job.nodes,
        "backoffLimit": 0,
        "activeDeadlineSeconds": _DEADLINE_S,
        "ttlSecondsAfterFinished": _TTL_S,
        "template": template,
    }
    return [*supporting, {"apiVersion": "batch/v1", "kind": "Job", "metadata": bare.metadata(test_name), "spec": body}]
