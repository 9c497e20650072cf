# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What check mode says of one lease that is to end."""

from __future__ import annotations

import dataclasses

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.lease import Instance
from ansible_collections.muster.training.plugins.module_utils._model.ledger import LedgerEvent, fold_events
from ansible_collections.muster.training.plugins.plugin_utils._provision.bill.teardown_proof import preview_end
from ansible_collections.muster.training.plugins.plugin_utils._provision.delete_state import Termination


def termination(listed: float | None, offered: float | None = 2.0) -> Termination:
    event = LedgerEvent("2026-11-28T00:00:00Z", "lab", "1234abcd", "joined", "instance", "runpod", "a", "h", "lab-h-0")
    (lease,) = fold_events([dataclasses.replace(event, id="i-1", price_usd_per_hour=offered)]).values()
    item = Instance("runpod", "i-1", "lab-h-0", "1234abcd", "running", price_usd_per_hour=listed)
    return Termination(lease, ("i-1",), () if listed is None else (item,))


@pytest.mark.parametrize(("listed", "price"), [(2.5, 2.5), (0.25, 2.0)])
def test_the_higher_one_of_offer_and_listing_counts(listed: float, price: float) -> None:
    found = preview_end(termination(listed), "past its deadline")
    assert found.usd_per_hour == price and found.problem == ""
    assert found.describe() == f"lab-h-0 ({price:.2f} USD per hour, past its deadline)"


def test_a_lease_that_is_not_listed_may_be_hidden() -> None:
    assert "not listed: gone, or hidden and billing" in preview_end(termination(None), "").problem
