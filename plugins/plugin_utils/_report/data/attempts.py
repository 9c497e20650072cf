# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The attempts of a run as the report shows them, and the run's times.

They are those of the run record. Where it lists none, they are those of the run's history (from which the record is
written too), and for a folder without events, those that the metrics show.
"""

from __future__ import annotations

import dataclasses
import itertools
import statistics
import typing as t

from ....module_utils._model.run_attempt import Attempt
from . import parsing
from .load import MAX_LOGS, Checkpoint, Line, Log, RunFolder, Segment, StepRecord


@dataclasses.dataclass(frozen=True, slots=True)
class NodeStay:
    """A node's part in an attempt, in Unix seconds; price of the whole node per hour."""

    name: str
    start: float | None
    end: float | None
    price_usd_per_hour: float | None


@dataclasses.dataclass(frozen=True, slots=True)
class AttemptView:
    """One attempt: ``label`` is the record's number, ``segment`` the metrics that were written in it.

    ``notice`` is what said at ``notice_at`` that one of its machines will be taken away.
    """

    label: str
    start: float | None
    end: float | None
    cause: str | None = None
    node: str | None = None
    rank: int | None = None
    exit_code: int | None = None
    first_step: int | None = None
    last_step: int | None = None
    resumed_from: int | None = None
    nodes: tuple[NodeStay, ...] = ()
    logs: tuple[str, ...] = ()
    ranks: int | None = None
    segment: Segment | None = None
    notice: str | None = None
    notice_at: float | None = None

    @property
    def is_drilled(self) -> bool:
        """Whether a drill ended the attempt."""
        return self.cause == "drill"

    @property
    def steps(self) -> tuple[StepRecord, ...]:
        """The steps that the program wrote in this attempt."""
        return self.segment.steps if self.segment else ()

    @property
    def world_size(self) -> int | None:
        """How many ranks it had: as its program reported, else as its ranks started."""
        reported = self.segment.world_size if self.segment else None
        return reported if reported is not None else self.ranks or None

    @property
    def saved_steps(self) -> tuple[int, int] | None:
        """The first and the last checkpoint that the program saved in this attempt."""
        found = self.segment.checkpoints if self.segment else ()
        # What was reported before the first one started belongs to none.
        saved = [item.step for item in found if self.start is None or item.at is None or item.at >= self.start]
        return (min(saved), max(saved)) if saved else None

    @property
    def first_step_at(self) -> float | None:
        """When its first step was made."""
        return self.steps[0].at if self.steps else None

    @property
    def last_step_at(self) -> float | None:
        """When its last step was made."""
        return self.steps[-1].at if self.steps else None


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
    def duration(self) -> float | None:
        """Seconds from the start to the end, or None when either is not known."""
        return max(self.end - self.zero, 0.0) if self.end is not None and self.zero is not None else None


def read_clock(run: RunFolder) -> RunClock:
    """Return the run's times; what run.json leaves null comes from the events and the metrics."""
    record = run.record
    times = {name: parsing.read_time(record.get(f"{name}_at")) for name in ("submitted", "admitted", "ended")}
    events = {event.kind: event.at for event in reversed(run.events)}
    signs = [event.at for event in run.events] + [at for at in map(_last_time, run.segments) if at is not None]
    first_steps = [segment.steps[0].at for segment in run.segments if segment.steps and segment.steps[0].at]
    ended = times["ended"] or events.get("ended")
    return RunClock(
        submitted=times["submitted"] or events.get("submitted"),
        admitted=times["admitted"] or events.get("started"),
        first_step=parsing.read_time(record.get("first_step_at"))
        or run.history.first_step_at
        or min(first_steps, default=None),
        end=ended or max(signs, default=None),
        over=ended is not None or parsing.read_text(record.get("outcome")) is not None,
    )


def _last_time(segment: Segment) -> float | None:
    times = [segment.at, *(step.at for step in segment.steps[-1:]), *(saved.at for saved in segment.checkpoints[-1:])]
    return max((at for at in times if at is not None), default=None)


