# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The pod specification that all launchers build on: the same for every pod of a role, which fills in its own place."""

from __future__ import annotations

import dataclasses
import typing as t

from ...module_utils._model import job_backends, job_checkpoints, pod_spec
from ...module_utils._model.job import Job
from ...module_utils._model.pod_spec import PodSpec
from . import environment
from .base import NodeSlot, RunContext


def interpreter(job: Job) -> str:
    """Return the interpreter of the image that runs the job and the pod's program."""
    return job.python or "python3"


def path_in_run(name: str) -> str:
    """Return a path in the run's folder."""
    return f"{pod_spec.RUN_DIR}/{name}"


def any_pod(job: Job) -> NodeSlot:
    """Return a pod as the functions shared with hosts see it; its address is filled in by the pod itself."""
    own = interpreter(job)
    return NodeSlot("", 0, "{address}", None, own, pod_spec.RUN_DIR, agent_python=own)


def build_pod_spec(
    job: Job, run: RunContext, argv: tuple[str, ...], values: t.Mapping[str, str], **changes: t.Any
) -> PodSpec:
    """Return the specification of a role that runs ``argv`` with ``values`` beside the variables of every job."""
    pod, secrets = any_pod(job), secret_entries(job)
    workdir, variables = environment.workdir(job, pod), environment.shared_variables(job, pod_spec.RUN_DIR, run)
    checkpoints = job_checkpoints.node_rules(job)
    base = PodSpec(
        run_id=run.run_id,
        attempt=run.attempt,
        nodes=job.nodes,
        port=run.port,
        argv=argv,
        env={**variables, **values},
        user_env=dict(job.env),
        workdir=workdir,
        checkpoint_dir=run.checkpoints_in(pod_spec.RUN_DIR),
        secrets=secrets,
        fatal_exit_codes=job.restart.fatal_exit_codes,
        keep_logs=job_checkpoints.kept_logs_folder(job, run.run_id),
        grace_s=job.checkpoints.grace_s,
        wait_s=job.restart.wait_s,
        gpus=job.gpus_per_node,
        elastic=job_backends.is_elastic(job),
        checkpoints=checkpoints,
        mounts=tuple(
            {"path": item.path, "marker": item.marker} for item in job.mounts if item.binding and not item.pvc
        ),
        shared_wait_s=job_checkpoints.VISIBLE_S if checkpoints["shared"] else None,
    )
    return dataclasses.replace(base, **changes)


def secret_entries(job: Job) -> tuple[dict[str, str], ...]:
    """Return how the pod delivers each of its mounted secrets; those for a registry are not mounted."""
    return tuple(
        {"name": ref.name, "file": f"{pod_spec.SECRETS_DIR}/{ref.name}", "deliver": ref.deliver}
        for ref in job.secret_refs
        if ref.deliver != "registry"
    )
