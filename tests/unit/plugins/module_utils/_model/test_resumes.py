# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether attempts resumed and what their restarts cost, by the steps that programs report."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.module_utils._model import resumes
from ansible_collections.muster.training.plugins.module_utils._model.run_attempt import Attempt


def made(first: int | None, last: int | None, saved: tuple[int, int] | None = None, mark: int | None = None) -> Attempt:
    at = None if first is None else 1.0
    return Attempt(
        1,
        0.0,
        first_step=first,
        last_step=last,
        saved_steps=saved,
        resumed_from=mark,
        first_step_at=at,
        last_step_at=at,
    )


@pytest.mark.parametrize(
    ("attempts", "resumed", "words"),
    [
        ([made(1, 41, (10, 40)), made(41, 60)], True, ""),
        ([made(1, 41, (10, 40)), made(11, 60)], True, ""),
        ([made(1, 41, (10, 40)), made(1, 60, mark=0)], False, "began at step 1, although a checkpoint of step 40"),
        ([made(1, 41, (10, 40)), made(5, 60)], False, "although a checkpoint of step 40 had been saved"),
        ([made(0, 41, (0, 40)), made(0, 60)], False, "although a checkpoint of step 40 had been saved"),
        ([made(1, 5, (0, 0)), made(1, 60)], True, ""),
        ([made(1, 41), made(1, 60)], False, "began at step 1 again after step 41, and reported no checkpoint"),
        ([made(1, 41), made(41, 60)], True, ""),
        ([made(1, 3), made(1, 60, mark=0)], None, ""),
        # It shows its checkpoints: before the first fault there was none.
        ([made(1, 41), made(1, 60, (50, 60))], None, ""),
        ([made(None, None), made(1, 60)], None, ""),
        ([made(1, 41, (10, 40)), made(None, None)], None, ""),
        ([made(1, 41, (10, 40)), made(None, None), made(1, 60)], False, "although a checkpoint of step 40"),
        ([made(61, 90, (70, 80)), made(1, 60)], False, "although a checkpoint of step 80"),
    ],
)
def test_an_attempt_resumes_after_a_saved_checkpoint(attempts: list[Attempt], resumed: bool | None, words: str) -> None:
    found = resumes.judge_resumes(attempts)
    assert found[0] == resumes.Resume(None)
    assert found[-1].resumed is resumed and words in found[-1].problem
    assert bool(found[-1].problem) == (resumed is False)


@pytest.mark.parametrize(
    ("after", "steps"),
    [(made(19, 48), 5), (made(24, 48), 0), (made(33, 48), None), (made(33, 48, mark=18), 5)],
)
def test_steps_that_nobody_printed_cost_what_is_not_known(after: Attempt, steps: int | None) -> None:
    """After a checkpoint in mid-epoch Lightning numbers no step until the next epoch."""
    costs = resumes.restart_costs([made(1, 23), after])
    assert resumes.total_steps_lost(costs) == steps


def test_seconds_without_steps_are_not_known_where_no_step_is() -> None:
    assert resumes.total_seconds_lost(resumes.restart_costs([made(None, None), made(None, None)])) is None
    assert resumes.total_seconds_lost(resumes.restart_costs([made(1, 23), made(None, None)])) is None
    assert resumes.total_seconds_lost(resumes.restart_costs([made(1, 23), made(None, None), made(24, 30)])) == 0.0
    assert resumes.total_seconds_lost([]) == 0.0


@pytest.mark.parametrize(("interval", "resumed"), [(41, None), (40, False)])
def test_before_its_first_interval_a_program_has_nothing_to_resume(interval: int, resumed: bool | None) -> None:
    assert resumes.judge_resumes([made(1, 41), made(1, 60)], interval)[1].resumed is resumed


def test_an_attempt_that_had_to_start_from_the_beginning_is_not_blamed() -> None:
    attempts = [made(1, 41, (10, 40)), made(1, 60, (10, 60)), made(1, 70)]
    assert [item.resumed for item in resumes.judge_resumes(attempts, anew=[1])] == [None, None, False]


@pytest.mark.parametrize(
    ("attempts", "lost"),
    [
        ([made(1, 41)], 0),
        ([made(1, 41), made(41, 60)], 1),
        ([made(1, 41), made(1, 60)], 41),
        ([made(0, 41), made(0, 60)], 42),
        # It prints every tenth step: the mark says more.
        ([made(10, 60, mark=0), made(50, 90, mark=40)], 20),
        # The mark says 40, its steps say that it began anew: the steps count.
        ([made(1, 57), made(1, 60, mark=40)], 57),
        ([made(1, 57), made(None, None), made(41, 60)], 17),
        ([made(1, 57), made(41, 60), made(None, None)], None),
        ([made(None, None), made(1, 60)], 0),
        ([made(None, None), made(None, None)], None),
        ([made(1, 57), made(None, None, mark=40), made(41, 60)], 17),
    ],
)
def test_steps_lost_are_those_done_again(attempts: list[Attempt], lost: int | None) -> None:
    assert resumes.total_steps_lost(resumes.restart_costs(attempts)) == lost


def attempts(*steps: tuple[int | None, int | None]) -> list[Attempt]:
    """Return attempts of (resumed from, last step), 10 s each; their steps are made in seconds 2 to 8."""
    return [
        Attempt(
            n,
            10.0 * n,
            resumed_from=resumed,
            last_step=last,
            first_step_at=10.0 * n + 2 if last is not None else None,
            last_step_at=10.0 * n + 8 if last is not None else None,
        )
        for n, (resumed, last) in enumerate(steps)
    ]


@pytest.mark.parametrize(
    ("steps", "costs"),
    [
        ([(0, 100), (80, 120)], [(20, 4.0)]),
        ([(0, 100), (None, 120)], [(None, 4.0)]),
        # The second attempt made no step: what the first one had reached is lost once, and the time until the third.
        ([(0, 100), (80, None), (80, 120)], [(20, None), (0, 14.0)]),
        ([(0, 100), (None, None), (80, 120)], [(None, None), (20, 14.0)]),
        ([(0, None), (0, 7)], [(0, None)]),
    ],
)
def test_what_restarts_cost(
    steps: list[tuple[int | None, int | None]], costs: list[tuple[int | None, float | None]]
) -> None:
    assert resumes.restart_costs(attempts(*steps)) == costs


STEPS = st.none() | st.integers(0, 50)


@given(pairs=st.lists(st.tuples(STEPS, STEPS, STEPS), max_size=6), interval=st.none() | st.integers(1, 20))
def test_any_attempts_can_be_judged(
    pairs: list[tuple[int | None, int | None, int | None]], interval: int | None
) -> None:
    attempts = [made(first, last if first is not None else None, mark=mark) for first, last, mark in pairs]
    attempts = [dataclasses.replace(item, saved_steps=(3, 9)) if item.last_step == 9 else item for item in attempts]
    lost = resumes.total_steps_lost(resumes.restart_costs(attempts))
    assert lost is None or lost >= 0
    assert len(resumes.judge_resumes(attempts, interval)) == len(attempts)
