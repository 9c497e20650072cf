# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Giving back: deleted, absent twice, proved; nothing that is not ours is touched."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.module_utils._model.errors import ApiError, MusterError, TransportError
from ansible_collections.muster.training.plugins.module_utils._model.lease import (
    AccountIdentity,
    Leftover,
    OrderUnsettled,
)
from ansible_collections.muster.training.plugins.module_utils._model.ledger import LedgerEvent
from ansible_collections.muster.training.plugins.module_utils._model.timestamps import format_time, parse_time
from ansible_collections.muster.training.plugins.plugin_utils._provision import delete_plan
from ansible_collections.muster.training.plugins.plugin_utils._provision.create_state import AccountListed
from ansible_collections.muster.training.plugins.plugin_utils._provision.delete import list_accounts, preview_deletion
from ansible_collections.muster.training.plugins.plugin_utils._provision.delete_state import (
    DeleteListing,
    DeleteRequest,
)
from ansible_collections.muster.training.tests.fakes.pool_world import World
from ansible_collections.muster.training.tests.fakes.sim_provider import SimProvider, h100, outage
from ansible_collections.muster.training.tests.fakes.virtual import InlineScheduler, VirtualClock

DENIED = ApiError("DELETE", "/instances/1", 403)


def rented(count: int = 2) -> World:
    world = World()
    assert world.create(count).failure == ""
    return world


def test_what_was_rented_is_given_back_and_proved() -> None:
    world = rented()
    proof = world.delete()
    assert proof.clean
    assert world.lambda_.machines == {}
    assert {lease.state for lease in world.leases.values()} == {"verified"}
    for lease in proof.leases:
        first, second = map(parse_time, lease.absent_at)
        assert second - first >= 5.0
        assert lease.account == "acc1"
    assert [word for word in world.kinds() if word.endswith(" 1")][-3:] == ["draining 1", "deleted 1", "verified 1"]


@pytest.mark.parametrize(("gap", "verified"), [(0.0, False), (4.9, False), (5.0, True), (60.0, True)])
def test_two_listings_too_close_together_are_one(gap: float, verified: bool) -> None:
    world = World()
    world.lines.append(_line(world, "intent", "0000abcd", "lab-h100-0-0000abcd", None))
    world.lines.append(_line(world, "failed", "0000abcd", "lab-h100-0-0000abcd", None))
    now = world.clock.time()
    request = DeleteRequest("lab", now + 600)
    accounts, traits = {"lambda": AccountIdentity("acc1", "acc1")}, {"lambda": world.lambda_.traits}
    leases = tuple(world.leases.values())
    state = delete_plan.initial_state(request, leases, lambda _lease: True, accounts, traits, now)
    for moment in (now, now + gap):
        state = delete_plan.reduce(state, DeleteListing(AccountListed(moment, moment, "lambda")))
    assert [claim.is_verified for claim in state.terminations.values()] == [verified]


def test_the_minute_of_the_proof_is_told_once_with_what_is_waited_for() -> None:
    world = rented()
    names, told = sorted(lease.name for lease in world.leases.values()), list[tuple[float, str]]()
    assert world.delete(report=lambda line: told.append((world.clock.time(), line))).clean
    ((at, line),) = told
    gap_s = world.lambda_.traits.list_lag_s
    assert line == (
        f"{', '.join(names)}: no longer listed at lambda; proved gone when no listing has shown it for {gap_s:.0f} s"
    )
    assert world.clock.time() - at >= gap_s


def test_a_machine_whose_proof_begins_later_has_a_line_of_its_own() -> None:
    world = rented()
    world.lambda_.delete_faults = [DENIED]
    told: list[str] = []
    assert world.delete(report=told.append).clean
    names = sorted(lease.name for lease in world.leases.values())
    assert sorted(line.split(":")[0] for line in told) == names


def test_too_little_time_for_a_proof_is_told_before_and_deletes_all_the_same() -> None:
    world = rented(1)
    told: list[str] = []
    proof = world.delete(timeout_at=world.clock.time() + 30, report=told.append)
    assert not proof.clean and world.lambda_.machines == {}
    (lease,) = world.leases.values()
    assert told[0].startswith(f"warning: 30 s are too few to prove {lease.name} gone: the listings of lambda have ")
    assert "release_timeout_s" in told[0]


def test_what_bills_nothing_is_proved_without_a_word() -> None:
    world = World()
    world.lines.append(_line(world, "intent", "0000abcd", "lab-h100-0-0000abcd", None))
    world.lines.append(_line(world, "failed", "0000abcd", "lab-h100-0-0000abcd", None))
    told: list[str] = []
    assert world.delete(report=told.append, timeout_at=world.clock.time() + 40).leases and told == []


def test_twice_is_success_and_writes_nothing() -> None:
    world = rented()
    world.delete()
    lines = len(world.lines.events)
    again = world.delete()
    assert again.clean and again.leases == ()
    assert len(world.lines.events) == lines


def test_an_empty_world_is_clean() -> None:
    assert World().delete().clean


