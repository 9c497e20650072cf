# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""RFC 3339 times: written in one form, read in all."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.module_utils._model import timestamps
from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError


@given(st.integers(min_value=0, max_value=4_000_000_000_000))
def test_times_round_trip_to_the_millisecond(milliseconds: int) -> None:
    text = timestamps.format_time(milliseconds / 1000)
    assert timestamps.parse_time(text) == pytest.approx(milliseconds / 1000, abs=0.0011)
    assert timestamps.read_time(text) == timestamps.parse_time(text)


def test_the_forms() -> None:
    assert timestamps.format_time(0.5) == "1970-01-01T00:00:00.500Z"
    assert timestamps.format_whole_seconds(59.9) == "1970-01-01T00:00:59Z"
    assert timestamps.read_time("1970-01-01T01:00:00+01:00") == 0.0


def test_a_time_without_zone_is_utc_for_a_program_and_refused_for_a_user() -> None:
    assert timestamps.read_time("1970-01-01T00:01:00") == 60.0
    with pytest.raises(InputError, match="^lease.until: must be a time such as"):
        timestamps.parse_time("1970-01-01T00:01:00", "lease.until")


@given(st.one_of(st.none(), st.integers(), st.text(), st.lists(st.integers())))
def test_no_value_breaks_the_readers(value: object) -> None:
    assert timestamps.read_time(value) is None or isinstance(timestamps.read_time(value), float)
    try:
        assert isinstance(timestamps.parse_time(value), float)
    except InputError as error:
        assert error.option == "at"
