# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which lines the ledger gets when a pool is created or deleted, and what they hold."""

from __future__ import annotations

import dataclasses
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.lease import (
    AccountIdentity,
    Instance,
    OrderAccepted,
    OrderRefused,
    OrderUnsettled,
)
from ansible_collections.muster.training.plugins.module_utils._model.ledger import Lease, LedgerEvent
from ansible_collections.muster.training.plugins.module_utils._model.offer import Candidate
from ansible_collections.muster.training.plugins.module_utils._model.timestamps import format_time
from ansible_collections.muster.training.plugins.plugin_utils._provision.bill.listing_rules import index_leases
from ansible_collections.muster.training.plugins.plugin_utils._provision.create_state import (
    AccountListed,
    CreateEvent,
    DeletionAnswered,
    MachineSlot,
    OrderAnswered,
    Phase,
    PoolRequest,
    PoolState,
    QueuedDeletion,
    SlotLease,
)
from ansible_collections.muster.training.plugins.plugin_utils._provision.delete_state import (
    DeleteAnswered,
    DeleteEvent,
    DeleteListing,
    DeleteRequest,
    DeleteState,
    Termination,
)
from ansible_collections.muster.training.plugins.plugin_utils._provision.ledger import ledger_events

AT = 1_795_255_200.0
TOKEN = "1f2e3d4c"
NAME = f"lab-h100-0-{TOKEN}"
ACCOUNTS = {"lambda": AccountIdentity("acc1", "f00d")}
REQUEST = PoolRequest(
    "lab",
    "h100",
    2,
    (Candidate(provider="lambda"),),
    AT + 900,
    run_id="run-1",
    deadline="2026-11-22T10:00:00Z",
    release="always",
    max_cost_usd=12.5,
)
SLOT_LEASE = SlotLease(TOKEN, NAME, "lambda", AT, 2.5, region="us-east-1")
INSTANCE = Instance("lambda", "i-1", NAME, TOKEN, "running", price_usd_per_hour=2.5)
LEASE = Lease(
    token=TOKEN,
    resource="instance",
    cluster="lab",
    pool="h100",
    name=NAME,
    provider="lambda",
    account="acc1",
    state="joined",
    settled=True,
    intent_at=0.0,
    changed_at=0.0,
    region="us-east-1",
    run_id="run-1",
    price_usd_per_hour=2.5,
)


def pool(phase: Phase = "booting", lease: SlotLease | None = SLOT_LEASE) -> PoolState:
    return PoolState(REQUEST, (MachineSlot(0, phase, lease),), {})


def created(old: PoolState, event: CreateEvent, new: PoolState | None = None) -> tuple[LedgerEvent, ...]:
    return ledger_events.create_events(old, event, new or old, ACCOUNTS)


def deletion(*terminations: Termination) -> DeleteState:
    found = {item.key: item for item in terminations}
    return DeleteState(
        DeleteRequest("lab", AT + 900), found, {}, ACCOUNTS, index_leases("lab", [], lambda _lease: False)
    )


def deleted(
    old: DeleteState, new: DeleteState, event: DeleteEvent | None = None
) -> list[tuple[str, str | None, str | None]]:
    listing = DeleteListing(AccountListed(AT, AT, "lambda"))
    events = ledger_events.delete_events(old, event or listing, new, AT)
    return [(item.event, item.id, item.reason) for item in events]


def test_an_event_holds_what_the_pool_and_the_lease_say() -> None:
    event = ledger_events.lease_event(REQUEST, ACCOUNTS, SLOT_LEASE, AT, "intent")
    assert event.to_dict() == {
        "schema": 1,
        "at": format_time(AT),
        "cluster": "lab",
        "token": TOKEN,
        "event": "intent",
        "resource": "instance",
        "provider": "lambda",
        "account": "acc1",
        "fingerprint": "f00d",
        "pool": "h100",
        "name": NAME,
        "region": "us-east-1",
        "run_id": "run-1",
        "price_usd_per_hour": 2.5,
        "deadline": "2026-11-22T10:00:00Z",
        "release": "always",
        "max_cost_usd": 12.5,
    }
    assert LedgerEvent.from_dict(event.to_dict()) == event


def test_an_order_of_a_whole_cluster_is_a_lease_of_a_cluster() -> None:
    request = dataclasses.replace(REQUEST, candidates=(Candidate(provider="lambda", unit="cluster"),))
    assert ledger_events.lease_event(request, ACCOUNTS, SLOT_LEASE, AT, "intent").resource == "cluster"


def test_a_pending_lease_says_until_when_its_controller_waits() -> None:
    event = ledger_events.pending_event(REQUEST, ACCOUNTS, SLOT_LEASE, AT, "intent")
    assert event.evidence == {"until": format_time(AT + 900)}


def test_an_accepted_order_is_created_with_its_id() -> None:
    (event,) = created(pool("creating"), OrderAnswered(AT + 1, 0, OrderAccepted("i-1")))
    assert (event.event, event.id, event.at, event.reason) == ("created", "i-1", format_time(AT + 1), None)


def test_a_refused_order_is_settled_and_its_reason_is_one_short_line() -> None:
    (event,) = created(pool("creating"), OrderAnswered(AT, 0, OrderRefused("capacity", "none\nleft\x1b" + "x" * 300)))
    assert (event.event, event.settled) == ("failed", True)
    assert event.reason == ("none left " + "x" * 300)[:200]


