# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The one loop that carries out what a planner decides: start what is due, wait for the first end, take it in.

Only this thread changes the state and writes the ledger; calls to providers and machines run in the background.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import typing as t

from .api import Scheduler, Work
from .create_state import Finish, WaitUntil


class Effects[S](t.Protocol):
    """A planner with its effects."""

    def decide(self, state: S, now: float) -> t.Sequence[t.Any]:
        """Return actions, or one ``Rest`` or ``End``."""

    def start(self, state: S, action: t.Any) -> tuple[S, t.Callable[[], t.Any] | None]:
        """Return the state with ``action`` on its way and the call to make; None when it may not be made."""

    def take(self, state: S, event: t.Any) -> S:
        """Return the state after ``event``, its ledger lines written."""

    def tick(self, state: S, now: float) -> S:
        """Return the state after time alone has passed."""


def reconcile[S](engine: Effects[S], state: S, stage: Scheduler) -> tuple[S, Finish]:
    """Return the last state and the end that the planner came to."""
    # Kept in the order of their start, so that the same answers always give the same ledger.
    pending: dict[Work, None] = {}
    while True:
        for work in [item for item in pending if item.done()]:
            del pending[work]
            state = engine.take(state, work.result())
        state = engine.tick(state, stage.now())
        actions = engine.decide(state, stage.now())
        first = actions[0]
        if isinstance(first, Finish):
            return state, first
        if isinstance(first, WaitUntil):
            stage.wait(pending, first.until)
            continue
        for action in actions:
            state, call = engine.start(state, action)
            if call is not None:
                pending[stage.submit(call)] = None
