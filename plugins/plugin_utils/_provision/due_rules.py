# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which leases are due although nobody asks: a pure rule on ledger, run records and time.

It is what a reaper unit or an AWX schedule applies when the controller that rented is gone.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import dataclasses
import typing as t

from ...module_utils._model.ledger import Lease, epoch

_UNFINISHED = ("intent", "created", "adopted")
_GIVEN_UP = ("draining", "lost", "deleted", "failed", "orphan")
# Long enough for every provider's settling time, so that a running controller's own open call is left alone.
ABANDONED_S = 3600.0
# After the time until which somebody waited for a gang: long enough for it to be given back by them.
UNFINISHED_S = 1200.0


@dataclasses.dataclass(frozen=True, slots=True)
class RunView:
    """What the run record says that matters here (contract "Run record")."""

    state: str
    outcome: str | None = None


def find_due_leases(leases: t.Iterable[Lease], runs: t.Mapping[str, RunView], now: float) -> dict[tuple[str, str], str]:
    """Return the reason for every open lease that is due, by (token, resource)."""
    found = tuple(leases)
    spent = _cost_by_run(found, now)
    reasons = {(lease.token, lease.resource): _due_reason(lease, runs, spent, now) for lease in found if lease.open}
    return {key: reason for key, reason in reasons.items() if reason}


def _cost_by_run(leases: tuple[Lease, ...], now: float) -> dict[str, float]:
    """Return dollars per run; a lease whose end is proved stops costing at that time."""
    total: dict[str, float] = {}
    for lease in leases:
        if lease.run_id is not None:
            cost = lease.cost_usd(now if lease.open else lease.changed_at)
            total[lease.run_id] = total.get(lease.run_id, 0.0) + (cost or 0.0)
    return total


def _due_reason(lease: Lease, runs: t.Mapping[str, RunView], spent: t.Mapping[str, float], now: float) -> str:
    run = runs.get(lease.run_id) if lease.run_id else None
    cost = spent.get(lease.run_id or "", 0.0)
    rules = (
        (lease.deadline is not None and now >= epoch(lease.deadline), f"its deadline {lease.deadline} has passed"),
        (lease.max_cost_usd is not None and cost >= lease.max_cost_usd, f"its run has cost {cost:.2f} USD"),
        (_ends_with_run(lease, run), f"its run has ended ({run.outcome if run else None})"),
        (lease.state in _GIVEN_UP, f"it was given up ({lease.state})"),
        (_is_incomplete(lease, now), "the gang that it was ordered for was never complete"),
        (not lease.settled and now - lease.intent_at > ABANDONED_S, "its order was never answered"),
    )
    return next((reason for holds, reason in rules if holds), "")


def _is_incomplete(lease: Lease, now: float) -> bool:
    return lease.state in _UNFINISHED and lease.until is not None and now > lease.until + UNFINISHED_S


def _ends_with_run(lease: Lease, run: RunView | None) -> bool:
    if run is None or run.state != "ended":
        return False
    return lease.release == "always" or (lease.release == "success" and run.outcome == "succeeded")
