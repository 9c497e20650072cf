# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a deletion does next, and when an absence counts."""

from __future__ import annotations

import dataclasses
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.lease import (
    AccountIdentity,
    Instance,
    ProviderTraits,
)
from ansible_collections.muster.training.plugins.module_utils._model.ledger import Lease
from ansible_collections.muster.training.plugins.plugin_utils._provision import delete_plan
from ansible_collections.muster.training.plugins.plugin_utils._provision.create_state import (
    AccountListed,
    DeleteInstance,
    Finish,
    ListAccount,
    QueuedDeletion,
    WaitUntil,
)
from ansible_collections.muster.training.plugins.plugin_utils._provision.delete_state import (
    ABSENCE_GAP_S,
    LISTING_PATIENCE_S,
    DeleteAnswered,
    DeleteListing,
    DeleteRequest,
    DeleteState,
)

TOKEN = "1f2e3d4c"
LAG_S = ProviderTraits().list_lag_s
LEASE = Lease(
    token=TOKEN,
    resource="instance",
    cluster="lab",
    pool="h100",
    name=f"lab-h100-0-{TOKEN}",
    provider="lambda",
    account="acc1",
    state="joined",
    settled=True,
    intent_at=0.0,
    changed_at=0.0,
    ids=("i-1",),
)
INSTANCE = Instance("lambda", "i-1", LEASE.name, TOKEN, "running")


def begin(lease: Lease = LEASE, account: str = "acc1") -> DeleteState:
    request = DeleteRequest("lab", 1000.0)
    return delete_plan.initial_state(
        request,
        [lease],
        lambda _: True,
        {"lambda": AccountIdentity(account, account)},
        {"lambda": ProviderTraits()},
        0.0,
    )


def listed(state: DeleteState, at: float, *instances: Instance) -> DeleteState:
    return delete_plan.reduce(state, DeleteListing(AccountListed(at, at, "lambda", instances)))


def deleted(state: DeleteState, at: float, existed: bool = True) -> DeleteState:
    return delete_plan.reduce(state, DeleteAnswered(at, QueuedDeletion(INSTANCE, ""), existed))


def failed(state: DeleteState, at: float) -> DeleteState:
    return delete_plan.reduce(state, DeleteListing(AccountListed(at, at, "lambda", problem="503")))


@pytest.mark.parametrize("listing", [lambda state: listed(state, 1.0, INSTANCE), lambda state: failed(state, 1.0)])
def test_an_id_is_deleted_when_the_account_was_listed_or_cannot_be(
    listing: t.Callable[[DeleteState], DeleteState],
) -> None:
    state = begin()
    assert delete_plan.decide(state, 0.0) == (ListAccount("lambda"),)
    actions = delete_plan.decide(listing(state), 2.0)
    assert isinstance(actions, tuple) and [type(item) for item in actions] == [DeleteInstance]


def test_a_listing_that_hangs_does_not_keep_an_id_from_being_deleted() -> None:
    state = dataclasses.replace(begin(), in_flight=frozenset({"list:lambda"}))
    assert delete_plan.decide(state, 1.0) == WaitUntil(LISTING_PATIENCE_S)
    actions = delete_plan.decide(state, LISTING_PATIENCE_S)
    assert isinstance(actions, tuple) and [type(item) for item in actions] == [DeleteInstance]


def test_an_id_that_is_listed_as_another_machine_is_not_touched_and_proves_nothing() -> None:
    bobs = Instance("lambda", "i-1", "bobs-box", None, "running")
    state = listed(begin(), 1.0, bobs)
    (termination,) = state.terminations.values()
    assert "bobs-box" in termination.problem and not termination.is_finished
    assert isinstance(delete_plan.decide(state, 2.0), WaitUntil)
    state = listed(listed(state, 30.0, bobs), 1.0 + LAG_S, bobs)
    (termination,) = state.terminations.values()
    assert termination.is_permanent and not termination.is_verified


def test_an_id_of_another_machine_is_forgotten_when_the_token_is_listed_under_another_id() -> None:
    state = listed(begin(), 1.0, Instance("lambda", "i-1", "bobs-box", None, "running"), replace_id("i-2"))
    (termination,) = state.terminations.values()
    assert termination.ids == ("i-2",)


def replace_id(key: str) -> Instance:
    return dataclasses.replace(INSTANCE, id=key)


def test_a_proved_lease_that_is_listed_again_is_not_proved() -> None:
    state = deleted(listed(begin(), 200.0, INSTANCE), 210.0)
    state = listed(listed(state, 211.0), 211.0 + LAG_S)
    assert next(iter(state.terminations.values())).is_verified
    state = listed(state, 230.0 + LAG_S, INSTANCE)
    assert not next(iter(state.terminations.values())).is_verified


def deny(state: DeleteState, at: float) -> DeleteState:
    deletion = QueuedDeletion(INSTANCE, "deleted")
    return delete_plan.reduce(state, DeleteAnswered(at, deletion, problem="answered 400", is_denied=True))


@pytest.mark.parametrize("how", ["done", "unknown", "denied"])
def test_a_machine_is_gone_when_listings_have_lacked_it_for_as_long_as_they_may_lag(how: str) -> None:
    state = listed(begin(), 200.0)
    assert not next(iter(state.terminations.values())).absent_at, "nothing was deleted yet"
    state = deny(state, 210.0) if how == "denied" else deleted(state, 210.0, existed=how == "done")
    state = listed(listed(state, 220.0), 219.0 + LAG_S)
    (termination,) = state.terminations.values()
    assert len(termination.absent_at) == 1 and not termination.is_verified
    again = listed(state, 220.0 + LAG_S)
    assert next(iter(again.terminations.values())).is_verified
    assert delete_plan.decide(again, 221.0 + LAG_S) == Finish("")
    # Listed once in between, it exists: the proof starts again.
    again = listed(listed(state, 219.5 + LAG_S, INSTANCE), 221.0 + LAG_S)
    assert not next(iter(again.terminations.values())).is_verified


