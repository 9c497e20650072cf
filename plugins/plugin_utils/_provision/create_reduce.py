# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How an event changes the state of a pool: a pure function from state and event to state."""

from __future__ import annotations

import dataclasses

from ...module_utils._model.lease import Instance, OrderAccepted, OrderRefused, OrderUnsettled
from ...module_utils._model.ledger import higher_price
from ...module_utils._model.machine_memory import Fault, MachineNote
from ...module_utils._model.offer import Hardware, sold_problems
from .bill.known_bill import describe_second
from .bill.listing_rules import disputed_id
from .create_plan import (
    PROBE_INTERVAL_S,
    available_choices,
    describe_shown,
    failure_reason,
    next_candidate,
    ordered_hardware,
)
from .create_state import (
    AccountListed,
    CreateEvent,
    DeleteInstance,
    DeletionAnswered,
    MachineProbed,
    MachineRead,
    MachineSlot,
    OrderAnswered,
    OrderSent,
    PoolState,
    QueuedDeletion,
    SlotLease,
)
from .create_witness import ask_for, judge_read
from .delete_state import DELETE_AGAIN_S, machine_absence_gap

CAPACITY_RETRY_S = 30.0
THROTTLE_S = 15.0
THROTTLE_CAP_S = 120.0
DELETE_RETRY_S = 10.0
DELETE_ATTEMPTS = 5
_FOREVER = float("inf")


def reduce(state: PoolState, event: CreateEvent) -> PoolState:
    """Return the state after ``event``, with its consequences for the whole gang."""
    if isinstance(event, OrderSent):
        return _apply_order(state, event)
    if isinstance(event, OrderAnswered):
        state = _apply_answer(_finish_action(state, f"create:{event.slot}"), event)
    elif isinstance(event, AccountListed):
        state = _apply_listing(_finish_action(state, f"list:{event.provider}"), event)
    elif isinstance(event, MachineProbed):
        state = _apply_probe(_finish_action(state, f"probe:{event.token}:{event.member}"), event)
    elif isinstance(event, MachineRead):
        state = _apply_read(_finish_action(state, f"read:{event.token}"), event)
    else:
        instance = event.deletion.instance
        state = _apply_deletion(_finish_action(state, f"delete:{instance.provider}:{instance.id}"), event)
    return advance(state, event.at)


def advance(state: PoolState, now: float) -> PoolState:
    """Return the state after the rules for the whole gang: boot limits, the next candidate, the failure."""
    for slot in state.slots:
        lease = slot.lease
        if slot.phase != "booting" or lease is None or lease.ask_at is not None:
            continue
        if now - lease.since > state.traits[lease.provider].boot_limit_s:
            if lease.protected and lease.id is not None and lease.instance is None:
                state = ask_for(state, slot, lease, now)
                continue
            waited = (
                f"for {now - lease.since:.0f} s"
                if lease.protected
                else f"{now - lease.since:.0f} s after it was ordered"
            )
            reason = f"not usable {waited}{describe_shown(lease)}"
            blindness = state.explain_blindness(lease.provider)
            fault: Fault | None = None if blindness or lease.protected else "unusable"
            state = replace_machine(state, slot, reason + blindness, now, fault)
    has_wanted = any(slot.phase == "wanted" for slot in state.slots)
    is_ordering = any(slot.phase == "creating" for slot in state.slots)
    if has_wanted and not is_ordering and not available_choices(state, now):
        tier = next_candidate(state, now)
        if tier is not None:
            state = _switch_candidate(state, tier)
    return dataclasses.replace(state, failure=failure_reason(state, now))


def replace_machine(
    state: PoolState,
    slot: MachineSlot,
    reason: str,
    now: float,
    fault: Fault | None = None,
    gpus: tuple[str, ...] = (),
) -> PoolState:
    """Replace the machine in a slot: delete it, avoid its host for the rest of this call, order another one.

    :param fault: what later calls are to remember of the machine, None for nothing. :param gpus: UUIDs of its GPUs.
    """
    instance = slot.lease.instance if slot.lease else None
    if instance and instance.host:
        state = dataclasses.replace(state, bad_hosts=state.bad_hosts | {f"{instance.provider}:{instance.host}"})
    if instance and fault is not None:
        note = MachineNote(now, instance.provider, fault, reason, instance.host, gpus)
        state = dataclasses.replace(state, notes=(*state.notes, *([note] if note.is_known else [])))
    name = slot.lease.name if slot.lease else f"machine {slot.index}"
    state = dataclasses.replace(state, last_problem=f"{name}: {reason}")
    return dataclasses.replace(_release_slot(state, slot, reason), replacements=state.replacements + 1)


