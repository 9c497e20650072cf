# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Giving back with proof, as pure functions: what to do next, and what an answer changes.

A lease is verified when every id it ever had was deleted with an answer, and two listings of its own account, asked
for at least five seconds apart after that (and after every delay the provider is known for), show neither its token
nor its ids. A sighting in between starts the proof again.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import dataclasses
import typing as t

from ...module_utils._model.lease import Rental, Traits, parse_name
from ...module_utils._model.ledger import Lease
from .create_state import DeleteInstance, Finish, ListAccount, QueuedDeletion, WaitUntil
from .delete_state import (
    ABSENCE_GAP_S,
    DELETE_AGAIN_S,
    RETRY_S,
    DeleteAction,
    DeleteAnswered,
    DeleteEvent,
    DeleteListing,
    DeleteRequest,
    DeleteState,
    Termination,
)


def initial_state(
    request: DeleteRequest,
    leases: t.Collection[Lease],
    scope: t.Callable[[Lease], bool],
    accounts: t.Mapping[str, str],
    traits: t.Mapping[str, Traits],
) -> DeleteState:
    """Return the state before anything was done.

    :param leases: all leases of the ledger; those that ``scope`` picks are given back.
    :param accounts: the account fingerprint behind each provider that is configured.
    """
    chosen = [lease for lease in leases if scope(lease)]
    claims = {}
    for lease in chosen:
        if lease.open:
            claim = _start_termination(lease, accounts.get(lease.provider), traits.get(lease.provider))
            claims[claim.key] = claim
    return DeleteState(
        request,
        claims,
        traits,
        accounts,
        frozenset(lease.token for lease in leases),
        frozenset(lease.token for lease in chosen),
    )


def _start_termination(lease: Lease, account: str | None, traits: Traits | None) -> Termination:
    if account is None or traits is None:
        return Termination(lease, lease.ids, problem=f"no credentials for {lease.provider} are given", final=True)
    if account != lease.account:
        words = f"was rented in account {lease.account} of {lease.provider}, the credentials are of {account}"
        return Termination(lease, lease.ids, problem=words, final=True)
    quiet = 0.0 if lease.settled else lease.intent_at + traits.settle_s
    acknowledged = dict.fromkeys(lease.ids, lease.changed_at) if lease.state == "deleted" else {}
    return Termination(lease, lease.ids, acknowledged=acknowledged, quiet_from=quiet)


def decide(state: DeleteState, now: float) -> tuple[DeleteAction, ...]:
    """Return what is to be started now, or one ``Rest`` or ``End``."""
    if _is_finished(state) or state.over_time:
        return (WaitUntil(now + 60.0),) if state.busy else (Finish(_end_reason(state)),)
    due: list[ListAccount | DeleteInstance] = [*_due_listings(state, now), *_due_deletions(state, now)]
    due = [action for action in due if action.key not in state.busy]
    return tuple(due) or (WaitUntil(min(_wake_times(state, now))),)


def reduce(state: DeleteState, event: DeleteEvent) -> DeleteState:
    """Return the state after ``event``."""
    if isinstance(event, DeleteListing):
        at = event.listed.at
        state = _apply_listing(state, event)
    else:
        at = event.at
        state = _apply_deletion(state, event)
    return tick(state, at)


def tick(state: DeleteState, now: float) -> DeleteState:
    """Return the state at ``now``: past its time, what is not proved stays unproved."""
    return dataclasses.replace(state, over_time=now >= state.request.timeout_at)


def _is_finished(state: DeleteState) -> bool:
    answered = state.listed | state.unlisted.keys()
    return all(name in answered for name in state.traits) and all(claim.over for claim in state.claims.values())


def _end_reason(state: DeleteState) -> str:
    return "" if all(claim.verified for claim in state.claims.values()) and not state.unlisted else "not proved gone"


def _providers_to_list(state: DeleteState) -> set[str]:
    """Return the providers to list: those with open claims, and each one once for orphans."""
    waiting = {claim.lease.provider for claim in state.claims.values() if not claim.over}
    wanted = waiting | (state.traits.keys() - state.listed)
    return {name for name in wanted if name in state.traits and name not in state.unlisted}


def _due_listings(state: DeleteState, now: float) -> t.Iterator[ListAccount]:
    return (ListAccount(name) for name in sorted(_providers_to_list(state)) if state.next_list.get(name, 0.0) <= now)


def _undeleted_instances(claim: Termination) -> dict[str, Rental]:
    """Return what of a claim still needs a delete: ids without an answer, and whatever is listed."""
    lease = claim.lease
    waiting = {
        key: Rental(lease.provider, key, lease.name, lease.token, "unknown", lease.resource)
        for key in claim.ids
        if key not in claim.acknowledged
    }
    return {**waiting, **{item.id: item for item in claim.live}}


def _due_deletions(state: DeleteState, now: float) -> t.Iterator[DeleteInstance]:
    for claim in state.claims.values():
        if not claim.over:
            for key, rental in _undeleted_instances(claim).items():
                if claim.retry_at.get(key, 0.0) <= now:
                    yield DeleteInstance(QueuedDeletion(rental, "given back"))


def _wake_times(state: DeleteState, now: float) -> t.Iterator[float]:
    yield state.request.timeout_at
    yield from (
        state.next_list.get(name, now) for name in _providers_to_list(state) if f"list:{name}" not in state.busy
    )
    for claim in state.claims.values():
        if not claim.over:
            keys = _undeleted_instances(claim)
            yield from (moment for key, moment in claim.retry_at.items() if key in keys and moment > now)


def _set_termination(state: DeleteState, claim: Termination) -> DeleteState:
    return dataclasses.replace(state, claims={**state.claims, claim.key: claim})


