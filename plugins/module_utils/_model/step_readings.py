# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""When a run's steps were made and its checkpoints saved, over all of its attempts, in little memory."""

from __future__ import annotations

import array
import bisect
import typing as t

# 28 bytes each; a run with more keeps every second one of the older ones: gaps are coarser then, their sum is the same.
_MOST = 1 << 18
_LARGEST = 1 << 53


class StepReading(t.NamedTuple):
    """A step that was read: ``at`` in Unix seconds; ``has_saved``: a checkpoint was reported since the one before.

    ``late_s``: by how much earlier it may have been made, where its line was read after the fact.
    """

    at: float
    step: int
    has_saved: bool = False
    late_s: float = 0.0


class StepReadings:
    """Steps (time, number) and times of checkpoints in any order, as lines of several nodes come."""

    def __init__(self) -> None:
        self._at = array.array("d")
        self._steps = array.array("q")
        self._late = array.array("f")
        self._saved = array.array("d")

    def __len__(self) -> int:
        return len(self._at)

    def add_step(self, at: float, step: int, late_s: float = 0.0) -> None:
        """Take in that a step was made, at a time or at most ``late_s`` seconds before it."""
        if abs(step) > _LARGEST:
            return
        if len(self._at) >= _MOST:
            self._at, self._steps, self._late = self._at[::2], self._steps[::2], self._late[::2]
        self._at.append(at)
        self._steps.append(step)
        self._late.append(late_s)

    def add_checkpoint(self, at: float) -> None:
        """Take in that a checkpoint was saved."""
        self._saved = self._saved[::2] if len(self._saved) >= _MOST else self._saved
        self._saved.append(at)

    def split(self, starts: t.Sequence[float], *, is_counted: bool = True) -> list[list[StepReading]]:
        """Return the readings of each attempt by time, one a step; what was read before the first one is left out.

        :param starts: when the attempts began, in their order. :param is_counted: whether steps count upwards;
            otherwise a counter begins anew in each epoch.
        """
        parts: list[list[StepReading]] = [[] for _start in starts]
        saved = sorted(self._saved)
        attempt, number = -1, 0
        for at, step, late_s in sorted(zip(self._at, self._steps, self._late, strict=True)):
            while attempt + 1 < len(starts) and starts[attempt + 1] <= at:
                attempt += 1
                number = bisect.bisect_left(saved, starts[attempt])
            if attempt < 0:
                continue
            found = parts[attempt]
            last = found[-1] if found else None
            if is_counted and last is not None and at == last.at and len(found) > 1:
                # Lines that were read together: their steps share the time since those before.
                found[-1] = last._replace(step=max(step, last.step), late_s=max(late_s, last.late_s))
                continue
            # Several ranks print the same step.
            if last is not None and (step <= last.step if is_counted else step == last.step or at == last.at):
                continue
            before = number
            number = bisect.bisect_right(saved, at, lo=number)
            found.append(StepReading(at, step, number > before, late_s))
        return parts

    def last_saved(self, since: float) -> float | None:
        """Return when the last checkpoint was saved, None where none was from ``since`` on."""
        newest = max(self._saved, default=since)
        return newest if newest > since else None
