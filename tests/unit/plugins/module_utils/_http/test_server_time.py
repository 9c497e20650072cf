# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The clock of an API, and the age of its responses."""

from __future__ import annotations

import email.utils

import pytest

from ansible_collections.muster.training.plugins.module_utils._http.server_time import ServerTime
from ansible_collections.muster.training.tests.fakes.virtual import VirtualClock


def date(clock: VirtualClock, offset: float = 0.0) -> dict[str, str]:
    return {"date": email.utils.formatdate(clock.time() + offset, usegmt=True)}


def test_without_a_date_nothing_is_known() -> None:
    times = ServerTime(VirtualClock())
    for headers in ({}, {"date": "yesterday"}, {"age": "-3"}):
        with times.watch() as ages:
            times.note(headers)
        assert ages == [] and times.offset_s is None


@pytest.mark.parametrize("offset", [-86400.0, 0.0, 86400.0])
def test_a_date_tells_the_clock_and_no_age(offset: float) -> None:
    clock = VirtualClock()
    times = ServerTime(clock)
    with times.watch() as ages:
        for _number in range(3):
            times.note(date(clock, offset))
            clock.sleep(60)
    assert times.offset_s == offset and ages == []


def test_an_older_date_than_others_and_an_age_are_of_a_cache() -> None:
    clock = VirtualClock()
    times = ServerTime(clock)
    times.note(date(clock))
    with times.watch() as ages:
        times.note(date(clock, -300))
        times.note({"age": "600"})
    assert ages == [300.0, 600.0]
    times.note({"age": "600"})
    assert ages == [300.0, 600.0], "what is not watched is not collected"
    assert times.offset_s == 0.0
