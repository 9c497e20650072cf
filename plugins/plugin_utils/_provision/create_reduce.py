# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How an event changes a pool: a pure function from state and event to state.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import dataclasses
import typing as t

from ...module_utils._model.lease import Created, Refused, Rental, Unsettled
from .create_plan import PROBE_INTERVAL_S, available_choices, failure_reason, next_candidate
from .create_state import (
    AccountListed,
    CreateEvent,
    DeletionAnswered,
    MachineProbed,
    MachineSlot,
    OrderAnswered,
    OrderSent,
    PoolState,
    QueuedDeletion,
    SlotLease,
)

CAPACITY_RETRY_S = 30.0
THROTTLE_S = 15.0
THROTTLE_CAP_S = 120.0
DELETE_RETRY_S = 10.0
DELETE_ATTEMPTS = 5
_FOREVER = float("inf")


def reduce(state: PoolState, event: CreateEvent) -> PoolState:
    """Return the state after ``event``, with the consequences for the whole gang drawn."""
    if isinstance(event, OrderSent):
        return _apply_order(state, event)
    if isinstance(event, OrderAnswered):
        state = _apply_answer(_finish_action(state, f"create:{event.slot}"), event)
    elif isinstance(event, AccountListed):
        state = _apply_listing(_finish_action(state, f"list:{event.provider}"), event)
    elif isinstance(event, MachineProbed):
        state = _apply_probe(_finish_action(state, f"probe:{event.token}:{event.member}"), event)
    else:
        rental = event.discard.rental
        state = _apply_deletion(_finish_action(state, f"delete:{rental.provider}:{rental.id}"), event)
    return advance(state, event.at)


def advance(state: PoolState, now: float) -> PoolState:
    """Return the state after the rules for the whole gang: boot limits, the next candidate, giving up."""
    for slot in state.slots:
        held = slot.held
        if slot.phase == "booting" and held and now - held.since > state.traits[held.provider].boot_limit_s:
            state = replace_machine(state, slot, f"not usable {now - held.since:.0f} s after it was ordered")
    wanted = any(slot.phase == "wanted" for slot in state.slots)
    flying = any(slot.phase == "creating" for slot in state.slots)
    if wanted and not flying and not available_choices(state, now):
        tier = next_candidate(state, now)
        if tier is not None:
            state = _switch_candidate(state, tier)
    return dataclasses.replace(state, failure=failure_reason(state, now))


def replace_machine(state: PoolState, slot: MachineSlot, reason: str) -> PoolState:
    """Give up the machine in a slot: delete it, avoid its host for the rest of this run, order another one."""
    rental = slot.held.rental if slot.held else None
    if rental and rental.host:
        state = dataclasses.replace(state, bad_hosts=state.bad_hosts | {f"{rental.provider}:{rental.host}"})
    return dataclasses.replace(_release_slot(state, slot, reason), rerolls=state.rerolls + 1)


def _log(state: PoolState, line: str) -> PoolState:
    return dataclasses.replace(state, history=(*state.history, line))


def _finish_action(state: PoolState, key: str) -> PoolState:
    return dataclasses.replace(state, busy=state.busy - {key})


def _set_slot(state: PoolState, slot: MachineSlot) -> PoolState:
    slots = tuple(slot if item.index == slot.index else item for item in state.slots)
    return dataclasses.replace(state, slots=slots)


def _apply_order(state: PoolState, event: OrderSent) -> PoolState:
    offer = event.choice.offer
    held = SlotLease(event.token, event.name, offer.provider, event.at, offer.price_usd_per_hour, region=offer.region)
    used = {**state.used, event.choice.key: state.used.get(event.choice.key, 0) + 1}
    pace = state.traits[offer.provider].create_interval_s
    paced = {**state.next_create, offer.provider: event.at + pace} if pace else state.next_create
    state = dataclasses.replace(state, used=used, next_create=paced)
    return _set_slot(
        state, dataclasses.replace(state.slots[event.slot], phase="creating", held=held, choice=event.choice)
    )