def test_machines_of_others_are_never_touched() -> None:
    world = rented()
    names = ["training-box", "other-h100-0-1234abcd", "lab2-h100-0-00000001"]
    ids = [world.lambda_.make(name) for name in names]
    proof = world.delete()
    assert proof.clean
    assert sorted(world.lambda_.machines) == sorted(ids)
    assert {name for _key, name in proof.unknown} >= {"training-box", "other-h100-0-1234abcd"}


def test_a_machine_of_this_cluster_without_a_line_is_an_orphan() -> None:
    world = rented(1)
    stray = world.lambda_.make("lab-h100-7-deadbeef", 3.5)
    proof = world.delete()
    assert not proof.clean
    assert [(item["id"], item["usd_per_hour"]) for item in proof.orphans] == [(stray, 3.5)]
    assert proof.residual_usd_per_hour == 3.5
    assert list(world.lambda_.machines) == [stray]


def test_an_orphan_is_deleted_with_consent_only() -> None:
    world = World()
    world.lambda_.make("lab-h100-7-deadbeef")
    stranger = world.lambda_.make("lab2-h100-7-deadbeef")
    proof = world.delete(delete_orphans=True)
    assert proof.clean
    assert list(world.lambda_.machines) == [stranger]
    assert [event.event for event in world.lines.events] == ["orphan", "deleted", "verified"]


def test_a_machine_that_comes_back_after_its_proof_is_deleted() -> None:
    world = rented(1)
    world.delete()
    world.lambda_.make("lab-h100-0-00000001")
    assert world.delete().clean
    assert world.alive() == 0


def test_two_machines_of_one_token_are_both_deleted() -> None:
    world = rented(1)
    world.lambda_.make("lab-h100-0-00000001")
    assert world.delete().clean
    assert world.alive() == 0


@pytest.mark.parametrize("listings", [["empty", None], [None, "empty", None], ["empty", "empty", None, None]])
def test_a_listing_that_misses_machines_proves_nothing(listings: list[object]) -> None:
    world = rented()
    world.lambda_.list_faults = list(listings)
    # The first delete of each machine is lost, so that it is really there while it is not listed.
    world.lambda_.delete_faults = [outage(), outage()]
    assert world.delete().clean
    assert world.alive() == 0


def test_no_such_id_is_no_proof_for_a_new_machine() -> None:
    world = World()
    world.lambda_.lag_s = 50.0
    world.lambda_.boot_s = 0.0
    world.lambda_.answers = []
    world.create(1, gate=False, timeout_at=world.clock.time() + 55)
    assert world.alive() in (0, 1)
    world = World()
    token = "0000abcd"
    name = f"lab-h100-0-{token}"
    world.lambda_.lag_s = 50.0
    key = world.lambda_.make(name)
    for event, thing in (("intent", None), ("created", key)):
        world.lines.append(_line(world, event, token, name, thing))
    world.lambda_.delete_faults = ["404"]
    assert world.delete().clean
    assert world.alive() == 0


def test_an_open_order_is_watched_until_it_can_no_longer_come() -> None:
    world = World()
    world.lines.append(_line(world, "intent", "0000abcd", "lab-h100-0-0000abcd", None))
    start = world.clock.time()
    world.clock.later(140.0, lambda: world.lambda_.make("lab-h100-0-0000abcd"))
    proof = world.delete()
    assert proof.clean
    assert world.clock.time() - start >= 150
    assert world.alive() == 0


def test_a_settled_refusal_needs_no_wait() -> None:
    world = World()
    world.lines.append(_line(world, "intent", "0000abcd", "lab-h100-0-0000abcd", None))
    world.lines.append(_line(world, "failed", "0000abcd", "lab-h100-0-0000abcd", None))
    start = world.clock.time()
    assert world.delete().clean
    assert world.clock.time() - start <= 15


def test_absence_in_another_account_is_refused() -> None:
    world = rented()
    world.lambda_.account = world.lambda_.fingerprint = "acc2"
    world.lambda_.machines = {}
    proof = world.delete()
    assert not proof.clean
    assert "account acc1" in proof.billing[0]["problem"] and "acc2" in proof.billing[0]["problem"]
    assert world.lambda_.deleted == []
    assert {lease.state for lease in world.leases.values()} == {"joined"}


def test_leases_of_a_provider_without_credentials_stay_open() -> None:
    world = rented(1)
    world.providers["runpod"] = SimProvider(world.clock, "runpod")
    machines = world.providers.pop("lambda")
    proof = world.delete()
    assert not proof.clean
    assert "no credentials for lambda" in proof.billing[0]["problem"]
    assert len(machines.machines) == 1


def test_a_delete_that_is_forbidden_is_loud_and_names_the_ids() -> None:
    world = rented(1)
    world.lambda_.delete_faults = [DENIED] * 6
    proof = world.delete()
    assert not proof.clean
    (stuck,) = proof.billing
    assert stuck["ids"] and "403" in stuck["problem"] and stuck["usd_per_hour"] == 2.0
    assert len(world.lambda_.machines) == 1
    assert proof.residual_usd_per_hour == 2.0


