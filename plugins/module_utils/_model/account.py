# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where the time of a run went: each second from its submission to its end is in exactly one bucket.

The spans of an account follow on each other without a hole, so that their sum is the time of the run whatever its
events say. What no event tells is ``unknown``.
"""

from __future__ import annotations

import dataclasses
import itertools
import statistics
import typing as t

from . import stall
from .run_attempt import Attempt
from .run_history import RunHistory
from .step_readings import StepReading

Bucket = t.Literal[
    "queue",
    "stage",
    "start",
    "useful",
    "checkpoint",
    "redone",
    "detect",
    "restart",
    "hang",
    "slow",
    "stop",
    "idle",
    "unknown",
]
# In the order in which people read them, each with what it holds.
BUCKETS: t.Final[dict[str, str]] = {
    "useful": "steps that count, at the usual time of a step",
    "checkpoint": "steps that took longer because a checkpoint was saved",
    "slow": "steps that took more than 1.25 times the usual, beyond the usual",
    "hang": "no step for longer than the pace of the run explains, or ranks that waited for one that did not come",
    "redone": "steps made again after a restart",
    "detect": "from the last step before a fault until the fault was seen",
    "restart": "from then until the first step of the next attempt",
    "start": "from the start of the ranks to the first step",
    "stage": "from the submission, or the admission by a queue, to the start of the ranks: code, data, checkpoints and "
    "environments or images are brought, and the launchers start",
    "queue": "waiting for a place in a queue",
    "stop": "from the last step to the end: last saves, results, end of the processes",
    "idle": "between the end of the run and its continuation",
    "unknown": "what no event tells, as of a program whose steps cannot be read, or were read after the fact",
}
# A step that takes so many times the usual is slow.
_SLOW: t.Final = 1.25
# The usual time of a step is that of its hour, where the hour has so many of them.
_HOUR_S: t.Final = 3600.0
_ENOUGH: t.Final = 8
_WARM_UP: t.Final = 2


_Gap = tuple[StepReading, StepReading]


class Span(t.NamedTuple):
    """A stretch of a run (Unix seconds) and what it went to."""

    start: float
    end: float
    bucket: str


@dataclasses.dataclass(frozen=True, slots=True)
class AccountTimes:
    """When a run was submitted, admitted by its queue (None: it has none, or was not), and ended, or what time it is.

    ``is_over``: it has ended.
    """

    submitted: float
    admitted: float | None
    end: float
    is_over: bool = True


class _Tape:
    """Spans that follow on each other from the start to the end of a run: time that is behind cannot be given twice."""

    def __init__(self, start: float, end: float) -> None:
        self.here, self.end = start, max(start, end)
        self.spans: list[Span] = []

    def run_to(self, at: float, bucket: Bucket) -> None:
        """Give the time until ``at`` to a bucket."""
        at = min(at, self.end)
        if at <= self.here:
            return
        last = self.spans[-1] if self.spans else None
        if last is not None and last.bucket == bucket:
            self.spans[-1] = Span(last.start, at, bucket)
        else:
            self.spans.append(Span(self.here, at, bucket))
        self.here = at

    def run_through(self, at: float, bucket: Bucket, others: t.Iterable[tuple[float, float, Bucket]]) -> None:
        """Give the time until ``at`` to a bucket, but for the parts that belong to ``others`` (from, until, bucket)."""
        for start, end, other in sorted(others):
            if start < at and end > self.here:
                self.run_to(start, bucket)
                self.run_to(min(end, at), other)
        self.run_to(at, bucket)


def build_spans(history: RunHistory, clock: AccountTimes) -> list[Span]:
    """Return where the time of a run went, by time."""
    tape = _Tape(clock.submitted, clock.end)
    attempts = history.attempts
    parts = history.readings.split([item.started_at for item in attempts], is_counted=history.are_steps_known)
    usual = _usual_step_s([gap for readings in parts for gap in itertools.pairwise(readings)])
    away: list[tuple[float, float, Bucket]] = [(start, end, "queue") for start, end in history.unplaced_spans()]
    reached: int | None = None
    for attempt, readings, later in zip(attempts, parts, [*attempts[1:], None], strict=False):
        pause = _pause_between(history, attempt, later)
        begin: Bucket = "start" if history.begins_start(attempt) else "restart"
        # That of a start that was continued: of those before it the record does not know when they were admitted.
        if clock.admitted is not None and clock.admitted <= attempt.started_at:
            tape.run_to(clock.admitted, "queue")
        tape.run_through(attempt.started_at, "stage" if begin == "start" else "restart", away)
        if readings:
            _account_steps(tape, attempt, readings, begin, reached if history.are_steps_known else None, usual)
            reached = max(reached or 0, readings[-1].step)
        until = min(later.started_at if later else clock.end, pause[0] if pause else clock.end)
        seen_at = _seen_at(history, attempt, until)
        if seen_at is not None:
            tape.run_to(min(seen_at, until), _last_bucket(attempt, readings, begin) if any(parts) else "unknown")
        if pause is not None:
            tape.run_to(pause[0], "stop")
            tape.run_to(pause[1], "idle")
    if not attempts and clock.admitted is not None:
        tape.run_to(clock.admitted, "queue")
    if attempts:
        _account_tail(tape, history, parts, clock, usual)
    tape.run_to(clock.end, "unknown")
    return tape.spans


def _pause_between(history: RunHistory, attempt: Attempt, later: Attempt | None) -> tuple[float, float] | None:
    """Return from when until when the run had ended between two attempts, None where it had not."""
    until = later.started_at if later else 0.0
    return next(((start, end) for start, end in history.pauses if attempt.started_at <= start < until), None)


def _seen_at(history: RunHistory, attempt: Attempt, until: float) -> float | None:
    """Return when the end of an attempt was seen: its first failure, or when its lost node was noticed."""
    since = attempt.last_step_at or attempt.started_at
    noticed = [at for at, cause, _node in history.faults if cause == "node_lost" and since <= at < until]
    return max((at for at in (attempt.ended_at, *noticed) if at is not None), default=None)


def _last_bucket(attempt: Attempt, readings: t.Sequence[StepReading], begin: Bucket) -> Bucket:
    """Return what the time from the last step of an attempt to its end went to."""
    if not readings:
        return begin
    if attempt.hangs_now:
        return "hang"
    return "stop" if attempt.cause in (None, "cancelled") else "detect"


def _account_tail(
    tape: _Tape, history: RunHistory, parts: t.Sequence[t.Sequence[StepReading]], clock: AccountTimes, usual: float
) -> None:
    """Account for what came after all that is known of the newest attempt.

    :param usual: seconds of a step, 0 where they are not known: what a step that is not over takes beyond it may be a
        save, a slow step or a hang.
    """
    newest, readings = history.attempts[-1], parts[-1]
    if not any(parts):
        return
    if clock.is_over:
        saved = history.readings.last_saved(tape.here)
        if saved is not None and readings and newest.cause is None:
            tape.run_to(saved, "checkpoint")
        tape.run_to(clock.end, "stop")
    elif not readings:
        tape.run_to(clock.end, "start" if history.begins_start(newest) else "restart")
    else:
        if newest.hangs_now or history.judge_movement(clock.end - readings[-1].at) == "stalled":
            tape.run_to(clock.end, "hang")
        tape.run_to(readings[-1].at + _SLOW * usual if usual else clock.end, "useful")


def _account_steps(
    tape: _Tape,
    attempt: Attempt,
    readings: t.Sequence[StepReading],
    begin: Bucket,
    reached: int | None,
    usual: float,
) -> None:
    """Account for the steps of an attempt, its first one by the usual time of a step.

    :param begin: what the time before its first step goes to. :param reached: the furthest step of the attempts before
        it, None where there is none. :param usual: seconds of a step in the whole run, for an attempt of too few.
    """
    gaps = list(itertools.pairwise(readings))
    typical = _usual_step_s(gaps) or usual
    hours = {hour: _usual_step_s(part) for hour, part in _group_by_hour(gaps).items() if len(part) >= _ENOUGH}
    first = readings[0]
    tape.run_to(first.at - (first.late_s or typical), begin)
    if first.late_s:
        tape.run_to(first.at, "unknown")
    _give_steps(tape, first.at, first.step - 1, first.step, reached)
    pauses = _Pauses([gap for gap in gaps if _is_dated(gap)], typical, attempt.hangs)
    for number, (before, after) in enumerate(gaps):
        if after.late_s:
            tape.run_to(after.at, "unknown")
            continue
        step_s = hours.get(int((before.at - first.at) // _HOUR_S)) or typical
        expected = max(1, after.step - before.step) * step_s
        extra = after.at - before.at - expected
        bucket = begin if number < _WARM_UP else pauses.explain(before, after)
        if extra > (0.0 if after.has_saved else (_SLOW - 1) * expected):
            tape.run_to(before.at + extra, bucket)
        _give_steps(tape, after.at, before.step, after.step, reached)


class _Pauses:
    """Tells what the time between two steps beyond the usual went to."""

    def __init__(
        self, gaps: t.Sequence[_Gap], typical: float, hangs: t.Sequence[tuple[float, float | None, str]]
    ) -> None:
        self._hangs = hangs
        times = [after.at - before.at for before, after in gaps]
        self._limit = stall.limit_s(stall.Pace(typical, statistics.median(times))) if times else None
        # By whether a checkpoint was saved in them, the longest two of which no hang is known.
        self._longest: dict[bool, list[float]] = {False: [], True: []}
        for before, after in gaps:
            if not self._is_hang(before, after):
                longest = self._longest[after.has_saved]
                self._longest[after.has_saved] = sorted([*longest, after.at - before.at])[-2:]

    def _is_hang(self, before: StepReading, after: StepReading) -> bool:
        return any(since < after.at and (until is None or until > before.at) for since, until, _text in self._hangs)

    def explain(self, before: StepReading, after: StepReading) -> Bucket:
        """Return the bucket of what two steps are apart beyond the usual."""
        if self._is_hang(before, after) or self._stands(after.at - before.at, self._longest[after.has_saved]):
            return "hang"
        return "checkpoint" if after.has_saved else "slow"

    def _stands(self, seconds: float, longest: t.Sequence[float]) -> bool:
        """Return whether the run stood: a program that pauses again and again, as to validate or to save, does not."""
        is_single = len(longest) == 2 and seconds == longest[1] and seconds > stall.PAUSES * longest[0]
        return self._limit is not None and seconds > self._limit and is_single


def _give_steps(tape: _Tape, until: float, before: int, after: int, reached: int | None) -> None:
    """Give the time until ``until`` to the steps from ``before`` (not made in it) to ``after``, again or new."""
    again = 0 if reached is None else max(0, min(after, reached) - before)
    share = again / max(1, after - before)
    tape.run_to(tape.here + (until - tape.here) * share, "redone")
    tape.run_to(until, "useful")


def _group_by_hour(gaps: t.Sequence[_Gap]) -> dict[int, list[_Gap]]:
    found: dict[int, list[_Gap]] = {}
    for before, after in gaps:
        found.setdefault(int((before.at - gaps[0][0].at) // _HOUR_S), []).append((before, after))
    return found


def _is_dated(gap: _Gap) -> bool:
    return not gap[0].late_s and not gap[1].late_s


def _usual_step_s(gaps: t.Sequence[_Gap]) -> float:
    """Return the median seconds of a step, without those in which a checkpoint was saved; 0.0 where none is known."""
    gaps = [gap for gap in gaps if _is_dated(gap)]
    plain = [(before, after) for before, after in gaps[_WARM_UP:] or gaps if not after.has_saved]
    times = [(after.at - before.at) / max(1, after.step - before.step) for before, after in plain or gaps]
    return statistics.median(times) if times else 0.0


def sum_seconds(spans: t.Iterable[Span]) -> dict[str, float]:
    """Return the seconds of each bucket that has any, in the order of :data:`BUCKETS`."""
    sums = dict.fromkeys(BUCKETS, 0.0)
    for span in spans:
        sums[span.bucket] += span.end - span.start
    return {name: seconds for name, seconds in sums.items() if seconds > 0}


def sum_usd(
    spans: t.Sequence[Span], held: t.Iterable[tuple[float, t.Sequence[tuple[float, float]]]]
) -> dict[str, float]:
    """Return the dollars of each bucket: what the nodes that were held in its time cost.

    :param held: by node (USD an hour, [(from, until)]): spans of a node do not overlap, and follow on each other.
    """
    changes: dict[float, float] = {}
    for price, stays in held:
        for start, end in stays:
            changes[start] = changes.get(start, 0.0) + price / 3600
            changes[end] = changes.get(end, 0.0) - price / 3600
    times = sorted(changes)
    sums = dict.fromkeys(BUCKETS, 0.0)
    rate, number = 0.0, 0
    for span in spans:
        here = span.start
        while here < span.end:
            while number < len(times) and times[number] <= here:
                rate += changes[times[number]]
                number += 1
            until = min(span.end, times[number] if number < len(times) else span.end)
            sums[span.bucket] += rate * (until - here)
            here = until
    return {name: usd for name, usd in sums.items() if usd > 1e-9}


def useful_share(seconds: t.Mapping[str, float]) -> float | None:
    """Return the share (0 to 1) of the time that went to steps which count.

    None where there was no time, and where what is known would be read as a share of the run: most of its time is not
    known, or no step is and its programs ran.
    """
    wall = sum(seconds.values())
    return None if _is_unknown(seconds) or not wall else seconds.get("useful", 0.0) / wall


def useful_share_of_machines(seconds: t.Mapping[str, float]) -> float | None:
    """Return the share (0 to 1) of the time in which the run held machines that went to steps which count.

    None where most of the time is not known, and where it held none.
    """
    held = sum(value for name, value in seconds.items() if name not in ("queue", "idle"))
    return None if _is_unknown(seconds) or not held else seconds.get("useful", 0.0) / held


def _is_unknown(seconds: t.Mapping[str, float]) -> bool:
    unknown = seconds.get("unknown", 0.0)
    return unknown > sum(seconds.values()) / 2 or (unknown > 0 and not seconds.get("useful"))


def describe(seconds: t.Mapping[str, float], usd: t.Mapping[str, float] | None) -> str:
    """Return ``useful 83 % of 12 min, restart 9 %, start 5 %``, with money where it is known and not nothing.

    Of a run of which most is not known it is empty: a share of what is known would be read as one of the run.
    """
    wall, share = sum(seconds.values()), useful_share(seconds)
    if share is None:
        return ""
    total = sum((usd or {}).values())
    shares = sorted(((name, value) for name, value in seconds.items() if name != "useful"), key=lambda item: -item[1])
    money = f" and ${(usd or {}).get('useful', 0.0):.2f} of ${total:.2f}" if total else ""
    useful = f"useful {_percent(share)} of {stall.format_span(wall)}{money}"
    # What is below a percent does not help.
    # "checkpoint 2 %" would be read as the number of one.
    said = [(name.replace("checkpoint", "saves"), value / wall) for name, value in shares if value / wall >= 0.01]
    return ", ".join([useful, *(f"{name} {_percent(share)}" for name, share in said)])


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
