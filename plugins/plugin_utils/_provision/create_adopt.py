# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The initial state of a pool: the leases of the ledger compared with what the providers list.

Only machines whose token has a line in this ledger are adopted. A machine whose name only has the same form is
not: teardown reports it as an orphan, and nothing here touches it.
"""

from __future__ import annotations

import dataclasses
import typing as t

from ...module_utils._model.lease import Instance, ProviderTraits, parse_instance_name
from ...module_utils._model.ledger import Lease, higher_price
from ...module_utils._model.machine_memory import MachineMemory
from ...module_utils._model.offer import Candidate, Offer, matches, sort_by_price
from .bill.known_bill import describe_second
from .bill.listing_rules import find_standing, index_leases
from .create_reduce import advance, queue_deletion
from .create_state import Choice, MachineSlot, PoolRequest, PoolState, SlotLease

Listings = t.Mapping[str, tuple[Instance, ...]]


def pool_leases(request: PoolRequest, leases: t.Iterable[Lease]) -> tuple[Lease, ...]:
    """Return the leases of machines of this pool, also the verified ones (a machine may appear late)."""
    pool = (request.cluster, request.pool)
    return tuple(lease for lease in leases if lease.machine and (lease.cluster, lease.pool) == pool)


def initial_state(
    request: PoolRequest,
    leases: t.Iterable[Lease],
    listings: Listings,
    traits: t.Mapping[str, ProviderTraits],
    now: float,
) -> PoolState:
    """Return the state before any call: adopted machines in their slots, surplus and failed ones to be deleted."""
    state = PoolState(request, tuple(MachineSlot(index) for index in range(request.slot_count)), traits, started_at=now)
    joined_first = sorted(pool_leases(request, leases), key=lambda lease: (lease.state != "joined", lease.intent_at))
    for lease in joined_first:
        of_kind = [item for item in listings.get(lease.provider, ()) if item.resource == lease.resource]
        listed = [item for item in of_kind if lease.owns(item)]
        state = _adopt(state, lease, listed, now) if listed else _restore_absent(state, lease, now)
    return state


def find_surplus(state: PoolState, leases: t.Iterable[Lease]) -> dict[int, Lease]:
    """Return, by index, machines of an earlier, complete gang that would be deleted for the count became smaller."""
    ending = {item.instance.token for item in state.deletions if not item.instance.terminal}
    named = [(parse_instance_name(item.name), item) for item in pool_leases(state.request, leases)]
    return {
        parts.index: lease
        for parts, lease in named
        if parts and parts.index >= len(state.slots) and lease.state == "joined" and lease.token in ending
    }


def find_strays(
    request: PoolRequest, leases: t.Collection[Lease], listings: Listings
) -> tuple[list[Instance], list[Instance]]:
    """Return the listed machines that the ledger does not have, and those that it has as proved gone."""
    index = index_leases(request.cluster, leases, lambda _lease: False)
    standings = [(find_standing(item, index), item) for items in listings.values() for item in items]
    unrecorded = [item for standing, item in standings if standing == "orphan"]
    return unrecorded, [item for standing, item in standings if standing == "returned"]


def rank_offers(state: PoolState, offers: t.Iterable[Offer], now: float) -> PoolState:
    """Return the state with its ranked offers: the user's order of candidates, then the price per GPU-hour."""
    all_offers = tuple(offers)
    choices = tuple(
        Choice(tier, offer)
        for tier, candidate in enumerate(state.request.candidates)
        for offer in sort_by_price(item for item in all_offers if matches(candidate, item))
    )
    state, choices = _without_avoided(state, choices, now)
    tier = min((choice.tier for choice in choices), default=0)
    # All machines of a gang are of one candidate, also when another controller ordered the first ones.
    slot_leases = sorted((slot.lease for slot in state.slots if slot.lease), key=lambda item: not item.protected)
    if slot_leases:
        tier = _candidate_index(state.request.candidates, slot_leases[0].provider, tier)
    return advance(dataclasses.replace(state, choices=choices, tier=tier), now)


