# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a run stands: by its own step time, its way of reporting, and the pauses that it came back from."""

from __future__ import annotations

import pytest

from ansible_collections.muster.training.plugins.module_utils._model import stall
from ansible_collections.muster.training.plugins.module_utils._model.run_history import RunHistory


def readings(step_s: float, count: int = 30, every: int = 1) -> list[tuple[float, int]]:
    return [(1000.0 + number * every * step_s, number * every) for number in range(count)]


@pytest.mark.parametrize(
    "step_s, every, moves, late, stalled",
    [
        (0.1, 1, 4, 26, 31),
        (2.0, 1, 15, 60, 101),
        (60.0, 1, 300, 1000, 3001),
        (0.1, 100, 15, 40, 51),
        (1, 100, 150, 400, 501),
    ],
)
def test_the_limit_follows_from_the_steps(step_s: float, every: int, moves: float, late: float, stalled: float) -> None:
    pace = stall.measure_pace(readings(step_s, every=every))
    assert pace is not None and pace.step_s == pytest.approx(step_s)
    assert [stall.judge(since, pace) for since in (moves, late, stalled)] == ["moving", "late", "stalled"]


def test_a_pause_that_was_survived_is_none_the_next_time() -> None:
    """Validation or a large checkpoint; the first steps, which compile, say nothing."""
    times = [*readings(0.1), (1100.0, 30), (1100.1, 31)]
    pace = stall.measure_pace(times)
    assert pace is not None and stall.judge(150, pace) == "late" and stall.judge(200, pace) == "stalled"
    compiled = stall.measure_pace([(700.0, 0), *[(at, step + 1) for at, step in readings(0.1)]])
    assert stall.judge(31, compiled) == "stalled"


def test_steps_that_were_read_together_are_one_reading() -> None:
    times = [(1000.0 + number // 5 * 0.5, number) for number in range(50)]
    pace = stall.measure_pace(times)
    assert pace is not None and pace.step_s == pytest.approx(0.1) and pace.reading_s == pytest.approx(0.5)


def test_without_two_steps_the_start_counts() -> None:
    assert stall.limit_s(None) is None and stall.judge(1e6, None) == "late"
    assert stall.limit_s(None, 2.0) == 30.0 and stall.limit_s(None, 60.0) == 300.0
    assert stall.judge(200, None, 60.0) == "late" and stall.judge(301, None, 60.0) == "stalled"


def test_what_is_said() -> None:
    assert stall.describe(540, stall.Pace(0.0713, 0.1)) == "no step for 9 min, a step usually takes 0.0713 s"
    assert stall.describe(26, None) == "no step for 26 s"
    assert [stall.format_span(value) for value in (3, 7200, 200_000)] == ["3 s", "2 h", "2 d"]


def test_an_attempt_without_a_step_is_judged_by_the_one_before() -> None:
    """A gang that waits for ever at its first step after a restart."""
    story = RunHistory()

    def start(n: int, at: float) -> None:
        story.event({"kind": "worker_started", "rank": 0, "node": "a", "attempt": n, "gang": f"g{n}", "at": at})

    start(1, 1000.0)
    assert story.judge_movement(1e5) == "late", "how long its first step takes is not known"
    for number in range(30):
        story.metric({"at": 1010.0 + number / 10, "step": number})
    assert story.judge_movement(20) == "late" and story.judge_movement(31) == "stalled"
    start(2, 1020.0)
    assert story.judge_movement(40) == "late" and story.judge_movement(51) == "stalled", "five times its first start"
    story.metric({"at": 1021.0, "step": 20})
    story.metric({"at": 1021.1, "step": 21})
    assert story.judge_movement(31) == "stalled"
