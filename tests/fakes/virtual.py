# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Virtual time: a clock that moves only when something waits, and a scheduler that does all work at once in one thread.

Hours of booting, settling and retrying pass in milliseconds and the same way every time.
"""

from __future__ import annotations

import concurrent.futures
from collections.abc import Callable, Collection

# 2026-11-21T10:00:00Z, so that ledger lines of tests look like those of a user.
START = 1_795_255_200.0


class VirtualClock:
    """Stands in for ``_http.clock.Clock``. ``events`` are (time, action) that happen when the clock passes them."""

    def __init__(self, start: float = START) -> None:
        self._now = start
        self.events: list[tuple[float, Callable[[], None]]] = []

    def monotonic(self) -> float:
        return self._now

    def time(self) -> float:
        return self._now

    def sleep(self, seconds: float) -> None:
        """Pass ``seconds``, with everything that was to happen in between in its order."""
        end = self._now + max(0.0, seconds)
        while self.events and min(item[0] for item in self.events) <= end:
            first = min(self.events, key=lambda item: item[0])
            self.events.remove(first)
            self._now = max(self._now, first[0])
            first[1]()
        self._now = end

    def later(self, seconds: float, action: Callable[[], None]) -> None:
        """Let ``action`` happen ``seconds`` from now."""
        self.events.append((self._now + seconds, action))


class InlineScheduler:
    """Stands in for ``_provision.api.Scheduler``: work is done when it is submitted, waiting moves the clock.

    ``limit_s`` ends a test whose subject waits for ever.
    """

    def __init__(self, clock: VirtualClock, limit_s: float = 48 * 3600.0) -> None:
        self.clock = clock
        self._end = clock.time() + limit_s

    def now(self) -> float:
        return self.clock.time()

    def submit[T](self, work: Callable[[], T]) -> concurrent.futures.Future[T]:
        done: concurrent.futures.Future[T] = concurrent.futures.Future()
        try:
            done.set_result(work())
        except Exception as error:
            done.set_exception(error)
        return done

    def wait[T](self, pending: Collection[concurrent.futures.Future[T]], until: float) -> None:
        assert self.clock.time() < self._end, "the subject waits for ever"
        if not any(item.done() for item in pending):
            # A planner that asks to wait until now would spin: time must move.
            self.clock.sleep(max(0.001, until - self.clock.time()))
