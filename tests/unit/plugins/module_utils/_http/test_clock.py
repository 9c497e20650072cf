# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Deadlines on a clock that a test moves."""

from __future__ import annotations

import pytest

from ansible_collections.muster.training.plugins.module_utils._http.clock import SYSTEM_CLOCK, Deadline
from ansible_collections.muster.training.tests.support.fake_clock import FakeClock


def test_a_deadline_passes_with_its_clock() -> None:
    clock = FakeClock()
    deadline = Deadline(clock, 10.0)
    assert (deadline.seconds_left(), deadline.within(30.0), deadline.within(2.0)) == (10.0, 10.0, 2.0)
    clock.sleep(11.0)
    assert deadline.seconds_left() == 0.0
    with pytest.raises(TimeoutError):
        deadline.within(1.0)


def test_a_part_never_outlives_the_whole() -> None:
    clock = FakeClock()
    whole = Deadline(clock, 10.0)
    assert (whole.shorter(3.0).seconds_left(), whole.shorter(60.0).seconds_left()) == (3.0, 10.0)


def test_the_system_clock_does_not_go_back() -> None:
    before = SYSTEM_CLOCK.monotonic()
    SYSTEM_CLOCK.sleep(0.001)
    assert SYSTEM_CLOCK.monotonic() > before and SYSTEM_CLOCK.time() > 1_700_000_000
