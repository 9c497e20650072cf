# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Retries, Retry-After and the pace of calls."""

from __future__ import annotations

import random
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.module_utils._http.clock import Deadline
from ansible_collections.muster.training.plugins.module_utils._http.retry import (
    Pacer,
    RetryPolicy,
    parse_retry_after,
    shared_pacer,
)
from ansible_collections.muster.training.tests.support.fake_clock import FakeClock


def test_retry_delays_grow_to_their_cap() -> None:
    policy = RetryPolicy(attempts=9, base_s=1.0, cap_s=4.0)
    delays = [policy.delay(attempt, None, random.Random(1)) for attempt in (1, 2, 3, 4, 40)]
    assert all(delay <= 4.0 for delay in delays) and delays[0] <= 1.0 < delays[2]


@given(st.text(max_size=40))
def test_retry_after_never_crashes(text: str) -> None:
    value = parse_retry_after(text, 1.8e9)
    assert value is None or value >= 0


@pytest.mark.parametrize(
    ("text", "seconds"), [("0", 0), ("1.5", 1.5), ("9" * 400, 1e9), (None, None), ("\u0663", None)]
)
def test_retry_after(text: str | None, seconds: float | None) -> None:
    assert parse_retry_after(text, 0) == seconds


class StillClock(FakeClock):
    """Records waits and lets no time pass."""

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)


def test_pacer_gives_each_thread_its_own_turn() -> None:
    clock = StillClock()
    pacer = Pacer(1.0, clock)
    deadline = Deadline(clock, 1000)
    threads = [threading.Thread(target=pacer.wait, args=(deadline,)) for _number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(clock.slept) == [float(turn) for turn in range(1, 20)]
    assert shared_pacer("test-api", 1.0) is shared_pacer("test-api", 1.0)
