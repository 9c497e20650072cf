# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How long the last lines of a run that has ended are waited for."""

from __future__ import annotations

import types
import typing as t

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.follower import RunOutcome
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.kubernetes.ending import (
    last_lines,
)
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.kubernetes.ending.last_lines import (
    FoundEnd,
    is_over,
)

DONE = RunOutcome("succeeded", 0, "succeeded", "all ranks exited with code 0")
CRASH = RunOutcome("failed", 1, "crash", "a rank exited with code 1")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> types.SimpleNamespace:
    now = types.SimpleNamespace(at=100.0)
    monkeypatch.setattr(last_lines, "time", types.SimpleNamespace(monotonic=lambda: now.at, time=lambda: now.at))
    return now


def test_logs_of_ended_containers_are_read_for_as_long_as_lines_come(clock: t.Any) -> None:
    """Those of containers that still run may never end."""
    ending, other = FoundEnd(DONE, by_engine=True), FoundEnd(DONE, by_engine=True)
    for _minute in range(60):
        clock.at += 19.0
        ending.take_line()
        other.take_line()
        assert ending.must_wait(True, alive=False, silent=False)
    assert not other.must_wait(True, alive=True, silent=False)
    assert not ending.must_wait(False, alive=False, silent=False), "nothing is read any more"
    clock.at += 21.0
    assert not ending.must_wait(True, alive=False, silent=False), "nothing has come for long"


def test_a_run_that_was_told_to_end_has_its_time_to_save_and_no_more(clock: t.Any) -> None:
    ending = FoundEnd(DONE, saves_s=30.0)
    clock.at += 49.0
    ending.take_line()
    assert ending.must_wait(True, alive=True, silent=False)
    clock.at += 2.0
    assert not ending.must_wait(True, alive=True, silent=False) and not ending.must_wait(True, alive=False, silent=True)


@pytest.mark.parametrize(
    ("outcome", "by_engine", "waits"), [(CRASH, True, True), (CRASH, False, False), (DONE, True, False)]
)
def test_only_a_crash_may_turn_out_to_be_a_lost_node(
    clock: t.Any, outcome: RunOutcome, by_engine: bool, waits: bool
) -> None:
    ending = FoundEnd(outcome, by_engine=by_engine)
    clock.at += 74.0
    assert ending.must_wait(False, alive=True, silent=True) is waits
    clock.at += 2.0
    assert not ending.must_wait(False, alive=True, silent=True)


def test_a_pod_is_over_by_the_word_of_its_node() -> None:
    assert [is_over({"status": {"phase": phase}}) for phase in ("Succeeded", "Failed", "Running")] == [
        True,
        True,
        False,
    ]
    assert not is_over({})
