# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs that are ended because they train nothing."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError
from ansible_collections.muster.training.plugins.module_utils._model.job import Job, Restart, parse_job
from ansible_collections.muster.training.plugins.module_utils._model.run_history import RunHistory
from ansible_collections.muster.training.plugins.module_utils._model.stop_on import (
    StopOn,
    StopRules,
    describe_nan_ways,
    describe_ways,
    require_follower,
)

NAN = float("nan")


def story(*losses: object) -> RunHistory:
    found = RunHistory()
    found.event({"kind": "worker_started", "attempt": 1, "rank": 0, "node": "a", "at": 10.0})
    for step, loss in enumerate(losses):
        found.metric({"at": 20.0 + step, "step": step, "loss": loss})
    return found


def job(**values: t.Any) -> Job:
    return parse_job({"name": "x", "script": "/t.py", **values})


def test_what_is_said_of_a_run_that_stands_or_learns_nothing_is_what_will_happen() -> None:
    assert describe_nan_ways(StopOn(nan=True)) == "the run ends (job.stop_on.nan)"
    assert "Set job.stop_on.nan" in describe_nan_ways(StopOn())
    assert "nothing ends such a run" in describe_ways(StopOn(), Restart())
    assert "ends after 60 s" in describe_ways(StopOn(stalled_s=60), Restart(on_hang="restart"))
    for on_hang, what in (("restart", "begins anew"), ("stop", "ends")):
        said = describe_ways(StopOn(), Restart(on_hang=on_hang, hang_s=20))
        assert f"hang for 20 s {what} (job.restart.on_hang)" in said


@pytest.mark.parametrize("bad", [NAN, float("inf"), -float("inf"), "NaN"])
def test_a_loss_that_is_not_a_number_ends_the_run(bad: object) -> None:
    told = story(2.0, 1.0, bad, bad)
    assert told.nan_since == 2
    reason = StopRules(StopOn(nan=True), 0.0).judge(told, 0.0, True)
    assert reason is not None and reason.cause == "nan" and "since step 2" in reason.detail
    assert StopRules(StopOn(stalled_s=60), 0.0).judge(told, 0.0, True) is None
    assert StopRules(StopOn(nan=True), 0.0).judge(story(2.0, bad, 1.0), 0.0, True) is None, "it is a number again"
    assert StopRules(StopOn(nan=True), 0.0).judge(story(2.0, None), 0.0, True) is None, "a step without a loss"


def test_no_step_for_a_while_ends_the_run() -> None:
    told = story(2.0, 1.0)
    rules = StopRules(StopOn(stalled_s=60), 0.0)
    assert rules.judge(told, 0.0, True) is None
    assert rules.judge(told, 59.0, True) is None
    told.metric({"at": 80.0, "step": 2})
    assert rules.judge(told, 61.0, True) is None and rules.judge(told, 120.0, True) is None
    reason = rules.judge(told, 121.0, True)
    assert reason is not None and reason.cause == "stalled"
    assert "at step 2" in reason.detail and "60 s" in reason.detail


def test_before_the_first_step_the_start_of_the_ranks_counts() -> None:
    rules = StopRules(StopOn(stalled_s=60), 0.0)
    assert rules.judge(RunHistory(), 500.0, True) is None, "no rank has started"
    assert rules.judge(story(), 501.0, True) is None
    reason = rules.judge(story(), 561.0, True)
    assert reason is not None and "before the first step" in reason.detail


@pytest.mark.parametrize("last", [100.0, 159.0])
def test_time_that_nobody_could_see_does_not_count(last: float) -> None:
    told, rules = story(2.0), StopRules(StopOn(stalled_s=60), 0.0)
    for now in (0.0, 50.0):
        assert rules.judge(told, now, True) is None
    assert rules.judge(told, 99.0, False) is None
    assert rules.judge(told, last, False) is None
    assert rules.judge(told, last + 59.0, True) is None
    assert rules.judge(told, last + 60.0, True) is not None


def test_a_restart_begins_anew() -> None:
    told, rules = story(2.0), StopRules(StopOn(stalled_s=60), 0.0)
    rules.judge(told, 0.0, True)
    told.event({"kind": "worker_started", "attempt": 2, "rank": 0, "node": "a", "at": 55.0})
    assert rules.judge(told, 59.0, True) is None and rules.judge(told, 118.0, True) is None
    assert rules.judge(told, 119.0, True) is not None


def test_what_could_not_be_carried_out_is_refused() -> None:
    with pytest.raises(InputError, match=r"job.stop_on.nan: has no effect: job.metrics.step_pattern has no group loss"):
        job(stop_on={"nan": True}, metrics={"step_pattern": r"iter (?P<step>\d+)"})
    job(stop_on={"nan": True}, metrics={"step_pattern": r"iter (?P<step>\d+) (?P<loss>\S+)"})
    job(stop_on={"stalled_s": 60}, metrics={"step_pattern": r"iter (?P<step>\d+)"})
    for key, values in (("nan", {"nan": True}), ("stalled_s", {"stalled_s": 60})):
        with pytest.raises(InputError, match=rf"job.stop_on.{key}: requires wait: true"):
            require_follower(job(stop_on=values), wait=False)
        require_follower(job(stop_on=values), wait=True)
    require_follower(job(), wait=False)
    with pytest.raises(InputError, match=r"job.stop_on.stalled_s: must be at least 1, not 0"):
        job(stop_on={"stalled_s": 0})
    with pytest.raises(InputError, match="Did you mean 'stalled_s'"):
        job(stop_on={"stalled": 60})
