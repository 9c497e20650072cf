# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the answers of nodes say of a run that was started before."""

from __future__ import annotations

import dataclasses
import types
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.job import parse_job, to_yaml_names
from ansible_collections.muster.training.plugins.module_utils._model.node_report import NodeReport, UnitReport
from ansible_collections.muster.training.plugins.module_utils._model.run_record import RunRecord
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared import run_record
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.hosts import state

JOB = parse_job({"name": "x", "nodes": 2, "script": "/t.py"})


def plan(launcher: str = "torchrun", **exits: dict[str, t.Any] | None) -> state.HostsPlan:
    job: t.Any = types.SimpleNamespace(launcher=launcher)
    agents = {name: {"alive": end is None, "exit": end} for name, end in exits.items()}
    reports = {name: NodeReport.from_dict({"units": {"agent": agent}}) for name, agent in agents.items()}
    hosts = [types.SimpleNamespace(name=name) for name in exits]
    return t.cast(state.HostsPlan, types.SimpleNamespace(job=job, reports=reports, hosts=hosts))


def record(generation: int = 1, **changes: t.Any) -> RunRecord:
    return run_record.new_record("x-1", to_yaml_names(JOB), 1.0, generation=generation, **changes)


def end(generation: int = 1, cause: str = "succeeded") -> dict[str, t.Any]:
    return {"generation": generation, "cause": cause, "exit_code": 0}


def test_a_run_is_running_while_any_agent_is() -> None:
    assert state.is_running(plan(a=end(), b=None), record()) and not state.is_running(plan(a=end(), b=end()), None)
    assert state.is_alive(plan(a=None), "a") and not state.is_alive(plan(a=end()), "a")


def test_what_is_left_of_a_start_that_has_ended_is_not_the_run_at_work() -> None:
    ended = dataclasses.replace(record(3), state="ended", outcome="lost")
    for generation, is_left in ((3, True), (2, True), (4, False), (None, False)):
        there = plan(a=end(), b=None)
        agent = UnitReport(alive=True, generation=generation)
        there.reports["b"] = dataclasses.replace(there.reports["b"], units={"agent": agent})
        assert state.list_left(there, ended) == (["b"] if is_left else []), generation
        assert state.is_running(there, ended) is not is_left
        assert state.is_running(there, record(3)) and state.is_running(there, None)


@pytest.mark.parametrize(
    ("launcher", "exits", "expected"),
    [
        ("torchrun", {"a": end(), "b": end()}, True),
        ("torchrun", {"a": end(), "b": None}, False),
        ("torchrun", {"a": end(2), "b": end()}, False),
        ("mpi", {"a": end(), "b": None}, True),
        ("mpi", {"a": None, "b": end()}, False),
    ],
)
def test_an_end_that_was_not_recorded(launcher: str, exits: dict[str, t.Any], expected: bool) -> None:
    assert state.has_unrecorded_end(plan(launcher, **exits), record()) is expected
    assert not state.has_unrecorded_end(plan(launcher, **exits), None)
    assert not state.has_unrecorded_end(plan(launcher, **exits), record(state="ended"))


@pytest.mark.parametrize(
    ("cause", "over"),
    [("succeeded", True), ("crash", True), ("rendezvous_closed", True), ("cancelled", False), ("node_lost", False)],
)
def test_a_part_that_can_be_started_again_is_not_over(cause: str, over: bool) -> None:
    assert state.is_part_over(plan(a=end(cause=cause)), "a", record()) is over
    assert not state.is_part_over(plan(a=end(2, cause)), "a", record())
