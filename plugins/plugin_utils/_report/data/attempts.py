# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What happened in a run: its attempts, joined from the record, the events and the metrics, and its clock.

The record is believed first; what it leaves null is filled from the events, then from what the program wrote.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import dataclasses
import itertools
import statistics
import typing as t

from . import parsing
from .load import Checkpoint, RunEvent, RunFolder, Segment, StepRecord

ENDS = ("worker_exit", "agent_exit", "agent_restart", "node_lost", "drill", "cancelled")
EXITS = ("worker_exit", "agent_exit", "agent_restart")
# What a launcher does to the ranks that are left when one failed: they are not the ones to blame.
STOPPED = (143, -15)


@dataclasses.dataclass(frozen=True, slots=True)
class NodeStay:
    """A node's part in an attempt, in Unix seconds; price of the whole node per hour."""

    name: str
    start: float | None
    end: float | None
    price_usd_per_hour: float | None


@dataclasses.dataclass(frozen=True, slots=True)
class AttemptView:
    """One start of the job until its end. ``label`` is the record's number; a second start inside it gets a letter.

    ``ended_by`` is the event that ended it, when one was seen; ``drilled`` says that the fault was asked for.
    """

    label: str
    start: float | None
    end: float | None
    cause: str | None
    node: str | None
    rank: int | None
    exit_code: int | None
    first_step: int | None
    last_step: int | None
    nodes: tuple[NodeStay, ...]
    logs: tuple[str, ...]
    segment: Segment | None
    ended_by: RunEvent | None
    drilled: bool


@dataclasses.dataclass(frozen=True, slots=True)
class RunClock:
    """The run's times in Unix seconds. ``end`` is the last sign of life while the run is not over."""

    submitted: float | None
    admitted: float | None
    first_step: float | None
    end: float | None
    over: bool

    @property
    def zero(self) -> float | None:
        """The instant from which elapsed time counts."""
        return self.submitted if self.submitted is not None else self.admitted or self.first_step

    @property
    def elapsed(self) -> float | None:
        """Seconds from the start to the end, or None when either is not known."""
        return max(self.end - self.zero, 0.0) if self.end is not None and self.zero is not None else None


def read_clock(run: RunFolder) -> RunClock:
    """Return the run's times; what run.json leaves null comes from the events and the metrics."""
    record = run.record
    kinds = {event.kind: event.at for event in reversed(run.events)}
    signs = [event.at for event in run.events] + [at for at in (_last_at(item) for item in run.segments) if at]
    ended = parsing.read_time(record.get("ended_at")) or kinds.get("ended")
    steps = [item.steps[0].at for item in run.segments if item.steps and item.steps[0].at]
    first = parsing.read_time(record.get("first_step_at")) or kinds.get("first_step") or min(steps, default=None)
    submitted = parsing.read_time(record.get("submitted_at")) or kinds.get("submitted")
    over = ended is not None or parsing.read_text(record.get("outcome")) is not None
    admitted = parsing.read_time(record.get("admitted_at")) or kinds.get("prepared") or kinds.get("started")
    return RunClock(submitted, admitted, first, ended or max(signs, default=None), over)


def _last_at(segment: Segment) -> float | None:
    times = [segment.at, *(item.at for item in segment.steps[-1:]), *(item.at for item in segment.checkpoints[-1:])]
    return max((at for at in times if at is not None), default=None)


def read_attempts(run: RunFolder, clock: RunClock) -> tuple[AttemptView, ...]:
    """Return the attempts in order, each with the segment of metrics that belongs to it."""
    recorded = parsing.read_rows(run.record.get("attempts"))
    numbers = {parsing.read_integer(row.get("n")) for row in recorded}
    numbered = {event.attempt for event in run.events if event.attempt is not None} <= numbers
    pairs = _match(recorded, run.segments) if recorded else [({"n": i + 1}, s) for i, s in enumerate(run.segments)]
    starts = [_start(row, segment) for row, segment in pairs]
    found: list[AttemptView] = []
    seen: set[str] = set()
    for index, (row, segment) in enumerate(pairs):
        label = parsing.read_text(row.get("n"), 12) or str(index + 1)
        while label in seen:
            label = label[:-1] + chr(ord(label[-1]) + 1) if label[-1].isalpha() else label + "b"
        seen.add(label)
        following = starts[index + 1] if index + 1 < len(starts) else None
        number = parsing.read_integer(row.get("n")) if numbered and not row.get("_shared") else None
        low = None if index == 0 else starts[index]
        window = _window(run.events, number, low, following)
        span = (starts[index], following, index + 1 == len(starts))
        found.append(_attempt(run, clock, row, segment, label, window, span))
    return tuple(found)


