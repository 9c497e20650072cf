# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The second witness: a machine of a complete gang is replaced once its provider does not know its id either.

A listing may be whole, fresh and of the right account, and empty all the same. Its provider is asked for the machine's
own id, which is looked up elsewhere, before another one is ordered and this one, with a run on it, is deleted.
"""

from __future__ import annotations

import dataclasses
import typing as t

from ...module_utils._model.lease import Instance
from .bill.known_bill import format_price
from .create_state import MachineRead, MachineSlot, PoolState, ReadMachine, SlotLease

LOOK_AGAIN_S = 10.0


def ask_for(state: PoolState, slot: MachineSlot, lease: SlotLease, now: float) -> PoolState:
    """Return the state in which a slot's provider is asked for the id of its machine."""
    if lease.ask_at is not None:
        return state
    return state.with_slot(dataclasses.replace(slot, lease=dataclasses.replace(lease, ask_at=now)))


def due_reads(state: PoolState, now: float) -> t.Iterator[ReadMachine]:
    """Yield the machines that are to be asked for now."""
    for slot in state.slots:
        lease = slot.lease
        if lease and lease.id is not None and lease.ask_at is not None and lease.ask_at <= now:
            resource: t.Literal["cluster", "instance"] = "cluster" if state.request.is_cluster else "instance"
            yield ReadMachine(
                slot.index, Instance(lease.provider, lease.id, lease.name, lease.token, "unknown", resource)
            )


def judge_read(state: PoolState, slot: MachineSlot, lease: SlotLease, event: MachineRead) -> PoolState | None:
    """Return the state after an answer that leaves the machine its slot, None where it proves that it is gone."""
    if event.exists is False:
        return None
    if event.exists:
        price = format_price(lease.price)
        failure = (
            f"nothing is ordered in place of {lease.name}: {lease.provider} does not list it and knows its id "
            f"({lease.id}), so it may run and bill {price}. Run this again when it is listed; "
            "remove_nodes deletes it"
        )
        return dataclasses.replace(state, failure=state.failure or failure)
    problem = f"asked for by its id: {event.problem}"
    lease = dataclasses.replace(lease, ask_at=event.at + LOOK_AGAIN_S, problems=(problem,))
    return state.with_slot(dataclasses.replace(slot, lease=lease))
