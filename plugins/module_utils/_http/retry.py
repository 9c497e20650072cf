# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Timeouts, retries and the pace of calls."""

from __future__ import annotations

import email.utils
import random
import re
import threading
import typing as t

from .clock import SYSTEM_CLOCK, Clock, Deadline

TRANSIENT_STATUS = (502, 503, 504)


class Timeouts(t.NamedTuple):
    """Limits in seconds: to connect, between two reads, and for a whole call with its waits and retries.

    With four attempts of five seconds and the waits between them, an unreachable API is known in under 30 s.
    """

    connect_s: float = 5.0
    read_s: float = 30.0
    total_s: float = 120.0


class RetryPolicy(t.NamedTuple):
    """How often to try: ``attempts`` in all, waits doubling from ``base_s`` up to ``cap_s``.

    A ``Retry-After`` longer than ``retry_after_cap_s`` is cut to it: an absurd one must not hang a play.
    """

    attempts: int = 4
    base_s: float = 0.5
    cap_s: float = 8.0
    retry_after_cap_s: float = 60.0

    def delay(self, attempt: int, retry_after: float | None, rng: random.Random) -> float:
        """Return the wait in seconds after ``attempt`` (from 1) failed; jitter keeps clients from marching in step."""
        if retry_after is not None:
            wait = min(retry_after, self.retry_after_cap_s)
            return wait + rng.uniform(0, 0.1 * wait)
        return min(self.cap_s, self.base_s * 2.0 ** min(attempt - 1, 30)) * rng.uniform(0.5, 1.0)


def parse_retry_after(value: str | None, now: float) -> float | None:
    """Return the seconds a ``Retry-After`` header asks for (RFC 9110 section 10.2.3): seconds or a date.

    ``now`` is the time of day. None for a missing or unreadable header; never negative.
    """
    text = (value or "").strip()
    if re.fullmatch(r"[0-9]+(\.[0-9]+)?", text, re.ASCII):
        return min(float(text), 1e9)
    date = parse_http_date(text)
    return None if date is None else max(0.0, date - now)


def parse_http_date(text: str) -> float | None:
    """Return the Unix seconds of a date in a header (RFC 9110 section 5.6.7), None when it is not one."""
    try:
        return email.utils.parsedate_to_datetime(text).timestamp()
    except (TypeError, ValueError, IndexError, OverflowError):
        return None


class Pacer:
    """Keeps calls at least ``interval_s`` apart, over all threads of this process that share it.

    Ansible's forks do not share it: an API with a pace is called by one task that takes the whole list.
    """

    def __init__(self, interval_s: float, clock: Clock = SYSTEM_CLOCK) -> None:
        self.interval_s = interval_s
        self._clock = clock
        self._lock = threading.Lock()
        self._next = 0.0

    def wait(self, deadline: Deadline) -> None:
        """Take the next turn and sleep until it comes; raise ``TimeoutError`` when it comes after ``deadline``."""
        with self._lock:
            now = self._clock.monotonic()
            turn = max(now, self._next)
            if turn - now > deadline.seconds_left():
                raise TimeoutError("the API's rate limit leaves no time for the call before the deadline")
            self._next = turn + self.interval_s
        if turn > now:
            self._clock.sleep(turn - now)


_shared: dict[str, Pacer] = {}
_shared_lock = threading.Lock()


def shared_pacer(name: str, interval_s: float) -> Pacer:
    """Return this process's one pacer called ``name`` (an API and an account), created at first use."""
    with _shared_lock:
        return _shared.setdefault(name, Pacer(interval_s))