def _start(row: dict[str, t.Any], segment: Segment | None) -> float | None:
    own = None if row.get("_divided") else parsing.read_time(row.get("started_at"))
    return own if own is not None or segment is None else segment.at


def _match(
    recorded: list[dict[str, t.Any]], segments: tuple[Segment, ...]
) -> list[tuple[dict[str, t.Any], Segment | None]]:
    """Pair attempts with segments: by time where both know it, else in order; an attempt with two is divided."""
    starts = [parsing.read_time(row.get("started_at")) for row in recorded]
    timed = [start for start in starts if start is not None]
    by_time = len(timed) == len(starts) and all(item.at is not None for item in segments)
    groups: list[list[Segment]] = [[] for _row in recorded]
    for index, segment in enumerate(segments):
        # One second of slack: the record's times come from the controller, the metrics' from a node.
        earlier = [i for i, at in enumerate(timed) if by_time and at <= (segment.at or 0.0) + 1.0]
        place = (earlier[-1] if earlier else 0) if by_time else min(index, len(recorded) - 1)
        groups[place].append(segment)
    pairs: list[tuple[dict[str, t.Any], Segment | None]] = []
    for row, group in zip(recorded, groups, strict=True):
        inner: dict[str, t.Any] = {key: row[key] for key in ("n", "nodes", "logs") if key in row}
        parts: list[Segment | None] = [*group] if group else [None]
        for number, part in enumerate(parts):
            final = number == len(parts) - 1
            own: dict[str, t.Any] = dict(row if final else inner)
            own |= {"started_at": row.get("started_at"), "_divided": number > 0, "_shared": len(parts) > 1}
            pairs.append((own, part))
    return pairs


def _attempt(
    run: RunFolder,
    clock: RunClock,
    row: dict[str, t.Any],
    segment: Segment | None,
    label: str,
    window: list[RunEvent],
    span: tuple[float | None, float | None, bool],
) -> AttemptView:
    start, following, last = span
    ended_by = None if last and run.record.get("outcome") == "succeeded" else _ended_by(window)
    end = parsing.read_time(row.get("ended_at")) or (ended_by.at if ended_by else None)
    if end is None:
        end = clock.end if last else (_last_at(segment) if segment else following)
    cause = parsing.read_text(row.get("cause"), 40) or (_cause(ended_by) if ended_by else None)
    node = parsing.read_text(row.get("node"), 80) or (ended_by.node if ended_by else None)
    steps = [item.step for item in segment.steps] if segment else []
    return AttemptView(
        label=label,
        start=start,
        end=end,
        cause="cancelled" if last and cause is None and run.record.get("outcome") == "cancelled" else cause,
        node=node,
        rank=_known(row.get("rank"), ended_by.rank if ended_by and ended_by.node == node else None),
        exit_code=_known(row.get("exit_code"), exit_code_of(ended_by) if ended_by else None),
        first_step=_known(row.get("first_step"), min(steps, default=None)),
        last_step=_known(row.get("last_step"), max(steps, default=None)),
        nodes=_stays(row, window, start, end),
        logs=tuple(parsing.read_texts(row.get("logs"))),
        segment=segment,
        ended_by=ended_by,
        drilled=cause == "drill" or any(event.kind == "drill" for event in window),
    )


def _known(value: t.Any, otherwise: int | None) -> int | None:
    own = parsing.read_integer(value)
    return own if own is not None else otherwise


