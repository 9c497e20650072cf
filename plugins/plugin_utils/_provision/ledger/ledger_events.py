# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Build the ledger events of creating and deleting: pure, so that none is forgotten and all are tested."""

from __future__ import annotations

import dataclasses
import typing as t

from ....module_utils._model.lease import AccountIdentity, OrderAccepted, OrderRefused, Resource
from ....module_utils._model.ledger import UNKNOWN_ID, EventKind, LedgerEvent, make_event
from ....module_utils._model.timestamps import format_time
from ..create_state import (
    AccountListed,
    CreateEvent,
    DeletionAnswered,
    OrderAnswered,
    PoolRequest,
    PoolState,
    QueuedDeletion,
    SlotLease,
)
from ..delete_state import DeleteAnswered, DeleteEvent, DeleteState, Termination

Accounts = t.Mapping[str, AccountIdentity]


def lease_event(request: PoolRequest, accounts: Accounts, lease: SlotLease, at: float, event: EventKind) -> LedgerEvent:
    """Return an event of one lease of a pool; what is unknown stays None."""
    resource: Resource = "cluster" if request.is_cluster else "instance"
    return LedgerEvent(
        at=format_time(at),
        cluster=request.cluster,
        token=lease.token,
        event=event,
        resource=resource,
        provider=lease.provider,
        account=accounts[lease.provider].name,
        fingerprint=accounts[lease.provider].fingerprint,
        api=accounts[lease.provider].api or None,
        pool=request.pool,
        name=lease.name,
        region=lease.region,
        id=lease.id,
        run_id=request.run_id,
        price_usd_per_hour=lease.price,
        deadline=request.deadline,
        release=request.release,
        max_cost_usd=request.max_cost_usd,
    )


def pending_event(
    request: PoolRequest, accounts: Accounts, lease: SlotLease, at: float, event: EventKind
) -> LedgerEvent:
    """Return the event of a lease that is awaited, with the time until which its controller may wait."""
    ordered = {"ordered": lease.ordered.to_values()} if lease.ordered else {}
    return dataclasses.replace(
        lease_event(request, accounts, lease, at, event), evidence={"until": format_time(request.timeout_at), **ordered}
    )


def second_events(
    state: PoolState, found: t.Iterable[QueuedDeletion], accounts: Accounts, at: float
) -> list[LedgerEvent]:
    """Return the events of machines that are listed beside the one of their order, which keeps its slot."""
    return [
        _second_event(state, item, accounts, at, "adopted") for item in found if _find_kept(state, item) is not None
    ]


def _find_kept(state: PoolState, deletion: QueuedDeletion) -> SlotLease | None:
    """Return the lease whose slot another machine of the same order has, None for any other deletion."""
    for slot in state.slots:
        lease = slot.lease
        own = lease and (lease.instance.id if lease.instance else lease.id)
        if lease and own and lease.token == deletion.instance.token and own != deletion.instance.id:
            return lease
    return None


def _second_event(
    state: PoolState, deletion: QueuedDeletion, accounts: Accounts, at: float, event: EventKind
) -> LedgerEvent:
    instance = deletion.instance
    lease = SlotLease(
        instance.token or "",
        next(slot.lease.name for slot in state.slots if slot.lease and slot.lease.token == instance.token),
        instance.provider,
        at,
        deletion.price,
        instance.id,
    )
    return dataclasses.replace(lease_event(state.request, accounts, lease, at, event), evidence={"second": True})


def create_events(old: PoolState, event: CreateEvent, new: PoolState, accounts: Accounts) -> tuple[LedgerEvent, ...]:
    """Return the events for what changed from ``old`` to ``new`` by ``event``, except the intent itself."""
    request = old.request
    if isinstance(event, OrderAnswered):
        return _answer_events(old, event, accounts)
    if isinstance(event, AccountListed) and not event.problem:
        found = [item for item in new.deletions if item.acknowledged_at is None and item not in old.deletions]
        return (*_listing_events(old, event, new, accounts), *second_events(new, found, accounts, event.at))
    if isinstance(event, DeletionAnswered) and not event.problem:
        if _find_kept(old, event.deletion):
            return (_second_event(old, event.deletion, accounts, event.at, "deleted"),)
        instance = event.deletion.instance
        lease = SlotLease(
            instance.token or "", instance.name, instance.provider, event.at, event.deletion.price, instance.id
        )
        entry = lease_event(request, accounts, lease, event.at, "deleted")
        reason = _shorten(event.deletion.reason) if event.existed else UNKNOWN_ID
        return (dataclasses.replace(entry, reason=reason),) if instance.token else ()
    return ()


