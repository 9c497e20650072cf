# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether this machine is quiet: a wall-clock figure is judged only then, requests and processor time always."""

from __future__ import annotations

import pathlib
import time
import typing as t

BUSY = 0.15
WAIT_S = 120.0


class Ticks(t.NamedTuple):
    """The processors' time since the machine started, in clock ticks."""

    busy: int
    total: int


def parse_ticks(text: str) -> Ticks:
    """Return the sums of the first line of ``/proc/stat``; waiting for a disk does not count."""
    fields = [int(word) for word in text.splitlines()[0].split()[1:9]]
    idle = sum(fields[3:5])
    return Ticks(sum(fields) - idle, sum(fields))


def read_ticks() -> Ticks:
    """Return the processors' time until now; on a system without /proc/stat nothing is known and nothing is busy."""
    place = pathlib.Path("/proc/stat")
    return parse_ticks(place.read_text(encoding="ascii")) if place.exists() else Ticks(0, 0)


def busy_share(before: Ticks, after: Ticks) -> float:
    """Return which share of the processors' time between two readings was used, from 0 to 1."""
    return (after.busy - before.busy) / max(1, after.total - before.total)


def wait_for_quiet(
    limit_s: float = WAIT_S,
    read: t.Callable[[], Ticks] = read_ticks,
    sleep: t.Callable[[float], None] = time.sleep,
) -> bool:
    """Wait until others leave the processors alone for a second; return False when they did not within the limit."""
    before = read()
    for _second in range(max(1, int(limit_s))):
        sleep(1.0)
        after = read()
        if busy_share(before, after) <= BUSY:
            return True
        before = after
    return False
