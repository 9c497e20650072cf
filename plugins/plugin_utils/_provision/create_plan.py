# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What to do next for a pool: a pure function from state and time to actions.

In this order: delete the machines that left their slot, list accounts where a machine is awaited, probe running
machines, place missing orders in the user's order of candidates and within the price caps, finish when all machines
are ready or nothing more can be done.
"""

from __future__ import annotations

import dataclasses
import typing as t

from ...module_utils._model.offer import Hardware, sold_problems
from .create_caps import PriceBudget, find_broken_cap, is_blocked_by_deletions, list_billed
from .create_state import (
    Choice,
    CreateAction,
    DeleteInstance,
    Finish,
    ListAccount,
    MachineSlot,
    PlaceOrder,
    PoolState,
    ProbeMachine,
    SlotLease,
    WaitUntil,
)
from .create_witness import due_reads

PROBE_INTERVAL_S = 5.0


def decide(state: PoolState, now: float) -> tuple[CreateAction, ...] | WaitUntil | Finish:
    """Return what to start now, or until when to wait, or the end."""
    if state.failure:
        # The machines are deleted, with proof, by ``delete``; here only orders in flight are awaited, for their ids.
        is_ordering = any(key.startswith("create:") for key in state.in_flight)
        return WaitUntil(now + 60.0) if is_ordering else Finish(state.failure)
    actions: tuple[CreateAction, ...] = (
        *_due_deletions(state, now),
        *_due_listings(state, now),
        *_due_probes(state, now),
        *due_reads(state, now),
        *_due_orders(state, now),
    )
    due = tuple(action for action in actions if action.key not in state.in_flight)
    if due:
        return due
    if state.is_ready and not _awaits_deletion(state, now) and not state.in_flight:
        return Finish()
    return WaitUntil(min(_wake_times(state, now), default=now + 60.0))


def _awaits_deletion(state: PoolState, now: float) -> bool:
    """Return whether a machine is still to be deleted, or a second one of a kept order to be gone from listings."""
    kept = {lease.token for _slot, lease in leased_slots(state)}
    return any(
        item.is_open or (not item.stuck and item.instance.token in kept and now < state.request.timeout_at)
        for item in state.deletions
    )


def failure_reason(state: PoolState, now: float) -> str:
    """Return why the pool can no longer be completed, empty while it can."""
    request = state.request
    reason = state.failure or find_broken_cap(state) or find_other_hardware(state) or find_other_size(state)
    if reason or state.is_ready:
        return reason
    if now >= request.timeout_at:
        return f"not complete in time: {_describe_missing(state)}{_last_problem(state)}"
    if state.replacements > request.max_replacements * request.slot_count:
        limit = f"max_replacements allows {request.max_replacements} per machine"
        return f"{state.replacements} machines were unusable or never came and {limit}{_last_problem(state)}"
    has_wanted = any(slot.phase == "wanted" for slot in state.slots)
    if has_wanted and not available_choices(state, now) and not _may_get_an_offer(state, now):
        return _explain_no_offer(state)
    return ""


def available_choices(state: PoolState, now: float) -> tuple[Choice, ...]:
    """Return the offers that may be ordered now, best first."""
    budget = PriceBudget.of(state)
    return tuple(
        choice
        for choice in state.choices
        if (state.request.mixed or choice.tier == state.tier)
        and state.closed_until.get(choice.key, 0.0) <= now
        and not _is_sold_out(state, choice)
        and _bad_host_key(choice) not in state.bad_hosts
        and state.memory.find_host(choice.offer.provider, choice.offer.host, now) is None
        and budget.allows(choice)
    )


def first_orders(state: PoolState, now: float) -> tuple[Choice, ...]:
    """Return the orders that would be placed first, whatever the pace of the APIs: what check mode shows."""
    traits = {name: dataclasses.replace(item, create_interval_s=0.0) for name, item in state.traits.items()}
    at_once = dataclasses.replace(state, traits=traits, next_order_at={})
    return tuple(action.choice for action in _due_orders(at_once, now))


def next_candidate(state: PoolState, now: float) -> int | None:
    """Return the next candidate, in turn, that has an offer for the whole gang; None when there is none.

    A gang that includes machines of an earlier, complete one keeps its candidate.
    """
    if state.request.mixed or any(lease.protected for _slot, lease in leased_slots(state)):
        return None
    tiers = sorted({choice.tier for choice in state.choices})
    for tier in [item for item in tiers if item > state.tier] + [item for item in tiers if item < state.tier]:
        empty = tuple(MachineSlot(slot.index) for slot in state.slots)
        trial = dataclasses.replace(state, tier=tier, slots=empty, deletions=())
        if available_choices(trial, now):
            return tier
    return None


def find_other_hardware(state: PoolState) -> str:
    """Return which machine of a complete pool lists other hardware than its order: a restart may find no GPU free."""
    for slot, lease in leased_slots(state):
        if not (lease.protected and lease.instance):
            continue
        ordered = ordered_hardware(state, slot)
        for machine in lease.instance.machines:
            problems = sold_problems(ordered, Hardware.of_record(machine.record))
            if problems:
                kept = "it is kept, because it was complete before: remove_nodes deletes it"
                return f"{lease.name} {problems[0]} ({kept})"
    return ""


def find_other_size(state: PoolState) -> str:
    """Return which cluster of an earlier call has another number of machines than is wanted: it cannot be changed."""
    wanted = state.request.machines_per_order
    for _slot, lease in leased_slots(state):
        members = lease.instance.members if lease.protected and lease.instance else ()
        if members and len(members) != wanted and lease.instance and lease.instance.state == "running":
            kept = "it is kept, because it was complete before: remove_nodes deletes it"
            return (
                f"{lease.name} has {len(members)} machines, {wanted} are wanted, and a cluster cannot change ({kept})"
            )
    return ""


def leased_slots(state: PoolState) -> t.Iterator[tuple[MachineSlot, SlotLease]]:
    """Yield the slots that hold a lease, with it."""
    for slot in state.slots:
        if slot.lease:
            yield slot, slot.lease


def _due_deletions(state: PoolState, now: float) -> t.Iterator[DeleteInstance]:
    return (DeleteInstance(item) for item in state.deletions if item.is_open and item.retry_at <= now)


def _awaited_providers(state: PoolState, now: float) -> set[str]:
    deleted = {item.instance.provider for item in state.deletions if item.acknowledged_at is not None}
    return deleted | {
        lease.provider
        for slot, lease in leased_slots(state)
        if slot.phase == "booting" or (slot.phase == "unsettled" and (not slot.throttled or slot.until <= now))
    }


def _due_listings(state: PoolState, now: float) -> t.Iterator[ListAccount]:
    return (
        ListAccount(name)
        for name in sorted(_awaited_providers(state, now))
        if state.next_listing_at.get(name, 0.0) <= now
    )


def _due_probes(state: PoolState, now: float) -> t.Iterator[ProbeMachine]:
    for slot, lease in leased_slots(state):
        if slot.phase != "booting" or lease.probe_at > now or lease.instance is None or not state.request.gate:
            continue
        for machine in lease.instance.machines:
            if machine.state == "running" and machine.ssh and machine.id not in lease.passed_members:
                yield ProbeMachine(slot.index, lease.token, machine, ordered_hardware(state, slot))


def ordered_hardware(state: PoolState, slot: MachineSlot) -> Hardware:
    """Return what a slot's machine was ordered with; of an order of an earlier call, what its candidates ask for."""
    if slot.lease is not None and slot.lease.ordered is not None:
        return slot.lease.ordered
    provider = slot.lease.provider if slot.lease else None
    wanted = {
        Hardware(item.gpu_model, item.gpu_count, item.gpu_memory_gib_min, item.memory_gib_min)
        for item in state.request.candidates
        if item.provider == provider
    }
    return wanted.pop() if len(wanted) == 1 else Hardware()


