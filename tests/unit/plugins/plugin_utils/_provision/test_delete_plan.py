# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a deletion does next, and when an absence counts."""

from __future__ import annotations

import dataclasses

from ansible_collections.muster.training.plugins.module_utils._model.lease import Instance, ProviderTraits
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
    DeleteAnswered,
    DeleteListing,
    DeleteRequest,
    DeleteState,
)

TOKEN = "1f2e3d4c"
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
        request, [lease], lambda _: True, {"lambda": account}, {"lambda": ProviderTraits()}
    )


def listed(state: DeleteState, at: float, *instances: Instance) -> DeleteState:
    return delete_plan.reduce(state, DeleteListing(AccountListed(at, at, "lambda", instances)))


def deleted(state: DeleteState, at: float, existed: bool = True) -> DeleteState:
    return delete_plan.reduce(state, DeleteAnswered(at, QueuedDeletion(INSTANCE, ""), existed))


def test_the_first_actions_are_a_listing_and_a_delete() -> None:
    actions = delete_plan.decide(begin(), 0.0)
    assert isinstance(actions, tuple)
    assert [type(item) for item in actions] == [ListAccount, DeleteInstance]


def test_what_is_in_flight_is_not_started_again() -> None:
    state = dataclasses.replace(begin(), in_flight=frozenset({"list:lambda", "delete:lambda:i-1"}))
    assert isinstance(delete_plan.decide(state, 0.0), WaitUntil)


def test_absences_count_after_the_delete_and_apart_only() -> None:
    state = listed(begin(), 200.0)
    assert not next(iter(state.terminations.values())).absent_at, "nothing was deleted yet"
    state = listed(listed(deleted(state, 210.0), 211.0), 211.0 + ABSENCE_GAP_S / 2)
    assert len(next(iter(state.terminations.values())).absent_at) == 1
    state = listed(state, 211.0 + ABSENCE_GAP_S)
    assert next(iter(state.terminations.values())).is_verified
    assert delete_plan.decide(state, 220.0) == Finish("")


def test_a_listing_that_shows_it_again_starts_the_proof_again() -> None:
    state = listed(listed(deleted(begin(), 210.0), 211.0), 212.0, INSTANCE)
    termination = next(iter(state.terminations.values()))
    assert termination.absent_at == () and termination.listed_instances == (INSTANCE,)


def test_an_unknown_id_of_a_new_machine_is_no_absence_until_the_lag_is_over() -> None:
    lease = dataclasses.replace(LEASE, created_at=200.0, intent_at=199.0)
    state = listed(deleted(begin(lease), 210.0, existed=False), 220.0)
    assert next(iter(state.terminations.values())).absent_at == ()
    state = listed(state, 200.0 + ProviderTraits().list_lag_s)
    assert len(next(iter(state.terminations.values())).absent_at) == 1


def test_another_account_proves_nothing() -> None:
    (termination,) = begin(account="acc2").terminations.values()
    assert termination.is_finished and not termination.is_verified and "acc2" in termination.problem


def test_past_its_time_what_is_not_proved_stays_so() -> None:
    state = delete_plan.tick(begin(), 1000.0)
    assert state.timed_out and delete_plan.decide(state, 1000.0) == Finish("not proved gone")
