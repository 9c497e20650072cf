# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What restarts cost, and whether each attempt resumed: rules on the steps that the program itself reported."""

from __future__ import annotations

import itertools
import typing as t


class AttemptSteps(t.Protocol):
    """What is known of the steps of an attempt. ``saved_steps``: the first and the last checkpoint saved in it."""

    @property
    def first_step(self) -> int | None: ...
    @property
    def last_step(self) -> int | None: ...
    @property
    def resumed_from(self) -> int | None: ...
    @property
    def saved_steps(self) -> tuple[int, int] | None: ...
    @property
    def first_step_at(self) -> float | None: ...
    @property
    def last_step_at(self) -> float | None: ...


class RestartCost(t.NamedTuple):
    """What one restart cost; None where it is not known, or not known yet.

    :ivar steps: steps done again after it. :ivar seconds: from the last step before it to the first one after it.
    """

    steps: int | None
    seconds: float | None


class Resume(t.NamedTuple):
    """Whether an attempt resumed. ``resumed`` is None where that is not known, or where there was nothing to resume.

    ``problem`` is empty unless ``resumed`` is False.
    """

    resumed: bool | None
    problem: str = ""


def furthest_step(attempt: AttemptSteps) -> int | None:
    """Return the furthest step that an attempt is known to have reached, None where none is.

    A program that prints every tenth step has been where it saved a checkpoint, too.
    """
    saved = attempt.saved_steps[1] if attempt.saved_steps else None
    return max((step for step in (attempt.last_step, saved) if step is not None), default=None)


def restart_costs(attempts: t.Sequence[AttemptSteps]) -> list[RestartCost]:
    """Return what each restart cost, in the order of the attempts before them."""
    costs: list[RestartCost] = []
    # The step that the model is at, and when the last step was made.
    reached, stepped_at = None, None
    for before, after in itertools.pairwise(attempts):
        furthest = furthest_step(before)
        reached = reached if furthest is None else furthest
        stepped_at = stepped_at if before.last_step is None else before.last_step_at
        begun = _step_begun_after(after)
        steps, seconds = None, None
        if begun is not None:
            # The steps from the last one to a later one were made and not printed: before the fault, or again after it.
            is_gap = reached is not None and begun > reached
            steps = None if is_gap else reached - begun if reached is not None else 0
            # A second restart from the same checkpoint loses no more.
            reached = min(reached, begun) if reached is not None else begun
        if stepped_at is not None and after.first_step_at is not None:
            seconds = max(0.0, after.first_step_at - stepped_at)
        costs.append(RestartCost(steps, seconds))
    return costs


def total_steps_lost(costs: t.Sequence[RestartCost]) -> int | None:
    """Return the steps done again in all; None while no step of the newest attempt is known."""
    if costs and costs[-1].steps is None:
        return None
    return sum(cost.steps or 0 for cost in costs)


def total_seconds_lost(costs: t.Sequence[RestartCost]) -> float | None:
    """Return the seconds without steps in all; None while no step of the newest attempt is known."""
    if costs and costs[-1].seconds is None:
        return None
    return sum(cost.seconds or 0.0 for cost in costs)


def _step_begun_after(attempt: AttemptSteps) -> int | None:
    """Return the step that an attempt began after; a program that logs every tenth step says more by its mark."""
    by_step = None if attempt.first_step is None else attempt.first_step - 1
    known = [step for step in (attempt.resumed_from, by_step) if step is not None]
    return min(known, default=None)


def judge_resumes(
    attempts: t.Sequence[AttemptSteps], interval_steps: int | None = None, anew: t.Collection[int] = ()
) -> list[Resume]:
    """Return whether each attempt resumed where it could have.

    :param interval_steps: the declared steps between two checkpoints.
    :param anew: indexes of attempts that were asked to start from the beginning.
    """
    found: list[Resume] = []
    earlier: list[AttemptSteps] = []
    # Of a run that shows its checkpoints at all, one that is not shown was not saved.
    is_shown = any(attempt.saved_steps is not None for attempt in attempts)
    for index, attempt in enumerate(attempts):
        if index in anew:
            earlier = []
        found.append(_judge_resume(attempt, earlier, interval_steps, is_shown=is_shown))
        earlier.append(attempt)
    return found


def describe_uneven(how: str) -> Resume:
    """Return what is said of an attempt whose ranks began at different steps: it is the resume of none of them."""
    return Resume(False, f"did not resume as one gang: {how}")


def _judge_resume(
    attempt: AttemptSteps, earlier: t.Sequence[AttemptSteps], interval_steps: int | None, *, is_shown: bool
) -> Resume:
    stepped = [item for item in earlier if item.first_step is not None and item.last_step is not None]
    first = attempt.first_step
    if not stepped or first is None:
        return Resume(None)
    origin = t.cast(int, stepped[0].first_step)
    reached = max(t.cast(int, furthest_step(item)) for item in stepped)
    saved = [item.saved_steps for item in earlier if item.saved_steps is not None]
    if saved:
        oldest, newest = min(low for low, _high in saved), max(high for _low, high in saved)
        if first >= oldest and (first > origin or newest <= origin):
            return Resume(True)
        return Resume(
            False, f"did not resume: it began at step {first}, although a checkpoint of step {newest} had been saved"
        )
    if first > origin:
        return Resume(True)
    if is_shown or _had_nothing_to_resume(attempt, reached - origin + 1, interval_steps):
        return Resume(None)
    return Resume(
        False, f"did not resume: it began at step {first} again after step {reached}, and reported no checkpoint"
    )


def _had_nothing_to_resume(attempt: AttemptSteps, steps: int, interval_steps: int | None) -> bool:
    """Return whether a program that reported no checkpoint had saved none: its interval, else its own word, tells."""
    if interval_steps is not None:
        return steps <= interval_steps
    return attempt.resumed_from == 0
