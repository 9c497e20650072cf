# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What check mode says of one lease that is to end."""

from __future__ import annotations

import types
import typing as t

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._provision.bill.teardown_proof import preview_end


def termination(listed: float | None, offered: float | None = 2.0) -> t.Any:
    lease = types.SimpleNamespace(
        provider="runpod",
        name="lab-h-0",
        resource="instance",
        token="t",
        deadline=None,
        machine=True,
        price_usd_per_hour=offered,
    )
    instances = () if listed is None else (types.SimpleNamespace(price_usd_per_hour=listed),)
    return types.SimpleNamespace(lease=lease, listed_instances=instances, ids=("i-1",))


@pytest.mark.parametrize(("listed", "price"), [(2.5, 2.5), (0.25, 2.0)])
def test_the_higher_one_of_offer_and_listing_counts(listed: float, price: float) -> None:
    found = preview_end(termination(listed), "past its deadline")
    assert found.usd_per_hour == price and found.problem == ""
    assert found.describe() == f"lab-h-0 ({price:.2f} USD per hour, past its deadline)"


def test_a_lease_that_is_not_listed_may_be_hidden() -> None:
    assert "not listed: gone, or hidden and billing" in preview_end(termination(None), "").problem