def _finish_action(state: PoolState, key: str) -> PoolState:
    return dataclasses.replace(state, in_flight=state.in_flight - {key})


def _apply_order(state: PoolState, event: OrderSent) -> PoolState:
    offer = event.choice.offer
    lease = SlotLease(
        event.token,
        event.name,
        offer.provider,
        event.at,
        offer.price_usd_per_hour,
        region=offer.region,
        ordered=offer.hardware,
    )
    counts = {**state.order_counts, event.choice.key: state.order_counts.get(event.choice.key, 0) + 1}
    pace = state.traits[offer.provider].create_interval_s
    next_order_at = {**state.next_order_at, offer.provider: event.at + pace} if pace else state.next_order_at
    state = dataclasses.replace(state, order_counts=counts, next_order_at=next_order_at)
    slot = dataclasses.replace(state.slots[event.slot], phase="creating", lease=lease, choice=event.choice)
    return state.with_slot(slot)


def _apply_answer(state: PoolState, event: OrderAnswered) -> PoolState:
    slot = state.slots[event.slot]
    lease, answer = slot.lease, event.answer
    if lease is None:
        return state
    if isinstance(answer, OrderAccepted):
        lease = dataclasses.replace(lease, id=answer.id, since=event.at)
        slot = dataclasses.replace(slot, phase="booting", lease=lease)
        state = dataclasses.replace(state.with_slot(slot), throttles={**state.throttles, lease.provider: 0})
        if answer.usable:
            return state.with_history(f"{lease.name}: {lease.provider} created {answer.id}")
        return replace_machine(state, state.slots[slot.index], f"created with an error: {answer.reason}", event.at)
    if isinstance(answer, OrderUnsettled):
        until = event.at + state.traits[lease.provider].settle_s
        problem = f"{lease.name}: no usable answer from {lease.provider} ({answer.reason})"
        state = state.with_history(f"{problem}; searching the listings for it")
        state = dataclasses.replace(state, last_problem=problem)
        return state.with_slot(dataclasses.replace(slot, phase="unsettled", until=until))
    return _apply_refusal(state, slot, lease, event.at, answer)


def _apply_refusal(
    state: PoolState, slot: MachineSlot, lease: SlotLease, now: float, answer: OrderRefused
) -> PoolState:
    if slot.choice is None:
        return state
    key = slot.choice.key
    counts = {**state.order_counts, key: state.order_counts.get(key, 1) - 1}
    state = dataclasses.replace(state, order_counts=counts)
    if answer.why == "throttled":
        return _apply_throttle(state, slot, lease, now, answer)
    refusal = f"{lease.provider} refused {slot.choice.offer.product}: {answer.reason}"
    state = dataclasses.replace(state.with_abandoned(lease.token), last_problem=refusal)
    state = state.with_history(f"{lease.name}: {refusal}")
    state = state.with_slot(MachineSlot(slot.index))
    if answer.why in ("quota", "credentials"):
        closed = {item.key: _FOREVER for item in state.choices if item.offer.provider == lease.provider}
    else:
        closed = {key: now + CAPACITY_RETRY_S if answer.why == "capacity" else _FOREVER}
    return dataclasses.replace(state, closed_until={**state.closed_until, **closed})


def _apply_throttle(
    state: PoolState, slot: MachineSlot, lease: SlotLease, now: float, answer: OrderRefused
) -> PoolState:
    """Order again later: a 429 says that nothing was created. A listing has to say so too, and the wait grows."""
    count = state.throttles.get(lease.provider, 0)
    growing = 0.0 if count == 0 else THROTTLE_S * 2.0 ** min(count - 1, 10)
    delay = max(THROTTLE_S if answer.retry_after_s is None else answer.retry_after_s, growing, 1.0)
    until = now + min(delay, THROTTLE_CAP_S)
    next_order_at = {**state.next_order_at, lease.provider: until}
    throttles = {**state.throttles, lease.provider: count + 1}
    problem = f"{lease.provider} refused orders for a while ({answer.reason})"
    state = state if count else state.with_history(f"{lease.name}: {problem}; trying again")
    state = dataclasses.replace(state, next_order_at=next_order_at, throttles=throttles, last_problem=problem)
    return state.with_slot(MachineSlot(slot.index, "unsettled", lease, slot.choice, until, throttled=True))


