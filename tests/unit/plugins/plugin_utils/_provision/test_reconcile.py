# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The loop: what is due is started, answers are applied in the order of their start, the end is returned."""

from __future__ import annotations

from ansible_collections.muster.training.plugins.plugin_utils._provision.create_state import Finish, WaitUntil
from ansible_collections.muster.training.plugins.plugin_utils._provision.reconcile import reconcile
from ansible_collections.muster.training.tests.fakes.virtual import InlineScheduler, VirtualClock


class Counting:
    """Starts two calls, waits ten seconds, starts one that may not be made, and finishes."""

    def __init__(self) -> None:
        self.ticks = 0

    def decide(self, state: tuple[str, ...], now: float) -> tuple[str, ...] | WaitUntil | Finish:
        del now
        if not state:
            return ("b", "a")
        if len(state) == 2:
            return WaitUntil(0.0)
        return Finish("done") if "refused" in state else ("refused",)

    def start(self, state: tuple[str, ...], action: str) -> tuple[tuple[str, ...], object]:
        if action == "refused":
            return (*state, "refused"), None
        return (*state, f"start {action}"), lambda: action

    def apply(self, state: tuple[str, ...], event: str) -> tuple[str, ...]:
        return (*state, f"end {event}")

    def tick(self, state: tuple[str, ...], now: float) -> tuple[str, ...]:
        del now
        self.ticks += 1
        return state


def test_answers_are_applied_in_the_order_of_their_start() -> None:
    effects = Counting()
    state, end = reconcile(effects, (), InlineScheduler(VirtualClock()))
    assert state == ("start b", "start a", "end b", "end a", "refused") and end == Finish("done")
    assert effects.ticks == 3
