# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ray: the user's script runs once, as the driver of a Ray job; Ray Train starts the workers on the cluster's nodes.

Ray does not resume by itself: Ray Train finds its latest checkpoint only below the same storage path and name, and
starts failed workers again only as often as its FailureConfig says. The driver gets all of these as variables.
"""

from __future__ import annotations

from ...module_utils._model import job_backends
from ...module_utils._model.job import Job
from ...module_utils._model.pod_spec import RUN_DIR, PodSpec
from . import environment, pod_spec
from .base import RunContext

# Where Ray Train stores checkpoints: a folder, or s3://BUCKET/PREFIX of the job's object store.
STORAGE = "MUSTER_RAY_STORAGE_PATH"


def pods(job: Job, run: RunContext) -> dict[str, PodSpec]:
    """Return the driver. Metrics are beside the checkpoints where these are shared: rank 0 may be on any node."""
    folder = run.checkpoints_in(RUN_DIR)
    shared = job_backends.checkpoint_mount(job) is not None
    values = {
        "MUSTER_NUM_WORKERS": str(job.world_size),
        "MUSTER_USE_GPU": "1" if job.gpus_per_node else "0",
        # ray.train.RunConfig(name=…, storage_path=…, failure_config=FailureConfig(max_failures=…))
        "MUSTER_RAY_RUN_NAME": run.run_id,
        STORAGE: folder,
        "MUSTER_RAY_MAX_FAILURES": str(job.restart.max_crashes),
        "MUSTER_RAY_MAX_PREEMPTION_FAILURES": str(job.lost_budget),
        # Ray Train then records its workers, by which the number of ranks is checked.
        "RAY_TRAIN_ENABLE_STATE_TRACKING": "1",
    }
    if shared:
        values["MUSTER_METRICS_FILE"] = f"{folder}/.muster-metrics-{run.attempt}.jsonl"
    argv = environment.program(job, pod_spec.any_pod(job))
    cluster = {"python": pod_spec.interpreter(job), "nodes": job.nodes}
    # It runs on the head, which has no devices.
    return {"driver": pod_spec.build_pod_spec(job, run, argv, values, role="launcher", ray=cluster, gpus=0)}
