# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How an event changes a pool: a pure function from state and event to state.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import dataclasses
import typing as t

from ...module_utils._model.lease import Instance, OrderAccepted, OrderRefused, OrderUnsettled
from .create_plan import PROBE_INTERVAL_S, next_tier, open_choices, stuck
from .create_state import Answered, Began, Discard, Dropped, Event, Held, Listed, PoolState, Probed, Slot

CAPACITY_RETRY_S = 30.0
THROTTLE_S = 15.0
THROTTLE_CAP_S = 120.0
DELETE_RETRY_S = 10.0
DELETE_ATTEMPTS = 5
_FOREVER = float("inf")


def reduce(state: PoolState, event: Event) -> PoolState:
    """Return the state after ``event``, with the consequences for the whole gang drawn."""
    if isinstance(event, Began):
        return _began(state, event)
    if isinstance(event, Answered):
        state = _answered(_idle(state, f"create:{event.slot}"), event)
    elif isinstance(event, Listed):
        state = _listed(_idle(state, f"list:{event.provider}"), event)
    elif isinstance(event, Probed):
        state = _probed(_idle(state, f"probe:{event.token}:{event.member}"), event)
    else:
        rental = event.discard.rental
        state = _dropped(_idle(state, f"delete:{rental.provider}:{rental.id}"), event)
    return advance(state, event.at)


def advance(state: PoolState, now: float) -> PoolState:
    """Return the state after the rules for the whole gang: boot limits, the next candidate, giving up."""
    for slot in state.slots:
        held = slot.held
        if slot.phase == "booting" and held and now - held.since > state.traits[held.provider].boot_limit_s:
            state = reroll(state, slot, f"not usable {now - held.since:.0f} s after it was ordered")
    wanted = any(slot.phase == "wanted" for slot in state.slots)
    flying = any(slot.phase == "creating" for slot in state.slots)
    if wanted and not flying and not open_choices(state, now):
        tier = next_tier(state, now)
        if tier is not None:
            state = _move_on(state, tier)
    return dataclasses.replace(state, failure=stuck(state, now))


def reroll(state: PoolState, slot: Slot, reason: str) -> PoolState:
    """Give up the machine in a slot: delete it, avoid its host for the rest of this run, order another one."""
    rental = slot.held.rental if slot.held else None
    if rental and rental.host:
        state = dataclasses.replace(state, bad_hosts=state.bad_hosts | {f"{rental.provider}:{rental.host}"})
    return dataclasses.replace(_discard_held(state, slot, reason), rerolls=state.rerolls + 1)


def _note(state: PoolState, line: str) -> PoolState:
    return dataclasses.replace(state, history=(*state.history, line))


def _idle(state: PoolState, key: str) -> PoolState:
    return dataclasses.replace(state, busy=state.busy - {key})


def _put(state: PoolState, slot: Slot) -> PoolState:
    slots = tuple(slot if item.index == slot.index else item for item in state.slots)
    return dataclasses.replace(state, slots=slots)


def _began(state: PoolState, event: Began) -> PoolState:
    offer = event.choice.offer
    held = Held(event.token, event.name, offer.provider, event.at, offer.price_usd_per_hour, region=offer.region)
    used = {**state.used, event.choice.key: state.used.get(event.choice.key, 0) + 1}
    pace = state.traits[offer.provider].create_interval_s
    paced = {**state.next_create, offer.provider: event.at + pace} if pace else state.next_create
    state = dataclasses.replace(state, used=used, next_create=paced)
    return _put(state, dataclasses.replace(state.slots[event.slot], phase="creating", held=held, choice=event.choice))


def _answered(state: PoolState, event: Answered) -> PoolState:
    slot = state.slots[event.slot]
    held, answer = slot.held, event.answer
    if held is None:
        return state
    if isinstance(answer, OrderAccepted):
        held = dataclasses.replace(held, id=answer.id, since=event.at)
        state = _put(state, dataclasses.replace(slot, phase="booting", held=held))
        if answer.usable:
            return _note(state, f"{held.name}: {held.provider} made {answer.id}")
        return reroll(state, state.slots[slot.index], f"made with an error: {answer.reason}")
    if isinstance(answer, OrderUnsettled):
        until = event.at + state.traits[held.provider].settle_s
        state = _note(state, f"{held.name}: no usable answer from {held.provider} ({answer.reason}); looking for it")
        return _put(state, dataclasses.replace(slot, phase="unsettled", until=until))
    return _refused(state, slot, held, event.at, answer)


def _refused(state: PoolState, slot: Slot, held: Held, now: float, answer: OrderRefused) -> PoolState:
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
        return _put(state, Slot(slot.index, not_before=later))
    state = _note(state, f"{held.name}: {held.provider} refused {slot.choice.offer.product}: {answer.reason}")
    state = _put(state, Slot(slot.index))
    if answer.why in ("quota", "credentials"):
        closed = {item.key: _FOREVER for item in state.choices if item.offer.provider == held.provider}
    else:
        closed = {key: now + CAPACITY_RETRY_S if answer.why == "capacity" else _FOREVER}
    return dataclasses.replace(state, closed={**state.closed, **closed})


def _listed(state: PoolState, event: Listed) -> PoolState:
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
        state = _seen(state, slot, held, found, event) if found else _missing(state, slot, held, event)
    for item in event.rentals:
        if item.token in state.watched and item.carries(state.request.cluster, item.token):
            state = discard(state, item, "came to be after it had been given up")
    return state


