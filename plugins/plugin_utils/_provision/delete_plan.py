# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Deletion with proof, as pure functions: what to do next, and what an answer changes.

A lease is verified when every id it ever had was deleted with an answer, and two listings of its own account, at
least five seconds apart after that (and after every delay that the provider is known for), show neither its token nor
its ids. A listing in between that shows it starts the proof again.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import dataclasses
import typing as t

from ...module_utils._model.lease import Instance, ProviderTraits, parse_instance_name
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
    fingerprints: t.Mapping[str, str],
    traits: t.Mapping[str, ProviderTraits],
) -> DeleteState:
    """Return the state before anything was done.

    :param leases: all leases of the ledger; those that ``scope`` selects are deleted.
    :param fingerprints: the account fingerprint behind each provider that is configured.
    """
    selected = [lease for lease in leases if scope(lease)]
    terminations = {}
    for lease in selected:
        if lease.open:
            termination = _start_termination(lease, fingerprints.get(lease.provider), traits.get(lease.provider))
            terminations[termination.key] = termination
    return DeleteState(
        request,
        terminations,
        traits,
        fingerprints,
        frozenset(lease.token for lease in leases),
        frozenset(lease.token for lease in selected),
    )


def _start_termination(lease: Lease, account: str | None, traits: ProviderTraits | None) -> Termination:
    if account is None or traits is None:
        return Termination(lease, lease.ids, problem=f"no credentials for {lease.provider}", is_permanent=True)
    if account != lease.account:
        problem = f"was created in account {lease.account} of {lease.provider}, the credentials are of {account}"
        return Termination(lease, lease.ids, problem=problem, is_permanent=True)
    absent_from = 0.0 if lease.settled else lease.intent_at + traits.settle_s
    acknowledged = dict.fromkeys(lease.ids, lease.changed_at) if lease.state == "deleted" else {}
    return Termination(lease, lease.ids, acknowledged_at=acknowledged, absent_from=absent_from)


def decide(state: DeleteState, now: float) -> tuple[DeleteAction, ...] | WaitUntil | Finish:
    """Return what to start now, or until when to wait, or the end."""
    if _is_finished(state) or state.timed_out:
        return WaitUntil(now + 60.0) if state.in_flight else Finish(_end_reason(state))
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
    done = state.listed_accounts | state.unlistable.keys()
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
    names = open_providers | (state.traits.keys() - state.listed_accounts)
    return {name for name in names if name in state.traits and name not in state.unlistable}


def _due_listings(state: DeleteState, now: float) -> t.Iterator[ListAccount]:
    return (
        ListAccount(name) for name in sorted(_providers_to_list(state)) if state.next_listing_at.get(name, 0.0) <= now
    )


def _undeleted_instances(termination: Termination) -> dict[str, Instance]:
    """Return what of a lease still needs a delete call: ids without an answer, and everything that is listed."""
    lease = termination.lease
    unanswered = {
        key: Instance(lease.provider, key, lease.name, lease.token, "unknown", lease.resource)
        for key in termination.ids
        if key not in termination.acknowledged_at
    }
    return {**unanswered, **{item.id: item for item in termination.listed_instances}}


def _due_deletions(state: DeleteState, now: float) -> t.Iterator[DeleteInstance]:
    for termination in state.terminations.values():
        if not termination.is_finished:
            for key, instance in _undeleted_instances(termination).items():
                if termination.retry_at.get(key, 0.0) <= now:
                    yield DeleteInstance(QueuedDeletion(instance, "deleted"))


def _wake_times(state: DeleteState, now: float) -> t.Iterator[float]:
    yield state.request.timeout_at
    yield from (
        state.next_listing_at.get(name, now)
        for name in _providers_to_list(state)
        if f"list:{name}" not in state.in_flight
    )
    for termination in state.terminations.values():
        if not termination.is_finished:
            keys = _undeleted_instances(termination)
            yield from (moment for key, moment in termination.retry_at.items() if key in keys and moment > now)


def _set_termination(state: DeleteState, termination: Termination) -> DeleteState:
    return dataclasses.replace(state, terminations={**state.terminations, termination.key: termination})


def _apply_listing(state: DeleteState, event: DeleteListing) -> DeleteState:
    listing = event.listing
    name = listing.provider
    state = dataclasses.replace(state, in_flight=state.in_flight - {f"list:{name}"})
    if listing.problem:
        return _apply_listing_failure(state, event)
    state = dataclasses.replace(state, listed_accounts=state.listed_accounts | {name})
    state = _classify_instances(state, name, listing.instances)
    for termination in list(state.terminations.values()):
        if termination.lease.provider == name and not termination.is_finished:
            state = _set_termination(state, _match_listing(termination, listing.instances, listing.requested_at))
    pause = max(state.traits[name].poll_interval_s, ABSENCE_GAP_S)
    return dataclasses.replace(state, next_listing_at={**state.next_listing_at, name: listing.requested_at + pause})