def _without_avoided(state: PoolState, choices: tuple[Choice, ...], now: float) -> tuple[PoolState, tuple[Choice, ...]]:
    """Return the state and its choices; where all are of machines that are avoided, those come first that are so least.

    A memory never keeps a pool from being complete.
    """
    avoided = [state.memory.find_host(choice.offer.provider, choice.offer.host, now) for choice in choices]
    known = [(choice, item) for choice, item in zip(choices, avoided, strict=True) if item is not None]
    if not known:
        return state, choices
    if len(known) < len(choices):
        return state.with_history(
            f"{len(known)} of {len(choices)} offers are left out: their machines are avoided"
        ), choices
    ranked = sorted(known, key=lambda pair: (pair[0].tier, pair[1].until))
    said = f"all {len(known)} offers are of machines that are avoided; the first of them is {ranked[0][1].describe()}"
    # Which machines had a fault is still to be known: one that passes its test now is noted.
    memory = MachineMemory(noted=state.memory.noted)
    return dataclasses.replace(state, memory=memory).with_history(said), tuple(choice for choice, _item in ranked)


def _candidate_index(candidates: tuple[Candidate, ...], provider: str, default: int) -> int:
    return next((index for index, item in enumerate(candidates) if item.provider == provider), default)


def _free_slot(state: PoolState, name: str) -> MachineSlot | None:
    """Return the slot of a name's own index, None when it is taken: a second machine of one index is surplus."""
    parts = parse_instance_name(name)
    index = parts.index if parts else -1
    if 0 <= index < len(state.slots) and state.slots[index].lease is None:
        return state.slots[index]
    return None


def _adopt(state: PoolState, lease: Lease, listed: list[Instance], now: float) -> PoolState:
    instance = next((item for item in listed if item.id == lease.id), listed[0])
    for extra in listed:
        if extra.id != instance.id:
            reason = describe_second(extra, lease.price_usd_per_hour)
            state = queue_deletion(state, extra, reason, lease.price_usd_per_hour)
    is_joined = lease.state == "joined"
    if instance.terminal and not is_joined:
        return queue_deletion(state, instance, f"{lease.provider} reports {instance.detail or instance.state}")
    slot = _free_slot(state, lease.name)
    if slot is None:
        return queue_deletion(state, instance, "is more than the pool's count")
    if lease.state in ("deleted", "verified", "draining", "lost", "failed"):
        return queue_deletion(state, instance, "was already released")
    is_running = instance.state == "running"
    slot_lease = SlotLease(
        lease.token,
        lease.name,
        lease.provider,
        # What an earlier call waited does not count against the boot limit of a machine that runs now.
        now if is_running or is_joined else lease.created_at or lease.intent_at,
        higher_price(lease.price_usd_per_hour, instance.price_usd_per_hour),
        lease.id,
        lease.region,
        missing_since=now if instance.terminal else None,
        instance=instance,
        protected=is_joined,
        seen_ids=lease.seen_ids,
        ordered=lease.ordered,
    )
    slot = dataclasses.replace(slot, phase="ready" if is_joined and is_running else "booting", lease=slot_lease)
    return state.with_slot(slot)


def _restore_absent(state: PoolState, lease: Lease, now: float) -> PoolState:
    traits = state.traits.get(lease.provider)
    if not lease.open or traits is None:
        return state.with_abandoned(lease.token)
    slot = _free_slot(state, lease.name)
    slot_lease = SlotLease(
        lease.token,
        lease.name,
        lease.provider,
        lease.intent_at,
        lease.price_usd_per_hour,
        lease.id,
        ordered=lease.ordered,
    )
    until = min(lease.intent_at, now) + traits.settle_s
    if slot is not None and not lease.settled and now < until:
        return state.with_slot(dataclasses.replace(slot, phase="unsettled", lease=slot_lease, until=until))
    if slot is not None and lease.settled and lease.state in ("created", "adopted", "joined"):
        # One listing that lacks it ends no machine: it is awaited, and given up after a lasting absence.
        is_joined = lease.state == "joined"
        slot_lease = dataclasses.replace(
            slot_lease, since=now, missing_since=now, protected=is_joined, seen_ids=lease.seen_ids
        )
        return state.with_slot(dataclasses.replace(slot, phase="booting", lease=slot_lease))
    if lease.id is not None and lease.state not in ("deleted", "failed"):
        instance = Instance(lease.provider, lease.id, lease.name, lease.token, "unknown")
        state = queue_deletion(state, instance, "is no longer listed")
    return state.with_abandoned(lease.token)
