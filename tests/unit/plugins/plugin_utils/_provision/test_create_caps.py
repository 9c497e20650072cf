# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What may be ordered, and what is billed, within the caps."""

from __future__ import annotations

import dataclasses
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.lease import Instance, ProviderTraits
from ansible_collections.muster.training.plugins.module_utils._model.offer import Candidate
from ansible_collections.muster.training.plugins.plugin_utils._provision.create_caps import (
    PriceBudget,
    find_broken_cap,
    is_blocked_by_deletions,
    machine_cap,
)
from ansible_collections.muster.training.plugins.plugin_utils._provision.create_state import (
    Choice,
    MachineSlot,
    PoolRequest,
    PoolState,
    QueuedDeletion,
    SlotLease,
)
from ansible_collections.muster.training.tests.fakes.sim_provider import h100

MACHINE = Instance("lambda", "i-1", "lab-h100-0-00000001", "00000001", "running")
CHOICE = Choice(0, h100(price=2.0))


def state(
    price: float | None = None, *, cap: float | None = None, own: float | None = None, **more: t.Any
) -> PoolState:
    request = PoolRequest(
        "lab",
        "h100",
        2,
        (Candidate(provider="lambda", max_price_usd_per_hour=own),),
        100.0,
        max_price_usd_per_hour=cap,
        max_total_usd_per_hour=more.pop("total", None),
    )
    lease = SlotLease("00000001", MACHINE.name, "lambda", 0.0, price, "i-1", instance=MACHINE)
    first = MachineSlot(0, "booting", lease, more.pop("choice", CHOICE)) if price else MachineSlot(0)
    return PoolState(request, (first, MachineSlot(1)), {"lambda": ProviderTraits()}, choices=(CHOICE,), **more)


def deletion(price: float, **more: t.Any) -> QueuedDeletion:
    return QueuedDeletion(dataclasses.replace(MACHINE, name="lab-h100-0-00000009"), "is bad", price=price, **more)


@pytest.mark.parametrize(
    ("cap", "own", "lower"), [(3.0, None, 3.0), (None, 2.5, 2.5), (3.0, 2.5, 2.5), (None, None, None)]
)
def test_the_lower_of_two_caps_holds(cap: float | None, own: float | None, lower: float | None) -> None:
    assert machine_cap(state(cap=cap, own=own).request, 0) == lower


@pytest.mark.parametrize(
    ("case", "is_broken"),
    [
        (state(2.0, cap=2.0), False),
        (state(2.001, cap=2.0), False),
        (state(2.1, cap=2.0), True),
        (state(2.1, own=2.0), True),
        (state(2.1, own=2.0, choice=None), True),
        (state(2.0, total=3.9), False),
        (state(4.0, total=3.9), True),
        (state(2.0, total=3.9, deletions=(deletion(2.0),)), True),
        (state(2.0, total=3.9, deletions=(deletion(1.0, stuck=True),)), False),
    ],
)
def test_a_cap_is_held_against_what_is_billed(case: PoolState, is_broken: bool) -> None:
    assert bool(find_broken_cap(case)) is is_broken


def test_machines_that_are_not_proved_gone_leave_less_to_spend() -> None:
    assert PriceBudget.of(state(total=4.0)).allows(CHOICE)
    assert not PriceBudget.of(state(total=4.0, deletions=(deletion(0.1),))).allows(CHOICE)


def test_an_order_waits_for_a_deletion_that_can_still_succeed() -> None:
    assert is_blocked_by_deletions(state(total=4.0, deletions=(deletion(1.0, acknowledged_at=1.0),)))
    assert not is_blocked_by_deletions(state(total=4.0, deletions=(deletion(1.0, stuck=True),)))
    assert not is_blocked_by_deletions(state(total=5.0, deletions=(deletion(1.0),)))
    assert not is_blocked_by_deletions(state(total=1.0, deletions=(deletion(1.0),)))
