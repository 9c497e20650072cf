# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Builds a Job that reads the logs that attempts kept beside their checkpoints, when a controller has missed them."""

from __future__ import annotations

import dataclasses

from ....module_utils._model import job_backends
from ....module_utils._model.pod_spec import PodSpec
from ..api.kinds import JsonObject, KubeObject
from . import limit_range, pod_template, supporting_objects
from .spec import LOG_READER, KubePlan

ROLE = LOG_READER
_TTL_S = 60
_DEADLINE_S = 120


def build(plan: KubePlan) -> list[KubeObject] | None:
    """Return the log reader's Job after its program, None for a run whose checkpoints are on no mount."""
    home = job_backends.checkpoint_mount(plan.job)
    member = next(iter(plan.pods.values()))
    if home is None or member.keep_logs is None:
        return None
    spec = PodSpec(
        mode="kept",
        run_id=plan.run_id,
        attempt=member.attempt,
        nodes=1,
        port=member.port,
        argv=(),
        env={},
        workdir="/",
        checkpoint_dir="/",
        keep_logs=member.keep_logs,
    )
    mounts = tuple(mount for mount in plan.job.mounts if mount.name == home)
    job = dataclasses.replace(plan.job, secret_refs=(), mounts=mounts)
    bare = dataclasses.replace(plan, job=job, secret=None, archive=b"", pods={ROLE: spec})
    program = supporting_objects.build_program(bare, {ROLE: spec})
    admitted = pod_template.admission_fields(bare)
    template = pod_template.build_template(
        bare, ROLE, [program], restarts=None, index=None, devices=False, more=admitted
    )
    template["spec"]["containers"][0]["resources"] = limit_range.apply_limits(limit_range.SMALL_POD, plan.ranges)
    # Also in the pod: by it the pod counts against a team's quota for pods beside the queue.
    template["spec"]["activeDeadlineSeconds"] = _DEADLINE_S
    body: JsonObject = {
        "backoffLimit": 1,
        "activeDeadlineSeconds": _DEADLINE_S,
        "ttlSecondsAfterFinished": _TTL_S,
        "template": template,
    }
    meta = bare.metadata(f"{plan.name}-reader")
    return [program, {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": body}]
