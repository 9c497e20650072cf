# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Numbers with a unit, as the Kubernetes API reads them."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.module_utils._model.quantity import parse_quantity


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("1", 1),
        ("0.5", 0.5),
        ("500m", 0.5),
        ("1Ki", 1024),
        ("1k", 1000),
        ("1e3", 1000),
        ("1E", 10**18),
        ("-1", -1),
        ("+.5Gi", 2**29),
        ("5.", 5),
        ("7n", "7e-9"),
        ("7u", "7e-6"),
        ("1e+3", 1000),
        ("25e-1", 2.5),
        ("9007199254740993", 9007199254740993),
        ("2", 2),
    ],
)
def test_quantities(text: str, number: float | str) -> None:
    assert parse_quantity(text) == Decimal(number)


@pytest.mark.parametrize(
    "text", ["", "8 Gi", "8gb", "1Kib", "Gi", "1e", "1K", "1e5000", ".", "0x1", "1Mii", "nan", "٣"]
)
def test_what_is_no_quantity(text: str) -> None:
    assert parse_quantity(text) is None


@given(st.text(max_size=12) | st.from_regex(r"[+-]?[0-9.]{1,4}[eEmKi]?[+-]?[0-9]{0,4}", fullmatch=True))
def test_any_text_is_a_number_or_none(text: str) -> None:
    result = parse_quantity(text)
    assert result is None or result.is_finite()


@given(st.integers(0, 10**12), st.sampled_from(["", "m", "k", "Ki", "M", "Mi"]))
def test_a_quantity_equals_itself_in_thousandths(number: int, suffix: str) -> None:
    whole = parse_quantity(f"{number}{suffix}")
    assert whole is not None and parse_quantity(f"{whole * 1000:f}m") == whole