def _apply_listing(state: DeleteState, event: DeleteListing) -> DeleteState:
    listing = event.listed
    name = listing.provider
    state = dataclasses.replace(state, busy=state.busy - {f"list:{name}"})
    if listing.problem:
        return _apply_listing_failure(state, event)
    state = dataclasses.replace(state, listed=state.listed | {name})
    state = _classify_instances(state, name, listing.rentals)
    for claim in list(state.claims.values()):
        if claim.lease.provider == name and not claim.over:
            state = _set_termination(state, _match_listing(claim, listing.rentals, listing.asked_at))
    pause = max(state.traits[name].poll_interval_s, ABSENCE_GAP_S)
    return dataclasses.replace(state, next_list={**state.next_list, name: listing.asked_at + pause})


def _apply_listing_failure(state: DeleteState, event: DeleteListing) -> DeleteState:
    listing = event.listed
    later = {**state.next_list, listing.provider: listing.at + RETRY_S}
    trouble = {**state.trouble, listing.provider: listing.problem}
    state = dataclasses.replace(state, next_list=later, trouble=trouble)
    if not event.final:
        return state
    for claim in state.claims.values():
        if claim.lease.provider == listing.provider and not claim.over:
            state = _set_termination(state, dataclasses.replace(claim, problem=listing.problem, final=True))
    return dataclasses.replace(state, unlisted={**state.unlisted, listing.provider: listing.problem})


def _match_listing(claim: Termination, rentals: tuple[Rental, ...], asked_at: float) -> Termination:
    found = tuple(item for item in rentals if _is_same_instance(claim, item))
    if found:
        ids = tuple(dict.fromkeys((*claim.ids, *(item.id for item in found))))
        return dataclasses.replace(claim, ids=ids, live=found, absent_at=())
    claim = dataclasses.replace(claim, live=())
    if any(key not in claim.acknowledged for key in claim.ids) or asked_at < claim.quiet_from:
        return claim
    if claim.absent_at and asked_at - claim.absent_at[0] < ABSENCE_GAP_S:
        return claim
    return dataclasses.replace(claim, absent_at=(*claim.absent_at, asked_at)[:2], problem="")


def _is_same_instance(claim: Termination, rental: Rental) -> bool:
    if rental.provider != claim.lease.provider or not rental.resource_fits(claim.lease.resource):
        return False
    return rental.id in claim.ids or rental.carries(claim.lease.cluster, claim.lease.token)


def _classify_instances(state: DeleteState, provider: str, rentals: tuple[Rental, ...]) -> DeleteState:
    """Sort what a listing shows into companions of our leases, orphans, and things that are not ours."""
    orphans = {key: item for key, item in state.orphans.items() if key[0] != provider}
    unknown = {key: item for key, item in state.unknown.items() if key[0] != provider}
    for item in rentals:
        if any(_is_same_instance(claim, item) for claim in state.claims.values()):
            continue
        ours = item.token is not None and item.carries(state.request.cluster, item.token)
        if not ours or not (item.token in state.tokens or _cluster_of(item) == state.request.cluster):
            unknown[(provider, item.id)] = item
        elif item.token in state.scope or (item.token not in state.tokens and state.request.delete_orphans):
            state = _set_termination(state, Termination(_lease_for_unrecorded(item, state)))
        elif item.token not in state.tokens:
            orphans[(provider, item.id)] = item
    return dataclasses.replace(state, orphans=orphans, unknown=unknown)


def _cluster_of(rental: Rental) -> str | None:
    parts = parse_name(rental.name)
    return parts.cluster if parts else None


def _lease_for_unrecorded(rental: Rental, state: DeleteState) -> Lease:
    """Return a lease for something that carries a token of ours without a line of its own."""
    parts = parse_name(rental.name)
    known = next((claim.lease for claim in state.claims.values() if claim.lease.token == rental.token), None)
    return Lease(
        token=rental.token or "",
        resource=rental.resource,
        cluster=state.request.cluster,
        pool=known.pool if known else parts.pool if parts else "unknown",
        name=rental.name,
        provider=rental.provider,
        account=state.accounts[rental.provider],
        state="adopted" if rental.token in state.tokens else "orphan",
        settled=True,
        intent_at=0.0,
        changed_at=0.0,
        ids=(rental.id,),
        region=rental.region,
        price_usd_per_hour=rental.price_usd_per_hour,
    )


def _apply_deletion(state: DeleteState, event: DeleteAnswered) -> DeleteState:
    rental = event.discard.rental
    state = dataclasses.replace(state, busy=state.busy - {DeleteInstance(event.discard).key})
    for claim in list(state.claims.values()):
        if _is_same_instance(claim, rental):
            state = _set_termination(state, _update_after_delete(claim, event, state.traits[rental.provider]))
    return state


def _update_after_delete(claim: Termination, event: DeleteAnswered, traits: Traits) -> Termination:
    key = event.discard.rental.id
    if event.problem:
        retry = {**claim.retry_at, key: event.at + RETRY_S}
        return dataclasses.replace(claim, problem=event.problem, final=event.final, retry_at=retry)
    # "No such id" is no proof: a new machine may not be known everywhere yet.
    since = claim.lease.created_at or claim.lease.intent_at
    quiet = event.at if event.taken else since + traits.list_lag_s
    return dataclasses.replace(
        claim,
        acknowledged={**claim.acknowledged, key: event.at},
        retry_at={**claim.retry_at, key: event.at + DELETE_AGAIN_S},
        quiet_from=max(claim.quiet_from, quiet),
        absent_at=(),
        problem="",
    )
