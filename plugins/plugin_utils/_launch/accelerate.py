# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Accelerate under torchrun: it reads torchrun's variables, so its own launcher (and its pdsh) is not needed.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import dataclasses

from ...module_utils._model.job import Job
from ...module_utils._model.pod_spec import PodSpec
from . import environment, pod_spec, torchrun
from .base import Launch, NodeLaunch, RunContext, Slot


def launch(job: Job, nodes: tuple[Slot, ...], run: RunContext) -> Launch:
    """Return torchrun's launch with the variables by which Accelerate finds a DeepSpeed configuration."""
    base = torchrun.launch(job, nodes, run)
    if not job.deepspeed_config:
        return base
    pairs = zip(base.nodes, nodes, strict=True)
    return dataclasses.replace(base, nodes=tuple(_with_deepspeed(job, node, slot) for node, slot in pairs))


def _with_deepspeed(job: Job, node: NodeLaunch, slot: Slot) -> NodeLaunch:
    place = f"{slot.run_dir}/{environment.DEEPSPEED_FILE}"
    env = {**node.env, "ACCELERATE_USE_DEEPSPEED": "true", "ACCELERATE_DEEPSPEED_CONFIG_FILE": place}
    return dataclasses.replace(node, env=env, files=environment.deepspeed_files(job))


def pods(job: Job, run: RunContext) -> dict[str, PodSpec]:
    """Return torchrun's pods with the same additions."""
    base = torchrun.pods(job, run)["node"]
    if not job.deepspeed_config:
        return {"node": base}
    place = pod_spec.path_in_run(environment.DEEPSPEED_FILE)
    env = {**base.env, "ACCELERATE_USE_DEEPSPEED": "true", "ACCELERATE_DEEPSPEED_CONFIG_FILE": place}
    return {"node": dataclasses.replace(base, env=env, files=environment.deepspeed_files(job))}
