# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The state a pool begins with: what the ledger says is ours, set against what the providers list.

Only machines whose token has a line in this ledger are adopted. A machine that merely has our form of name is an
orphan of somebody: it is reported elsewhere and never touched here.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import dataclasses
import typing as t

from ...module_utils._model.lease import Rental, Traits, parse_name
from ...module_utils._model.ledger import Lease
from ...module_utils._model.offer import Candidate, Offer, by_price, matches
from .create_reduce import advance, queue_deletion
from .create_state import Choice, MachineSlot, PoolRequest, PoolState, SlotLease

Listings = t.Mapping[str, tuple[Rental, ...]]


def pool_leases(request: PoolRequest, leases: t.Iterable[Lease]) -> tuple[Lease, ...]:
    """Return the leases of machines of this pool, also those that are verified (one may have come back)."""
    ours = (request.cluster, request.pool)
    return tuple(lease for lease in leases if lease.machine and (lease.cluster, lease.pool) == ours)


def initial_state(
    request: PoolRequest,
    leases: t.Iterable[Lease],
    listings: Listings,
    traits: t.Mapping[str, Traits],
    now: float,
) -> PoolState:
    """Return the state before anything was done: adopted machines in their slots, surplus and dead ones given up."""
    state = PoolState(request, tuple(MachineSlot(index) for index in range(request.slot_count)), traits, started_at=now)
    ours = sorted(pool_leases(request, leases), key=lambda lease: (lease.state != "joined", lease.intent_at))
    for lease in ours:
        listed = [item for item in listings.get(lease.provider, ()) if item.resource == lease.resource]
        found = [item for item in listed if item.carries(lease.cluster, lease.token) or item.id in lease.ids]
        state = _adopt(state, lease, found, now) if found else _restore_absent(state, lease, now)
    return state


def rank_offers(state: PoolState, offers: t.Iterable[Offer], now: float) -> PoolState:
    """Return the state with its ranked offers: the user's order of candidates, then the price per GPU-hour."""
    found = tuple(offers)
    choices = tuple(
        Choice(tier, offer)
        for tier, candidate in enumerate(state.request.candidates)
        for offer in by_price(item for item in found if matches(candidate, item))
    )
    tier = min((choice.tier for choice in choices), default=0)
    # A gang is of one candidate, also one that another controller began.
    slot_lease = sorted((slot.lease for slot in state.slots if slot.lease), key=lambda item: not item.protected)
    if slot_lease:
        tier = _candidate_index(state.request.candidates, slot_lease[0].provider, tier)
    return advance(dataclasses.replace(state, choices=choices, tier=tier), now)


def _candidate_index(candidates: tuple[Candidate, ...], provider: str, default: int) -> int:
    return next((index for index, item in enumerate(candidates) if item.provider == provider), default)


def _free_slot(state: PoolState, name: str) -> MachineSlot | None:
    """Return the slot of a name's own index, else none: a second machine of one place is surplus."""
    parts = parse_name(name)
    index = parts.index if parts else -1
    if 0 <= index < len(state.slots) and state.slots[index].lease is None:
        return state.slots[index]
    return None


def _adopt(state: PoolState, lease: Lease, found: list[Rental], now: float) -> PoolState:
    chosen = next((item for item in found if item.id == lease.id), found[0])
    for extra in found:
        if extra.id != chosen.id:
            state = queue_deletion(state, extra, "is a second machine of one order")
    if chosen.doomed:
        return queue_deletion(state, chosen, f"{lease.provider} says {chosen.detail or chosen.state}")
    slot = _free_slot(state, lease.name)
    if slot is None:
        return queue_deletion(state, chosen, "is more than the pool's count")
    if lease.state in ("deleted", "verified", "draining", "lost", "failed"):
        return queue_deletion(state, chosen, "had been given up")
    kept = lease.state == "joined"
    running = chosen.state == "running"
    slot_lease = SlotLease(
        lease.token,
        lease.name,
        lease.provider,
        # An earlier call's waiting does not count against a machine that runs now.
        now if running or kept else lease.created_at or lease.intent_at,
        chosen.price_usd_per_hour if chosen.price_usd_per_hour is not None else lease.price_usd_per_hour,
        lease.id,
        lease.region,
        now,
        chosen,
        protected=kept,
    )
    slot = dataclasses.replace(slot, phase="ready" if kept and running else "booting", lease=slot_lease)
    return _replace_slot(state, slot)


def _restore_absent(state: PoolState, lease: Lease, now: float) -> PoolState:
    traits = state.traits.get(lease.provider)
    if not lease.open or traits is None:
        return dataclasses.replace(state, abandoned_tokens=state.abandoned_tokens | {lease.token})
    slot = _free_slot(state, lease.name)
    slot_lease = SlotLease(lease.token, lease.name, lease.provider, lease.intent_at, lease.price_usd_per_hour, lease.id)
    if slot is not None and not lease.settled and now < lease.intent_at + traits.settle_s:
        until = lease.intent_at + traits.settle_s
        return _replace_slot(state, dataclasses.replace(slot, phase="unsettled", lease=slot_lease, until=until))
    recent = now - lease.changed_at <= traits.list_lag_s
    if slot is not None and lease.state in ("created", "adopted", "joined") and recent:
        return _replace_slot(
            state, dataclasses.replace(slot, phase="booting", lease=dataclasses.replace(slot_lease, since=now))
        )
    if lease.id is not None and lease.state not in ("deleted", "failed"):
        instance = Rental(lease.provider, lease.id, lease.name, lease.token, "unknown")
        state = queue_deletion(state, instance, "is not listed any more")
    return dataclasses.replace(state, abandoned_tokens=state.abandoned_tokens | {lease.token})


def _replace_slot(state: PoolState, slot: MachineSlot) -> PoolState:
    return dataclasses.replace(state, slots=tuple(slot if item.index == slot.index else item for item in state.slots))