def _apply_listing(state: PoolState, event: AccountListed) -> PoolState:
    interval = state.traits[event.provider].poll_interval_s
    state = dataclasses.replace(state, next_listing_at={**state.next_listing_at, event.provider: event.at + interval})
    state = _note_listing(state, event)
    if event.problem:
        return state
    state = _update_deletions(state, event)
    for slot in state.slots:
        lease = slot.lease
        if lease is None or lease.provider != event.provider or slot.phase in ("wanted", "creating"):
            continue
        # Machines that outlive their cluster carry its token too, but are not a cluster.
        resource = "cluster" if state.request.is_cluster else "instance"
        cluster = state.request.cluster
        listed = [item for item in event.instances if lease.owns(item, cluster) and item.resource == resource]
        if listed:
            state = _update_listed_slot(state, slot, lease, listed, event)
        else:
            is_disputed = any(item.id == lease.id for item in event.instances)
            state = _update_missing_slot(state, slot, dataclasses.replace(lease, disputed=is_disputed), event)
    for item in event.instances:
        if item.token in state.abandoned_tokens and item.carries(state.request.cluster, item.token):
            state = _delete_late_machine(state, item)
    return state


def _note_listing(state: PoolState, event: AccountListed) -> PoolState:
    """Keep why a provider cannot be listed, and say it once: what is awaited there cannot be seen."""
    problems = {name: text for name, text in state.listing_problems.items() if name != event.provider}
    if event.problem:
        problems[event.provider] = event.problem
        if event.provider not in state.listing_problems:
            state = state.with_history(f"{event.provider} cannot be listed: {event.problem}")
    return dataclasses.replace(state, listing_problems=problems)


def _update_deletions(state: PoolState, event: AccountListed) -> PoolState:
    """Keep what is being deleted until listings have lacked it for long; what is listed for long is deleted again."""
    listed = {item.id for item in event.instances}
    gap_s = machine_absence_gap(state.traits[event.provider])
    kept = []
    for item in state.deletions:
        if item.instance.provider == event.provider and item.acknowledged_at is not None:
            if item.instance.id in listed:
                again = event.as_of - item.acknowledged_at >= DELETE_AGAIN_S
                item = dataclasses.replace(item, absent_at=None)
                item = _fail_deletion(item, event.at) if again else item
            elif item.absent_at is None:
                item = dataclasses.replace(item, absent_at=event.as_of)
            elif event.as_of - item.absent_at >= gap_s:
                continue
        kept.append(item)
    return dataclasses.replace(state, deletions=tuple(kept))


def _delete_late_machine(state: PoolState, item: Instance) -> PoolState:
    """Delete a machine for which no slot waits any more; it counts like one that was replaced."""
    queued = queue_deletion(state, item, "was created after its order was abandoned")
    return dataclasses.replace(queued, replacements=queued.replacements + (queued is not state))


def _update_listed_slot(
    state: PoolState, slot: MachineSlot, lease: SlotLease, listed: list[Instance], event: AccountListed
) -> PoolState:
    ending = {item.instance.id for item in state.deletions}
    kept = sorted(listed, key=lambda item: (item.id != lease.id, item.id in ending))
    instance = kept[0]
    state = _note_listed(state, lease, instance, listed)
    price = higher_price(lease.price, instance.price_usd_per_hour)
    phase = "booting" if slot.phase == "unsettled" else slot.phase
    lacks_members = instance.state != "running" and 0 < len(instance.members) < state.request.machines_per_order
    if lease.protected and (instance.terminal or lacks_members):
        # A host that is offline for a moment must not cost a run its machine.
        lease = dataclasses.replace(lease, id=instance.id, instance=instance, price=price, ask_at=None)
        state = state.with_slot(dataclasses.replace(slot, lease=lease))
        return _wait_for_machine(state, slot, lease, event, f"{lease.provider} reports {instance.detail}")
    lease = dataclasses.replace(
        lease, id=instance.id, missing_since=None, disputed=False, instance=instance, price=price, ask_at=None
    )
    slot = dataclasses.replace(slot, phase=phase, lease=lease, throttled=False)
    state = state.with_slot(slot)
    if instance.terminal:
        reason = f"{lease.provider} reports {instance.detail or instance.state}"
        if slot.phase == "booting" and not lease.protected:
            note = MachineNote(event.at, lease.provider, "unusable", reason, instance.host)
            state = dataclasses.replace(state, suspects=(*state.suspects, *([note] if note.is_known else [])))
        return replace_machine(state, slot, reason, event.at)
    if lease.protected:
        is_running = phase == "booting" and instance.state == "running"
        return state.with_slot(dataclasses.replace(slot, phase="ready")) if is_running else state
    if instance.host and f"{lease.provider}:{instance.host}" in state.bad_hosts:
        return replace_machine(
            state, slot, f"is on host {instance.host}, which had an unusable machine before", event.at
        )
    is_unforeseen = slot.choice is not None and slot.choice.offer.host is None
    avoided = state.memory.find_host(lease.provider, instance.host, event.at) if is_unforeseen else None
    if avoided:
        return replace_machine(state, slot, f"is on host {instance.host}, {avoided.describe()}", event.at)
    problems = _sold_otherwise(state, slot, instance)
    if problems:
        replaced = replace_machine(state, slot, "; ".join(problems), event.at, "sold_otherwise")
        return _close_offer(replaced, slot)
    if slot.phase == "booting" and not state.request.gate and _all_machines_run(state, instance):
        state = _mark_ready(state, slot)
    return state