def _apply_answer(state: PoolState, event: OrderAnswered) -> PoolState:
    slot = state.slots[event.slot]
    held, answer = slot.held, event.answer
    if held is None:
        return state
    if isinstance(answer, Created):
        held = dataclasses.replace(held, id=answer.id, since=event.at)
        state = _set_slot(state, dataclasses.replace(slot, phase="booting", held=held))
        if answer.usable:
            return _log(state, f"{held.name}: {held.provider} made {answer.id}")
        return replace_machine(state, state.slots[slot.index], f"made with an error: {answer.reason}")
    if isinstance(answer, Unsettled):
        until = event.at + state.traits[held.provider].settle_s
        state = _log(state, f"{held.name}: no usable answer from {held.provider} ({answer.reason}); looking for it")
        return _set_slot(state, dataclasses.replace(slot, phase="unsettled", until=until))
    return _apply_refusal(state, slot, held, event.at, answer)


def _apply_refusal(state: PoolState, slot: MachineSlot, held: SlotLease, now: float, answer: Refused) -> PoolState:
    if slot.choice is None:
        return state
    key = slot.choice.key
    used = {**state.used, key: state.used.get(key, 1) - 1}
    state = dataclasses.replace(state, used=used)
    if answer.why == "throttled":
        wish = answer.retry_after_s if answer.retry_after_s is not None else THROTTLE_S
        later = now + min(max(wish, 1.0), THROTTLE_CAP_S)
        state = dataclasses.replace(state, next_create={**state.next_create, held.provider: later})
        # A 429 says that nothing was made: the one refusal after which the same order goes out again.
        return _set_slot(state, MachineSlot(slot.index, not_before=later))
    state = _log(state, f"{held.name}: {held.provider} refused {slot.choice.offer.product}: {answer.reason}")
    state = _set_slot(state, MachineSlot(slot.index))
    if answer.why in ("quota", "credentials"):
        closed = {item.key: _FOREVER for item in state.choices if item.offer.provider == held.provider}
    else:
        closed = {key: now + CAPACITY_RETRY_S if answer.why == "capacity" else _FOREVER}
    return dataclasses.replace(state, closed={**state.closed, **closed})


def _apply_listing(state: PoolState, event: AccountListed) -> PoolState:
    interval = state.traits[event.provider].poll_interval_s
    state = dataclasses.replace(state, next_list={**state.next_list, event.provider: event.at + interval})
    if event.problem:
        return state
    for slot in state.slots:
        held = slot.held
        if held is None or held.provider != event.provider or slot.phase in ("wanted", "creating"):
            continue
        # Members that outlive their cluster carry its token, too; they are no cluster.
        resource = "cluster" if state.request.whole else "instance"
        cluster = state.request.cluster
        ours = [item for item in event.rentals if item.carries(cluster, held.token) or item.id == held.id]
        found = [item for item in ours if item.resource == resource]
        state = (
            _update_listed_slot(state, slot, held, found, event)
            if found
            else _update_missing_slot(state, slot, held, event)
        )
    for item in event.rentals:
        if item.token in state.watched and item.carries(state.request.cluster, item.token):
            state = queue_deletion(state, item, "came to be after it had been given up")
    return state


def _update_listed_slot(
    state: PoolState, slot: MachineSlot, held: SlotLease, found: list[Rental], event: AccountListed
) -> PoolState:
    chosen = next((item for item in found if item.id == held.id), found[0])
    for extra in found:
        if extra.id != chosen.id:
            state = queue_deletion(state, extra, "is a second machine of one order")
    if held.id is None:
        state = _log(state, f"{held.name}: found as {chosen.id}")
    price = chosen.price_usd_per_hour if chosen.price_usd_per_hour is not None else held.price
    held = dataclasses.replace(held, id=chosen.id, seen_at=event.at, rental=chosen, price=price)
    phase = "booting" if slot.phase == "unsettled" else slot.phase
    slot = dataclasses.replace(slot, phase=phase, held=held)
    state = _set_slot(state, slot)
    if chosen.doomed:
        return replace_machine(state, slot, f"{held.provider} says {chosen.detail or chosen.state}")
    if chosen.host and f"{held.provider}:{chosen.host}" in state.bad_hosts:
        return replace_machine(state, slot, f"is on host {chosen.host}, which gave a bad machine before")
    cap = state.request.max_price_usd_per_hour
    machines = state.request.count if state.request.whole else 1
    if cap is not None and price is not None and price / machines > cap * 1.001:
        return replace_machine(state, slot, f"costs {price:.3f} USD per hour, more than the cap")
    if slot.phase == "booting" and not state.request.gate and _all_machines_run(state, chosen):
        state = _set_slot(state, dataclasses.replace(slot, phase="ready"))
    return state


