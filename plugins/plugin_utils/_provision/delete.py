# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Giving back, carried out: deletes and listings at the providers, ledger lines, and the proof at the end.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import dataclasses
import functools
import typing as t

from ...module_utils._model.errors import ApiError, TransportError
from ...module_utils._model.lease import LeaseProof, Leftover, Rental, TeardownProof
from ...module_utils._model.ledger import Lease, iso
from . import delete_plan
from .api import AccountApi, Scheduler
from .create_state import AccountListed, DeleteInstance, ListAccount, QueuedDeletion
from .delete_state import DeleteAnswered, DeleteEvent, DeleteListing, DeleteRequest, DeleteState, Termination
from .ledger.ledger_events import delete_events, termination_event
from .ledger.ledger_session import LedgerSession
from .reconcile import reconcile

AccountApis = t.Mapping[str, AccountApi]
_HOLDING = ("created", "adopted", "joined")


def is_credential_error(error: TransportError) -> bool:
    """Return whether an error is about the credentials, so that only a person can mend it."""
    return isinstance(error, ApiError) and error.status in (401, 403)


class _DeleteEffects:
    """The effects of giving back."""

    def __init__(self, keepers: AccountApis, book: LedgerSession, stage: Scheduler) -> None:
        self._keepers = keepers
        self._book = book
        self._stage = stage

    def decide(self, state: DeleteState, now: float) -> t.Sequence[t.Any]:
        return delete_plan.decide(state, now)

    def start(
        self, state: DeleteState, action: ListAccount | DeleteInstance
    ) -> tuple[DeleteState, t.Callable[[], t.Any]]:
        state = dataclasses.replace(state, busy=state.busy | {action.key})
        if isinstance(action, ListAccount):
            return state, lambda: list_account(self._keepers[action.provider], self._stage)
        return state, lambda: self._delete(action.discard)

    def take(self, state: DeleteState, event: DeleteEvent) -> DeleteState:
        after = delete_plan.reduce(state, event)
        for line in delete_events(state, event, after, self._stage.now()):
            self._book.note(line)
        return after

    def tick(self, state: DeleteState, now: float) -> DeleteState:
        return delete_plan.tick(state, now)

    def _delete(self, discard: QueuedDeletion) -> DeleteAnswered:
        try:
            taken = self._keepers[discard.rental.provider].delete(discard.rental)
        except TransportError as error:
            return DeleteAnswered(self._stage.now(), discard, problem=str(error), final=is_credential_error(error))
        return DeleteAnswered(self._stage.now(), discard, taken)


def list_account(keeper: AccountApi, stage: Scheduler) -> DeleteListing:
    """List one account; an error becomes part of the answer."""
    asked = stage.now()
    try:
        rentals = keeper.rentals()
    except TransportError as error:
        return DeleteListing(
            AccountListed(stage.now(), asked, keeper.name, problem=str(error)), is_credential_error(error)
        )
    return DeleteListing(AccountListed(stage.now(), asked, keeper.name, rentals))


def delete_leases(
    request: DeleteRequest,
    scope: t.Callable[[Lease], bool],
    keepers: AccountApis,
    book: LedgerSession,
    stage: Scheduler,
) -> TeardownProof:
    """End every lease that ``scope`` picks and prove it; return the proof, clean or not.

    Never raises for a provider that fails: what is not proved gone is in the proof's ``billing``.
    """
    state = _initial_state(request, scope, keepers, book)
    for claim in state.claims.values():
        if claim.lease.state in _HOLDING and not claim.final:
            book.note(termination_event(claim, stage.now(), "draining", claim.lease.id))
    state, _end = reconcile(_DeleteEffects(keepers, book, stage), state, stage)
    return build_proof(state, _list_leftovers(state, keepers))