def read_attempts(run: RunFolder, clock: RunClock) -> tuple[AttemptView, ...]:
    """Return the attempts in order, each with its metrics."""
    rows = parsing.read_rows(run.record.get("attempts"))
    if rows:
        by_number = {attempt.n: attempt for attempt in run.history.attempts}
        views = [_from_row(row, number, by_number) for number, row in enumerate(rows, start=1)]
        views = views if len(run.logs) >= MAX_LOGS else [_with_kept_logs(view, run.logs) for view in views]
    elif run.history.attempts:
        views = [_from_history(attempt) for attempt in run.history.attempts]
    else:
        views = [_from_metrics(segment, number) for number, segment in enumerate(run.segments, start=1)]
    segments = _segments_by_attempt([view.start for view in views], run.segments)
    following = [view.start for view in views[1:]]
    # Where an end is not known, the attempt's last metrics and the next one's start come nearest to it.
    ends = [
        (_last_time(segment) if segment else None) or start for segment, start in zip(segments, following, strict=False)
    ]
    return tuple(_complete(*parts) for parts in zip(views, segments, [*ends, clock.end], strict=False))


def _with_kept_logs(view: AttemptView, logs: t.Collection[Log]) -> AttemptView:
    """Return an attempt with those of its logs that were kept: a node that prints nothing has none."""
    kept = {log.path for log in logs}
    return dataclasses.replace(view, logs=tuple(log for log in view.logs if log in kept))


def _from_row(row: Line, number: int, history: t.Mapping[int, Attempt]) -> AttemptView:
    n, node = parsing.read_integer(row.get("n")), parsing.read_text(row.get("node"), 80)
    attempt = history.get(n) if n is not None else None
    start, end = parsing.read_time(row.get("started_at")), parsing.read_time(row.get("ended_at"))
    return AttemptView(
        label=parsing.read_text(row.get("n"), 12) or str(number),
        start=start,
        end=end,
        cause=_cause_of(parsing.read_text(row.get("cause"), 40), attempt),
        node=node,
        # The record does not hold it.
        rank=attempt.culprit[0] if attempt and attempt.failed_node == node else None,
        exit_code=parsing.read_integer(row.get("exit_code")),
        first_step=parsing.read_integer(row.get("first_step")),
        last_step=parsing.read_integer(row.get("last_step")),
        resumed_from=parsing.read_integer(row.get("resumed_from_step")),
        nodes=tuple(_read_stays(row, start, end)),
        logs=tuple(parsing.read_texts(row.get("logs"))),
        ranks=parsing.read_integer(row.get("ranks")),
        **_read_notice(row, attempt),
    )


def _cause_of(cause: str | None, attempt: Attempt | None) -> str | None:
    """Return the cause of an end. What the record counts as a lost node may be a launcher that was killed on it."""
    return "launcher_killed" if cause == "node_lost" and attempt is not None and attempt.launcher_killed else cause


def _read_notice(row: Line, attempt: Attempt | None) -> dict[str, t.Any]:
    """Return the notice of preemption of an attempt: that of its row, else of its events."""
    given = parsing.read_mapping(row.get("notice"))
    if not given and attempt is not None and attempt.notice is not None:
        given = attempt.notice._asdict()
    return {"notice": parsing.read_text(given.get("detail"), 200), "notice_at": parsing.read_time(given.get("at"))}


def _from_history(attempt: Attempt) -> AttemptView:
    start, end = attempt.started_at, attempt.ended_at
    return AttemptView(
        label=str(attempt.n),
        start=start,
        end=end,
        cause=_cause_of(attempt.cause, attempt),
        node=parsing.read_text(attempt.failed_node, 80),
        rank=attempt.culprit[0],
        exit_code=attempt.exit_code,
        first_step=attempt.first_step,
        last_step=attempt.last_step,
        resumed_from=attempt.resumed_from,
        ranks=len(attempt.ranks),
        nodes=tuple(NodeStay(parsing.read_text(name, 80) or "", start, end, None) for name in attempt.node_names),
        **_read_notice({}, attempt),
    )