def test_an_order_without_a_usable_answer_leaves_the_intent_open() -> None:
    assert created(pool("creating"), OrderAnswered(AT, 0, OrderUnsettled("timeout"))) == ()


def test_a_listing_gives_an_open_order_its_id() -> None:
    (event,) = created(pool("unsettled"), AccountListed(AT, AT, "lambda", (INSTANCE,)))
    assert (event.event, event.id, event.evidence) == ("adopted", "i-1", {"found_by": "listing"})


@pytest.mark.parametrize(("ident", "kind"), [(None, "failed"), ("i-1", "lost")])
def test_a_lease_that_left_its_slot_unlisted_is_settled(ident: str | None, kind: str) -> None:
    old = pool("booting", dataclasses.replace(SLOT_LEASE, id=ident))
    (event,) = created(old, AccountListed(AT, AT, "lambda"), pool("wanted", None))
    assert (event.event, event.id, event.settled) == (kind, ident, True)
    assert event.reason == "not listed by lambda"


@pytest.mark.parametrize(
    "event",
    [
        AccountListed(AT, AT, "lambda", problem="timeout"),
        AccountListed(AT, AT, "runpod"),
    ],
)
def test_a_failed_listing_and_one_of_another_account_say_nothing(event: AccountListed) -> None:
    assert created(pool(), event, pool("wanted", None)) == ()


def test_a_lease_that_stays_in_its_slot_has_no_event_though_it_is_unlisted() -> None:
    assert created(pool(), AccountListed(AT, AT, "lambda")) == ()


def test_a_listing_says_nothing_of_an_order_that_is_on_its_way() -> None:
    assert created(pool("creating"), AccountListed(AT, AT, "lambda", (INSTANCE,))) == ()


def test_an_acknowledged_deletion_is_written_with_its_reason() -> None:
    (event,) = created(pool(), DeletionAnswered(AT, QueuedDeletion(INSTANCE, "slow to boot")))
    assert (event.event, event.token, event.id, event.reason) == ("deleted", TOKEN, "i-1", "slow to boot")


@pytest.mark.parametrize(("changes", "problem"), [({}, "timeout"), ({"token": None}, "")])
def test_a_deletion_without_answer_or_token_is_not_written(changes: dict[str, t.Any], problem: str) -> None:
    instance = dataclasses.replace(INSTANCE, **changes)
    assert created(pool(), DeletionAnswered(AT, QueuedDeletion(instance, "slow"), problem)) == ()


def test_an_event_of_a_deletion_holds_what_its_lease_says() -> None:
    event = ledger_events.termination_event(Termination(LEASE), AT, "deleted", "i-9")
    shared = ("cluster", "token", "resource", "provider", "account", "pool", "name", "region", "run_id")
    assert {key: getattr(event, key) for key in shared} == {key: getattr(LEASE, key) for key in shared}
    assert (event.at, event.event, event.id, event.price_usd_per_hour) == (format_time(AT), "deleted", "i-9", 2.5)


@pytest.mark.parametrize(("state", "kind"), [("orphan", "orphan"), ("joined", "adopted")])
def test_a_machine_that_the_ledger_did_not_have_is_written_first(state: t.Any, kind: str) -> None:
    new = deletion(Termination(dataclasses.replace(LEASE, state=state), ("i-1",)))
    assert deleted(deletion(), new) == [(kind, "i-1", None)]


def test_each_further_id_of_a_lease_is_written_once() -> None:
    old, new = deletion(Termination(LEASE, ("i-1",))), deletion(Termination(LEASE, ("i-1", "i-2", "i-3")))
    assert deleted(old, new) == [("adopted", "i-2", None), ("adopted", "i-3", None)]
    assert deleted(new, new) == []


def test_a_proof_is_written_once_with_its_times() -> None:
    old = deletion(Termination(LEASE, ("i-1",), absent_at=(AT - 9,)))
    new = deletion(Termination(LEASE, ("i-1",), absent_at=(AT - 9, AT)))
    (event,) = ledger_events.delete_events(old, DeleteListing(AccountListed(AT, AT, "lambda")), new, AT)
    assert (event.event, event.id) == ("verified", "i-1")
    assert event.evidence == {"absent_at": [format_time(AT - 9), format_time(AT)]}
    assert deleted(new, new) == []


@pytest.mark.parametrize(("existed", "reason"), [(True, None), (False, "the provider does not know the id")])
def test_an_answered_delete_says_whether_the_id_was_known(existed: bool, reason: str | None) -> None:
    state = deletion(Termination(LEASE, ("i-1",)))
    event = DeleteAnswered(AT, QueuedDeletion(INSTANCE, ""), existed)
    assert deleted(state, state, event) == [("deleted", "i-1", reason)]


@pytest.mark.parametrize(("provider", "problem"), [("lambda", "timeout"), ("runpod", "")])
def test_a_failed_delete_and_one_of_another_provider_are_not_written(provider: str, problem: str) -> None:
    state = deletion(Termination(LEASE, ("i-1",)))
    instance = dataclasses.replace(INSTANCE, provider=provider)
    assert deleted(state, state, DeleteAnswered(AT, QueuedDeletion(instance, ""), True, problem)) == []
