# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Accelerate under torchrun: it reads torchrun's variables, so its own launcher (and its pdsh) is not needed."""

from __future__ import annotations

import dataclasses

from ...module_utils._model.job import Job
from ...module_utils._model.pod_spec import PodSpec
from . import environment, pod_spec, torchrun
from .base import Launch, NodeLaunch, NodeSlot, RunContext

PACKAGES = ("torch", "accelerate")


def launch(job: Job, nodes: tuple[NodeSlot, ...], run: RunContext) -> Launch:
    """Return torchrun's launch with what ``accelerate launch`` would set, and the configuration file beside it."""
    base = torchrun.launch(job, nodes, run)
    pairs = zip(base.nodes, nodes, strict=True)
    return dataclasses.replace(base, nodes=tuple(_with_settings(job, node, slot) for node, slot in pairs))


def _with_settings(job: Job, node: NodeLaunch, slot: NodeSlot) -> NodeLaunch:
    # What the job itself sets wins.
    env = {**_variables(job, f"{slot.run_dir}/{environment.DEEPSPEED_FILE}"), **node.env}
    return dataclasses.replace(node, env=env, files=environment.deepspeed_files(job))


def pods(job: Job, run: RunContext) -> dict[str, PodSpec]:
    """Return torchrun's pods with the same additions."""
    base = torchrun.pods(job, run)["node"]
    env = {**base.env, **_variables(job, pod_spec.path_in_run(environment.DEEPSPEED_FILE))}
    return {"node": dataclasses.replace(base, env=env, files=environment.deepspeed_files(job))}


def _variables(job: Job, deepspeed_file: str) -> dict[str, str]:
    """Return the variables of Accelerate.

    Without the one for CPUs, Accelerate takes each rank on a machine without GPUs for a world of its own.
    """
    cpu = {} if job.gpus_per_node else {"ACCELERATE_USE_CPU": "true"}
    if not job.deepspeed_config:
        return cpu
    return {**cpu, "ACCELERATE_USE_DEEPSPEED": "true", "ACCELERATE_DEEPSPEED_CONFIG_FILE": deepspeed_file}