def _all_machines_run(state: PoolState, rental: Rental) -> bool:
    wanted = state.request.count if state.request.whole else 1
    return sum(item.state == "running" and item.ssh is not None for item in rental.machines) >= wanted


def _update_missing_slot(state: PoolState, slot: MachineSlot, held: SlotLease, event: AccountListed) -> PoolState:
    if slot.phase == "unsettled":
        if event.asked_at < slot.until:
            return state
        state = dataclasses.replace(state, watched=state.watched | {held.token})
        return _set_slot(_log(state, f"{held.name}: did not come to be"), MachineSlot(slot.index))
    # A listing may miss what exists: only a lasting absence counts, and the id is deleted all the same.
    last = max(held.since, held.seen_at or 0.0)
    if event.asked_at - last <= state.traits[held.provider].list_lag_s:
        return state
    return replace_machine(state, slot, f"is gone from the listing of {held.provider}")


def _apply_probe(state: PoolState, event: MachineProbed) -> PoolState:
    slot = state.slots[event.slot]
    held, report = slot.held, event.report
    if held is None or held.token != event.token or slot.phase != "booting":
        return state
    if report.state == "bad":
        return replace_machine(state, slot, "; ".join(report.problems))
    if report.state == "ready":
        return _mark_passed(state, slot, held, event.member)
    answered = dict(held.answered)
    if report.answered:
        answered.setdefault(event.member, event.at)
    held = dataclasses.replace(held, answered=answered, problems=report.problems, probe_at=event.at + PROBE_INTERVAL_S)
    slot = dataclasses.replace(slot, held=held)
    state = _set_slot(state, slot)
    since = answered.get(event.member)
    if since is not None and event.at - since > state.request.patience_s:
        return replace_machine(state, slot, "; ".join(report.problems))
    return state


def _mark_passed(state: PoolState, slot: MachineSlot, held: SlotLease, member: str) -> PoolState:
    passed = held.passed | {member}
    wanted = state.request.count if state.request.whole else 1
    machines = held.rental.machines if held.rental else ()
    complete = sum(item.id in passed for item in machines) >= wanted
    held = dataclasses.replace(held, passed=passed, problems=())
    return _set_slot(state, dataclasses.replace(slot, phase="ready" if complete else "booting", held=held))


def _apply_deletion(state: PoolState, event: DeletionAnswered) -> PoolState:
    rest = tuple(item for item in state.discards if item.rental.id != event.discard.rental.id)
    if event.problem:
        again = dataclasses.replace(
            event.discard, retry_at=event.at + DELETE_RETRY_S, attempts=event.discard.attempts + 1
        )
        if again.attempts < DELETE_ATTEMPTS:
            rest = (*rest, again)
        else:
            state = _log(state, f"{again.rental.name}: cannot be deleted ({event.problem})")
    return dataclasses.replace(state, discards=rest)


def queue_deletion(state: PoolState, rental: Rental, reason: str) -> PoolState:
    """Queue one listed thing for deletion, once."""
    if any(item.rental.id == rental.id and item.rental.provider == rental.provider for item in state.discards):
        return state
    state = _log(state, f"{rental.name}: {reason}")
    return dataclasses.replace(state, discards=(*state.discards, QueuedDeletion(rental, reason)))


def _release_slot(state: PoolState, slot: MachineSlot, reason: str) -> PoolState:
    held = slot.held
    if held is None:
        return state
    state = _set_slot(state, MachineSlot(slot.index))
    state = dataclasses.replace(state, watched=state.watched | {held.token})
    rental = held.rental or (
        Rental(held.provider, held.id, held.name, held.token, "unknown") if held.id is not None else None
    )
    if rental is None:
        return _log(state, f"{held.name}: {reason}")
    return queue_deletion(state, rental, reason)


def _switch_candidate(state: PoolState, tier: int) -> PoolState:
    for slot in state.slots:
        if slot.held is not None:
            state = _release_slot(state, slot, "belongs to a candidate that cannot complete the gang")
    return _log(dataclasses.replace(state, tier=tier), f"trying candidate {tier + 1} for the whole gang")


def held_machines(state: PoolState) -> t.Iterator[tuple[SlotLease, Rental]]:
    """Yield what the ready slots hold."""
    for slot in state.slots:
        if slot.held and slot.held.rental:
            yield slot.held, slot.held.rental
