# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Time as a value that tests can replace: no part of the transport calls ``time`` by itself."""

from __future__ import annotations

import time
import typing as t


class Clock(t.Protocol):
    """The functions of time that the transport uses, all in seconds."""

    def monotonic(self) -> float:
        """Return a time that never goes back; only differences mean anything."""

    def time(self) -> float:
        """Return the time of day as seconds since 1970 UTC."""

    def sleep(self, seconds: float) -> None:
        """Wait for ``seconds``."""


class SystemClock:
    """The clock of this machine."""

    def monotonic(self) -> float:
        return time.monotonic()

    def time(self) -> float:
        return time.time()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


SYSTEM_CLOCK = SystemClock()


class Deadline:
    """A point in time that a whole call, with its waits and retries, must not pass."""

    __slots__ = ("_clock", "_end")

    def __init__(self, clock: Clock, seconds: float) -> None:
        self._clock = clock
        self._end = clock.monotonic() + seconds

    def seconds_left(self) -> float:
        """Return the seconds left, never below zero."""
        return max(0.0, self._end - self._clock.monotonic())

    def shorter(self, seconds: float) -> Deadline:
        """Return a deadline for a part of the call: ``seconds`` from now, but not after this one."""
        return Deadline(self._clock, min(seconds, self.seconds_left()))

    def within(self, seconds: float) -> float:
        """Return ``seconds`` or the time that is left, if that is shorter; raise ``TimeoutError`` when none is left."""
        time_left = self.seconds_left()
        if time_left <= 0:
            raise TimeoutError("deadline passed")
        return min(seconds, time_left)
