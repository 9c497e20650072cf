# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What happened in a run, folded from its events and metrics line by line: attempts, steps, attendance, losses.

Events and metrics come from several nodes; a metric belongs to the newest attempt that had started before it.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import dataclasses
import time
import typing as t

from .quantity import parse_finite

Line = t.Mapping[str, t.Any]
_STOPPED = 143
# How far the clock of a node may be ahead of ours.
_AHEAD_S = 86400.0
# No figure of a run is larger; a number without end cannot be shown.
_LARGEST = 1e300


@dataclasses.dataclass
class Attempt:
    """One life of the gang: from its ranks' start to the first fault, or the end. Times are Unix seconds."""

    n: int
    started_at: float
    gang: str | None = None
    counted: int = 1
    world_size: int | None = None
    ranks: dict[int, str] = dataclasses.field(default_factory=dict)
    exits: dict[int, tuple[float, int, str]] = dataclasses.field(default_factory=dict)
    first_step: int | None = None
    last_step: int | None = None
    first_step_at: float | None = None
    last_step_at: float | None = None
    resumed_from: int | None = None
    fault: tuple[str, str | None] | None = None

    @property
    def first_failure(self) -> tuple[float, int, str] | None:
        """Return (time, exit code, node) of the rank that failed first, not of those it took along."""
        failed = [item for item in self.exits.values() if item[1] not in (0, _STOPPED)]
        return min(failed) if failed else None

    @property
    def ended_at(self) -> float | None:
        """Return when the attempt ended: its first failure, or its last rank's exit."""
        if self.first_failure:
            return self.first_failure[0]
        return max((item[0] for item in self.exits.values()), default=None)


