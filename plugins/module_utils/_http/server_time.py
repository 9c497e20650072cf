# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the headers ``Date`` and ``Age`` of an API's responses say: its clock, and how old a response is."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Mapping

from .clock import Clock
from .retry import parse_http_date

# Dates have whole seconds, and a response takes a moment.
_EXACT_S = 2.0


class ServerTime:
    """The clock of one API; threads may share it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._local = threading.local()
        self._offset: float | None = None

    @property
    def offset_s(self) -> float | None:
        """Return how far the API's clock is ahead of this one, None while no response had a date."""
        return self._offset

    def note(self, headers: Mapping[str, str]) -> None:
        """Note a response. One from a cache has an older date, so that the newest tells the clock."""
        now = self._clock.time()
        date = parse_http_date(headers.get("date", ""))
        with self._lock:
            if date is not None:
                self._offset = max(date - now, date - now if self._offset is None else self._offset)
            lag = 0.0 if date is None or self._offset is None else self._offset - (date - now)
        age = max(_read_age(headers), lag)
        ages: list[float] | None = getattr(self._local, "ages", None)
        if ages is not None and age > _EXACT_S:
            ages.append(age)

    @contextlib.contextmanager
    def watch(self) -> Iterator[list[float]]:
        """Collect the ages of the responses to this thread that were not new."""
        ages: list[float] = []
        self._local.ages = ages
        try:
            yield ages
        finally:
            self._local.ages = None


def _read_age(headers: Mapping[str, str]) -> float:
    value = headers.get("age", "").strip()
    return float(value) if value.isascii() and value.isdigit() and len(value) < 10 else 0.0
