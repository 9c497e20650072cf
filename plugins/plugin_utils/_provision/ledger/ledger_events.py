# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which ledger lines an event of renting or giving back makes: pure, so that none is forgotten and all are tested.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import dataclasses
import typing as t

from ....module_utils._model.lease import Created, Refused, Resource
from ....module_utils._model.ledger import EventKind, Lease, LedgerEvent, iso
from ..create_state import (
    AccountListed,
    CreateEvent,
    DeletionAnswered,
    OrderAnswered,
    PoolRequest,
    PoolState,
    SlotLease,
)
from ..delete_state import DeleteAnswered, DeleteEvent, DeleteState, Termination

Accounts = t.Mapping[str, str]


def lease_event(request: PoolRequest, accounts: Accounts, held: SlotLease, at: float, event: EventKind) -> LedgerEvent:
    """Return the ledger line of one lease of a pool; what is not known stays None."""
    resource: Resource = "cluster" if request.whole else "instance"
    return LedgerEvent(
        at=iso(at),
        cluster=request.cluster,
        token=held.token,
        event=event,
        resource=resource,
        provider=held.provider,
        account=accounts[held.provider],
        pool=request.pool,
        name=held.name,
        region=held.region,
        id=held.id,
        run_id=request.run_id,
        price_usd_per_hour=held.price,
        deadline=request.deadline,
        release=request.release,
        max_cost_usd=request.max_cost_usd,
    )


def pending_event(
    request: PoolRequest, accounts: Accounts, held: SlotLease, at: float, event: EventKind
) -> LedgerEvent:
    """Return the line of a lease that is waited for, with the time until which somebody may be waiting."""
    return dataclasses.replace(
        lease_event(request, accounts, held, at, event), evidence={"until": iso(request.timeout_at)}
    )


def create_events(old: PoolState, event: CreateEvent, new: PoolState, accounts: Accounts) -> tuple[LedgerEvent, ...]:
    """Return the lines for what changed from ``old`` to ``new`` by ``event``, apart from the intent itself."""
    request = old.request
    if isinstance(event, OrderAnswered):
        return _answer_events(old, event, accounts)
    if isinstance(event, AccountListed) and not event.problem:
        return _listing_events(old, event, new, accounts)
    if isinstance(event, DeletionAnswered) and not event.problem:
        rental = event.discard.rental
        held = SlotLease(
            rental.token or "", rental.name, rental.provider, event.at, rental.price_usd_per_hour, rental.id
        )
        entry = lease_event(request, accounts, held, event.at, "deleted")
        return (dataclasses.replace(entry, reason=_shorten(event.discard.reason)),) if rental.token else ()
    return ()


def _answer_events(old: PoolState, event: OrderAnswered, accounts: Accounts) -> tuple[LedgerEvent, ...]:
    held, answer = old.slots[event.slot].held, event.answer
    if held is None:
        return ()
    if isinstance(answer, Created):
        entry = lease_event(old.request, accounts, dataclasses.replace(held, id=answer.id), event.at, "created")
        return (dataclasses.replace(entry, reason=_shorten(answer.reason) or None),)
    if isinstance(answer, Refused):
        entry = lease_event(old.request, accounts, held, event.at, "failed")
        return (dataclasses.replace(entry, reason=_shorten(answer.reason), settled=True),)
    return ()


def _listing_events(
    old: PoolState, event: AccountListed, new: PoolState, accounts: Accounts
) -> tuple[LedgerEvent, ...]:
    found = []
    seen = {item.token: item for item in event.rentals if item.token}
    for slot in old.slots:
        held = slot.held
        if held is None or held.provider != event.provider or slot.phase in ("wanted", "creating"):
            continue
        rental = seen.get(held.token)
        if rental is not None and held.id is None:
            entry = lease_event(old.request, accounts, dataclasses.replace(held, id=rental.id), event.at, "adopted")
            found.append(dataclasses.replace(entry, evidence={"found_by": "listing"}))
        elif rental is None and _is_abandoned(new, held):
            kind: EventKind = "failed" if held.id is None else "lost"
            entry = lease_event(old.request, accounts, held, event.at, kind)
            found.append(dataclasses.replace(entry, settled=True, reason=f"not listed by {held.provider}"))
    return tuple(found)


def _is_abandoned(state: PoolState, held: SlotLease) -> bool:
    return all(slot.held is None or slot.held.token != held.token for slot in state.slots)


def _shorten(reason: str) -> str:
    return "".join(char if char.isprintable() else " " for char in reason)[:200]


def delete_events(old: DeleteState, event: DeleteEvent, new: DeleteState, at: float) -> tuple[LedgerEvent, ...]:
    """Return the lines of giving back: what was found, what was deleted, what is proved gone."""
    found: list[LedgerEvent] = []
    for key, claim in new.claims.items():
        before = old.claims.get(key)
        if before is None:
            found.append(
                termination_event(claim, at, "orphan" if claim.lease.state == "orphan" else "adopted", claim.ids[0])
            )
        else:
            fresh = [item for item in claim.ids if item not in before.ids]
            found += [termination_event(claim, at, "adopted", item) for item in fresh]
        if claim.verified and not (before and before.verified):
            times = [iso(moment) for moment in claim.absent_at]
            entry = termination_event(claim, at, "verified", claim.ids[-1] if claim.ids else None)
            found.append(dataclasses.replace(entry, evidence={"absent_at": times}))
    if isinstance(event, DeleteAnswered) and not event.problem:
        rental = event.discard.rental
        for claim in new.claims.values():
            if rental.id in claim.ids and rental.provider == claim.lease.provider:
                entry = termination_event(claim, event.at, "deleted", rental.id)
                reason = None if event.taken else "the provider knows no such id"
                found.append(dataclasses.replace(entry, reason=reason))
    return tuple(found)


def termination_event(claim: Termination, at: float, event: EventKind, thing: str | None) -> LedgerEvent:
    """Return the ledger line of something that is given back; ``thing`` is the provider's id, if one is known."""
    lease: Lease = claim.lease
    return LedgerEvent(
        at=iso(at),
        cluster=lease.cluster,
        token=lease.token,
        event=event,
        resource=lease.resource,
        provider=lease.provider,
        account=lease.account,
        pool=lease.pool,
        name=lease.name,
        region=lease.region,
        id=thing,
        run_id=lease.run_id,
        price_usd_per_hour=lease.price_usd_per_hour,
    )
