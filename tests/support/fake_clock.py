# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A clock that moves only when something sleeps."""

from __future__ import annotations

import threading


class FakeClock:
    """Stands in for ``_http.clock.Clock``; ``slept`` lists every wait in seconds, in order."""

    def __init__(self, epoch: float = 1_795_000_000.0) -> None:
        self.now = 1000.0
        self.epoch = epoch
        self.slept: list[float] = []
        self._lock = threading.Lock()

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return self.epoch + self.now - 1000.0

    def sleep(self, seconds: float) -> None:
        with self._lock:
            self.slept.append(seconds)
            self.now += seconds