def _seen(state: PoolState, slot: Slot, held: Held, found: list[Instance], event: Listed) -> PoolState:
    chosen = next((item for item in found if item.id == held.id), found[0])
    for extra in found:
        if extra.id != chosen.id:
            state = discard(state, extra, "is a second machine of one order")
    if held.id is None:
        state = _note(state, f"{held.name}: found as {chosen.id}")
    price = chosen.price_usd_per_hour if chosen.price_usd_per_hour is not None else held.price
    held = dataclasses.replace(held, id=chosen.id, seen_at=event.at, rental=chosen, price=price)
    phase = "booting" if slot.phase == "unsettled" else slot.phase
    slot = dataclasses.replace(slot, phase=phase, held=held)
    state = _put(state, slot)
    if chosen.doomed:
        return reroll(state, slot, f"{held.provider} says {chosen.detail or chosen.state}")
    if chosen.host and f"{held.provider}:{chosen.host}" in state.bad_hosts:
        return reroll(state, slot, f"is on host {chosen.host}, which gave a bad machine before")
    cap = state.request.max_price_usd_per_hour
    machines = state.request.count if state.request.whole else 1
    if cap is not None and price is not None and price / machines > cap * 1.001:
        return reroll(state, slot, f"costs {price:.3f} USD per hour, more than the cap")
    if slot.phase == "booting" and not state.request.gate and _all_run(state, chosen):
        state = _put(state, dataclasses.replace(slot, phase="ready"))
    return state


def _all_run(state: PoolState, rental: Instance) -> bool:
    wanted = state.request.count if state.request.whole else 1
    return sum(item.state == "running" and item.ssh is not None for item in rental.machines) >= wanted


def _missing(state: PoolState, slot: Slot, held: Held, event: Listed) -> PoolState:
    if slot.phase == "unsettled":
        if event.asked_at < slot.until:
            return state
        state = dataclasses.replace(state, watched=state.watched | {held.token})
        return _put(_note(state, f"{held.name}: did not come to be"), Slot(slot.index))
    # A listing may miss what exists: only a lasting absence counts, and the id is deleted all the same.
    last = max(held.since, held.seen_at or 0.0)
    if event.asked_at - last <= state.traits[held.provider].list_lag_s:
        return state
    return reroll(state, slot, f"is gone from the listing of {held.provider}")


def _probed(state: PoolState, event: Probed) -> PoolState:
    slot = state.slots[event.slot]
    held, report = slot.held, event.report
    if held is None or held.token != event.token or slot.phase != "booting":
        return state
    if report.state == "bad":
        return reroll(state, slot, "; ".join(report.problems))
    if report.state == "ready":
        return _passed(state, slot, held, event.member)
    answered = dict(held.answered)
    if report.answered:
        answered.setdefault(event.member, event.at)
    held = dataclasses.replace(held, answered=answered, problems=report.problems, probe_at=event.at + PROBE_INTERVAL_S)
    slot = dataclasses.replace(slot, held=held)
    state = _put(state, slot)
    since = answered.get(event.member)
    if since is not None and event.at - since > state.request.patience_s:
        return reroll(state, slot, "; ".join(report.problems))
    return state


def _passed(state: PoolState, slot: Slot, held: Held, member: str) -> PoolState:
    passed = held.passed | {member}
    wanted = state.request.count if state.request.whole else 1
    machines = held.rental.machines if held.rental else ()
    complete = sum(item.id in passed for item in machines) >= wanted
    held = dataclasses.replace(held, passed=passed, problems=())
    return _put(state, dataclasses.replace(slot, phase="ready" if complete else "booting", held=held))


def _dropped(state: PoolState, event: Dropped) -> PoolState:
    rest = tuple(item for item in state.discards if item.rental.id != event.discard.rental.id)
    if event.problem:
        again = dataclasses.replace(
            event.discard, retry_at=event.at + DELETE_RETRY_S, attempts=event.discard.attempts + 1
        )
        if again.attempts < DELETE_ATTEMPTS:
            rest = (*rest, again)
        else:
            state = _note(state, f"{again.rental.name}: cannot be deleted ({event.problem})")
    return dataclasses.replace(state, discards=rest)


def discard(state: PoolState, rental: Instance, reason: str) -> PoolState:
    """Queue one listed thing for deletion, once."""
    if any(item.rental.id == rental.id and item.rental.provider == rental.provider for item in state.discards):
        return state
    state = _note(state, f"{rental.name}: {reason}")
    return dataclasses.replace(state, discards=(*state.discards, Discard(rental, reason)))


def _discard_held(state: PoolState, slot: Slot, reason: str) -> PoolState:
    held = slot.held
    if held is None:
        return state
    state = _put(state, Slot(slot.index))
    state = dataclasses.replace(state, watched=state.watched | {held.token})
    rental = held.rental or (
        Instance(held.provider, held.id, held.name, held.token, "unknown") if held.id is not None else None
    )
    if rental is None:
        return _note(state, f"{held.name}: {reason}")
    return discard(state, rental, reason)


def _move_on(state: PoolState, tier: int) -> PoolState:
    for slot in state.slots:
        if slot.held is not None:
            state = _discard_held(state, slot, "belongs to a candidate that cannot complete the gang")
    return _note(dataclasses.replace(state, tier=tier), f"trying candidate {tier + 1} for the whole gang")


def held_machines(state: PoolState) -> t.Iterator[tuple[Held, Instance]]:
    """Yield what the ready slots hold."""
    for slot in state.slots:
        if slot.held and slot.held.rental:
            yield slot.held, slot.held.rental