def preview_deletion(
    request: DeleteRequest,
    scope: t.Callable[[Lease], bool],
    keepers: AccountApis,
    book: LedgerSession,
    stage: Scheduler,
) -> DeleteState:
    """Return what giving back would find, from one listing of each account; nothing is written or deleted."""
    state = _initial_state(request, scope, keepers, book)
    looks = [stage.submit(functools.partial(list_account, item, stage)) for item in keepers.values()]
    for work in looks:
        stage.wait([work], stage.now() + 600.0)
        state = delete_plan.reduce(state, work.result())
    return state


def _initial_state(
    request: DeleteRequest, scope: t.Callable[[Lease], bool], keepers: AccountApis, book: LedgerSession
) -> DeleteState:
    accounts = {name: item.account for name, item in keepers.items()}
    traits = {name: item.traits for name, item in keepers.items()}
    return delete_plan.initial_state(request, tuple(book.leases.values()), scope, accounts, traits)


def _list_leftovers(state: DeleteState, keepers: AccountApis) -> tuple[Leftover, ...]:
    found: list[Leftover] = []
    for name in sorted(state.listed):
        try:
            found += keepers[name].leftovers({state.request.cluster})
        except TransportError as error:
            found.append(Leftover("listing", name, "unknown", str(error)))
    return tuple(found)


def build_proof(state: DeleteState, leftovers: tuple[Leftover, ...]) -> TeardownProof:
    """Return the proof that a final state of giving back amounts to."""
    claims = state.claims.values()
    billing = [_billing_entry(claim, state) for claim in claims if not claim.verified]
    silent = sorted(_unlisted_accounts(state).items())
    billing += [{"provider": name, "problem": problem, "usd_per_hour": None} for name, problem in silent]
    orphans = [_orphan_entry(item) for item in state.orphans.values()]
    prices = [item.get("usd_per_hour") for item in (*billing, *orphans)] + [item.usd_per_hour for item in leftovers]
    known = [price for price in prices if price is not None]
    return TeardownProof(
        leases=tuple(
            LeaseProof(claim.lease.token, claim.lease.name, claim.lease.id, claim.lease.account, _absence_times(claim))
            for claim in claims
            if claim.verified
        ),
        leftovers=leftovers,
        residual_usd_per_hour=round(sum(known), 6) if len(known) == len(prices) else None,
        unknown=tuple((item.id, item.name) for item in state.unknown.values()),
        billing=tuple(billing),
        orphans=tuple(orphans),
    )


def _unlisted_accounts(state: DeleteState) -> dict[str, str]:
    """Return the providers whose account could not be looked at, so that nothing is known about orphans there."""
    silent = {
        name: f"could not be listed in time ({state.trouble.get(name, 'no answer')})"
        for name in state.traits
        if name not in state.listed
    }
    return {**silent, **state.unlisted}


def _absence_times(claim: Termination) -> tuple[str, str]:
    first, second = claim.absent_at[:2]
    return iso(first), iso(second)


def _billing_entry(claim: Termination, state: DeleteState) -> dict[str, t.Any]:
    lease = claim.lease
    seen = claim.live[0] if claim.live else None
    price = seen.price_usd_per_hour if seen and seen.price_usd_per_hour is not None else lease.price_usd_per_hour
    trouble = f" ({state.trouble[lease.provider]})" if lease.provider in state.trouble else ""
    plain = f"still listed ({seen.detail or seen.state})" if seen else f"not proved gone in time{trouble}"
    return {
        "token": lease.token,
        "resource": lease.resource,
        "provider": lease.provider,
        "ids": list(claim.ids),
        "name": lease.name,
        "usd_per_hour": price,
        "problem": claim.problem or plain,
        "delete_failed": bool(claim.problem and claim.live),
    }


def _orphan_entry(item: Rental) -> dict[str, t.Any]:
    return {
        "provider": item.provider,
        "resource": item.resource,
        "id": item.id,
        "name": item.name,
        "usd_per_hour": item.price_usd_per_hour,
    }