def _answer_events(old: PoolState, event: OrderAnswered, accounts: Accounts) -> tuple[LedgerEvent, ...]:
    lease, answer = old.slots[event.slot].lease, event.answer
    if lease is None:
        return ()
    if isinstance(answer, OrderAccepted):
        entry = lease_event(old.request, accounts, dataclasses.replace(lease, id=answer.id), event.at, "created")
        return (dataclasses.replace(entry, reason=_shorten(answer.reason) or None),)
    if isinstance(answer, OrderRefused):
        entry = lease_event(old.request, accounts, lease, event.at, "failed")
        return (dataclasses.replace(entry, reason=_shorten(answer.reason), settled=True),)
    return ()


def _listing_events(
    old: PoolState, event: AccountListed, new: PoolState, accounts: Accounts
) -> tuple[LedgerEvent, ...]:
    events = []
    listed = {item.token: item for item in event.instances if item.token}
    for slot in old.slots:
        lease = slot.lease
        if lease is None or lease.provider != event.provider or slot.phase in ("wanted", "creating"):
            continue
        instance = listed.get(lease.token)
        is_strange = instance is not None and any(
            item.id == lease.id and item.token != lease.token for item in event.instances
        )
        if instance is not None and (lease.id is None or is_strange):
            entry = lease_event(old.request, accounts, dataclasses.replace(lease, id=instance.id), event.at, "adopted")
            evidence = {"found_by": "listing", **({"not_ours": [lease.id]} if is_strange else {})}
            events.append(dataclasses.replace(entry, evidence=evidence))
        elif instance is None and _is_abandoned(new, lease):
            kind: EventKind = "failed" if lease.id is None else "lost"
            entry = lease_event(old.request, accounts, lease, event.at, kind)
            events.append(dataclasses.replace(entry, settled=True, reason=f"not listed by {lease.provider}"))
    return tuple(events)


def _is_abandoned(state: PoolState, lease: SlotLease) -> bool:
    return all(slot.lease is None or slot.lease.token != lease.token for slot in state.slots)


def _shorten(reason: str) -> str:
    return "".join(char if char.isprintable() else " " for char in reason)[:200]


def delete_events(old: DeleteState, event: DeleteEvent, new: DeleteState, at: float) -> tuple[LedgerEvent, ...]:
    """Return the events of a deletion: what was found, what was deleted, whose absence is proved."""
    events: list[LedgerEvent] = []
    for key, termination in new.terminations.items():
        before = old.terminations.get(key)
        events += _found_events(before, termination, at)
        if termination.is_verified and not (before and before.is_verified):
            times = [format_time(moment) for moment in termination.absent_at]
            entry = termination_event(termination, at, "verified", termination.ids[-1] if termination.ids else None)
            events.append(dataclasses.replace(entry, evidence={"absent_at": times}))
    if isinstance(event, DeleteAnswered) and not event.problem:
        events += _deleted_events(event, new)
    return tuple(_with_witness(entry, new) for entry in events)


def _with_witness(entry: LedgerEvent, state: DeleteState) -> LedgerEvent:
    """Return an event with who saw it and where, once it is known that the account is the lease's."""
    termination = state.terminations[entry.token, entry.resource]
    if state.account_problem(termination.lease):
        return entry
    identity = state.accounts[entry.provider]
    return dataclasses.replace(entry, fingerprint=identity.fingerprint, api=identity.api or None)


def _found_events(before: Termination | None, now: Termination, at: float) -> list[LedgerEvent]:
    """Return the events of ids that were found for a machine, and of ids that belong to another account's machine."""
    if before is None:
        return [termination_event(now, at, "orphan" if now.lease.state == "orphan" else "adopted", now.ids[0])]
    known = {item.id for item in now.lease.seconds}
    seconds = [item for item in now.second_ids if item not in {*before.second_ids, *known}]
    fresh = [item for item in now.ids if item not in before.ids and item not in seconds]
    events = [termination_event(now, at, "adopted", item) for item in fresh]
    events += [
        dataclasses.replace(termination_event(now, at, "adopted", item), evidence={"second": True}) for item in seconds
    ]
    strangers = [item for item in before.ids if item not in now.ids]
    if strangers:
        entry = termination_event(now, at, "adopted", now.ids[-1])
        events.append(dataclasses.replace(entry, evidence={"not_ours": strangers}))
    return events


def _deleted_events(event: DeleteAnswered, new: DeleteState) -> list[LedgerEvent]:
    """Return the events of a deletion that the provider has taken, for each machine that has the id."""
    instance = event.deletion.instance
    reason = None if event.existed else UNKNOWN_ID
    return [
        dataclasses.replace(termination_event(termination, event.at, "deleted", instance.id), reason=reason)
        for termination in new.terminations.values()
        if instance.id in termination.ids and instance.provider == termination.lease.provider
    ]


def termination_event(termination: Termination, at: float, event: EventKind, ident: str | None) -> LedgerEvent:
    """Return an event of a lease that is being deleted; ``ident`` is the provider's id, if one is known."""
    return make_event(termination.lease, event, at, id=ident, price_usd_per_hour=termination.own_price)