def _due_orders(state: PoolState, now: float) -> t.Iterator[PlaceOrder]:
    choices = available_choices(state, now)
    next_create = dict(state.next_order_at)
    used = dict(state.order_counts)
    budget = PriceBudget.of(state)
    # One that is on its way at a paced API holds the others back.
    flying = {slot.choice.offer.provider for slot in state.slots if slot.phase == "creating" and slot.choice}
    for slot in state.slots:
        if slot.phase != "wanted":
            continue
        for choice in choices:
            provider, stock = choice.offer.provider, choice.offer.stock
            pace = state.traits[provider].create_interval_s
            if next_create.get(provider, 0.0) > now or (pace and provider in flying):
                continue
            if (stock is not None and used.get(choice.key, 0) >= stock) or not budget.allows(choice):
                continue
            used[choice.key] = used.get(choice.key, 0) + 1
            budget = budget.spend(choice)
            if pace:
                flying.add(provider)
            yield PlaceOrder(slot.index, choice)
            break


def _is_sold_out(state: PoolState, choice: Choice) -> bool:
    return choice.offer.stock is not None and state.order_counts.get(choice.key, 0) >= choice.offer.stock


def _bad_host_key(choice: Choice) -> str:
    return f"{choice.offer.provider}:{choice.offer.host}" if choice.offer.host else ""