def _note_listed(state: PoolState, lease: SlotLease, instance: Instance, listed: list[Instance]) -> PoolState:
    """Note which machine an order has led to, and queue the deletion of any other that the listing has of it."""
    for extra in listed:
        if extra.id != instance.id:
            state = queue_deletion(state, extra, describe_second(extra, lease.price), lease.price)
    return state.with_history(f"{lease.name}: found as {instance.id}") if lease.id is None else state


def _sold_otherwise(state: PoolState, slot: MachineSlot, instance: Instance) -> list[str]:
    """Return how a listing shows something else than was ordered; what it does not know yet is left to the gate."""
    ordered = ordered_hardware(state, slot)
    shown = (Hardware.of_record(item.record) for item in instance.machines)
    return next((problems for item in shown if (problems := sold_problems(ordered, item))), [])


def _close_offer(state: PoolState, slot: MachineSlot) -> PoolState:
    """Order no more of an offer that sells something else."""
    if slot.choice is None:
        return state
    return dataclasses.replace(state, closed_until={**state.closed_until, slot.choice.key: _FOREVER})


def _all_machines_run(state: PoolState, instance: Instance) -> bool:
    running = sum(item.state == "running" and item.ssh is not None for item in instance.machines)
    return running >= state.request.machines_per_order


def _update_missing_slot(state: PoolState, slot: MachineSlot, lease: SlotLease, event: AccountListed) -> PoolState:
    if slot.phase == "unsettled":
        if event.as_of < slot.until:
            return state
        state = state.with_abandoned(lease.token).with_slot(MachineSlot(slot.index))
        if slot.throttled:
            return state
        state = state.with_history(f"{lease.name}: was never created")
        return dataclasses.replace(state, replacements=state.replacements + 1)
    return _wait_for_machine(state, slot, lease, event, f"is no longer listed by {lease.provider}")


def _wait_for_machine(
    state: PoolState, slot: MachineSlot, lease: SlotLease, event: AccountListed, reason: str
) -> PoolState:
    """Replace a machine that every listing lacks for a while: one listing may miss what exists, or be odd."""
    since = event.as_of if lease.missing_since is None else lease.missing_since
    slot = dataclasses.replace(slot, lease=dataclasses.replace(lease, missing_since=since))
    state = state.with_slot(slot)
    if event.as_of - since <= state.traits[lease.provider].list_lag_s:
        return state
    if lease.disputed:
        # It may be ours and bill, and cannot be deleted: another one beside it would be paid for as well.
        shown = next(item.name for item in event.instances if item.id == lease.id)
        failure = f"nothing is ordered in place of {lease.name}: {disputed_id(str(lease.id), shown)}"
        return dataclasses.replace(state, failure=state.failure or failure)
    is_listed = any(item.id == lease.id for item in event.instances)
    if lease.protected and lease.id is not None and not is_listed:
        return ask_for(state, slot, slot.lease or lease, event.at)
    return replace_machine(state, slot, reason, event.at)


def _apply_read(state: PoolState, event: MachineRead) -> PoolState:
    slot = state.slots[event.slot]
    lease = slot.lease
    if lease is None or lease.token != event.token or lease.ask_at is None:
        return state
    kept = judge_read(state, slot, lease, event)
    reason = f"is no longer listed by {lease.provider}, which does not know its id"
    return replace_machine(state, slot, reason, event.at) if kept is None else kept


