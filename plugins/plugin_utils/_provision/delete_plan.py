# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Deletion with proof, as pure functions: what to do next, and what an answer changes.

A lease is verified when every id it ever had was deleted with an answer, and two listings of its own account after
that (and after every delay that the provider is known for) show neither its token nor its ids. The two are as far apart
as a listing may miss a machine that exists: an answer says what was asked for, not what was done, and an id may be
looked up in the same late copy. Five seconds are enough for an order that never had an id, which has waited for its
effect before, and for the keys and devices of a tailnet, which bill nothing. A listing in between that shows it starts
the proof again. An account in which nothing of ours was ever seen proves nothing. Ids are deleted once a listing was
answered or has failed, so that one that a listing shows as another's is left alone.
"""

from __future__ import annotations

import dataclasses
import typing as t

from ...module_utils._model.lease import AccountIdentity, Instance, ProviderTraits, parse_instance_name
from ...module_utils._model.ledger import Lease, higher_price
from .bill.listing_rules import disputed_id, find_leases, find_standing, index_leases, list_shown
from .create_state import AccountListed, DeleteInstance, Finish, ListAccount, QueuedDeletion, WaitUntil
from .delete_state import (
    ABSENCE_GAP_S,
    DELETE_AGAIN_S,
    LISTING_PATIENCE_S,
    REFUSALS,
    RETRY_S,
    DeleteAction,
    DeleteAnswered,
    DeleteEvent,
    DeleteListing,
    DeleteRequest,
    DeleteState,
    Termination,
    machine_absence_gap,
)


def initial_state(
    request: DeleteRequest,
    leases: t.Collection[Lease],
    scope: t.Callable[[Lease], bool],
    accounts: t.Mapping[str, AccountIdentity],
    traits: t.Mapping[str, ProviderTraits],
    now: float,
) -> DeleteState:
    """Return the state before anything was done.

    :param leases: all leases of the ledger; those that ``scope`` selects are deleted, a verified one if it is listed.
    :param accounts: the account behind each provider that is configured.
    """
    index = index_leases(request.cluster, leases, scope)
    state = DeleteState(request, {}, traits, accounts, index, started_at=now)
    terminations = {
        lease.key: _start_termination(lease, state, now)
        for lease in leases
        if lease.open and lease.key in index.selected
    }
    return dataclasses.replace(state, terminations=terminations)


def _start_termination(lease: Lease, state: DeleteState, now: float) -> Termination:
    """Return the termination of a lease; one that may be of another account waits for what the listing shows."""
    problem = state.account_problem(lease)
    traits = state.traits.get(lease.provider)
    if traits is None:
        return Termination(lease, lease.ids, problem=problem, is_permanent=True)
    # An intent of the future is one of a clock that was put right since.
    absent_from = 0.0 if lease.settled else min(lease.intent_at, now) + traits.settle_s
    acknowledged = dict.fromkeys(lease.ids, lease.changed_at) if lease.state == "deleted" else {}
    return Termination(
        lease,
        lease.ids,
        acknowledged_at=acknowledged,
        absent_from=absent_from,
        problem=problem,
        was_taken=lease.was_taken,
    )


def decide(state: DeleteState, now: float) -> tuple[DeleteAction, ...] | WaitUntil | Finish:
    """Return what to start now, or until when to wait, or the end."""
    if _is_finished(state):
        return WaitUntil(state.request.timeout_at) if state.in_flight else Finish(_end_reason(state))
    if state.timed_out:
        # A call that is still in flight is not waited for: what it may have done is not proved.
        return Finish(_end_reason(state))
    actions: tuple[DeleteAction, ...] = (*_due_listings(state, now), *_due_deletions(state, now))
    due = tuple(action for action in actions if action.key not in state.in_flight)
    return due or WaitUntil(min(_wake_times(state, now)))


def reduce(state: DeleteState, event: DeleteEvent) -> DeleteState:
    """Return the state after ``event``."""
    if isinstance(event, DeleteListing):
        at = event.listing.at
        state = _apply_listing(state, event)
    else:
        at = event.at
        state = _apply_deletion(state, event)
    return tick(state, at)


def tick(state: DeleteState, now: float) -> DeleteState:
    """Return the state at ``now``: past its time, what is not proved stays unproved."""
    return dataclasses.replace(state, timed_out=now >= state.request.timeout_at)


def _is_finished(state: DeleteState) -> bool:
    done = state.listings.keys() | state.unlistable.keys()
    return all(name in done for name in state.traits) and all(
        termination.is_finished for termination in state.terminations.values()
    )


def _end_reason(state: DeleteState) -> str:
    return (
        ""
        if all(termination.is_verified for termination in state.terminations.values()) and not state.unlistable
        else "not proved gone"
    )


def _providers_to_list(state: DeleteState) -> set[str]:
    """Return the providers to list: those with open terminations, and each one once for orphans."""
    open_providers = {
        termination.lease.provider for termination in state.terminations.values() if not termination.is_finished
    }
    names = open_providers | (state.traits.keys() - state.listings.keys())
    return {name for name in names if name in state.traits and name not in state.unlistable}


def _due_listings(state: DeleteState, now: float) -> t.Iterator[ListAccount]:
    return (
        ListAccount(name) for name in sorted(_providers_to_list(state)) if state.next_listing_at.get(name, 0.0) <= now
    )


def _heard_from(state: DeleteState) -> float:
    return state.started_at + LISTING_PATIENCE_S


def _undeleted_instances(state: DeleteState, termination: Termination, now: float) -> dict[str, Instance]:
    """Return what of a lease still needs a delete call: ids without an answer, and everything that is listed."""
    lease = termination.lease
    # Unheard, a listing may show an id as another's; where it fails or hangs, what bills must end all the same.
    is_heard = lease.provider in state.listings.keys() | state.listing_problems.keys() or now >= _heard_from(state)
    is_heard = is_heard and _may_be_of_account(state, lease)
    unanswered = {
        key: Instance(lease.provider, key, lease.name, lease.token, "unknown", lease.resource)
        for key in termination.ids
        if is_heard and key not in termination.acknowledged_at and key not in termination.disputed_ids
    }
    return {**unanswered, **{item.id: item for item in termination.listed_instances}}


def _may_be_of_account(state: DeleteState, lease: Lease) -> bool:
    """Return whether an id of the ledger may be deleted unseen: by the account's name and API it is this account's."""
    identity = state.accounts[lease.provider]
    is_there = not lease.apis or not identity.api or identity.api in lease.apis
    return (is_there and lease.account == identity.name) or not state.account_problem(lease)


def _due_deletions(state: DeleteState, now: float) -> t.Iterator[DeleteInstance]:
    for termination in state.terminations.values():
        if not termination.is_finished:
            for key, instance in _undeleted_instances(state, termination, now).items():
                if termination.retry_at.get(key, 0.0) <= now:
                    yield DeleteInstance(QueuedDeletion(instance, "deleted"))


def _wake_times(state: DeleteState, now: float) -> t.Iterator[float]:
    yield state.request.timeout_at
    if now < _heard_from(state):
        yield _heard_from(state)
    yield from (
        state.next_listing_at.get(name, now)
        for name in _providers_to_list(state)
        if f"list:{name}" not in state.in_flight
    )
    for termination in state.terminations.values():
        if not termination.is_finished:
            keys = _undeleted_instances(state, termination, now)
            yield from (moment for key, moment in termination.retry_at.items() if key in keys and moment > now)


def _set_termination(state: DeleteState, termination: Termination) -> DeleteState:
    return dataclasses.replace(state, terminations={**state.terminations, termination.key: termination})


def _apply_listing(state: DeleteState, event: DeleteListing) -> DeleteState:
    listing = event.listing
    name = listing.provider
    state = dataclasses.replace(state, in_flight=state.in_flight - {f"list:{name}"})
    if listing.problem:
        return _apply_listing_failure(state, event)
    refusals = {**state.refusals, name: 0}
    state = dataclasses.replace(state, listings={**state.listings, name: listing}, refusals=refusals)
    state = state.with_shown(name, list_shown(listing.instances, state.index))
    state = _start_listed(state, listing.instances)
    for termination in list(state.terminations.values()):
        # Also one that is proved already: a machine that is listed again is not gone.
        if termination.lease.provider == name and not termination.is_permanent:
            state = _set_termination(state, _match_listing(state, termination, listing))
    at = listing.requested_at + _listing_pause(state, name)
    return dataclasses.replace(state, next_listing_at={**state.next_listing_at, name: at})


def _listing_pause(state: DeleteState, provider: str) -> float:
    """Return how long until an account is listed again: longer where its machines have only to stay absent."""
    pause = max(state.traits[provider].poll_interval_s, ABSENCE_GAP_S)
    own = (item for item in state.terminations.values() if item.lease.provider == provider and not item.is_finished)
    gaps = [absence_gap(state, item) if item.absent_at else 0.0 for item in own]
    return max(pause, min(gaps, default=0.0) / 4)


def _apply_listing_failure(state: DeleteState, event: DeleteListing) -> DeleteState:
    listing = event.listing
    next_listing_at = {**state.next_listing_at, listing.provider: listing.at + RETRY_S}
    problems = {**state.listing_problems, listing.provider: listing.problem}
    state = dataclasses.replace(state, next_listing_at=next_listing_at, listing_problems=problems)
    refusals = state.refusals.get(listing.provider, 0) + 1 if event.is_refused else 0
    state = dataclasses.replace(state, refusals={**state.refusals, listing.provider: refusals})
    if refusals < REFUSALS:
        return state
    for termination in state.terminations.values():
        if termination.lease.provider == listing.provider and not termination.is_finished:
            state = _set_termination(
                state, dataclasses.replace(termination, problem=listing.problem, is_permanent=True)
            )
    return dataclasses.replace(state, unlistable={**state.unlistable, listing.provider: listing.problem})


def _match_listing(state: DeleteState, termination: Termination, listing: AccountListed) -> Termination:
    listed = tuple(item for item in listing.instances if _is_same_instance(termination, item))
    own = {item.id for item in listed}
    others = {item.id: item.name for item in listing.instances if item.id in termination.ids and item.id not in own}
    if listed:
        # One order is one machine: an id that is another's came from a wrong answer.
        ids = tuple(dict.fromkeys((*(key for key in termination.ids if key not in others), *own)))
        # A problem of the account is none once it shows the lease.
        return dataclasses.replace(
            termination,
            ids=ids,
            listed_instances=listed,
            absent_at=(),
            disputed_ids=frozenset(),
            disputed_since=None,
            problem=termination.problem if termination.retry_at else "",
        )
    termination = dataclasses.replace(
        termination, listed_instances=(), disputed_ids=frozenset(others), disputed_since=None
    )
    if others:
        return _dispute(state, termination, others, listing.as_of)
    problem = state.account_problem(termination.lease)
    if problem and not _may_be_of_account(state, termination.lease):
        return dataclasses.replace(termination, problem=problem, is_permanent=True)
    return _count_absence(state, termination, listing.as_of)


def _dispute(state: DeleteState, termination: Termination, others: t.Mapping[str, str], asked_at: float) -> Termination:
    """Return a termination whose id is listed under a name that is not ours; it may be ours, so nothing is proved."""
    lease = termination.lease
    before = state.terminations[termination.key].disputed_since
    since = asked_at if before is None else before
    key, name = next(iter(others.items()))
    return dataclasses.replace(
        termination,
        absent_at=(),
        disputed_since=since,
        problem=disputed_id(key, name),
        is_permanent=asked_at - since >= state.traits[lease.provider].list_lag_s,
    )


def _count_absence(state: DeleteState, termination: Termination, asked_at: float) -> Termination:
    if termination.is_verified:
        return termination
    answered = termination.acknowledged_at.keys() | termination.denied_ids
    if any(key not in answered for key in termination.ids) or asked_at < termination.absent_from:
        return termination
    if termination.absent_at and asked_at - termination.absent_at[0] < absence_gap(state, termination):
        return termination
    problem = state.account_problem(termination.lease)
    if termination.absent_at and problem:
        return dataclasses.replace(termination, absent_at=(), problem=problem, is_permanent=True)
    return dataclasses.replace(termination, absent_at=(*termination.absent_at, asked_at)[:2], problem="")


def absence_gap(state: DeleteState, termination: Termination) -> float:
    """Return how long the listings of an account have to lack a lease that is to be proved gone."""
    lease = termination.lease
    has_id = lease.machine and termination.ids
    return machine_absence_gap(state.traits[lease.provider]) if has_id else ABSENCE_GAP_S


def _is_same_instance(termination: Termination, instance: Instance) -> bool:
    return termination.lease.owns(instance)


def _start_listed(state: DeleteState, instances: tuple[Instance, ...]) -> DeleteState:
    """Start a termination for what is listed and due without an open lease: proved gone before, or an orphan."""
    for item in instances:
        if any(_is_same_instance(termination, item) for termination in state.terminations.values()):
            continue
        standing = find_standing(item, state.index)
        if standing == "due" or (standing == "orphan" and state.request.delete_orphans):
            state = _set_termination(state, Termination(_lease_for_listed(item, state)))
    return state


def _lease_for_listed(instance: Instance, state: DeleteState) -> Lease:
    """Return a lease for an instance that is due and is in no termination: proved gone before, or not recorded."""
    parts = parse_instance_name(instance.name)
    recorded = find_leases(instance, state.index)
    return Lease(
        token=recorded[0].token if recorded else instance.token or "",
        resource=next(
            (lease.resource for lease in recorded if instance.resource_fits(lease.resource)), instance.resource
        ),
        cluster=state.request.cluster,
        pool=recorded[0].pool if recorded else parts.pool if parts else "unknown",
        name=recorded[0].name if recorded else instance.name,
        provider=instance.provider,
        account=state.accounts[instance.provider].name,
        state="adopted" if recorded else "orphan",
        settled=True,
        intent_at=0.0,
        changed_at=0.0,
        ids=(instance.id,),
        region=instance.region,
        price_usd_per_hour=higher_price(
            instance.price_usd_per_hour, *(lease.price_usd_per_hour for lease in recorded if lease.machine)
        ),
        seen_ids=(instance.id,),
    )


def _apply_deletion(state: DeleteState, event: DeleteAnswered) -> DeleteState:
    instance = event.deletion.instance
    state = dataclasses.replace(state, in_flight=state.in_flight - {DeleteInstance(event.deletion).key})
    if event.existed and instance.token:
        state = state.with_shown(instance.provider, frozenset({instance.token}))
    for termination in list(state.terminations.values()):
        if _is_same_instance(termination, instance):
            state = _set_termination(state, _update_after_delete(termination, event, state.traits[instance.provider]))
    return state


def _update_after_delete(termination: Termination, event: DeleteAnswered, traits: ProviderTraits) -> Termination:
    key = event.deletion.instance.id
    if event.problem:
        retry_at = {**termination.retry_at, key: event.at + RETRY_S}
        refusals = termination.refusals + 1 if event.is_refused else 0
        return dataclasses.replace(
            termination,
            denied_ids=termination.denied_ids | ({key} if event.is_denied else set()),
            problem=event.problem,
            is_permanent=refusals >= REFUSALS,
            refusals=refusals,
            retry_at=retry_at,
        )
    # "No such id" proves nothing: a new machine may not be known everywhere yet.
    since = min(event.at, termination.lease.created_at or termination.lease.intent_at)
    absent_from = event.at if event.existed else since + traits.list_lag_s
    return dataclasses.replace(
        termination,
        acknowledged_at={**termination.acknowledged_at, key: event.at},
        retry_at={**termination.retry_at, key: event.at + DELETE_AGAIN_S},
        absent_from=max(termination.absent_from, absent_from),
        absent_at=(),
        problem="",
        refusals=0,
        was_taken=termination.was_taken or event.existed,
    )
