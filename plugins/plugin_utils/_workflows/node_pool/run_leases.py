# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A run on rented machines: its rules are in the ledger from its start, and its machines end by them.

``begin`` notes in the ledger which run has which lease, when the lease is to end (``release``, ``max_cost_usd``) and
where on the machines the run is kept. From then on a reaper can do what the controller would do: with the run record,
or, when nobody follows the run any more, by asking the machines.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import dataclasses
import time
import typing as t

from ....module_utils._model.errors import InputError, MusterError, RefusedError
from ....module_utils._model.job import Job
from ....module_utils._model.lease import parse_name
from ....module_utils._model.ledger import Lease, LedgerEvent, iso
from ....module_utils._secrets.scrubber import scrub_value
from ..._provision.api import AccountApi, Scheduler, ThreadScheduler
from ..._provision.delete import delete_leases
from ..._provision.delete_state import DeleteRequest
from ..._provision.due_rules import RunView, find_due_leases
from ..._provision.ledger.ledger_session import LedgerSession, SendReplica
from ..._provision.ledger.ledger_store import LEDGER, LedgerWriter, read_ledger
from ..shared.state_dir import StateHome
from ..training_job.hosts.state import Plan, Request
from . import ledger_replica
from .accounts import Externals, open_accounts, parse_providers
from .lease_renewal import LEASE_S, LeaseRenewal, select_rented

Dict = dict[str, t.Any]
ReportLine = t.Callable[[str], None]
_HOLDING = ("created", "adopted", "joined")
_INTERVAL_S = 1.0


@dataclasses.dataclass(frozen=True, slots=True)
class RunHost:
    """One host of a run: its node record, the run's folder there, and whether its end decides the run's."""

    host: str
    node: t.Mapping[str, t.Any]
    run_dir: str
    decides: bool = True


def list_run_hosts(job: Job, run_id: str, hosts: t.Sequence[t.Any], infos: t.Mapping[str, Dict]) -> list[RunHost]:
    """Return where a run is kept on its hosts (``planning.Host``, and the answers of ``info`` by name).

    Under mpirun the first host's end is the run's; the other hosts only serve it.
    """
    return [
        RunHost(
            host.name, host.node, f"{infos[host.name]['state_dir']}/runs/{run_id}", job.launcher != "mpi" or not index
        )
        for index, host in enumerate(hosts)
    ]


