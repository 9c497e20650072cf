# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from ansible_collections.muster.training.tools.quiet import Ticks, busy_share, parse_ticks, wait_for_quiet


def test_work_is_told_from_idle_and_waiting_time() -> None:
    text = "cpu  100 20 30 800 50 1 2 3 40 5\ncpu0 1 1 1 1 1 1 1 1 1 1\n"
    assert parse_ticks(text) == Ticks(156, 1006)
    assert busy_share(Ticks(0, 0), Ticks(50, 200)) == 0.25


def test_a_machine_that_becomes_quiet_is_waited_for() -> None:
    readings = iter([Ticks(0, 0), Ticks(90, 100), Ticks(190, 200), Ticks(195, 300)])
    waits: list[float] = []
    assert wait_for_quiet(60, lambda: next(readings), waits.append) is True
    assert len(waits) == 3


def test_a_busy_machine_is_said_to_be_busy() -> None:
    number = iter(range(100))
    waits: list[float] = []

    def read() -> Ticks:
        ticks = next(number) * 100
        return Ticks(ticks, ticks)

    assert wait_for_quiet(5, read, waits.append) is False
    assert len(waits) == 5
