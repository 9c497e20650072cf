# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A run in pods on rented machines: its rules are in the ledger once its pods have nodes, and end its machines.

Which machines a run in a cluster uses is the scheduler's choice, so the follower tells each node that it sees. A node
is rented when the ledger has an open lease under its name. A machine that another run uses is not deleted.
"""

from __future__ import annotations

import concurrent.futures
import time
import typing as t

from .....module_utils._model.errors import MusterError
from .....module_utils._model.job import Job
from .....module_utils._model.ledger import Lease
from .....module_utils._model.run_record import BackendRef, RunRecord
from ...._kube.api.client import Client
from ...._kube.jobs.spec import RUN_LABEL, label_value
from ...._kube.nodes import drain
from ...._provision.ledger.ledger_store import LEDGER, read_ledger
from ...node_pool.accounts import Externals
from ...node_pool.lease_renewal import LEASE_S, LeaseRenewal, select_rented
from ...node_pool.run_leases import (
    RunHost,
    RunLeases,
    bind_leases,
    describe_void_rule,
    find_run_leases,
    open_replica,
    reassign_lease,
    refresh_leases,
)
from ...shared.request import Dict, Result, RunRequest
from ...shared.state_dir import StateHome
from ..load import load_recorded_job

if t.TYPE_CHECKING:
    from ...._provision.api import Scheduler

# The run's own pods have ended: what else is on the node gets this long.
_DRAIN_S = 60.0
_INTERVAL_S = 1.0
_RETRY_S = 10.0


def find_lease(name: str, hostvars: t.Mapping[str, t.Any], leases: t.Iterable[Lease]) -> Lease | None:
    """Return the lease of a node by its name, or by what the inventory says of the host of this name."""
    # A name that is not a host has no variables: hostvars would raise only when they are used.
    values = hostvars[name] if name in hostvars else {}  # noqa: SIM401
    node = values.get("muster_node") or {}
    token = (node.get("owner") or {}).get("token")
    for lease in leases:
        if name == lease.name or lease.token == token or (node.get("id") in lease.ids and node.get("id")):
            return lease
    return None


def find_leases(home: StateHome, hostvars: t.Mapping[str, t.Any], names: t.Iterable[str]) -> dict[str, Lease]:
    """Return the open leases of those nodes that are rented."""
    if not (home.folder / LEDGER).exists():
        return {}
    leases = [item for item in read_ledger(home.folder).leases.values() if item.open and item.machine]
    found = {name: find_lease(name, hostvars, leases) for name in names}
    return {name: lease for name, lease in found.items() if lease is not None}


def find_prices(leases: t.Mapping[str, Lease]) -> dict[str, float | None]:
    """Return dollars an hour of each rented node, None where its lease tells none: one of several machines has one."""
    return {name: item.price_usd_per_hour if item.resource == "instance" else None for name, item in leases.items()}


class ClusterLeaseGuard:
    """The leases of the rented machines of one followed run."""

    def __init__(
        self,
        request: RunRequest,
        home: StateHome,
        job: Job,
        run_id: str,
        client: Client,
        *,
        externals: Externals | None = None,
        scheduler: Scheduler | None = None,
    ) -> None:
        self._request, self._home, self._job, self._run_id, self._client = request, home, job, run_id, client
        self._externals, self._scheduler = externals, scheduler
        self._now = scheduler.now if scheduler else time.time
        self._run_leases: RunLeases | None = None
        self._renewals: list[LeaseRenewal] = []
        self._noted: set[str] = set()
        self._prices: dict[str, float | None] = {}
        self.tokens: dict[str, str] = {}
        self._next = self._retry = 0.0
        self._said = ""

    def bind_nodes(self, nodes: t.Collection[str], ref: BackendRef) -> None:
        """Note in the ledger that pods of the run are on these nodes; those that were noted before cost nothing.

        The run has been submitted, so what cannot be written is reported, and tried again.

        :param ref: the record's ``backend_ref``, by which a reaper can ask the cluster for the run.
        """
        new = {name for name in nodes if name not in self._noted}
        if not new or time.monotonic() < self._retry:
            return
        try:
            self._note(sorted(new), ref)
        except MusterError as error:
            self._retry = time.monotonic() + _RETRY_S
            if str(error) != self._said:
                self._said = str(error)
                what = f"run {self._run_id} (its release and cost limit)"
                self._request.progress.say(f"warning: {what} could not be written to the ledger, retrying: {error}")
            return
        self._noted |= new

    def prices(self, nodes: t.Iterable[str]) -> dict[str, float | None]:
        """Return dollars per hour of each node, None where no lease tells one."""
        return {name: self._prices.get(name) for name in nodes}

    def stop_reason(self) -> str:
        """Return why the run has to end now (its cost, the deadline of a lease), empty while it may continue."""
        now = self._now()
        if now < self._next:
            return ""
        self._next = now + _INTERVAL_S
        for renewal in self._renewals:
            renewal.tick()
        if self._run_leases is None:
            return ""
        known, self._run_leases = self._run_leases, refresh_leases(self._run_leases)
        if self._run_leases is not known:
            by_token = {lease.token: lease for lease in self._run_leases.leases}
            mine = {name: by_token[token] for name, token in self.tokens.items() if token in by_token}
            self._prices |= find_prices(mine)
        return self._run_leases.over(now)

    def delete_due(self, result: Result, outcome: str) -> Result:
        """Delete the machines that are due after the run's end; return its result with what came of that.

        Its nodes leave the cluster first. One that another run uses, or whose use is unknown,
        stays: ``kept`` says why, by name.
        """
        run_leases = find_run_leases(self._home, self._run_id)
        due = run_leases.due(outcome, self._now()) if run_leases else ()
        if run_leases is None or not due:
            return result
        kept = self._leave(due)
        providers = self._variable("muster_providers")
        found = run_leases.end(
            outcome,
            providers,
            self._request.progress.say,
            externals=self._externals,
            scheduler=self._scheduler,
            keep=frozenset(lease.token for lease in due if lease.name in kept),
        )
        unsure = [f"{name} was not deleted: {why[1]}" for name, why in kept.items() if why[0] == "unsure"]
        told = [str(item["msg"]) for item in (result, found) if item.get("failed")] + unsure
        held: Dict = {"kept": {name: why[1] for name, why in kept.items()}} if kept else {}
        return {**result, **found, **held, **({"failed": True, "msg": "; ".join(told)} if told else {})}

    def _note(self, names: list[str], ref: BackendRef) -> None:
        mine = find_leases(self._home, self._request.hostvars, names)
        void = describe_void_rule(self._job, {*names} - {*mine})
        if void:
            self._request.progress.say(f"warning: {void}")
        if not mine:
            return
        places = [
            RunHost(name, {"name": lease.name, "provider": lease.provider, "owner": {"token": lease.token}}, "")
            for name, lease in mine.items()
        ]
        cluster = {key: value for key, value in ref.to_dict().items() if key != "context"}
        more: Dict = {} if self._scheduler is None else {"scheduler": self._scheduler}
        self._run_leases = bind_leases(
            self._home,
            self._job,
            self._run_id,
            places,
            sender=open_replica(self._request, self._home, self._variable),
            cluster=cluster,
            **more,
        )
        self.tokens |= {name: item.token for name, item in mine.items()}
        self._prices |= find_prices(mine)
        self._renew_from_now_on([name for name in mine if name in self._request.hostvars])

    def _renew_from_now_on(self, hosts: t.Sequence[str]) -> None:
        """Renew the leases of machines that are reached over SSH, at every turn of the follower."""
        if hosts:
            lease_s = int(self._variable("muster_lease_s") or LEASE_S)
            remotes = select_rented(self._request.connect(hosts), self._request.hostvars)
            self._renewals.append(LeaseRenewal(remotes, self._request.progress.say, lease_s))

    def _variable(self, name: str) -> t.Any:
        """Return a variable of the first of the play's hosts that has it, None where none has."""
        for host in self._request.hosts:
            value = self._request.hostvars[host].get(name) if host in self._request.hostvars else None
            if value:
                return value
        return None

    def _leave(self, leases: t.Sequence[Lease]) -> dict[str, tuple[str, str]]:
        """Take the nodes of leases out of the cluster; return which stay: (``used`` or ``unsure``, why), by name."""
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(self._leave_one, leases))
        return {lease.name: answer for lease, answer in zip(leases, answers, strict=True) if answer}

    def _leave_one(self, lease: Lease) -> tuple[str, str] | None:
        tell = self._request.progress.say
        try:
            drain.set_cordon(self._client, lease.name, True)
            other = self._other_run(lease.name)
            if other:
                drain.set_cordon(self._client, lease.name, False)
                reassign_lease(self._home, lease, other, scheduler=self._scheduler)
                tell(f"{lease.name} was not deleted: run {other} uses it")
                return "used", f"run {other} uses it"
        except MusterError as error:
            return "unsure", f"could not check whether another run uses it ({error})"
        try:
            left = drain.remove_node(self._client, lease.name, _DRAIN_S, tell)
            if left.forced:
                tell(f"{lease.name}: pods did not end in time and were force-deleted: {', '.join(left.forced)}")
        except MusterError as error:
            # No run is on it: it ends whatever its cluster says.
            tell(f"warning: {lease.name} could not be removed from the cluster: {error}")
        return None

    def _other_run(self, node: str) -> str:
        """Return another run with a pod on a node that has not ended, empty when there is none."""
        own = label_value(self._run_id)
        for pod in drain.filter_evictable(self._client.list("v1/Pod", None, fields=f"spec.nodeName={node}").items):
            run = (pod["metadata"].get("labels") or {}).get(RUN_LABEL)
            if run and run != own:
                return str(run)
        return ""


def delete_after_end(
    request: RunRequest, home: StateHome, record: RunRecord, connect: t.Callable[[], Client], result: Dict, outcome: str
) -> Result:
    """Return the result of a run that has ended, or is to end, after deleting the machines that are due.

    :param outcome: how it ended.
    """
    run_leases = find_run_leases(home, record.run_id)
    if run_leases is None or not run_leases.due(outcome, time.time()):
        return result
    guard = ClusterLeaseGuard(request, home, load_recorded_job(record), run_leases.run_id, connect())
    return guard.delete_due(result, outcome)
