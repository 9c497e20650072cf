# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Quantities of Kubernetes, written and read back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.module_utils._model import validators
from ansible_collections.muster.training.plugins.plugin_utils._kube.jobs import quantities


@pytest.mark.parametrize(
    ("amount", "text"),
    [(1, "1"), (1000, "1000"), (1024, "1Ki"), (8 << 30, "8Gi"), (3 << 29, "1536Mi"), (1 << 50, "1024Ti")],
)
def test_bytes_are_written_in_the_largest_unit_that_divides_them(amount: int, text: str) -> None:
    assert quantities.format_bytes(amount) == text


@given(amount=st.integers(1, 2**52))
def test_written_bytes_are_read_back_as_the_same(amount: int) -> None:
    assert validators.quantity(quantities.format_bytes(amount), "x") == amount


@pytest.mark.parametrize(
    ("amount", "text"), [(1.0, "1"), (0.5, "500m"), (1.5, "1500m"), (0.1, "100m"), (0.0001, "1m"), (96.0, "96")]
)
def test_cores_are_written_to_the_thousandth(amount: float, text: str) -> None:
    assert quantities.format_cores(amount) == text
