# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Values of foreign JSON documents: what is not of the expected kind is unknown, never an error."""

from __future__ import annotations

import math
import typing as t

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.plugin_utils._fabric.parse.json_values import (
    as_items,
    as_mapping,
    finite_number,
    whole_number,
)


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (3, 3.0),
        ("2.5", 2.5),
        (0, 0.0),
        (True, None),
        (-1, None),
        ("nan", None),
        (math.inf, None),
        ("9" * 41, None),
        (2**63, None),
        (10**400, None),
        ([1], None),
        ("four", None),
    ],
)
def test_only_finite_numbers_from_zero_are_numbers(value: object, number: float | None) -> None:
    assert finite_number(value) == number


def test_a_limit_of_its_own_and_whole_numbers() -> None:
    assert finite_number(10.0, 10.0) is None and finite_number(9.9, 10.0) == 9.9
    assert whole_number("7.9") == 7 and whole_number(None) is None


def test_other_kinds_are_empty() -> None:
    assert as_mapping({"a": 1}) == {"a": 1} and as_mapping([("a", 1)]) == {}
    assert list(as_items([1, 2])) == [1, 2] and list(as_items("ab")) == []


@given(st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary())
def test_any_value_gives_a_number_in_range_or_none(value: t.Any) -> None:
    number = finite_number(value)
    assert number is None or 0 <= number < 2**63
