# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs that are ended because they train nothing: a loss that is not a number, or no step for a long time.
Pure rules.
"""

from __future__ import annotations

import dataclasses
import typing as t

from . import stall
from . import validators as f
from .errors import InputError

if t.TYPE_CHECKING:
    from .job import Job, Restart
    from .run_history import RunHistory


@dataclasses.dataclass(frozen=True, slots=True)
class StopOn:
    """What ends a run: ``nan``, a loss that is not a number; ``stalled_s``, so many seconds without a step."""

    nan: bool = f.field(f.boolean, False)
    stalled_s: int | None = f.field(f.integer(1), None)

    @property
    def keys(self) -> list[str]:
        """The options that are set."""
        return [key for key in ("nan", "stalled_s") if getattr(self, key)]


class StopReason(t.NamedTuple):
    """Why a run is ended: a word of the run record's vocabulary, and a line for people."""

    cause: str
    detail: str


def check_stop_on(job: Job) -> None:
    """Refuse a stop by the loss where the program prints its steps without a loss.

    :raises InputError: naming the option.
    """
    patterns = job.metrics.patterns
    if job.stop_on.nan and "step" in patterns and not any("(?P<loss>" in pattern for pattern in patterns.values()):
        raise InputError(
            "job.stop_on.nan",
            "has no effect: job.metrics.step_pattern has no group loss",
            r"Add one that matches nan, too, such as loss=(?P<loss>\S+)",
        )


def require_follower(job: Job, wait: bool) -> None:
    """Refuse a stop that nothing would carry out: the follower of a run sees its steps.

    :raises InputError: for a job that is only started.
    """
    option = next((f"stop_on.{key}" for key in job.stop_on.keys), "restart.on_hang")
    if not wait and (job.stop_on.keys or job.restart.on_hang != "report"):
        raise InputError(f"job.{option}", "requires wait: true", "Leave out wait: false")


class StopRules:
    """Judges a run at every turn of its follower. Times are monotonic seconds of the follower.

    :ivar stood_s: for how long the run has made no step while all of it was seen.
    """

    def __init__(self, stop_on: StopOn, now: float) -> None:
        self._stop_on = stop_on
        self._moved_at, self.stood_s = now, 0.0
        self._mark: tuple[object, ...] | None = None

    def judge(self, story: RunHistory, now: float, is_seen: bool) -> StopReason | None:
        """Return why the run has to end, None while it may continue.

        :param is_seen: whether all of the run is running and heard of. What is queued, being placed or silent makes no
            steps that a follower could know of, and its time does not count.
        """
        attempt = story.attempts[-1] if story.attempts else None
        mark = (attempt.n, attempt.last_step, attempt.last_step_at) if attempt else ()
        could_step = is_seen and stall.has_ranks_at_work(story.attempts, story.base)
        if not could_step or attempt is None or mark != self._mark:
            self._mark, self._moved_at = mark, now
        self.stood_s = now - self._moved_at
        if self._stop_on.nan and story.nan_since is not None:
            return StopReason("nan", f"{describe_nan(story.nan_since)} (job.stop_on.nan)")
        limit = self._stop_on.stalled_s
        if limit is None or self.stood_s < limit:
            return None
        where = (
            "before the first step" if attempt is None or attempt.last_step is None else f"at step {attempt.last_step}"
        )
        return StopReason("stalled", f"stalled {where}: no step for {limit} s (job.stop_on.stalled_s)")


def describe_nan(step: int) -> str:
    """Return that the loss of a run is not a number, in words."""
    return f"the loss is not a number (NaN or infinite) since step {step}"


def describe_nan_ways(given: StopOn) -> str:
    """Return what follows a loss that is not a number, in words."""
    if given.nan:
        return "the run ends (job.stop_on.nan)"
    return "the run continues. Set job.stop_on.nan: true to have such a run ended"


def describe_ways(given: StopOn, restart: Restart) -> str:
    """Return what to do about a run that stands and what will end it, in words."""
    look = "Run diagnose to find out why"
    if given.stalled_s is not None:
        return f"{look}; the run ends after {given.stalled_s} s without a step (job.stop_on.stalled_s)"
    if restart.on_hang != "report":
        what = "begins anew" if restart.on_hang == "restart" else "ends"
        return f"{look}; a gang that is known to hang for {restart.hang_s} s {what} (job.restart.on_hang)"
    return f"{look}; nothing ends such a run unless job.stop_on.stalled_s is set"