def _apply_probe(state: PoolState, event: MachineProbed) -> PoolState:
    slot = state.slots[event.slot]
    lease, report = slot.lease, event.report
    if lease is None or lease.token != event.token or slot.phase != "booting":
        return state
    gpus = report.gpus
    if avoided := state.memory.find_gpus(gpus, event.at):
        # The same machine under another id, or of an offer that does not say on which machine it is.
        replaced = replace_machine(state, slot, f"has GPUs of a machine that is {avoided.describe()}", event.at)
        return _close_offer(replaced, slot)
    if report.state == "bad":
        return replace_machine(state, slot, "; ".join(report.problems), event.at, report.fault, gpus)
    if report.state == "ready":
        return _mark_passed(state, slot, lease, event)
    first_answers = dict(lease.first_answers)
    if report.has_answered:
        first_answers.setdefault(event.member, event.at)
    lease = dataclasses.replace(
        lease, first_answers=first_answers, problems=report.problems, probe_at=event.at + PROBE_INTERVAL_S
    )
    slot = dataclasses.replace(slot, lease=lease)
    state = state.with_slot(slot)
    since = first_answers.get(event.member)
    if since is not None and event.at - since > state.request.patience_s:
        return replace_machine(state, slot, "; ".join(report.problems), event.at, "unusable", gpus)
    return state


def _mark_passed(state: PoolState, slot: MachineSlot, lease: SlotLease, event: MachineProbed) -> PoolState:
    passed, gpus = lease.passed_members | {event.member}, event.report.gpus
    host = lease.instance.host if lease.instance else None
    if state.memory.is_noted(lease.provider, host, gpus):
        note = MachineNote(event.at, lease.provider, "passed", host=host, gpus=gpus)
        state = dataclasses.replace(state, notes=(*state.notes, note))
    machines = lease.instance.machines if lease.instance else ()
    is_complete = sum(item.id in passed for item in machines) >= state.request.machines_per_order
    slot = dataclasses.replace(slot, lease=dataclasses.replace(lease, passed_members=passed, problems=()))
    return _mark_ready(state, slot) if is_complete else state.with_slot(slot)


def _mark_ready(state: PoolState, slot: MachineSlot) -> PoolState:
    """Take a slot's order as usable: what ended by itself before was not ended by what all orders have in common."""
    state = dataclasses.replace(state, notes=(*state.notes, *state.suspects), suspects=())
    return state.with_slot(dataclasses.replace(slot, phase="ready"))


def _apply_deletion(state: PoolState, event: DeletionAnswered) -> PoolState:
    answered = event.deletion
    accepted = dataclasses.replace(answered, acknowledged_at=event.at)
    after = _fail_deletion(answered, event.at) if event.problem else accepted
    if after.stuck:
        state = state.with_history(f"{answered.instance.name}: cannot be deleted ({event.problem})")
    key = DeleteInstance(answered).key
    deletions = tuple(after if DeleteInstance(item).key == key else item for item in state.deletions)
    return dataclasses.replace(state, deletions=deletions)


def _fail_deletion(deletion: QueuedDeletion, now: float) -> QueuedDeletion:
    attempts = deletion.attempts + 1
    return dataclasses.replace(
        deletion,
        acknowledged_at=None,
        attempts=attempts,
        retry_at=now + DELETE_RETRY_S,
        stuck=attempts >= DELETE_ATTEMPTS,
    )


def queue_deletion(state: PoolState, instance: Instance, reason: str, price: float | None = None) -> PoolState:
    """Queue one instance for deletion, once; it bills ``price`` where a listing does not say what."""
    if any(item.instance.id == instance.id and item.instance.provider == instance.provider for item in state.deletions):
        return state
    state = state.with_history(f"{instance.name}: {reason}")
    price = higher_price(price, instance.price_usd_per_hour)
    return dataclasses.replace(state, deletions=(*state.deletions, QueuedDeletion(instance, reason, price=price)))


def _release_slot(state: PoolState, slot: MachineSlot, reason: str) -> PoolState:
    lease = slot.lease
    if lease is None:
        return state
    state = state.with_slot(MachineSlot(slot.index)).with_abandoned(lease.token)
    if lease.disputed:
        return state.with_history(f"{lease.name}: {lease.id} is listed without its token and is not touched")
    instance = lease.instance or (
        Instance(lease.provider, lease.id, lease.name, lease.token, "unknown") if lease.id is not None else None
    )
    if instance is None:
        return state.with_history(f"{lease.name}: {reason}")
    return queue_deletion(state, instance, reason, lease.price)


def _switch_candidate(state: PoolState, tier: int) -> PoolState:
    for slot in state.slots:
        if slot.lease is not None:
            state = _release_slot(state, slot, "belongs to a candidate that cannot complete the gang")
    return dataclasses.replace(state, tier=tier).with_history(f"trying candidate {tier + 1} for the whole gang")