@dataclasses.dataclass(frozen=True, slots=True)
class RunLeases:
    """The leases of one run. Made by :func:`bind_leases`, or by :func:`find_run_leases` for a run that began before."""

    home: StateHome
    run_id: str
    leases: tuple[Lease, ...]
    others: tuple[Lease, ...] = ()

    def over(self, now: float) -> str:
        """Return why the run has to end now (its cost, the deadline of a lease), empty while it may go on.

        It only counts; ask as often as you like. ``now`` is in Unix seconds.
        """
        reasons = find_due_leases((*self.leases, *self.others), {self.run_id: RunView("running")}, now)
        ours = {(lease.token, lease.resource) for lease in self.leases}
        return next((reason for key, reason in reasons.items() if key in ours), "")

    def due(self, outcome: str, now: float) -> list[Lease]:
        """Return the leases that end when the run ends with ``outcome``, as the ledger has them by now."""
        leases = read_ledger(self.home.folder).leases.values()
        reasons = self._due(leases, {self.run_id: RunView("ended", outcome)}, now)
        return [lease for lease in leases if (lease.token, lease.resource) in reasons]

    def end(
        self,
        outcome: str,
        providers: t.Any,
        report: ReportLine,
        *,
        timeout_s: float = 900.0,
        externals: Externals | None = None,
        scheduler: Scheduler | None = None,
        keep: frozenset[str] = frozenset(),
    ) -> Dict:
        """Give back what is due now that the run has ended with ``outcome``; nothing is due twice.

        Leases whose token is in ``keep`` are left alone. Returns nothing when nothing is due, else ``{released [names],
        not_proved_gone [...]}`` with ``failed`` and ``msg`` when something may still bill. Never raises for a provider
        or a ledger that fails: the run has ended all the same, and a reaper or the teardown playbook does what is left.
        """
        if scheduler is None:
            with ThreadScheduler() as real:
                return self.end(
                    outcome, providers, report, timeout_s=timeout_s, externals=externals, scheduler=real, keep=keep
                )
        try:
            return self._end(outcome, providers, report, timeout_s, externals or Externals(), scheduler, keep)
        except MusterError as error:
            names = ", ".join(lease.name for lease in self.leases)
            words = f"{names} could not be given back: {error}; run the reap playbook"
            return {"released": [], "not_proved_gone": [], "failed": True, "msg": words}

    def _end(
        self,
        outcome: str,
        providers: t.Any,
        report: ReportLine,
        timeout_s: float,
        externals: Externals,
        scheduler: Scheduler,
        keep: frozenset[str],
    ) -> Dict:
        runs = {self.run_id: RunView("ended", outcome)}
        if not self._due(read_ledger(self.home.folder).leases.values(), runs, scheduler.now(), keep):
            return {}
        found = open_accounts(parse_providers(providers, "muster_providers"), externals)
        with _WaitingWriter(self.home, timeout_s, scheduler) as writer:
            session = LedgerSession(read_ledger(self.home.folder).events, writer)
            reasons = self._due(session.leases.values(), runs, scheduler.now(), keep)
            for key, reason in reasons.items():
                report(f"giving back {session.leases[key].name}: {reason}")
            # Other accounts than those of the run are not looked at: the run's end is not the time for it.
            used = {lease.provider for key, lease in session.leases.items() if key in reasons}
            wanted: dict[str, AccountApi] = {name: account for name, account in found.items() if name in used}
            request = DeleteRequest(self.home.folder.name, scheduler.now() + timeout_s)
            proof = delete_leases(
                request, lambda lease: (lease.token, lease.resource) in reasons, wanted, session, scheduler
            )
            names = {lease.token: lease.name for lease in session.leases.values()}
        result: Dict = {
            "released": sorted(names[item.token] for item in proof.leases),
            "not_proved_gone": list(proof.billing),
        }
        if proof.billing:
            words = "; ".join(f"{item.get('name') or item['provider']}: {item['problem']}" for item in proof.billing)
            result |= {"failed": True, "msg": f"not everything of run {self.run_id} is given back: {words}"}
        return t.cast(Dict, scrub_value(result))

    def _due(
        self,
        leases: t.Collection[Lease],
        runs: t.Mapping[str, RunView],
        now: float,
        keep: frozenset[str] = frozenset(),
    ) -> dict[tuple[str, str], str]:
        mine = [lease for lease in leases if lease.run_id == self.run_id and lease.token not in keep]
        ours = {(lease.token, lease.resource) for lease in mine}
        return {key: reason for key, reason in find_due_leases(leases, runs, now).items() if key in ours}


def bind_leases(
    home: StateHome,
    job: Job,
    run_id: str,
    places: t.Sequence[RunHost],
    *,
    sender: SendReplica | None = None,
    scheduler: Scheduler | None = None,
    cluster: Dict | None = None,
) -> RunLeases | None:
    """Note in the ledger that a run begins (or goes on) on rented machines; None when no host is rented by it.

    :param cluster: the object that runs it on Kubernetes, where the machines themselves know nothing of the run.
    :raises InputError: ``release`` or ``max_cost_usd`` for machines that this ledger does not know.
    :raises RefusedError: a machine is being given back, or another process holds the ledger for more than a minute.
    """
    if scheduler is None:
        with ThreadScheduler(1) as real:
            return bind_leases(home, job, run_id, places, sender=sender, scheduler=real, cluster=cluster)
    text = read_ledger(home.folder)
    tenants = _match_leases(text.leases.values(), places)
    _check_leases(job, places, tenants)
    if not tenants:
        return None
    changes = {
        lease.token: _binding_event(
            lease, job, run_id, {"cluster": cluster} if cluster else _run_place(mine), scheduler.now()
        )
        for lease, mine in tenants
    }
    if any(_is_change(lease, changes[lease.token]) for lease, _mine in tenants):
        with _WaitingWriter(home, 60.0, scheduler) as writer:
            session = LedgerSession(read_ledger(home.folder).events, writer, sender)
            for lease, _mine in tenants:
                if _is_change(lease, changes[lease.token]):
                    session.record(changes[lease.token])
            session.update_replica()
            if session.problem or (session.replica_problem and (job.release != "never" or job.max_cost_usd)):
                raise RefusedError(
                    session.problem or session.replica_problem, "Without it nobody else would end the machines"
                )
    return find_run_leases(home, run_id)


