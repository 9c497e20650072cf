# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A short gang before the job: proves names and every port between its pods, on the job's nodes and under its policy.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import dataclasses

from ....module_utils._model.job import Checkpoints
from ....module_utils._model.pod_spec import PodSpec
from ..api.kinds import JsonObject, KubeObject
from . import limit_range, pod_template, supporting_objects
from .spec import NETWORK_TEST, KubePlan

ROLE = NETWORK_TEST
_TTL_S = 600
# Enough for an image that a node has not yet; nothing of the probe itself takes longer than a minute.
_DEADLINE_S = 600


def job_name(run: str) -> str:
    """Return how the probe of a run's objects is called."""
    return f"{run}-probe"


def build(plan: KubePlan, *, wait_s: int = 60) -> list[KubeObject]:
    """Return the probe's Job after its supporting objects. ``wait_s``: how long the first pod waits for the others."""
    called = job_name(plan.name)
    told = next(iter(plan.pods.values()))
    spec = PodSpec(
        mode="probe",
        run_id=plan.run_id,
        attempt=told.attempt,
        nodes=plan.job.nodes,
        port=told.port,
        argv=(),
        env={},
        workdir="/",
        checkpoint_dir="/",
        coordinator=f"{called}-0.{called}",
        wait_s=wait_s,
    )
    # The probe proves the network and nothing else: it needs no secrets, no claims and no disk.
    job = dataclasses.replace(plan.job, secret_refs=(), mounts=(), checkpoints=Checkpoints())
    bare = dataclasses.replace(plan, job=job, secret=None, archive=b"", pods={ROLE: spec})
    supporting = supporting_objects.build_all(
        bare, {ROLE: spec}, supporting_objects.build_headless_service(bare, ROLE, called)
    )
    admitted = pod_template.admission_fields(bare)
    template = pod_template.build_template(
        bare, ROLE, supporting, restarts=None, devices=False, more={**admitted, "subdomain": called}
    )
    main = template["spec"]["containers"][0]
    main["resources"] = limit_range.apply_limits(limit_range.SMALL_POD, plan.ranges)
    # Also of the pods: it puts them under the quota that a team has for pods beside the queue.
    template["spec"]["activeDeadlineSeconds"] = _DEADLINE_S
    # A node each, as far as there are any: two pods on one node prove nothing about the network between nodes.
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
    return [*supporting, {"apiVersion": "batch/v1", "kind": "Job", "metadata": bare.metadata(called), "spec": body}]
