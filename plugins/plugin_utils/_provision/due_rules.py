# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Find the leases that are due without a request: a pure rule on ledger, run records and time.

It is what a reaper unit or an AWX schedule applies when the controller that created the machines has ended.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import dataclasses
import typing as t

from ...module_utils._model.ledger import Lease
from ...module_utils._model.timestamps import parse_time

_UNFINISHED = ("intent", "created", "adopted")
_RELEASED = ("draining", "lost", "deleted", "failed", "orphan")
# Long enough for every provider's settling time, so that a running controller's own open call is left alone.
ABANDONED_S = 3600.0
# Added to the time until which a controller waits for a gang: long enough for that controller to delete it.
UNFINISHED_S = 1200.0


@dataclasses.dataclass(frozen=True, slots=True)
class RunView:
    """The fields of a run record on which a lease depends."""

    state: str
    outcome: str | None = None


def find_due_leases(leases: t.Iterable[Lease], runs: t.Mapping[str, RunView], now: float) -> dict[tuple[str, str], str]:
    """Return the reason for every open lease that is due, by (token, resource)."""
    all_leases = tuple(leases)
    costs = _cost_by_run(all_leases, now)
    reasons = {
        (lease.token, lease.resource): _due_reason(lease, runs, costs, now) for lease in all_leases if lease.open
    }
    return {key: reason for key, reason in reasons.items() if reason}


def _cost_by_run(leases: tuple[Lease, ...], now: float) -> dict[str, float]:
    """Return dollars per run; a lease whose end is proved stops costing at that time."""
    total: dict[str, float] = {}
    for lease in leases:
        if lease.run_id is not None:
            cost = lease.cost_usd(now if lease.open else lease.changed_at)
            total[lease.run_id] = total.get(lease.run_id, 0.0) + (cost or 0.0)
    return total


def _due_reason(lease: Lease, runs: t.Mapping[str, RunView], costs: t.Mapping[str, float], now: float) -> str:
    run = runs.get(lease.run_id) if lease.run_id else None
    cost = costs.get(lease.run_id or "", 0.0)
    rules = (
        (lease.deadline is not None and now >= parse_time(lease.deadline), f"its deadline {lease.deadline} has passed"),
        (lease.max_cost_usd is not None and cost >= lease.max_cost_usd, f"its run has cost {cost:.2f} USD"),
        (_ends_with_run(lease, run), f"its run has ended ({run.outcome if run else None})"),
        (lease.state in _RELEASED, f"it was released before ({lease.state})"),
        (_is_incomplete(lease, now), "its gang was never complete"),
        (not lease.settled and now - lease.intent_at > ABANDONED_S, "its order was never answered"),
    )
    return next((reason for holds, reason in rules if holds), "")


def _is_incomplete(lease: Lease, now: float) -> bool:
    return lease.state in _UNFINISHED and lease.until is not None and now > lease.until + UNFINISHED_S


def _ends_with_run(lease: Lease, run: RunView | None) -> bool:
    if run is None or run.state != "ended":
        return False
    return lease.release == "always" or (lease.release == "success" and run.outcome == "succeeded")
