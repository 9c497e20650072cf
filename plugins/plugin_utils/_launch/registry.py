# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Calls the module of a job's launcher: ``job.launcher: mpi`` is ``mpi.py`` beside this file.

A launcher's module has the functions ``launch`` (hosts) and ``pods`` (Kubernetes) of ``base.py``. It may have a tuple
``PACKAGES`` of the Python packages that every node needs, and a function ``tools(node_rank)`` for programs.
"""

from __future__ import annotations

import importlib
import typing as t

from ...module_utils._model.job import Job
from ...module_utils._model.pod_spec import PodSpec
from .base import Launch, NodeSlot, RunContext


def launch(job: Job, nodes: tuple[NodeSlot, ...], run: RunContext) -> Launch:
    """Return what every node of the gang starts; ``nodes[0]`` is the rendezvous host."""
    return t.cast(Launch, _load(job).launch(job, nodes, run))


def pods(job: Job, run: RunContext) -> dict[str, PodSpec]:
    """Return what the pods of each role start; which roles there are depends on the launcher."""
    return t.cast("dict[str, PodSpec]", _load(job).pods(job, run))


def required_packages(job: Job) -> tuple[str, ...]:
    """Return the Python packages that the job's interpreter must have on every node."""
    packages: tuple[str, ...] = getattr(_load(job), "PACKAGES", ())
    return tuple(dict.fromkeys((*packages, *job.requires)))


def required_tools(job: Job, node_rank: int) -> tuple[str, ...]:
    """Return the programs that must be on the node with this rank."""
    tools: t.Callable[[int], tuple[str, ...]] | None = getattr(_load(job), "tools", None)
    return tools(node_rank) if tools else ()


def _load(job: Job) -> t.Any:
    # The name is one of the declared launchers: parse_job refuses any other.
    return importlib.import_module(f".{job.launcher}", __package__)
