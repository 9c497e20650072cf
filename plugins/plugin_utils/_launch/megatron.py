# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Megatron-LM under torchrun, with the sizes of ``job.parallel`` and the run's folder as its own options."""

from __future__ import annotations

import dataclasses

from ...module_utils._model import parallel_sizes
from ...module_utils._model.job import Job
from ...module_utils._model.pod_spec import PodSpec
from . import torchrun
from .base import Launch, NodeSlot, RunContext

PACKAGES = ("torch",)


def launch(job: Job, nodes: tuple[NodeSlot, ...], run: RunContext) -> Launch:
    """Return torchrun's launch of the program with Megatron's options."""
    return torchrun.launch(_with_options(job), nodes, run)


def pods(job: Job, run: RunContext) -> dict[str, PodSpec]:
    """Return torchrun's pods of the program with Megatron's options."""
    return torchrun.pods(_with_options(job), run)


def _with_options(job: Job) -> Job:
    return dataclasses.replace(job, args=parallel_sizes.build_args(job), env=parallel_sizes.build_env(job))
