# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The faults of a run and whether the run resumed after each: only the program's own steps prove a resume.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import dataclasses
import itertools
import statistics
import typing as t

from ....module_utils._model.resumes import judge_resumes, restart_costs
from . import format as fmt
from .attempts import AttemptView
from .load import Segment

Proof = t.Literal["proven", "fresh", "unproven", "contradicted"]


@dataclasses.dataclass(frozen=True, slots=True)
class Fault:
    """One fault after which the job started again. ``reasons`` say what is missing or wrong; empty when proven.

    ``fresh`` is a restart at step 0 with no checkpoint known: nothing was wrong, and nothing was proven.

    :ivar step: last step reached before the fault. :ivar resumed_from: step of the checkpoint that was loaded.
    :ivar seconds_lost: last step before the fault to the first step after it, as the run record counts them.
    :ivar seconds_to_catch_up: until the step reached before the fault was reached again; None when it never was.
    """

    number: int
    attempt: AttemptView
    after: AttemptView
    cause: str
    step: int | None
    resumed_from: int | None
    seconds_to_catch_up: float | None
    proof: Proof
    reasons: tuple[str, ...]
    steps_lost: int | None = None
    seconds_lost: float | None = None

    @property
    def at(self) -> float | None:
        """When the attempt before it ended."""
        return self.attempt.end


def find_faults(
    attempts: t.Sequence[AttemptView],
    elastic: bool,
    interval_steps: int | None = None,
    anew: t.Collection[int] = (),
) -> tuple[Fault, ...]:
    """Return one fault for every attempt that another followed. ``elastic`` allows the world size to change.

    :param interval_steps: the job's own steps between two checkpoints.
    :param anew: indexes of attempts that were asked to start from the beginning.
    """
    faults: list[Fault] = []
    resumes = judge_resumes(attempts, interval_steps, anew)
    reached: int | None = None
    saved: list[int] = []
    for number, (before, after) in enumerate(itertools.pairwise(attempts), start=1):
        reached = before.last_step if before.last_step is not None else reached
        saved += [checkpoint.step for checkpoint in before.segment.checkpoints] if before.segment else []
        faults.append(_judge_restart(number, before, after, reached, saved, elastic, resumes[number].problem))
    costs = restart_costs(attempts)
    return tuple(
        dataclasses.replace(fault, steps_lost=cost.steps, seconds_lost=cost.seconds)
        for fault, cost in zip(faults, costs, strict=True)
    )


def _judge_restart(
    number: int,
    before: AttemptView,
    after: AttemptView,
    reached: int | None,
    saved: list[int],
    elastic: bool,
    not_resumed: str,
) -> Fault:
    resumed = after.resumed_from
    wrong = [reason for reason in (not_resumed, *_contradictions(after, resumed, reached, before, elastic)) if reason]
    missing = list(_missing_proof(before, after, resumed, saved))
    return Fault(
        number=number,
        attempt=before,
        after=after,
        cause=before.cause or "unknown",
        step=reached,
        resumed_from=resumed,
        seconds_to_catch_up=_catch_up_time(before, after, reached),
        proof="contradicted" if wrong else "unproven" if missing else "proven" if resumed else "fresh",
        reasons=tuple(wrong + missing),
    )


def _catch_up_time(before: AttemptView, after: AttemptView, reached: int | None) -> float | None:
    """Return the seconds from the last step before the fault until that step was reached again."""
    again = next((step.at for step in after.steps if reached is not None and step.step >= reached), None)
    return again - before.last_step_at if again is not None and before.last_step_at is not None else None


def _contradictions(
    after: AttemptView, resumed: int | None, reached: int | None, before: AttemptView, elastic: bool
) -> t.Iterator[str | None]:
    if resumed is not None and reached is not None and resumed > reached:
        yield f"it reports that it continued from step {resumed}, but only step {reached} had been reached"
    sizes = [attempt.segment.world_size if attempt.segment else None for attempt in (before, after)]
    if None not in sizes and sizes[0] != sizes[1] and not elastic:
        yield f"world size changed from {sizes[0]} to {sizes[1]}"
    yield _loss_jump(before.segment, after.segment)


def _missing_proof(before: AttemptView, after: AttemptView, resumed: int | None, saved: list[int]) -> t.Iterator[str]:
    segment = after.segment
    if segment is None:
        yield "the program wrote no metrics after the restart"
        return
    if resumed is None:
        yield "the program did not say from which step it resumed"
    elif resumed > 0 and saved and resumed not in saved:
        yield f"no checkpoint of step {resumed} was recorded"
    if not segment.steps:
        yield "no step followed the restart"
    elif resumed is not None and not resumed <= segment.steps[0].step <= resumed + _stride(before, after):
        yield f"the first step afterwards is {segment.steps[0].step}"
    if segment.world_size is None:
        yield "the world size after the restart was not reported"


def _stride(before: AttemptView, after: AttemptView) -> int:
    """Return the usual distance of logged steps: a program that logs every tenth step resumes within ten."""
    gaps = [
        later.step - earlier.step
        for part in (before.segment, after.segment)
        if part
        for earlier, later in itertools.pairwise(part.steps[:50])
    ]
    return max(int(statistics.median_high(gaps)) if gaps else 1, 1)


def _loss_jump(before: Segment | None, after: Segment | None) -> str | None:
    """Compare the loss at the resumed step with what it was there before the fault.

    A model that lost its state is back near its first loss. The tolerance is the larger of 10 % and three times
    the spread of the losses around that step, so that ordinary noise is not reported.
    """
    if not before or not after or not before.steps or not after.steps:
        return None
    first = after.steps[0]
    near = [step.loss for step in before.steps if abs(step.step - first.step) <= 10 and step.loss is not None]
    start = before.steps[0].loss
    if len(near) < 3 or first.loss is None or start is None or first.step <= 10:
        return None
    usual = statistics.fmean(near)
    tolerance = max(0.1 * abs(usual), 3 * (max(near) - min(near)))
    if abs(first.loss - usual) <= tolerance or abs(first.loss - start) > abs(first.loss - usual):
        return None
    return (
        f"the loss went back to {fmt.format_figure(first.loss)} (it had been {fmt.format_figure(usual)} at that step)"
    )
