# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The values of a pool that is being created."""

from __future__ import annotations

from ansible_collections.muster.training.plugins.module_utils._model.offer import Candidate
from ansible_collections.muster.training.plugins.plugin_utils._provision.create_state import (
    MachineSlot,
    PoolRequest,
    PoolState,
)


def request(unit: str = "machine") -> PoolRequest:
    return PoolRequest("lab", "h100", 3, (Candidate(provider="runpod", unit=unit),), 0.0)


def test_a_cluster_is_one_order_of_all_machines() -> None:
    single, whole = request(), request("cluster")
    assert (single.slot_count, single.machines_per_order) == (3, 1)
    assert (whole.slot_count, whole.machines_per_order) == (1, 3)
    assert single.label == "lab/h100"


def test_a_slot_replaces_the_one_of_its_index() -> None:
    state = PoolState(request(), tuple(MachineSlot(index) for index in range(3)), {})
    state = state.with_slot(MachineSlot(1, "ready"))
    assert [slot.phase for slot in state.slots] == ["wanted", "ready", "wanted"]
    assert state.ready_count == 1 and not state.is_ready
    for index in (0, 2):
        state = state.with_slot(MachineSlot(index, "ready"))
    assert state.is_ready


def test_abandoned_tokens_and_history_grow() -> None:
    state = PoolState(request(), (), {}).with_abandoned("a").with_abandoned("b").with_history("x").with_history("y")
    assert state.abandoned_tokens == {"a", "b"} and state.history == ("x", "y")
