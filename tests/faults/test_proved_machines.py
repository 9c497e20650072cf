# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Machines that were proved gone and bill, and absence in another account: through node_pool to a provider's fake."""

from __future__ import annotations

import json

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._provision.ledger.ledger_store import read_ledger
from ansible_collections.muster.training.tests.fakes.api import Answer, Fault
from ansible_collections.muster.training.tests.fakes.runpod import FakeRunpod
from ansible_collections.muster.training.tests.fakes.wire import TOKEN
from ansible_collections.muster.training.tests.faults.shop import Shop, named


def test_a_refused_order_that_takes_effect_late_is_ended_by_the_reaper(shop: Shop, api: FakeRunpod) -> None:
    api.fault = Fault("create", "late_refusal")
    assert shop.rent()["failed"]
    shop.clock.sleep(300)
    assert len(api.alive()) == 1
    result = shop.reap()
    assert result["clean"] and len(result["leases"]) == 1 and api.alive() == []


def test_an_order_that_takes_effect_after_its_proof_is_ended_by_the_reaper(shop: Shop, api: FakeRunpod) -> None:
    api.faults = [Fault("create", "error_before", nth) for nth in range(1, 9)]
    assert shop.rent(wait_timeout_s=60)["failed"]
    (lease, *_others) = read_ledger(shop.state).leases.values()
    assert lease.state == "verified"
    api.stranger(lease.name)
    assert shop.reap()["clean"] and api.alive() == []


def test_a_delete_without_effect_behind_a_listing_that_hides_it_is_found_later(shop: Shop, api: FakeRunpod) -> None:
    shop.rent()
    (pod,) = api.alive()
    api.rewrite = lambda name, answer: Answer(200, {"pods": []}) if name == "list" else answer
    api.faults = [Fault("delete", "no_effect", nth) for nth in range(1, 4)]
    assert shop.end()["clean"], "two listings and an answer lie in accord"
    api.rewrite = lambda _name, answer: answer
    api.faults = []
    result = shop.reap()
    assert [item["id"] for item in result["leases"]] == [pod.id] and api.alive() == []


def test_a_ledger_that_was_edited_does_not_hide_a_machine(shop: Shop, api: FakeRunpod) -> None:
    shop.rent()
    path = shop.state / "ledger.jsonl"
    last = json.loads(path.read_text().splitlines()[-1])
    with path.open("a") as stream:
        stream.write(json.dumps({**last, "event": "verified"}) + "\n")
    assert shop.reap()["clean"] and api.alive() == []


def test_what_was_proved_gone_and_is_listed_fails_an_ending_that_does_not_mean_it(shop: Shop, api: FakeRunpod) -> None:
    shop.rent()
    shop.end()
    (lease,) = read_ledger(shop.state).leases.values()
    api.stranger(lease.name)
    result = shop.end(nodes=[])
    assert result["failed"] and "listed again after it was proved gone" in result["msg"] and len(api.alive()) == 1


# Absence in another account.


@pytest.mark.parametrize("is_due", [False, True])
def test_an_empty_account_under_the_same_name_proves_nothing(
    shop: Shop, api: FakeRunpod, other: FakeRunpod, is_due: bool
) -> None:
    shop.rent(providers=named(shop, "a"), lease_s=300)
    shop.clock.sleep(400)
    run = shop.reap if is_due else shop.end
    result = run(providers=named(shop, "b"))
    assert result["failed"] and not result["leases"] and len(api.alive()) == 1
    assert "an absence there proves nothing" in result["msg"] and other.alive() == []
    result = shop.reap(providers=named(shop, "a"))
    assert result["clean"] and api.alive() == []


def test_a_new_key_of_the_same_account_is_known_by_what_it_shows(shop: Shop, api: FakeRunpod) -> None:
    shop.rent(providers=named(shop, "a"))
    rotated = [{**named(shop, "a")[0], "api_token": f"{TOKEN}-rotated"}]
    assert shop.end(providers=rotated)["clean"] and api.alive() == []


@pytest.mark.parametrize("which", ["none", "another", "named"])
def test_a_reaper_that_cannot_see_the_machines_is_red(shop: Shop, which: str) -> None:
    shop.rent(providers=named(shop, "a") if which == "named" else shop.providers("runpod"), lease_s=86400)
    providers = {"none": [], "another": [{**named(shop, "b")[0], "account": None}], "named": named(shop, "b")}[which]
    result = shop.reap(providers=providers)
    assert result["failed"] and "cannot be seen" in result["msg"]
