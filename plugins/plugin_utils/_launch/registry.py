# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The launchers by name: the one place that a new one is added to.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import typing as t

from ...module_utils._model.job import Job
from ...module_utils._model.pod_spec import PodSpec
from . import accelerate, command, deepspeed, mpi, ray, torchrun
from .base import Launch, NodeSlot, RunContext

_LAUNCHERS: dict[str, t.Callable[[Job, tuple[NodeSlot, ...], RunContext], Launch]] = {
    "torchrun": torchrun.launch,
    "accelerate": accelerate.launch,
    "deepspeed": deepspeed.launch,
    # Megatron reads torchrun's variables; its parallel sizes are arguments of the user's own.
    "megatron": torchrun.launch,
    "mpi": mpi.launch,
    "command": command.launch,
}
_PODS: dict[str, t.Callable[[Job, RunContext], dict[str, PodSpec]]] = {
    "torchrun": torchrun.pods,
    "accelerate": accelerate.pods,
    "deepspeed": deepspeed.pods,
    "megatron": torchrun.pods,
    "mpi": mpi.pods,
    "ray": ray.pods,
    "command": command.pods,
}
_PACKAGES = {
    "torchrun": ("torch",),
    "accelerate": ("torch", "accelerate"),
    "deepspeed": ("torch", "deepspeed"),
    "megatron": ("torch",),
}


def launch(job: Job, nodes: tuple[NodeSlot, ...], run: RunContext) -> Launch:
    """Return what every node of the gang starts; ``nodes[0]`` is the rendezvous host."""
    return _LAUNCHERS[job.launcher](job, nodes, run)


def pods(job: Job, run: RunContext) -> dict[str, PodSpec]:
    """Return what the pods of each role start; which roles there are depends on the launcher."""
    return _PODS[job.launcher](job, run)


def required_packages(job: Job) -> tuple[str, ...]:
    """Return the Python packages that the job's interpreter must have on every node."""
    return tuple(dict.fromkeys((*_PACKAGES.get(job.launcher, ()), *job.requires)))


def required_tools(job: Job, node_rank: int) -> tuple[str, ...]:
    """Return the programs that must be on the node with this rank."""
    if job.launcher != "mpi":
        return ()
    return ("mpirun",) if node_rank == 0 else ("mpirun", "sshd")