def _apply_listing_failure(state: DeleteState, event: DeleteListing) -> DeleteState:
    listing = event.listing
    next_listing_at = {**state.next_listing_at, listing.provider: listing.at + RETRY_S}
    problems = {**state.listing_problems, listing.provider: listing.problem}
    state = dataclasses.replace(state, next_listing_at=next_listing_at, listing_problems=problems)
    if not event.is_permanent:
        return state
    for termination in state.terminations.values():
        if termination.lease.provider == listing.provider and not termination.is_finished:
            state = _set_termination(
                state, dataclasses.replace(termination, problem=listing.problem, is_permanent=True)
            )
    return dataclasses.replace(state, unlistable={**state.unlistable, listing.provider: listing.problem})


def _match_listing(termination: Termination, instances: tuple[Instance, ...], asked_at: float) -> Termination:
    listed = tuple(item for item in instances if _is_same_instance(termination, item))
    if listed:
        ids = tuple(dict.fromkeys((*termination.ids, *(item.id for item in listed))))
        return dataclasses.replace(termination, ids=ids, listed_instances=listed, absent_at=())
    termination = dataclasses.replace(termination, listed_instances=())
    if any(key not in termination.acknowledged_at for key in termination.ids) or asked_at < termination.absent_from:
        return termination
    if termination.absent_at and asked_at - termination.absent_at[0] < ABSENCE_GAP_S:
        return termination
    return dataclasses.replace(termination, absent_at=(*termination.absent_at, asked_at)[:2], problem="")


def _is_same_instance(termination: Termination, instance: Instance) -> bool:
    if instance.provider != termination.lease.provider or not instance.resource_fits(termination.lease.resource):
        return False
    return instance.id in termination.ids or instance.carries(termination.lease.cluster, termination.lease.token)


def _classify_instances(state: DeleteState, provider: str, instances: tuple[Instance, ...]) -> DeleteState:
    """Sort a listing's instances into those of leases (recorded or not), orphans, and those that are not ours."""
    orphans = {key: item for key, item in state.orphans.items() if key[0] != provider}
    unknown = {key: item for key, item in state.unknown.items() if key[0] != provider}
    for item in instances:
        if any(_is_same_instance(termination, item) for termination in state.terminations.values()):
            continue
        is_ours = item.token is not None and item.carries(state.request.cluster, item.token)
        if not is_ours or not (item.token in state.tokens or _cluster_of(item) == state.request.cluster):
            unknown[(provider, item.id)] = item
        elif item.token in state.scope or (item.token not in state.tokens and state.request.delete_orphans):
            state = _set_termination(state, Termination(_lease_for_unrecorded(item, state)))
        elif item.token not in state.tokens:
            orphans[(provider, item.id)] = item
    return dataclasses.replace(state, orphans=orphans, unknown=unknown)


def _cluster_of(instance: Instance) -> str | None:
    parts = parse_instance_name(instance.name)
    return parts.cluster if parts else None


def _lease_for_unrecorded(instance: Instance, state: DeleteState) -> Lease:
    """Return a lease for an instance that carries a token of ours but has no line in the ledger."""
    parts = parse_instance_name(instance.name)
    recorded = next(
        (termination.lease for termination in state.terminations.values() if termination.lease.token == instance.token),
        None,
    )
    return Lease(
        token=instance.token or "",
        resource=instance.resource,
        cluster=state.request.cluster,
        pool=recorded.pool if recorded else parts.pool if parts else "unknown",
        name=instance.name,
        provider=instance.provider,
        account=state.fingerprints[instance.provider],
        state="adopted" if instance.token in state.tokens else "orphan",
        settled=True,
        intent_at=0.0,
        changed_at=0.0,
        ids=(instance.id,),
        region=instance.region,
        price_usd_per_hour=instance.price_usd_per_hour,
    )


def _apply_deletion(state: DeleteState, event: DeleteAnswered) -> DeleteState:
    instance = event.deletion.instance
    state = dataclasses.replace(state, in_flight=state.in_flight - {DeleteInstance(event.deletion).key})
    for termination in list(state.terminations.values()):
        if _is_same_instance(termination, instance):
            state = _set_termination(state, _update_after_delete(termination, event, state.traits[instance.provider]))
    return state


def _update_after_delete(termination: Termination, event: DeleteAnswered, traits: ProviderTraits) -> Termination:
    key = event.deletion.instance.id
    if event.problem:
        retry_at = {**termination.retry_at, key: event.at + RETRY_S}
        return dataclasses.replace(
            termination, problem=event.problem, is_permanent=event.is_permanent, retry_at=retry_at
        )
    # "No such id" proves nothing: a new machine may not be known everywhere yet.
    since = termination.lease.created_at or termination.lease.intent_at
    absent_from = event.at if event.existed else since + traits.list_lag_s
    return dataclasses.replace(
        termination,
        acknowledged_at={**termination.acknowledged_at, key: event.at},
        retry_at={**termination.retry_at, key: event.at + DELETE_AGAIN_S},
        absent_from=max(termination.absent_from, absent_from),
        absent_at=(),
        problem="",
    )
