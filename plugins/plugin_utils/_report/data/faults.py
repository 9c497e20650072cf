# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The faults of a run and whether the run resumed after each: only the program's own steps prove a resume."""

from __future__ import annotations

import dataclasses
import itertools
import statistics
import typing as t

from ....module_utils._model.resumes import Resume, furthest_step, judge_resumes, restart_costs
from . import format as fmt
from .attempts import AttemptView
from .load import Segment

Proof = t.Literal["proven", "fresh", "unproven", "contradicted"]


@dataclasses.dataclass(frozen=True, slots=True)
class Fault:
    """One fault after which the job started again. ``reasons`` say what is missing or wrong; empty when proven.

    ``fresh`` is a restart from the beginning before any checkpoint: nothing was wrong, and nothing was proven.
    ``had_checkpoint``: one was saved before it, or the run came back from one, so that there was something to resume.

    :ivar step: furthest step reached before the fault. :ivar resumed_from: step of the checkpoint that was loaded.
    :ivar seconds_lost: last step before the fault to the first step after it, as the run record counts them.
    :ivar settled: the first attempt after it that made a step.
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
    settled: AttemptView | None = None
    had_checkpoint: bool = True

    @property
    def world_size(self) -> int | None:
        """How many ranks the job had when it made steps again."""
        return (self.settled or self.after).world_size

    @property
    def at(self) -> float | None:
        """When the attempt before it ended."""
        return self.attempt.end


@dataclasses.dataclass(frozen=True, slots=True)
class Promise:
    """What a job says of its restarts: the ranks that it needs, and the steps between its checkpoints.

    ``elastic`` allows the world size to change, ``declared`` is the interval that the job names itself, and ``anew``
    are the indexes of attempts that were asked to start from the beginning. ``steps_known``: the program's counter is
    that of the run.
    """

    elastic: bool = False
    ranks: int | None = None
    interval: int | None = None
    declared: int | None = None
    anew: t.Collection[int] = ()
    steps_known: bool = True


def find_faults(attempts: t.Sequence[AttemptView], promise: Promise) -> tuple[Fault, ...]:
    """Return one fault for every attempt that another followed."""
    faults: list[Fault] = []
    resumes = judge_resumes(attempts, promise.declared, promise.anew)
    resumes = resumes if promise.steps_known else [Resume(None)] * len(attempts)
    reached: int | None = None
    began = next((attempt.first_step for attempt in attempts if attempt.first_step is not None), None)
    saved: list[int] = []
    is_shown = promise.declared is not None or any(item.segment and item.segment.checkpoints for item in attempts)
    for number, (before, after) in enumerate(itertools.pairwise(attempts), start=1):
        furthest = furthest_step(before)
        reached = reached if furthest is None else furthest
        saved += [checkpoint.step for checkpoint in before.segment.checkpoints] if before.segment else []
        # A start that another one replaced before its first step belongs to the same restart.
        settled = next((item for item in attempts[number:] if item.steps), after)
        not_resumed = (
            next((item.problem for item in resumes[number:] if item.problem), "")
            if settled is not after
            else resumes[number].problem
        )
        faults.append(
            _judge_restart(
                number, (before, after), settled, Reached(began, reached, tuple(saved), is_shown), promise, not_resumed
            )
        )
    costs = restart_costs(attempts)
    return tuple(
        dataclasses.replace(
            fault,
            steps_lost=None if not promise.steps_known else fault.steps_lost if cost.steps is None else cost.steps,
            seconds_lost=cost.seconds,
        )
        for fault, cost in zip(faults, costs, strict=True)
    )


@dataclasses.dataclass(frozen=True, slots=True)
class Reached:
    """What a run had come to at a fault: its first step ever, its last one, and its checkpoints.

    ``is_shown``: the run shows its checkpoints at all, so that one that is not among them was not saved.
    """

    began: int | None
    last: int | None
    saved: tuple[int, ...]
    is_shown: bool = False

    def is_nothing_for(self, after: AttemptView) -> bool:
        """Return whether an attempt began from the beginning because there was no checkpoint yet."""
        return self.is_shown and not self.saved and not after.resumed_from and self._is_beginning(after)

    def has_checkpoint_for(self, after: AttemptView) -> bool:
        """Return whether a checkpoint is known that an attempt could resume, or resumed."""
        return bool(self.saved or after.resumed_from or (after.steps and not self._is_beginning(after)))

    def _is_beginning(self, after: AttemptView) -> bool:
        return bool(after.steps) and after.steps[0].step == self.began


def _judge_restart(
    number: int,
    pair: tuple[AttemptView, AttemptView],
    settled: AttemptView,
    reached: Reached,
    promise: Promise,
    not_resumed: str,
) -> Fault:
    before, after = pair
    resumed = settled.resumed_from
    repeated = _repeated_steps(settled, reached) if resumed is None else None
    wrong = [reason for reason in (not_resumed, *_contradictions(before, settled, reached, promise)) if reason]
    missing = [] if not_resumed else list(_missing_proof(before, settled, reached, promise, repeated))
    proven = resumed or (resumed is None and repeated is not None and not reached.is_nothing_for(settled))
    return Fault(
        number=number,
        attempt=before,
        after=after,
        cause=before.cause or "unknown",
        step=reached.last,
        resumed_from=resumed,
        seconds_to_catch_up=_catch_up_time(before, settled, reached.last),
        proof="contradicted" if wrong else "unproven" if missing else "proven" if proven else "fresh",
        reasons=tuple(wrong + missing),
        steps_lost=repeated,
        settled=settled,
        had_checkpoint=reached.has_checkpoint_for(settled),
    )


def _repeated_steps(after: AttemptView, reached: Reached) -> int | None:
    """Return how many steps a program did again that does not say where it resumed, by its own step counter."""
    if not after.steps or reached.last is None or reached.began is None:
        return None
    return max(0, reached.last - after.steps[0].step + 1)


def _catch_up_time(before: AttemptView, after: AttemptView, reached: int | None) -> float | None:
    """Return the seconds from the last step before the fault until that step was reached again."""
    again = next((step.at for step in after.steps if reached is not None and step.step >= reached), None)
    return again - before.last_step_at if again is not None and before.last_step_at is not None else None


def _contradictions(
    before: AttemptView, after: AttemptView, reached: Reached, promise: Promise
) -> t.Iterator[str | None]:
    resumed, last = (after.resumed_from, reached.last) if promise.steps_known else (None, None)
    # Steps that a program does not print are reached, too.
    if resumed is not None and last is not None and resumed >= last + _stride(before, after):
        yield f"it reports that it continued from step {resumed}, but only step {last} had been reached"
    if resumed and last is not None and promise.interval and last - resumed > promise.interval:
        yield f"{last - resumed} steps were lost, the checkpoint interval is {promise.interval}"
    sizes = (before.world_size, after.world_size)
    if None not in sizes and sizes[0] != sizes[1] and not promise.elastic:
        yield f"world size changed from {sizes[0]} to {sizes[1]}"
    elif after.world_size is not None and promise.ranks is not None and after.world_size < promise.ranks:
        yield f"{after.world_size} of {promise.ranks} ranks resumed"
    yield _loss_jump(before.segment, after.segment) if promise.steps_known else None


_SAY = (
    'append {"resumed_from_step": N} to MUSTER_METRICS_FILE, or set metrics.resume_pattern or '
    "checkpoints.interval_steps"
)


def _missing_proof(
    before: AttemptView, after: AttemptView, reached: Reached, promise: Promise, repeated: int | None
) -> t.Iterator[str]:
    segment, resumed, saved = after.segment, after.resumed_from, reached.saved
    if segment is None:
        yield "the program wrote no metrics after the restart"
        return
    if not segment.steps:
        yield "no step followed the restart"
    elif not promise.steps_known:
        yield "the step counter begins anew in each epoch, so that no step says where it resumed"
    elif resumed is None and not reached.is_nothing_for(after):
        yield from _missing_by_counter(segment, reached, promise, repeated, _stride(before, after))
    elif resumed is not None and not resumed <= segment.steps[0].step <= resumed + _stride(before, after):
        yield f"the first step afterwards is {segment.steps[0].step}"
    # A program that was ended between saving a checkpoint and saying so resumes from its very last step.
    unsaid = resumed == reached.last and resumed is not None and resumed > max(saved, default=0)
    if resumed is not None and resumed > 0 and saved and resumed not in saved and not unsaid:
        yield f"no checkpoint of step {resumed} was recorded"
    if after.world_size is None:
        yield "the world size after the restart was not reported"


def _missing_by_counter(
    segment: Segment, reached: Reached, promise: Promise, repeated: int | None, stride: int
) -> t.Iterator[str]:
    """Yield why the step counter of a program that only prints its steps does not prove that it resumed."""
    first = segment.steps[0].step
    if promise.interval is None or repeated is None or reached.last is None:
        yield f"the program did not say from which step it resumed: {_SAY}"
    elif first == reached.began:
        yield f"it began again at step {first}, before a checkpoint was due"
    elif first > reached.last + stride:
        yield f"no step from {reached.last} to {first} was read, so that none says where it resumed"
    elif repeated > promise.interval + stride:
        yield f"{repeated} steps were repeated, the checkpoint interval is {promise.interval}"


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
