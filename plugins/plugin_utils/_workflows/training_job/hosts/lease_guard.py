# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The leases of a run on plain hosts: noted in the ledger, renewed while the run is followed, ended by its rules.

The code for leases is imported only when something is rented: a start on owned machines does not pay for it.
"""

from __future__ import annotations

import time
import typing as t

from ...shared.request import Result, RunRequest
from ...shared.state_dir import StateHome
from ..lease_guard import LeaseGuard, NoLeases

if t.TYPE_CHECKING:
    from ...node_pool.lease_renewal import LeaseRenewal
    from ...node_pool.run_leases import RunLeases
    from .state import HostsPlan

_LEDGER = "ledger.jsonl"
_INTERVAL_S = 1.0


class HostsLeaseGuard:
    """The rented machines of a followed run: renews their leases, counts their cost, deletes them after its end."""

    def __init__(
        self,
        leases: RunLeases | None,
        renewal: LeaseRenewal,
        providers: t.Any = None,
        tell: t.Callable[[str], None] = lambda _line: None,
        now: t.Callable[[], float] = time.time,
    ) -> None:
        self._leases = leases
        self._renewal = renewal
        self._providers = providers
        self._tell = tell
        self._now = now
        self._next = 0.0

    def stop_reason(self) -> str:
        """Return why the run has to end now, empty while it may continue. Call it at every turn: it never waits."""
        now = self._now()
        if now < self._next:
            return ""
        self._next = now + _INTERVAL_S
        self._renewal.tick()
        if self._leases is None:
            return ""
        from ...node_pool.run_leases import refresh_leases

        self._leases = refresh_leases(self._leases)
        return self._leases.over(now)

    def delete_due(self, result: Result, outcome: str) -> Result:
        """Delete the machines that are due after the run's end; return its result with what came of that."""
        if self._leases is None:
            return result
        deletion = self._leases.end(outcome, self._providers, self._tell)
        messages = [str(part["msg"]) for part in (result, deletion) if part.get("failed")]
        return {**result, **deletion, **({"msg": "; ".join(messages)} if messages else {})}

    def price_of(self, node: t.Mapping[str, t.Any], listed: float | None) -> float | None:
        """Return the higher one of the listed price and the ledger's, as the limit of the cost counts it."""
        return self._leases.price_of(node, listed) if self._leases else listed


def bind_run(request: RunRequest, home: StateHome, plan: HostsPlan) -> LeaseGuard:
    """Note in the ledger that a planned run begins or continues, when it uses leases; return the guard to follow with.

    :raises InputError: ``release`` or ``max_cost_usd`` for machines that this ledger does not know.
    :raises RefusedError: a machine is being deleted, or another process holds the ledger for more than a minute.
    """
    has_rules = plan.job.release != "never" or plan.job.max_cost_usd is not None
    is_rented = any(host.node.get("ownership") == "rented" for host in plan.hosts)
    if not has_rules and not is_rented and not _has_ledger(home):
        return NoLeases()
    from ...node_pool.lease_renewal import LEASE_S, LeaseRenewal, select_rented
    from ...node_pool.run_leases import bind_leases as bind
    from ...node_pool.run_leases import describe_void_rule, list_run_hosts, list_unbound, open_replica

    variables = request.hostvars[plan.hosts[0].name]
    sender = open_replica(request, home, variables.get)
    run_hosts = list_run_hosts(plan.job, plan.run_id, plan.hosts, plan.reports)
    leases = bind(home, plan.job, plan.run_id, run_hosts, sender=sender)
    void = describe_void_rule(plan.job, list_unbound(leases, run_hosts))
    if void:
        request.progress.say(f"warning: {void}")
    lease_s = int(variables.get("muster_lease_s") or LEASE_S)
    renewal = LeaseRenewal(select_rented(plan.remotes, request.hostvars), request.progress.say, lease_s)
    return HostsLeaseGuard(leases, renewal, variables.get("muster_providers"), request.progress.say)


def delete_after_end(request: RunRequest, home: StateHome, run_id: str, result: Result, outcome: str) -> Result:
    """Return the result of a run that had ended, or was cancelled, after deleting the machines that are due by that."""
    if not _has_ledger(home):
        return result
    from ...node_pool.lease_renewal import LeaseRenewal
    from ...node_pool.run_leases import find_run_leases

    first = next((name for name in request.hosts if name in request.hostvars), None)
    providers = request.hostvars[first].get("muster_providers") if first else None
    renewal = LeaseRenewal([], request.progress.say)
    guard = HostsLeaseGuard(find_run_leases(home, run_id), renewal, providers, request.progress.say)
    return guard.delete_due(result, outcome)


def _has_ledger(home: StateHome) -> bool:
    return (home.folder / _LEDGER).exists()
