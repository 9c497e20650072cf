# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is known of the bill, from a ledger, listings and clocks."""

from __future__ import annotations

import dataclasses
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.lease import AccountIdentity, Instance, Resource
from ansible_collections.muster.training.plugins.module_utils._model.ledger import Lease
from ansible_collections.muster.training.plugins.module_utils._model.timestamps import format_time
from ansible_collections.muster.training.plugins.plugin_utils._provision.bill.known_bill import (
    BillEntry,
    KnownBill,
    Sight,
    format_price,
    read_bill,
    see,
    sum_prices,
)
from ansible_collections.muster.training.plugins.plugin_utils._provision.bill.listing_rules import index_leases
from ansible_collections.muster.training.plugins.plugin_utils._provision.create_state import AccountListed

NOW = 1_795_255_200.0
TOKEN = "1f2e3d4c"
NAME = f"lab-h100-0-{TOKEN}"
LEASE = Lease(
    token=TOKEN,
    resource="instance",
    cluster="lab",
    pool="h100",
    name=NAME,
    provider="lambda",
    account="aaaa",
    state="joined",
    settled=True,
    intent_at=NOW - 3600,
    changed_at=NOW - 3600,
    ids=("i-1",),
    seen_ids=("i-1",),
    fingerprints=("aaaa",),
    price_usd_per_hour=2.0,
    deadline=format_time(NOW + 600),
)
MACHINE = Instance("lambda", "i-1", NAME, TOKEN, "running", price_usd_per_hour=2.0)
IDENTITY = AccountIdentity("aaaa", "aaaa")


def bill(
    leases: t.Collection[Lease] = (LEASE,),
    machines: tuple[Instance, ...] | None = (MACHINE,),
    *,
    identity: AccountIdentity = IDENTITY,
    offset_s: float | None = None,
    runs: dict[str, t.Any] | None = None,
) -> KnownBill:
    index = index_leases("lab", leases, lambda _lease: False)
    listing = AccountListed(NOW, NOW, "lambda", machines or (), clock_offset_s=offset_s)
    sight = Sight(identity) if machines is None else see(identity, listing, index)
    return read_bill(index, {"lambda": sight}, NOW, runs)


@pytest.mark.parametrize(
    ("offered", "listed", "price"),
    [(2.0, 3.0, 3.0), (2.0, 0.25, 2.0), (2.0, None, 2.0), (None, 3.0, 3.0), (None, None, None)],
)
def test_the_higher_one_of_offer_and_list_counts(
    offered: float | None, listed: float | None, price: float | None
) -> None:
    lease = dataclasses.replace(LEASE, price_usd_per_hour=offered)
    (entry,) = bill([lease], (dataclasses.replace(MACHINE, price_usd_per_hour=listed),)).entries
    assert (entry.standing, entry.usd_per_hour) == ("within_lease", price)


@pytest.mark.parametrize(("listed", "is_said"), [(1.59, True), (1.61, False), (2.0, False), (None, False)])
def test_a_listing_far_below_its_offer_is_said(listed: float | None, is_said: bool) -> None:
    notes = bill(machines=(dataclasses.replace(MACHINE, price_usd_per_hour=listed),)).notes
    assert bool(notes) == is_said and all("the higher price counts" in line for line in notes)


@pytest.mark.parametrize("rise", [2.5, 200.0])
def test_a_higher_listed_price_is_for_the_ledger_and_decides_what_is_due(rise: float) -> None:
    machine = dataclasses.replace(MACHINE, price_usd_per_hour=rise)
    found = bill([dataclasses.replace(LEASE, max_cost_usd=50.0)], (machine,), runs={})
    assert found.higher == {LEASE.key: rise} and bool(found.due) == (rise == 200.0)


@pytest.mark.parametrize(
    ("changes", "machines", "identity", "standing", "price", "words"),
    [
        ({}, (), IDENTITY, "unlisted", None, "gone, or hidden and billing 2.00 USD per hour"),
        ({"settled": False, "state": "intent", "ids": ()}, (), IDENTITY, "unlisted", None, "not made (yet), or hidden"),
        ({"price_usd_per_hour": None}, (), IDENTITY, "unlisted", None, "billing at an unknown price"),
        ({}, None, IDENTITY, "unseen", 2.0, "lambda could not be listed"),
        ({}, (), AccountIdentity("bbbb", "bbbb"), "unseen", 2.0, "set account: aaaa"),
        ({}, (dataclasses.replace(MACHINE, name="bobs-box", token=None),), IDENTITY, "unseen", 2.0, "bobs-box"),
    ],
)
def test_an_open_lease_that_is_not_listed_is_named(
    changes: dict[str, t.Any],
    machines: tuple[Instance, ...] | None,
    identity: AccountIdentity,
    standing: str,
    price: float | None,
    words: str,
) -> None:
    found = bill([dataclasses.replace(LEASE, **changes)], machines, identity=identity)
    (entry,) = found.select("unlisted", "unseen")
    assert (entry.standing, entry.usd_per_hour, entry.name) == (standing, price, NAME) and words in entry.problem


@pytest.mark.parametrize("changes", [{"state": "verified"}, {"state": "failed", "ids": ()}, {"resource": "device"}])
def test_what_is_gone_was_refused_or_is_no_machine_is_not_awaited(changes: dict[str, t.Any]) -> None:
    assert bill([dataclasses.replace(LEASE, **changes)], ()).entries == ()


@pytest.mark.parametrize(
    ("leases", "machine", "standing"),
    [
        ([dataclasses.replace(LEASE, state="verified")], MACHINE, "returned"),
        ([], MACHINE, "orphan"),
        ([], dataclasses.replace(MACHINE, name="bobs-box", token=None), "foreign"),
        ([LEASE], dataclasses.replace(MACHINE, name="i-1", token=None), "within_lease"),
    ],
)
def test_what_is_listed_has_a_standing(leases: list[Lease], machine: Instance, standing: str) -> None:
    (entry,) = bill(leases, (machine,)).entries
    assert entry.standing == standing
    assert entry.name == (NAME if standing == "within_lease" else machine.name)


@pytest.mark.parametrize("resource", ["device", "auth_key"])
def test_a_device_costs_nothing(resource: Resource) -> None:
    device = dataclasses.replace(MACHINE, resource=resource, price_usd_per_hour=None)
    (entry,) = (item for item in bill(machines=(MACHINE, device)).entries if item.resource == resource)
    assert entry.usd_per_hour == 0.0


@pytest.mark.parametrize(
    ("offset", "is_due", "is_said"),
    [(None, False, False), (60.0, False, False), (86400.0, True, True), (-86400.0, False, True)],
)
def test_the_clock_of_the_api_rules(offset: float | None, is_due: bool, is_said: bool) -> None:
    found = bill(offset_s=offset, runs={})
    assert (bool(found.due), bool(found.doubts)) == (is_due, is_said)


def test_an_order_of_the_future_is_named() -> None:
    (doubt,) = bill([dataclasses.replace(LEASE, intent_at=NOW + 86400)]).doubts
    assert NAME in doubt and "in the future" in doubt


def test_what_is_unknown_is_no_number() -> None:
    assert (format_price(None), format_price(0.0)) == ("at an unknown price", "0.00 USD per hour")
    assert (sum_prices([1.0, None]), sum_prices([1.0, 0.5]), sum_prices([])) == (None, 1.5, 0.0)
    entry = BillEntry("due", "lambda", NAME, "instance", ("i-1",), reason="its deadline has passed")
    assert entry.describe() == f"{NAME} (at an unknown price, its deadline has passed)"
