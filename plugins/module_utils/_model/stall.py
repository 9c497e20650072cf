# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a run stands, judged by its own step time: the one rule of train, status, diagnose and the report."""

from __future__ import annotations

import collections
import dataclasses
import statistics
import typing as t

if t.TYPE_CHECKING:
    from .run_attempt import Attempt

# Also a job whose steps take milliseconds may write a checkpoint of gigabytes between two of them.
LEAST_S: t.Final = 30.0
TIMES: t.Final = 50.0
# Many programs report every tenth or hundredth step only, and validate between some of them.
READINGS: t.Final = 5.0
PAUSES: t.Final = 2.0
# Where a step's time is not known yet, how long the first one took stands for it.
STARTS: t.Final = 5.0
# From then on it is not said of a run that it moves.
_LATE_S: t.Final = 5.0
_LATE_TIMES: t.Final = 10.0
_LATE_READINGS: t.Final = 2.0
# The first steps compile, open data and fill caches: how long they took says nothing of later ones.
_WARM_UP: t.Final = 2
_RECENT: t.Final = 256
Movement = t.Literal["moving", "late", "stalled"]
Reading = tuple[float, int]


@dataclasses.dataclass(frozen=True, slots=True)
class Pace:
    """How fast a run's steps come: seconds of a step and between two readings (medians), and the longest pause."""

    step_s: float
    reading_s: float
    longest_s: float = 0.0


def limit_s(pace: Pace | None, startup_s: float | None = None) -> float | None:
    """Return the seconds without a step from which on a run stands, None where nothing is known to judge it by.

    :param startup_s: how long an attempt took to its first step, for one of which no two steps are known.
    """
    by_start = max(LEAST_S, STARTS * startup_s) if startup_s is not None else None
    if pace is None:
        return by_start
    by_pace = max(LEAST_S, TIMES * pace.step_s, READINGS * pace.reading_s, PAUSES * pace.longest_s)
    return max(by_pace, by_start or 0.0)


def judge(since_s: float, pace: Pace | None, startup_s: float | None = None) -> Movement:
    """Return whether a run moves that made no step for ``since_s`` seconds. Parameters as of :func:`limit_s`."""
    limit = limit_s(pace, startup_s)
    if limit is not None and since_s > limit:
        return "stalled"
    late = LEAST_S
    if pace is not None:
        late = max(_LATE_S, _LATE_TIMES * pace.step_s, _LATE_READINGS * pace.reading_s, pace.longest_s)
    return "late" if since_s > max(late, startup_s or 0.0) else "moving"


def has_ranks_at_work(attempts: t.Sequence[Attempt], base: int) -> bool:
    """Return whether a rank may make a step, as far as ranks have said that they began and ended.

    :param base: the number of this start's first attempt: ranks of those before it make none.
    """
    newest = attempts[-1] if attempts else None
    if newest is None or not newest.ranks:
        return True
    return newest.n >= base and any(rank not in newest.exits for rank in newest.ranks)


def describe(since_s: float, pace: Pace | None) -> str:
    """Return for how long no step came, beside the usual time of one."""
    usual = f", a step usually takes {pace.step_s:.3g} s" if pace else ""
    return f"no step for {format_span(since_s)}{usual}"


class PaceMeter:
    """Measures the pace from readings (time, step) of a run as they come; a new attempt begins without a pause."""

    def __init__(self) -> None:
        self._gaps: collections.deque[tuple[float, float]] = collections.deque(maxlen=_RECENT)
        self._pauses: collections.deque[float] = collections.deque(maxlen=_RECENT)
        self._before: Reading | None = None
        self._last: Reading | None = None
        self._count = 0

    def begin(self) -> None:
        """Note that an attempt begins."""
        self._close()
        self._before = self._last = None
        self._count = 0

    def add(self, at: float, step: int) -> None:
        """Take in a step. Steps of one moment were read together; one that goes back counts within an epoch."""
        last = self._last
        if last is not None and at <= last[0]:
            self._last = last[0], max(step, last[1])
            return
        self._close()
        self._before = last if last is not None and step > last[1] else None
        self._last = at, step

    def _open_gap(self) -> list[tuple[float, float]]:
        """Return seconds of a step and seconds between the newest two moments, nothing where there are none."""
        if self._before is None or self._last is None:
            return []
        seconds = self._last[0] - self._before[0]
        return [(seconds / (self._last[1] - self._before[1]), seconds)]

    def _close(self) -> None:
        gap = self._open_gap()
        self._gaps.extend(gap)
        self._count += len(gap)
        if gap and self._count > _WARM_UP:
            self._pauses.append(gap[0][1])

    def read(self) -> Pace | None:
        """Return the pace, None while fewer than two readings are known."""
        gaps = [*self._gaps, *self._open_gap()]
        if not gaps:
            return None
        steps, readings = zip(*gaps, strict=True)
        return Pace(statistics.median(steps), statistics.median(readings), max(self._pauses, default=0.0))


def measure_pace(readings: t.Iterable[Reading]) -> Pace | None:
    """Return the pace of one attempt's readings, ordered by time; None for fewer than two."""
    meter = PaceMeter()
    for at, step in readings:
        meter.add(at, step)
    return meter.read()


def format_span(seconds: float) -> str:
    """Return a length of time in its largest whole unit: ``26 s``, ``9 min``, ``3 h``."""
    units = ((86400, "d"), (3600, "h"), (60, "min"))
    return next((f"{seconds / size:.0f} {unit}" for size, unit in units if seconds >= size), f"{seconds:.0f} s")