def test_an_account_that_cannot_be_listed_is_not_clean() -> None:
    world = rented()
    world.lambda_.list_faults = [ApiError("GET", "/instances", 401)] * 3
    proof = world.delete()
    assert not proof.clean
    assert proof.residual_usd_per_hour is None


@pytest.mark.parametrize("status", [401, 403])
def test_a_gateway_that_refuses_for_a_moment_leaves_nothing(status: int) -> None:
    world = rented()
    refused = ApiError("DELETE", "/instances/1", status)
    world.lambda_.list_faults = [refused, refused]
    world.lambda_.delete_faults = [refused, refused, None, refused]
    assert world.delete().clean and world.alive() == 0


def test_an_outage_is_waited_out_and_deletes_come_first() -> None:
    world = rented()
    world.lambda_.list_faults = [outage()] * 30
    assert world.delete().clean


def test_an_outage_that_does_not_end_is_named() -> None:
    world = rented(1)
    world.lambda_.list_faults = [outage()] * 1000
    proof = world.delete(timeout_at=world.clock.time() + 120)
    assert not proof.clean
    assert all("503" in item["problem"] for item in proof.billing) and len(proof.billing) == 2


def test_time_runs_out_with_everything_named() -> None:
    world = rented()
    world.lambda_.delete_faults = [outage()] * 1000
    proof = world.delete(timeout_at=world.clock.time() + 120)
    assert not proof.clean
    assert len(proof.billing) == 2
    assert proof.residual_usd_per_hour == 4.0


def test_only_what_is_in_scope_ends() -> None:
    world = rented(2)
    proof = world.delete(lambda lease: lease.name.endswith("1"))
    assert proof.clean
    assert [item.name for item in world.lambda_.machines.values()] == ["lab-h100-1-00000002"]


def test_leftovers_of_ours_keep_the_proof_from_being_clean() -> None:
    world = rented(1)
    world.lambda_.left = (Leftover("file_system", "lambda", "fs-1", "lab-h100-0-00000001", 0.1),)
    proof = world.delete()
    assert not proof.clean
    assert proof.residual_usd_per_hour == 0.1
    assert world.lambda_.machines == {}


def test_a_preview_writes_and_deletes_nothing() -> None:
    world = rented(2)
    lines = len(world.lines.events)
    request = DeleteRequest("lab", world.clock.time() + 60)
    scheduler = InlineScheduler(world.clock)
    listings = list_accounts(world.providers, scheduler, request.timeout_at)
    session = world.session()
    (first, second), proof = preview_deletion(
        request, lambda _lease: True, world.providers, session, scheduler, listings, {}
    )
    assert (first.usd_per_hour, second.problem, proof.clean, proof.residual_usd_per_hour) == (2.0, "", True, 0.0)
    assert (len(world.lines.events), len(world.lambda_.machines), world.lambda_.deleted) == (lines, 2, [])


def test_a_full_disk_does_not_stop_the_deleting(monkeypatch: pytest.MonkeyPatch) -> None:
    world = rented(2)

    def full(event: LedgerEvent) -> None:
        raise MusterError("the disk is full")

    monkeypatch.setattr(world.lines, "append", full)
    assert world.delete().clean
    assert world.alive() == 0


faults = st.sampled_from(["empty", None, None, outage(), "empty", None])
delete_faults = st.sampled_from([None, None, "404", outage(), TransportError("cut", ambiguous=True)])
answers = st.sampled_from([None, None, None, OrderUnsettled("reset"), 20.0, 60.0, 90.0])


@settings(max_examples=150)
@given(
    st.integers(1, 4),
    st.lists(answers, max_size=6),
    st.lists(faults, max_size=12),
    st.lists(delete_faults, max_size=8),
    st.sampled_from([0.0, 30.0, 59.0]),
    st.lists(st.sampled_from(["failed", None, None]), max_size=4),
)
def test_whatever_happens_nothing_is_left(
    count: int,
    created: list[object],
    listed: list[object],
    deleted: list[object],
    lag: float,
    states: list[object],
) -> None:
    world = World(SimProvider(VirtualClock(), offers=[h100()]))
    world.lambda_.answers = list(created)  # type: ignore[arg-type]
    world.lambda_.states = list(states)  # type: ignore[arg-type]
    world.lambda_.lag_s = lag
    world.lambda_.list_faults = [None, *listed]
    world.lambda_.delete_faults = list(deleted)
    outcome = world.create(count)
    if not outcome.failure:
        ready = [slot.lease.instance for slot in outcome.state.slots if slot.lease]
        assert len(ready) == count and all(item is not None and item.state == "running" for item in ready)
    for _attempt in range(3):
        if world.delete().clean:
            break
    else:
        raise AssertionError("never clean")
    assert world.alive() == 0
    assert {lease.state for lease in world.leases.values()} <= {"verified"}


def _line(world: World, event: str, token: str, name: str, thing: str | None) -> LedgerEvent:
    value = {
        "schema": 1,
        "at": format_time(world.clock.time()),
        "cluster": "lab",
        "token": token,
        "event": event,
        "resource": "instance",
        "provider": "lambda",
        "account": "acc1",
        "pool": "h100",
        "name": name,
        "id": thing,
    }
    return LedgerEvent.from_dict(value)
