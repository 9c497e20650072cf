# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Find the leases that are due without a request: a pure rule on ledger, run records and time.

It is what a reaper unit or an AWX schedule applies when the controller that created the machines has ended.
"""

from __future__ import annotations

import dataclasses
import types
import typing as t

from ....module_utils._model.ledger import Lease
from ....module_utils._model.timestamps import parse_time

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


def find_due_leases(
    leases: t.Iterable[Lease],
    runs: t.Mapping[str, RunView],
    now: float,
    offsets: t.Mapping[str, float] = types.MappingProxyType({}),
) -> dict[tuple[str, str], str]:
    """Return the reason for every open lease that is due, by (token, resource).

    :param offsets: how far the clocks of providers are ahead of ``now``: their time decides where this clock is wrong.
    """
    all_leases = tuple(leases)
    costs = sum_costs(all_leases, now, offsets)
    reasons = {
        lease.key: _due_reason(lease, runs, costs[cost_key(lease)], now + offsets.get(lease.provider, 0.0))
        for lease in all_leases
        if lease.open
    }
    return {key: reason for key, reason in reasons.items() if reason}


def cost_key(lease: Lease) -> tuple[str, str]:
    """Return what a lease's cost counts for: its run, or without one its pool."""
    return ("run", lease.run_id) if lease.run_id is not None else ("pool", lease.pool)


def sum_costs(
    leases: tuple[Lease, ...], now: float, offsets: t.Mapping[str, float] = types.MappingProxyType({})
) -> dict[tuple[str, str], float]:
    """Return dollars per run, and per pool without a run; a lease whose end is proved stops costing at that time.

    Of a pool the machines count that were ordered since the first one that is open was: one pool may follow another.
    """
    first: dict[tuple[str, str], float] = {}
    for lease in leases:
        if lease.open and lease.machine:
            first[cost_key(lease)] = min(lease.intent_at, first.get(cost_key(lease), lease.intent_at))
    total = {cost_key(lease): 0.0 for lease in leases}
    for lease in leases:
        if lease.never_made:
            continue
        if lease.run_id is not None or lease.intent_at >= first.get(cost_key(lease), float("inf")):
            until = now + offsets.get(lease.provider, 0.0) if lease.open else lease.changed_at
            total[cost_key(lease)] += lease.cost_usd(until) or 0.0
    return total


def _due_reason(lease: Lease, runs: t.Mapping[str, RunView], cost: float, now: float) -> str:
    run = runs.get(lease.run_id) if lease.run_id else None
    payer = "run" if lease.run_id else "pool"
    rules = (
        (lease.deadline is not None and now >= parse_time(lease.deadline), f"its deadline {lease.deadline} has passed"),
        (lease.max_cost_usd is not None and cost >= lease.max_cost_usd, f"its {payer} has cost {cost:.2f} USD"),
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
