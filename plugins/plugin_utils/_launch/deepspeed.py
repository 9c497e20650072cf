# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""DeepSpeed under torchrun: ``init_distributed`` takes torchrun's variables, so no hostfile and no pdsh are needed.

The configuration is placed as a JSON file; ``{deepspeed_config}`` in the job's args stands for its path.
"""

from __future__ import annotations

import dataclasses

from ...module_utils._model.job import Job
from ...module_utils._model.pod_spec import PodSpec
from . import environment, pod_spec, torchrun
from .base import Launch, NodeLaunch, NodeSlot, RunContext

PACKAGES = ("torch", "deepspeed")


def launch(job: Job, nodes: tuple[NodeSlot, ...], run: RunContext) -> Launch:
    """Return torchrun's launch with the configuration file beside it."""
    base = torchrun.launch(job, nodes, run)
    if not job.deepspeed_config:
        return base
    pairs = zip(base.nodes, nodes, strict=True)
    return dataclasses.replace(base, nodes=tuple(_with_config(job, node, slot) for node, slot in pairs))


def _with_config(job: Job, node: NodeLaunch, slot: NodeSlot) -> NodeLaunch:
    env = {**node.env, "MUSTER_DEEPSPEED_CONFIG": f"{slot.run_dir}/{environment.DEEPSPEED_FILE}"}
    return dataclasses.replace(node, env=env, files=environment.deepspeed_files(job))


def pods(job: Job, run: RunContext) -> dict[str, PodSpec]:
    """Return torchrun's pods with the same additions."""
    base = torchrun.pods(job, run)["node"]
    if not job.deepspeed_config:
        return {"node": base}
    place = pod_spec.path_in_run(environment.DEEPSPEED_FILE)
    env = {**base.env, "MUSTER_DEEPSPEED_CONFIG": place}
    return {"node": dataclasses.replace(base, env=env, files=environment.deepspeed_files(job))}
