# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the lab says while it works: each stage with its time, and a sign of life where one takes long."""

from __future__ import annotations

import contextlib
import threading
import time
import typing as t

Say = t.Callable[[str], None]
_ALIVE_S = 15


class Stages:
    """The stages of one piece of work. ``times``: (stage, seconds) in the order in which they ended."""

    def __init__(self, say: Say) -> None:
        self.say = say
        self.began = time.monotonic()
        self.times: list[tuple[str, float]] = []

    @property
    def total_s(self) -> float:
        """Seconds since the first stage."""
        return time.monotonic() - self.began

    @contextlib.contextmanager
    def stage(self, what: str) -> t.Iterator[None]:
        """Say when a stage ended and how long it took; every 15 s that it goes on. Stages may overlap."""
        began = time.monotonic()
        ended = threading.Event()

        def alive() -> None:
            while not ended.wait(_ALIVE_S):
                self.say(f"  … {what}, {time.monotonic() - began:.0f} s so far")

        ticker = threading.Thread(target=alive, daemon=True)
        ticker.start()
        try:
            yield
        finally:
            ended.set()
        took = time.monotonic() - began
        self.times.append((what, took))
        if took >= 0.05:
            self.say(f"{what}: {took:.1f} s")


def until[T](look: t.Callable[[], T], limit_s: float, pause_s: float = 0.2) -> T:
    """Return the first true value of ``look``, or the last one when the time is over."""
    end = time.monotonic() + limit_s
    while True:
        value = look()
        if value or time.monotonic() >= end:
            return value
        time.sleep(pause_s)