def find_run_leases(home: StateHome, run_id: str) -> RunLeases | None:
    """Return the leases of a run by the ledger alone; None when it has none that is open."""
    if not (home.folder / LEDGER).exists():
        return None
    leases = read_ledger(home.folder).leases.values()
    ours = tuple(lease for lease in leases if lease.run_id == run_id)
    held = tuple(lease for lease in ours if lease.open)
    return RunLeases(home, run_id, held, tuple(lease for lease in ours if not lease.open)) if held else None


def _match_leases(leases: t.Collection[Lease], places: t.Sequence[RunHost]) -> list[tuple[Lease, list[RunHost]]]:
    """Return the leases that the hosts of a run belong to, each with its hosts."""
    found: dict[str, tuple[Lease, list[RunHost]]] = {}
    for place in places:
        owner = place.node.get("owner") or {}
        parts = parse_name(place.node.get("name"))
        token = owner.get("token") or (parts.token if parts else None)
        for lease in leases:
            fits = lease.token == token and lease.provider == place.node.get("provider")
            if fits and lease.open and lease.machine:
                found.setdefault(lease.token, (lease, []))[1].append(place)
    return list(found.values())


def _check_leases(job: Job, places: t.Sequence[RunHost], tenants: t.Sequence[tuple[Lease, list[RunHost]]]) -> None:
    known = {place.host for _lease, mine in tenants for place in mine}
    strange = [item.host for item in places if item.node.get("ownership") == "rented" and item.host not in known]
    option = "job.release" if job.release != "never" else "job.max_cost_usd" if job.max_cost_usd else ""
    if option and strange:
        problem = f"{strange[0]} is rented, but not in the ledger of this cluster"
        raise InputError(option, problem, "Rent it with the rent playbook, or leave the option out")
    for lease, _mine in tenants:
        if lease.state not in _HOLDING:
            raise RefusedError(f"{lease.name} is being given back ({lease.state})", "Rent the pool again first")


def reassign_lease(home: StateHome, lease: Lease, run_id: str, *, scheduler: Scheduler | None = None) -> None:
    """Note that another run has a lease by now, with no rule of its own until its follower notes one.

    :raises RefusedError: another process holds the ledger for more than a minute.
    """
    if scheduler is None:
        with ThreadScheduler(1) as real:
            return reassign_lease(home, lease, run_id, scheduler=real)
    with _WaitingWriter(home, 60.0, scheduler) as writer:
        session = LedgerSession(read_ledger(home.folder).events, writer)
        now = session.leases[lease.token, lease.resource]
        if now.run_id == lease.run_id:
            session.record(dataclasses.replace(_lease_event(now, scheduler.now()), run_id=run_id))
    return None


def _run_place(mine: t.Sequence[RunHost]) -> Dict:
    nodes = [{"id": item.node.get("id"), "run_dir": item.run_dir, "decides": item.decides} for item in mine]
    return {"nodes": nodes}


def _binding_event(lease: Lease, job: Job, run_id: str, place: Dict, now: float) -> LedgerEvent:
    # The pool's own rule, set when it was rented for no run in particular, holds unless the job has one.
    own = lease.run_id in (None, run_id)
    return dataclasses.replace(
        _lease_event(lease, now),
        run_id=run_id,
        release=(lease.release if own else None) if job.release == "never" else job.release,
        max_cost_usd=job.max_cost_usd or (lease.max_cost_usd if own else None),
        evidence={"run_place": place},
    )