def _may_get_an_offer(state: PoolState, now: float) -> bool:
    """Return whether waiting or the next candidate may still bring an offer."""
    if any(slot.phase == "creating" for slot in state.slots) or next_candidate(state, now) is not None:
        return True
    if is_blocked_by_deletions(state):
        return True
    return now < state.started_at + state.request.capacity_wait_s and any(
        until < float("inf") for until in state.closed_until.values()
    )


def describe_shown(lease: SlotLease) -> str:
    """Return how the provider lists a machine that is awaited, for a message; empty where that tells nothing."""
    instance = lease.instance
    if instance is None:
        return ", not listed"
    if instance.state == "running":
        is_reachable = all(item.ssh for item in instance.machines)
        return "" if is_reachable else f", listed as {instance.detail or instance.state} without an address"
    return f", listed as {instance.detail or instance.state}"


def _describe_missing(state: PoolState) -> str:
    words = []
    for slot in state.slots:
        if slot.phase != "ready":
            name = slot.lease.name if slot.lease else f"machine {slot.index}"
            detail = "; ".join(slot.lease.problems) if slot.lease and slot.lease.problems else slot.phase
            detail += describe_shown(slot.lease) if slot.lease else ""
            blindness = state.explain_blindness(slot.lease.provider) if slot.lease else ""
            words.append(f"{name} ({detail}{blindness})")
    return ", ".join(words)


def _explain_no_offer(state: PoolState) -> str:
    if not state.choices:
        return "no candidate has an offer that fits"
    budget = PriceBudget.of(state)
    if not any(budget.allows(choice) for choice in state.choices):
        cheapest = min(choice.offer.price_usd_per_hour for choice in state.choices)
        count = budget.open_slots
        total = f", {count} of them {cheapest * count:.2f}" if count > 1 else ""
        price = f"the cheapest costs {cheapest:.2f} USD per hour{total}"
        return f"no offer fits the price caps{_explain_billed(state)} ({price})"
    return f"every offer was refused{_last_problem(state)}"


def _explain_billed(state: PoolState) -> str:
    """Return beside what an offer would have to fit the caps."""
    undeleted = ", ".join(item.instance.name for item in state.deletions)
    if undeleted:
        return f" beside {undeleted}, which cannot be deleted"
    billed = [(name, price) for name, price in list_billed(state) if price]
    total = sum(price or 0.0 for _name, price in billed)
    return f" beside {', '.join(name for name, _price in billed)} at {total:.2f} USD per hour" if billed else ""


def _last_problem(state: PoolState) -> str:
    return f" (last: {state.last_problem})" if state.last_problem else ""


def _wake_times(state: PoolState, now: float) -> t.Iterator[float]:
    yield state.request.timeout_at
    yield from (item.retry_at for item in state.deletions if item.is_open)
    yield from (
        state.next_listing_at.get(name, now)
        for name in _awaited_providers(state, now)
        if f"list:{name}" not in state.in_flight
    )
    for slot, lease in leased_slots(state):
        if slot.phase == "booting" and lease.instance and lease.probe_at > now:
            yield lease.probe_at
        if lease.ask_at is not None and lease.ask_at > now:
            yield lease.ask_at
        if slot.throttled and slot.until > now:
            yield slot.until
    if any(slot.phase == "wanted" for slot in state.slots):
        later = [*state.next_order_at.values(), *state.closed_until.values()]
        yield from (moment for moment in later if now < moment < float("inf"))