def test_an_account_is_listed_often_until_its_machines_have_only_to_stay_absent() -> None:
    state = listed(begin(), 200.0)
    assert state.next_listing_at == {"lambda": 200.0 + ABSENCE_GAP_S}
    state = listed(deleted(state, 204.0), 205.0)
    assert state.next_listing_at == {"lambda": 205.0 + LAG_S / 4}
    state = listed(state, 205.0 + LAG_S / 4, INSTANCE)
    assert state.next_listing_at == {"lambda": 205.0 + LAG_S / 4 + ABSENCE_GAP_S}


def test_an_order_that_never_had_an_id_is_not_waited_for_again() -> None:
    lease = dataclasses.replace(LEASE, ids=(), state="failed", settled=True)
    state = listed(listed(begin(lease), 200.0), 200.0 + ABSENCE_GAP_S)
    assert next(iter(state.terminations.values())).is_verified


def test_a_key_that_bills_nothing_is_not_waited_for() -> None:
    lease = dataclasses.replace(LEASE, resource="auth_key")
    deletion = QueuedDeletion(dataclasses.replace(INSTANCE, resource="auth_key"), "")
    state = delete_plan.reduce(listed(begin(lease), 200.0), DeleteAnswered(210.0, deletion, True))
    state = listed(listed(state, 211.0), 211.0 + ABSENCE_GAP_S)
    assert next(iter(state.terminations.values())).is_verified


def test_a_refusal_that_may_pass_proves_nothing() -> None:
    state = failed(listed(begin(), 200.0), 210.0)
    state = listed(listed(state, 220.0), 1000.0 - 1.0)
    assert not next(iter(state.terminations.values())).is_verified


def test_credentials_that_never_showed_anything_of_ours_prove_nothing() -> None:
    request = DeleteRequest("lab", 1000.0)
    lease = dataclasses.replace(LEASE, account="acme", fingerprints=("aaaa",))
    for fingerprint, is_proved in (("aaaa", True), ("bbbb", False)):
        accounts = {"lambda": AccountIdentity("acme", fingerprint)}
        state = delete_plan.initial_state(
            request, [lease], lambda _: True, accounts, {"lambda": ProviderTraits()}, 100.0
        )
        state = deleted(listed(state, 200.0), 210.0, existed=False)
        state = listed(listed(state, 220.0), 220.0 + LAG_S)
        (termination,) = state.terminations.values()
        assert (termination.is_verified, termination.is_finished) == (is_proved, True)
        assert is_proved or "bbbb" in termination.problem


@pytest.mark.parametrize("existed", [True, False])
def test_an_account_that_knows_the_id_is_the_right_one(existed: bool) -> None:
    lease = dataclasses.replace(LEASE, account="acme", fingerprints=("aaaa",))
    state = delete_plan.initial_state(
        DeleteRequest("lab", 1000.0),
        [lease],
        lambda _: True,
        {"lambda": AccountIdentity("acme", "bbbb")},
        {"lambda": ProviderTraits()},
        100.0,
    )
    state = listed(listed(deleted(listed(state, 200.0), 210.0, existed), 220.0), 220.0 + LAG_S)
    assert next(iter(state.terminations.values())).is_verified is existed


def test_an_intent_of_the_future_waits_no_longer_than_one_of_now() -> None:
    lease = dataclasses.replace(LEASE, ids=(), state="intent", settled=False, intent_at=7200.0)
    (termination,) = begin(lease).terminations.values()
    assert termination.absent_from == ProviderTraits().settle_s


def test_a_call_that_hangs_does_not_hold_up_the_end() -> None:
    state = dataclasses.replace(begin(), in_flight=frozenset({"list:lambda"}))
    assert delete_plan.decide(delete_plan.tick(state, 1000.0), 1000.0) == Finish("not proved gone")


def test_what_is_in_flight_is_not_started_again() -> None:
    state = dataclasses.replace(begin(), in_flight=frozenset({"list:lambda", "delete:lambda:i-1"}))
    assert isinstance(delete_plan.decide(state, 0.0), WaitUntil)


def test_a_listing_that_shows_it_again_starts_the_proof_again() -> None:
    state = listed(listed(deleted(begin(), 210.0), 211.0), 212.0, INSTANCE)
    termination = next(iter(state.terminations.values()))
    assert termination.absent_at == () and termination.listed_instances == (INSTANCE,)


def test_an_unknown_id_of_a_new_machine_is_no_absence_until_the_lag_is_over() -> None:
    lease = dataclasses.replace(LEASE, created_at=200.0, intent_at=199.0)
    state = listed(deleted(begin(lease), 210.0, existed=False), 220.0)
    assert next(iter(state.terminations.values())).absent_at == ()
    state = listed(state, 200.0 + LAG_S)
    assert len(next(iter(state.terminations.values())).absent_at) == 1


def test_another_account_proves_nothing() -> None:
    state = begin(account="acc2")
    assert delete_plan.decide(state, 100.0) == (ListAccount("lambda"),), "no id is deleted in another account"
    (termination,) = listed(state, 100.0).terminations.values()
    assert termination.is_finished and not termination.is_verified and "acc2" in termination.problem
    (termination,) = listed(begin(account="acc2"), 100.0, INSTANCE).terminations.values()
    assert not termination.is_finished and termination.listed_instances, "what it shows is in it"


def test_past_its_time_what_is_not_proved_stays_so() -> None:
    state = delete_plan.tick(begin(), 1000.0)
    assert state.timed_out and delete_plan.decide(state, 1000.0) == Finish("not proved gone")