def _lease_event(lease: Lease, now: float) -> LedgerEvent:
    return LedgerEvent(
        at=iso(now),
        cluster=lease.cluster,
        token=lease.token,
        event=lease.state,
        resource=lease.resource,
        provider=lease.provider,
        account=lease.account,
        pool=lease.pool,
        name=lease.name,
        id=lease.id,
    )


def _is_change(lease: Lease, event: LedgerEvent) -> bool:
    place = (event.evidence or {}).get("run_place")
    before = (lease.run_id, lease.release, lease.max_cost_usd, lease.run_place)
    return before != (event.run_id, event.release, event.max_cost_usd, place)


class _WaitingWriter:
    """The ledger's one writer, waited for as long as ``patience_s``."""

    def __init__(self, home: StateHome, patience_s: float, scheduler: Scheduler) -> None:
        self._writer = LedgerWriter(home.folder)
        self._until = scheduler.now() + patience_s
        self._scheduler = scheduler

    def __enter__(self) -> LedgerWriter:
        while True:
            try:
                return self._writer.__enter__()
            except RefusedError:
                if self._scheduler.now() >= self._until:
                    raise
                self._scheduler.wait((), self._scheduler.now() + _INTERVAL_S)

    def __exit__(self, *_failure: object) -> None:
        self._writer.__exit__(None, None, None)


class HostsLeaseGuard:
    """A run's machines in the hands of whoever follows it: leases renewed, costs counted, given back at the end."""

    def __init__(
        self,
        tenancy: RunLeases | None,
        renewal: LeaseRenewal,
        providers: t.Any = None,
        report: ReportLine = lambda _line: None,
        now: t.Callable[[], float] = time.time,
    ) -> None:
        self._tenancy = tenancy
        self._renewal = renewal
        self._providers = providers
        self._report = report
        self._now = now
        self._next = 0.0

    def over(self) -> str:
        """Return why the run has to end now, empty while it may go on. Ask at every turn: it waits for no machine."""
        now = self._now()
        if now < self._next:
            return ""
        self._next = now + _INTERVAL_S
        self._renewal.tick()
        return self._tenancy.over(now) if self._tenancy else ""

    def end(self, result: Dict, outcome: str) -> Dict:
        """Give back what is due after the run's end; return its result with what came of that (see Tenancy.end)."""
        if self._tenancy is None:
            return result
        found = self._tenancy.end(outcome, self._providers, self._report)
        told = [str(item["msg"]) for item in (result, found) if item.get("failed")]
        return {**result, **found, **({"msg": "; ".join(told)} if told else {})}


def open_replica(request: Request, home: StateHome, variable: t.Callable[[str], t.Any]) -> SendReplica | None:
    """Return what copies the ledger to the reaper's machine, None where the variables name none."""
    account = variable("muster_reaper_host")
    if not account:
        return None
    state = str(variable("muster_reaper_state") or ledger_replica.STATE)
    return ledger_replica.replica_sender(request.connect([str(account)])[0], home.folder.name, state)


def guard_run(request: Request, home: StateHome, plan: Plan) -> HostsLeaseGuard:
    """Note in the ledger that a planned run begins, or goes on; return what its follower asks. Raises as begin."""
    variables = request.hostvars[plan.hosts[0].name]
    sender = open_replica(request, home, variables.get)
    where = list_run_hosts(plan.job, plan.run_id, plan.hosts, plan.infos)
    tenancy = bind_leases(home, plan.job, plan.run_id, where, sender=sender)
    lease_s = int(variables.get("muster_lease_s") or LEASE_S)
    renewal = LeaseRenewal(select_rented(plan.remotes, request.hostvars), request.progress.say, lease_s)
    return HostsLeaseGuard(tenancy, renewal, variables.get("muster_providers"), request.progress.say)


def delete_after_end(request: Request, home: StateHome, run_id: str, result: Dict, outcome: str) -> Dict:
    """Return the result of a run that had ended, or was cancelled, after giving back what that makes due."""
    first = next((name for name in request.hosts if name in request.hostvars), None)
    providers = request.hostvars[first].get("muster_providers") if first else None
    nobody = LeaseRenewal([], request.progress.say)
    return HostsLeaseGuard(find_run_leases(home, run_id), nobody, providers, request.progress.say).end(result, outcome)