class RunHistory:
    """Feed it lines in any order of nodes; ask it for the state so far."""

    def __init__(self) -> None:
        self.attempts: list[Attempt] = []
        self.checkpoint: tuple[int, str] | None = None
        self.last: dict[str, float] = {}
        self.faults: list[tuple[float, str, str | None]] = []
        self.set_back: list[float] = []
        self.base = 1
        self._pending: list[Line] = []

    def event(self, line: Line) -> None:
        """Take in one line of events.jsonl."""
        kind, at = line.get("kind"), parse_time(line.get("at"))
        if at is None:
            return
        if kind in ("worker_started", "worker_exit") and isinstance(line.get("rank"), int):
            self._rank(line, at)
        elif kind == "submitted":
            # The run was started again: budgets begin anew.
            self.base = int(_number(line.get("attempt")) or 1)
        elif kind == "drill" or (kind == "agent_restart" and line.get("detail") == "node_lost") or kind == "node_lost":
            cause = "drill" if kind == "drill" else "node_lost"
            self._fault(at, cause, line.get("node"))
        elif kind == "set_back":
            # Its queue, or somebody, took its place away: no fault of the program or of a node.
            self._fault(at, "preempted" if line.get("cause") == "preempted" else "suspended", None)
            self.set_back.append(at)

    def _rank(self, line: Line, at: float) -> None:
        rank, started = int(line["rank"]), line.get("kind") == "worker_started"
        attempt = self._attempt(line, rank, started, at)
        if not started:
            attempt.exits[rank] = (at, int(_number(line.get("exit_code")) or 0), str(line.get("node")))
            return
        if at < attempt.started_at:
            attempt.started_at = at
            self._order()
        attempt.ranks[rank] = str(line.get("node"))
        attempt.world_size = line.get("world_size")
        pending, self._pending = self._pending, []
        for item in pending:
            self.metric(item)

    def metric(self, line: Line) -> None:
        """Take in one line of metrics.jsonl (or one parsed by the job's step pattern)."""
        at = parse_time(line.get("at"))
        if at is None:
            return
        attempt = self._at(at)
        if attempt is None:
            self._pending.append(line)
            return
        if isinstance(line.get("step"), int):
            self._step(attempt, at, int(line["step"]))
            self.last = {key: value for key, value in line.items() if _figure(value)}
        if isinstance(line.get("checkpoint_step"), int):
            self.checkpoint = (int(line["checkpoint_step"]), str(line.get("path", "")))
        if isinstance(line.get("resumed_from_step"), int):
            attempt.resumed_from = int(line["resumed_from_step"])

    def _step(self, attempt: Attempt, at: float, step: int) -> None:
        if attempt.first_step is None:
            attempt.first_step, attempt.first_step_at = step, at
        attempt.last_step, attempt.last_step_at = step, at

    def _attempt(self, line: Line, rank: int, started: bool, at: float) -> Attempt:
        """Return the attempt that a rank belongs to: its gang's, else the one with the number that it counted.

        Counts can differ: a rank that was stopped before it could count is behind from then on. A gang's name can come
        again, but not while the rank of before is still there.
        """
        gang, number = line.get("gang"), int(_number(line.get("attempt")) or 1)
        for attempt in reversed(self.attempts):
            same = attempt.gang == gang if gang else attempt.n == number
            again = started and rank in attempt.ranks and any(end[0] < at for end in attempt.exits.values())
            if same and not again:
                return attempt
        attempt = Attempt(number, at, gang)
        attempt.counted = number
        self.attempts.append(attempt)
        self._order()
        return attempt

    def _order(self) -> None:
        """Order attempts by time and number them so that each is above the one before, whatever its ranks counted."""
        self.attempts.sort(key=lambda item: item.started_at)
        before = 0
        for attempt in self.attempts:
            attempt.n = before = max(attempt.counted, before + 1)

    def _at(self, at: float) -> Attempt | None:
        started = [attempt for attempt in self.attempts if attempt.started_at <= at]
        return started[-1] if started else None

    def _fault(self, at: float, cause: str, node: str | None) -> None:
        self.faults.append((at, cause, node))
        attempt = self._at(at)
        # A drill that loses a node stays a drill: the cause is what was done, not what followed.
        if attempt and (attempt.fault is None or attempt.fault[0] != "drill"):
            attempt.fault = (cause, node)

    @property
    def first_step_at(self) -> float | None:
        """Return when the run made its first step."""
        times = [attempt.first_step_at for attempt in self.attempts if attempt.first_step_at is not None]
        return min(times, default=None)

    @property
    def crashes(self) -> int:
        """Return how many attempts of this start a failing program ended (not drills, not lost nodes)."""
        mine = [item for item in self.attempts if item.n >= self.base]
        return sum(1 for item in mine if item.first_failure and item.fault is None)

    @property
    def restarts(self) -> int:
        """Return how often the gang began anew; an attempt of which no rank came to start counts, too."""
        return self.attempts[-1].n - 1 if self.attempts else 0

    @property
    def placed(self) -> bool:
        """Return whether the run, as far as its ranks say, has not lost its place since it had one."""
        return bool(self.attempts) and self.attempts[-1].started_at > max(self.set_back, default=0.0)

    def away(self) -> list[tuple[float, float]]:
        """Return from when until when the run had no place after it was set back; spans do not overlap."""
        spans: dict[float, float] = {}
        for at in sorted(self.set_back):
            until = min((item.started_at for item in self.attempts if item.started_at > at), default=float("inf"))
            # Set back again before any rank began: it was away all the while.
            spans.setdefault(until, at)
        return [(at, until) for until, at in spans.items()]

    def ranks_seen(self) -> int:
        """Return the ranks that started in the newest attempt."""
        return len(self.attempts[-1].ranks) if self.attempts else 0

    def losses(self) -> tuple[int, float]:
        """Return (steps done twice, seconds from the last step before each fault to the first step after it)."""
        steps, seconds = 0, 0.0
        for before, after in zip(self.attempts, self.attempts[1:], strict=False):
            if before.last_step is None or before.last_step_at is None:
                continue
            if after.resumed_from is not None:
                steps += max(0, before.last_step - after.resumed_from)
            if after.first_step_at is not None:
                seconds += max(0.0, after.first_step_at - before.last_step_at)
        return steps, seconds


def parse_time(value: t.Any) -> float | None:
    """Return a time that a program or a node says, None for what is none: milliseconds, or a day ahead of our clock."""
    number = _number(value)
    return number if number is not None and 0 <= number <= time.time() + _AHEAD_S else None


def _figure(value: t.Any) -> bool:
    return isinstance(value, float) or (isinstance(value, int) and abs(value) < _LARGEST)


def _number(value: t.Any) -> float | None:
    """Return a finite number; a program may write anything into its metrics."""
    return parse_finite(value)
