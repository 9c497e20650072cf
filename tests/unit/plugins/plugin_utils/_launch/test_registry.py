# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every declared launcher has a module, with its packages and programs."""

from __future__ import annotations

import importlib
import typing as t

from ansible_collections.muster.training.plugins.module_utils._model.job import Job
from ansible_collections.muster.training.plugins.module_utils._model.launchers import LAUNCHERS
from ansible_collections.muster.training.plugins.plugin_utils._launch import registry
from ansible_collections.muster.training.tests.unit.plugins.plugin_utils._launch.gangs import job


def command(**changes: object) -> Job:
    return job(script=None, code=None, launcher="command", command=["./run", "{run_dir}"], **changes)


def test_every_launcher_of_the_model_is_there() -> None:
    for name, traits in LAUNCHERS.items():
        module = importlib.import_module(f"{registry.__package__}.{name}")
        assert hasattr(module, "pods") and hasattr(module, "launch") == traits.on_hosts, name
    assert registry.required_tools(command(), 0) == registry.required_tools(job(), 1) == ()


def training(**changes: t.Any) -> Job:
    return job(launcher="mpi", processes_per_node=2, **changes)


def test_the_programs_that_must_be_on_a_node() -> None:
    assert registry.required_tools(training(), 0) == ("mpirun",)
    assert "sshd" in registry.required_tools(training(), 1)