def _from_metrics(segment: Segment, number: int) -> AttemptView:
    steps = [step.step for step in segment.steps]
    first, last = min(steps, default=None), max(steps, default=None)
    return AttemptView(
        str(number), segment.at, None, first_step=first, last_step=last, resumed_from=segment.resumed_from
    )


def _read_stays(row: Line, start: float | None, end: float | None) -> t.Iterator[NodeStay]:
    for node in parsing.read_rows(row.get("nodes")):
        name = parsing.read_text(node.get("name"), 80) or parsing.read_text(node.get("id"), 80)
        if name:
            since, until = parsing.read_time(node.get("from")), parsing.read_time(node.get("to"))
            yield NodeStay(name, since or start, until or end, parsing.read_number(node.get("price_usd_per_hour")))


def _segments_by_attempt(starts: t.Sequence[float | None], segments: t.Sequence[Segment]) -> list[Segment | None]:
    """Return the metrics of each attempt: by time where all times are known, else in order."""
    groups: list[list[Segment]] = [[] for _start in starts]
    times = [start for start in starts if start is not None]
    by_time = len(times) == len(starts) and all(segment.at is not None for segment in segments)
    for number, segment in enumerate(segments if groups else ()):
        earlier = sum(start <= (segment.at or 0.0) for start in times)
        groups[max(earlier - 1, 0) if by_time else min(number, len(groups) - 1)].append(segment)
    return [_join(group) for group in groups]


def _join(segments: t.Sequence[Segment]) -> Segment | None:
    """Return the metrics of one attempt as one segment.

    Before its start is reported, the last lines of the attempt before it may still come.
    """
    if not segments:
        return None
    reported = (number for number, segment in enumerate(segments) if segment.resumed_from is not None)
    segments = segments[next(reported, 0) :]
    steps = tuple(step for segment in segments for step in segment.steps)
    return dataclasses.replace(segments[0], steps=steps, checkpoints=tuple(all_checkpoints(segments)))


def _complete(view: AttemptView, segment: Segment | None, likely_end: float | None) -> AttemptView:
    """Return an attempt with its metrics, and with an end where none is known."""
    end = view.end if view.end is not None else likely_end
    stays = (dataclasses.replace(stay, end=stay.end if stay.end is not None else end) for stay in view.nodes)
    start = view.start if view.start is not None or segment is None else segment.at
    return dataclasses.replace(view, start=start, end=end, segment=segment, nodes=tuple(stays))


def effective_steps(segments: t.Sequence[Segment]) -> tuple[list[list[StepRecord]], list[list[StepRecord]]]:
    """Return (steps that count, steps that were lost), each as one list a segment.

    A step is lost when a later segment went back before it: the work was done again.
    """
    counted: list[list[StepRecord]] = []
    lost: list[list[StepRecord]] = []
    floor: float = float("inf")
    for segment in reversed(segments):
        counted.append([step for step in segment.steps if step.step < floor])
        lost.append([step for step in segment.steps if step.step >= floor])
        begins = segment.steps[0].step if segment.steps else None
        if begins is None and segment.resumed_from is not None:
            begins = segment.resumed_from + 1
        if begins is not None:
            floor = min(floor, begins)
    return counted[::-1], lost[::-1]


def all_checkpoints(segments: t.Iterable[Segment]) -> list[Checkpoint]:
    """Return every checkpoint in the order it was saved."""
    return [checkpoint for segment in segments for checkpoint in segment.checkpoints]


def checkpoint_interval(run: RunFolder) -> int | None:
    """Return the steps between checkpoints: what the job asked for, else the usual distance between those saved."""
    job = parsing.read_mapping(run.record.get("job"))
    interval = parsing.read_integer(parsing.read_mapping(job.get("checkpoints")).get("interval_steps"))
    if interval:
        return interval
    steps = sorted({checkpoint.step for checkpoint in all_checkpoints(run.segments)})
    gaps = [after - before for before, after in itertools.pairwise(steps)]
    if gaps:
        return int(statistics.median_high(gaps))
    return steps[0] if steps and steps[0] > 0 else None