def _window(events: tuple[RunEvent, ...], number: int | None, low: float | None, high: float | None) -> list[RunEvent]:
    """Return the events of one attempt: by its number where the events carry it, else by time."""
    found = []
    for event in events:
        timed = (low is None or event.at >= low) and (high is None or event.at < high)
        if event.attempt == number if number is not None and event.attempt is not None else timed:
            found.append(event)
    return found


def _ended_by(window: list[RunEvent]) -> RunEvent | None:
    """Return the event that ended the attempt: the first failure that was not taken along by another one.

    A drill is only the order; what it did comes after it.
    """
    ends = [event for event in window if event.kind in ENDS and exit_code_of(event) != 0]
    real = [event for event in ends if event.kind != "drill"]
    cancelled = any(event.kind == "cancelled" for event in real)
    first = [event for event in real if cancelled or exit_code_of(event) not in STOPPED]
    return next(iter(first or real or ends), None)


def exit_code_of(event: RunEvent) -> int | None:
    """Return the exit code of an exit: the field, else what its detail ends with (``exit code 0``), or None."""
    if event.kind not in EXITS:
        return None
    words = (event.detail or "").replace("=", " ").replace(":", " ").split()
    return event.exit_code if event.exit_code is not None else parsing.read_integer(words[-1]) if words else None


def _cause(event: RunEvent) -> str:
    """Return the record's word for an event; an agent that is started again died with its node's processes."""
    if event.kind == "agent_restart":
        return "node_lost" if event.detail == "node_lost" else "crash"
    return event.kind if event.kind in ("node_lost", "drill", "cancelled") else "crash"


def _stays(
    row: dict[str, t.Any], window: list[RunEvent], start: float | None, end: float | None
) -> tuple[NodeStay, ...]:
    found = []
    for item in parsing.read_rows(row.get("nodes")):
        name = parsing.read_text(item.get("name"), 80) or parsing.read_text(item.get("id"), 80)
        if name:
            since, until = parsing.read_time(item.get("from")), parsing.read_time(item.get("to"))
            price = parsing.read_number(item.get("price_usd_per_hour"))
            found.append(NodeStay(name, since or start, until or end, price))
    known = {stay.name for stay in found}
    if not found:
        for event in window:
            if event.node and event.node not in known and event.kind == "agent_started":
                known.add(event.node)
                found.append(NodeStay(event.node, event.at, end, None))
    return tuple(found)


def effective_steps(segments: t.Sequence[Segment]) -> tuple[list[list[StepRecord]], list[list[StepRecord]]]:
    """Return (steps that count, steps that were lost), each as one list a segment.

    A step is lost when a later segment went back before it: the work was done again.
    """
    kept: list[list[StepRecord]] = []
    lost: list[list[StepRecord]] = []
    floor: float = float("inf")
    for segment in reversed(segments):
        kept.append([item for item in segment.steps if item.step < floor])
        lost.append([item for item in segment.steps if item.step >= floor])
        begins = segment.steps[0].step if segment.steps else None
        if begins is None and segment.resumed_from is not None:
            begins = segment.resumed_from + 1
        if begins is not None:
            floor = min(floor, begins)
    return kept[::-1], lost[::-1]


def all_checkpoints(segments: t.Iterable[Segment]) -> list[Checkpoint]:
    """Return every checkpoint in the order it was saved."""
    return [item for segment in segments for item in segment.checkpoints]


def checkpoint_interval(run: RunFolder) -> int | None:
    """Return the steps between checkpoints: what the job asked for, else the usual distance between those seen."""
    asked = parsing.read_integer(
        parsing.read_mapping(parsing.read_mapping(run.record.get("job")).get("checkpoints")).get("interval_steps")
    )
    if asked:
        return asked
    steps = sorted({item.step for item in all_checkpoints(run.segments)})
    gaps = [after - before for before, after in itertools.pairwise(steps)]
    if gaps:
        return int(statistics.median_high(gaps))
    return steps[0] if steps and steps[0] > 0 else None
