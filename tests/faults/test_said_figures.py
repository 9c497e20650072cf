# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What renting and terminating say of money, held against what the provider has: prices, remains, and old listings."""

from __future__ import annotations

import dataclasses
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError, MusterError
from ansible_collections.muster.training.plugins.plugin_utils._provision.ledger.ledger_store import read_ledger
from ansible_collections.muster.training.tests.fakes.api import Answer
from ansible_collections.muster.training.tests.fakes.runpod import PRICE, FakeRunpod
from ansible_collections.muster.training.tests.fakes.virtual import InlineScheduler, VirtualClock
from ansible_collections.muster.training.tests.faults.shop import Shop

HIGHER = 4.5


@pytest.fixture
def said(shop: Shop) -> list[str]:
    """The lines on the screen."""
    lines: list[str] = []
    shop.context = dataclasses.replace(shop.context, report=lines.append)
    return lines


def list_at(api: FakeRunpod, price: float, **headers: str) -> None:
    """List every pod at a price."""

    def rewrite(name: str, answer: Answer) -> Answer:
        if name != "list" or answer.status != 200:
            return answer
        return Answer(200, {"pods": [{**item, "cost": price} for item in answer.data["pods"]]}, headers)

    api.rewrite = rewrite


def recorded_prices(shop: Shop) -> list[float | None]:
    return [lease.price_usd_per_hour for lease in read_ledger(shop.folder / "state" / "lab").leases.values()]


def test_a_machine_that_bills_more_than_its_cap_costs_what_it_was_listed_at(shop: Shop, api: FakeRunpod) -> None:
    list_at(api, HIGHER)
    assert shop.rent(max_price_usd_per_hour=3.5)["failed"] and api.alive() == []
    assert recorded_prices(shop) == [HIGHER]


def test_a_price_that_teardown_sees_first_is_what_the_machine_cost(shop: Shop, api: FakeRunpod) -> None:
    shop.rent()
    list_at(api, HIGHER)
    assert shop.end()["clean"] and recorded_prices(shop) == [HIGHER]


def test_a_rent_that_fails_says_what_ended_and_what_still_bills(shop: Shop, api: FakeRunpod, said: list[str]) -> None:
    (node,) = shop.rent()["nodes"]
    said.clear()
    api.statuses = ["EXITED"] * 20
    result = shop.rent(count=2)
    ended = len(api.things) - 1
    assert result["failed"] and f"; {ended} proved gone" in result["msg"] and ended > 0
    assert [item.name for item in api.alive()] == [node["name"]]
    assert len([line for line in said if line.startswith(f"{node['name']}: {PRICE} USD per hour, ")]) == 1


def test_a_deadline_that_has_passed_is_said_to_have(shop: Shop, said: list[str]) -> None:
    shop.rent(lease_s=600)
    shop.clock.sleep(700)
    said.clear()
    shop.rent(check=True)
    (line,) = said
    assert ", due now, as its deadline 2" in line and line.endswith(" has passed: reap terminates it")


def test_a_cost_is_said_to_be_the_pool_s_and_to_be_reached(shop: Shop, said: list[str]) -> None:
    shop.rent(count=2, max_cost_usd=5.0)
    assert [line for line in said if line.endswith(": 2.99 USD per hour, due once its pool has cost 5.00 USD")] == said[
        -2:
    ]
    shop.clock.sleep(3600)
    said.clear()
    shop.rent(count=2, max_cost_usd=5.0)
    assert len([line for line in said if ", due now, as its pool has cost 6.0" in line]) == 2


def test_check_says_which_machines_are_not_listed(shop: Shop, api: FakeRunpod, said: list[str]) -> None:
    (node,) = shop.rent()["nodes"]
    api.end(api.alive()[0])
    shop.clock.sleep(3600)
    said.clear()
    shop.rent(check=True)
    (line,) = (line for line in said if line.startswith(node["name"]))
    assert "in the ledger, not listed: gone, or hidden and billing 2.99 USD per hour; rent replaces it" in line


def test_a_missing_key_is_asked_for_by_the_names_of_its_options(shop: Shop) -> None:
    accounts = [{"name": "runpod", "api_url": shop.urls["runpod"]}]
    with pytest.raises(
        InputError, match=r"^providers\[0\].api_token: is missing. Set api_token or api_token_file or env"
    ):
        shop.rent(providers=accounts)


def test_a_machine_is_not_said_to_be_listed_still_by_an_old_listing_alone(shop: Shop, api: FakeRunpod) -> None:
    shop.rent()
    old = [api._pod(item) for item in api.alive()]
    api.rewrite = lambda name, answer: Answer(200, {"pods": old}, {"Age": "4000"}) if name == "list" else answer
    result = shop.end(release_timeout_s=120)
    assert api.alive() == [] and result["failed"]
    assert "still listed (RUNNING); the listing of runpod comes from a cache and is 4000 s old" in result["msg"]


@pytest.mark.parametrize("how", ["rent", "end", "reap"])
def test_a_damaged_ledger_is_said(shop: Shop, said: list[str], how: str) -> None:
    shop.rent()
    with (shop.folder / "state" / "lab" / "ledger.jsonl").open("ab") as ledger:
        ledger.write(b"\x00 garbage\n")
    said.clear()
    for check in (True, False):
        t.cast("t.Any", getattr(shop, how))(check=check)
        assert len([line for line in said if "ledger.jsonl:" in line and line.startswith("warning: ")]) == 1
        said.clear()


@pytest.mark.parametrize("how", ["end", "reap"])
@pytest.mark.parametrize("damage", ["folder", "noise"])
def test_a_ledger_that_cannot_be_read_hides_no_machine(shop: Shop, api: FakeRunpod, how: str, damage: str) -> None:
    (node,) = shop.rent()["nodes"]
    ledger = shop.folder / "state" / "lab" / "ledger.jsonl"
    ledger.unlink()
    ledger.mkdir() if damage == "folder" else ledger.write_bytes(b"\xff noise\n")
    result = getattr(shop, how)()
    assert result["failed"] and "Restore it from a copy" in result["msg"] and len(api.alive()) == 1
    assert f"; the accounts list of lab: {node['name']} (2.99 USD per hour)" in result["msg"]
    with pytest.raises(MusterError, match=r"^nothing is ordered: .*Restore it from a copy"):
        shop.rent()


def test_rent_by_a_clock_that_is_behind_says_which_orders_are_of_its_future(shop: Shop, said: list[str]) -> None:
    """Also of an API that tells no time: the deadline that is said then may be one that has passed."""
    (node,) = shop.rent()["nodes"]
    behind = InlineScheduler(VirtualClock(shop.clock.time() - 86400))
    shop.context = dataclasses.replace(shop.context, scheduler=behind)
    said.clear()
    shop.rent(lease_s=7200)
    words = "which is in the future: by a clock that was wrong, so its cost is not known"
    assert [line for line in said if line.startswith(f"warning: {node['name']} was ordered at ") and words in line]
