# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Numbers as a person reads them."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.plugin_utils._report.data import format as fmt


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (None, "–"),
        (0.44, "0.4 s"),
        (9.96, "10 s"),
        (59.6, "1 min"),
        (65, "1 min 5 s"),
        (3599.7, "1 h"),
        (7380, "2 h 3 min"),
        (90000, "1 d 1 h"),
        (-3, "0.0 s"),
    ],
)
def test_durations(seconds: float | None, expected: str) -> None:
    assert fmt.format_duration(seconds).replace("\N{NO-BREAK SPACE}", " ") == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (2.4371, "2.44"),
        (51234.4, "51,234"),
        (0, "0"),
        (0.00002, "2.00e-05"),
        (-1.5, "-1.50"),
        (None, "–"),
        (1e15, "1.00e+15"),
    ],
)
def test_figures_have_three_significant_digits(value: float | None, expected: str) -> None:
    assert fmt.format_figure(value) == expected


@given(st.floats())
def test_any_number_can_be_written(value: float) -> None:
    assert fmt.format_figure(value)
    assert fmt.format_tick(value, abs(value) if math.isfinite(value) else 0.0)


def test_axis_numbers_share_their_decimals() -> None:
    assert [fmt.format_tick(value, 0.6) for value in (2.4, 3.0, 3.6000000000000005)] == ["2.4", "3.0", "3.6"]
    assert [fmt.format_tick(value, 2.5) for value in (0, 2.5, 5)] == ["0.0", "2.5", "5.0"]
    assert [fmt.format_tick(value, 1e-4) for value in (0, 1e-4, 2e-4)] == ["0", "1e-4", "2e-4"]
    assert [fmt.format_tick(value, 1e-5) for value in (2.9e-4, 3e-4)] == ["2.9e-4", "3.0e-4"]
    assert [fmt.format_tick(value, 50) for value in (0, 50)] == ["0", "50"]
    assert [fmt.format_tick(value) for value in (0, 950, 1500, 2e6)] == ["0", "950", "1.5k", "2M"]


def test_small_words() -> None:
    assert (fmt.format_usd(417.751), fmt.format_usd(0.0123), fmt.format_usd(0.0), fmt.format_usd(None)) == (
        "$417.75",
        "$0.0123",
        "$0.00",
        "–",
    )
    assert (fmt.format_clock(65), fmt.format_clock(3665)) == ("1:05", "1:01:05")
    assert (fmt.plural(1, "node"), fmt.plural(2, "loss", "losses")) == ("1 node", "2 losses")
    assert fmt.join_names(["a", "b", "c"]) == "a, b and c"
    assert fmt.join_names(list("abcdef"), 2) == "a, b and 4 more"
    assert fmt.size(1_500_000).endswith("MB")


def test_a_long_reason_is_cut_at_a_sentence_or_a_word() -> None:
    assert fmt.shorten("short", 10) == "short"
    assert fmt.shorten("One sentence here. Another one that is longer", 30) == "One sentence here"
    assert fmt.shorten("words without any end at all", 14) == "words without\N{HORIZONTAL ELLIPSIS}"
