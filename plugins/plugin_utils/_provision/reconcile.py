# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The loop that carries out what a planner decides: start what is due, wait for the first answer, apply it.

Only this thread changes the state and writes the ledger; calls to providers and machines run in the background.
"""

from __future__ import annotations

import concurrent.futures
import typing as t

from .api import Scheduler
from .create_state import Finish, WaitUntil


class Effects[State, Action, Event](t.Protocol):
    """A planner with the calls that carry out its actions."""

    def decide(self, state: State, now: float) -> tuple[Action, ...] | WaitUntil | Finish:
        """Return what to start now, or until when to wait, or the end."""

    def start(self, state: State, action: Action) -> tuple[State, t.Callable[[], Event] | None]:
        """Return the state with ``action`` in flight and the call to make; None when it may not be made."""

    def apply(self, state: State, event: Event) -> State:
        """Return the state after ``event``, its ledger lines written."""

    def tick(self, state: State, now: float) -> State:
        """Return the state after time alone has passed."""


def reconcile[State, Action, Event](
    effects: Effects[State, Action, Event], state: State, scheduler: Scheduler
) -> tuple[State, Finish]:
    """Return the last state and the end that the planner came to."""
    # Kept in the order of their start, so that the same answers always give the same ledger.
    pending: dict[concurrent.futures.Future[Event], None] = {}
    while True:
        for work in [item for item in pending if item.done()]:
            del pending[work]
            state = effects.apply(state, work.result())
        state = effects.tick(state, scheduler.now())
        decision = effects.decide(state, scheduler.now())
        if isinstance(decision, Finish):
            return state, decision
        if isinstance(decision, WaitUntil):
            scheduler.wait(pending, decision.until)
            continue
        for action in decision:
            state, call = effects.start(state, action)
            if call is not None:
                pending[scheduler.submit(call)] = None
