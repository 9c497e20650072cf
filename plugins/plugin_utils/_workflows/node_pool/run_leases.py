# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Bind the leases of rented machines to a run: its rules are in the ledger from its start, and delete its machines.

``bind_leases`` records in the ledger which run has which lease, when the lease is to end (``release``,
``max_cost_usd``) and where on the machines the run is stored. A reaper can then do what the controller would do: with
the run record, or, when no controller follows the run, by asking the machines.
"""

from __future__ import annotations

import dataclasses
import typing as t

from ....module_utils._model.errors import InputError, MusterError, RefusedError
from ....module_utils._model.job import Job
from ....module_utils._model.lease import parse_instance_name
from ....module_utils._model.ledger import Lease, LedgerEvent, higher_price, make_event
from ....module_utils._model.node_report import NodeReport
from ....module_utils._secrets.scrubber import scrub_value
from ..._provision.api import AccountApi, Scheduler, ThreadScheduler
from ..._provision.bill.due_rules import RunView, find_due_leases
from ..._provision.delete import delete_leases
from ..._provision.delete_state import DeleteRequest
from ..._provision.ledger.ledger_session import LedgerSession, SendReplica
from ..._provision.ledger.ledger_store import LEDGER, Appender, read_ledger
from ..shared.open_ledger import open_ledger
from ..shared.request import RunRequest
from ..shared.state_dir import StateHome
from . import ledger_replica
from .accounts import Externals, ModuleResult, open_accounts, parse_providers

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


def list_run_hosts(
    job: Job, run_id: str, hosts: t.Sequence[t.Any], reports: t.Mapping[str, NodeReport]
) -> list[RunHost]:
    """Return where a run is stored on its hosts; ``reports`` are the nodes' by name.

    Under mpirun the end on the first host is the run's end; the other hosts only serve it.
    """
    return [
        RunHost(
            host.name, host.node, f"{reports[host.name].state_dir}/runs/{run_id}", job.launcher != "mpi" or not index
        )
        for index, host in enumerate(hosts)
    ]


@dataclasses.dataclass(frozen=True, slots=True)
class RunLeases:
    """The leases of one run: from :func:`bind_leases`, or :func:`find_run_leases` for a run that began before.

    ``stamp`` tells one state of the ledger from another: when it was written (nanoseconds), and its size.
    """

    home: StateHome
    run_id: str
    leases: tuple[Lease, ...]
    others: tuple[Lease, ...] = ()
    stamp: tuple[int, int] = (0, 0)

    def over(self, now: float) -> str:
        """Return why the run has to end now (its cost, the deadline of a lease), empty while it may continue.

        It makes no call, so that it may be asked often. ``now`` is in Unix seconds.
        """
        reasons = find_due_leases((*self.leases, *self.others), {self.run_id: RunView("running")}, now)
        keys = {(lease.token, lease.resource) for lease in self.leases}
        return next((reason for key, reason in reasons.items() if key in keys), "")

    def price_of(self, node: t.Mapping[str, t.Any], listed: float | None) -> float | None:
        """Return what a machine counts for, by its node record: the higher one of its listed price and its lease's.

        A lease of several machines has one price, so that what is listed counts.
        """
        token = _read_token(node)
        leases = [item for item in self.leases if item.token == token and item.resource == "instance"]
        return higher_price(listed, *(item.price_usd_per_hour for item in leases))

    def due(self, outcome: str, now: float) -> list[Lease]:
        """Return the leases that end when the run ends with ``outcome``, by the present ledger."""
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
    ) -> ModuleResult:
        """Delete what is due after the run has ended with ``outcome``; nothing is due twice.

        Leases whose token is in ``keep`` are left alone. Returns nothing when nothing is due, else ``{released [names],
        not_proved_gone [...]}`` with ``failed`` and ``msg`` when something may still bill. Never raises for a provider
        or a ledger that fails: the run has ended nevertheless, and a reaper or the teardown playbook deletes the rest.
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
            msg = f"{names} could not be deleted: {error}. Run the reap playbook"
            return {"released": [], "not_proved_gone": [], "failed": True, "msg": msg}

    def _end(
        self,
        outcome: str,
        providers: t.Any,
        report: ReportLine,
        timeout_s: float,
        externals: Externals,
        scheduler: Scheduler,
        keep: frozenset[str],
    ) -> ModuleResult:
        runs = {self.run_id: RunView("ended", outcome)}
        if not self._due(read_ledger(self.home.folder).leases.values(), runs, scheduler.now(), keep):
            return {}
        accounts = open_accounts(parse_providers(providers, "muster_providers"), externals)
        with _WaitingWriter(self.home, timeout_s, scheduler, for_deletion=True) as writer:
            session = LedgerSession(read_ledger(self.home.folder).events, writer)
            reasons = self._due(session.leases.values(), runs, scheduler.now(), keep)
            for key, reason in reasons.items():
                report(f"deleting {session.leases[key].name}: {reason}")
            # Other accounts than those of the run are not listed: that is left to teardown.
            used = {lease.provider for key, lease in session.leases.items() if key in reasons}
            apis: dict[str, AccountApi] = {name: account for name, account in accounts.items() if name in used}
            request = DeleteRequest(self.home.folder.name, scheduler.now() + timeout_s)
            proof = delete_leases(
                request, lambda lease: (lease.token, lease.resource) in reasons, apis, session, scheduler, report
            )
            names = {lease.token: lease.name for lease in session.leases.values()}
        result: ModuleResult = {
            "released": sorted(names[item.token] for item in proof.leases),
            "not_proved_gone": list(proof.billing),
        }
        if proof.billing:
            remaining = "; ".join(
                f"{item.get('name') or item['provider']}: {item['problem']}" for item in proof.billing
            )
            result |= {"failed": True, "msg": f"not every machine of run {self.run_id} is deleted: {remaining}"}
        return t.cast(ModuleResult, scrub_value(result))

    def _due(
        self,
        leases: t.Collection[Lease],
        runs: t.Mapping[str, RunView],
        now: float,
        keep: frozenset[str] = frozenset(),
    ) -> dict[tuple[str, str], str]:
        keys = {
            (lease.token, lease.resource) for lease in leases if lease.run_id == self.run_id and lease.token not in keep
        }
        return {key: reason for key, reason in find_due_leases(leases, runs, now).items() if key in keys}


def bind_leases(
    home: StateHome,
    job: Job,
    run_id: str,
    hosts: t.Sequence[RunHost],
    *,
    sender: SendReplica | None = None,
    scheduler: Scheduler | None = None,
    cluster: ModuleResult | None = None,
) -> RunLeases | None:
    """Record in the ledger that a run begins or continues on rented machines; None when the ledger has none of them.

    :param cluster: the object that runs it on Kubernetes, where the machines themselves store nothing of the run.
    :raises InputError: ``release`` or ``max_cost_usd`` for machines that this ledger does not know.
    :raises RefusedError: a machine is being deleted, or another process holds the ledger for more than a minute.
    """
    if scheduler is None:
        with ThreadScheduler(1) as real:
            return bind_leases(home, job, run_id, hosts, sender=sender, scheduler=real, cluster=cluster)
    bound = _match_leases(read_ledger(home.folder).leases.values(), hosts)
    _check_leases(job, hosts, bound)
    if not bound:
        return None
    changes = {
        lease.token: _binding_event(
            lease, job, run_id, {"cluster": cluster} if cluster else _run_place(its_hosts), scheduler.now()
        )
        for lease, its_hosts in bound
    }
    if any(_is_change(lease, changes[lease.token]) for lease, _hosts in bound):
        with _WaitingWriter(home, 60.0, scheduler) as writer:
            session = LedgerSession(read_ledger(home.folder).events, writer, sender)
            for lease, _hosts in bound:
                if _is_change(lease, changes[lease.token]):
                    session.record(changes[lease.token])
            session.update_replica()
            if session.problem or (session.replica_problem and (job.release != "never" or job.max_cost_usd)):
                raise RefusedError(
                    session.problem or session.replica_problem,
                    "Without it only this controller could delete the machines",
                )
    return find_run_leases(home, run_id)


def find_run_leases(home: StateHome, run_id: str) -> RunLeases | None:
    """Return the leases of a run by the ledger alone; None when none is open."""
    if not (home.folder / LEDGER).exists():
        return None
    stamp = _read_stamp(home)
    leases = read_ledger(home.folder).leases.values()
    of_run = tuple(lease for lease in leases if lease.run_id == run_id)
    open_leases = tuple(lease for lease in of_run if lease.open)
    closed = tuple(lease for lease in of_run if not lease.open)
    return RunLeases(home, run_id, open_leases, closed, stamp) if open_leases else None


def refresh_leases(known: RunLeases) -> RunLeases:
    """Return the leases of a run by the present ledger: while it runs, prices rise and deadlines are put off.

    It is read only when it was written since; what cannot be read now, or has no open lease any more, changes nothing.
    """
    try:
        if _read_stamp(known.home) == known.stamp:
            return known
        return find_run_leases(known.home, known.run_id) or known
    except (OSError, MusterError):
        return known


def _read_stamp(home: StateHome) -> tuple[int, int]:
    found = (home.folder / LEDGER).stat()
    return found.st_mtime_ns, found.st_size


def _match_leases(leases: t.Collection[Lease], hosts: t.Sequence[RunHost]) -> list[tuple[Lease, list[RunHost]]]:
    """Return the leases that the hosts of a run belong to, each with its hosts."""
    bound: dict[str, tuple[Lease, list[RunHost]]] = {}
    for host in hosts:
        token = _read_token(host.node)
        for lease in leases:
            fits = lease.token == token and lease.provider == host.node.get("provider")
            if fits and lease.open and lease.machine:
                bound.setdefault(lease.token, (lease, []))[1].append(host)
    return list(bound.values())


def _read_token(node: t.Mapping[str, t.Any]) -> str | None:
    """Return the token of the lease that a node record is of."""
    owner = node.get("owner") or {}
    parts = parse_instance_name(node.get("name"))
    return owner.get("token") or (parts.token if parts else None)


def _check_leases(job: Job, hosts: t.Sequence[RunHost], bound: t.Sequence[tuple[Lease, list[RunHost]]]) -> None:
    recorded = {host.host for _lease, its_hosts in bound for host in its_hosts}
    unknown = [item.host for item in hosts if item.node.get("ownership") == "rented" and item.host not in recorded]
    option = _find_rule(job)
    if option and unknown:
        problem = f"{unknown[0]} is rented, but not in the ledger of this cluster"
        raise InputError(option, problem, "Rent it with the rent playbook, or leave the option out")
    for lease, _hosts in bound:
        if lease.state not in _HOLDING:
            raise RefusedError(f"{lease.name} is being deleted ({lease.state})", "Rent the pool again first")


def _find_rule(job: Job) -> str:
    """Return the option of a job by which its run ends leases, empty without any."""
    return "job.release" if job.release != "never" else "job.max_cost_usd" if job.max_cost_usd else ""


def list_unbound(leases: RunLeases | None, hosts: t.Sequence[RunHost]) -> list[str]:
    """Return the hosts of a run that have no lease of it."""
    tokens = {lease.token for lease in leases.leases} if leases else set()
    return [item.host for item in hosts if _read_token(item.node) not in tokens]


def describe_void_rule(job: Job, names: t.Collection[str]) -> str:
    """Return that a rule on money does not hold for machines without a lease, empty where there is none of either."""
    option = _find_rule(job)
    shown = ", ".join(sorted(names)[:8]) + (", …" if len(names) > 8 else "")
    what = "counts no cost of" if option == "job.max_cost_usd" else "ends nothing of"
    return f"{option} {what} {shown}: the ledger of this cluster has no open lease for that" if option and names else ""


def reassign_lease(home: StateHome, lease: Lease, run_id: str, *, scheduler: Scheduler | None = None) -> None:
    """Record that another run has a lease now, without a rule of its own until its follower records one.

    :raises RefusedError: another process holds the ledger for more than a minute.
    """
    if scheduler is None:
        with ThreadScheduler(1) as real:
            return reassign_lease(home, lease, run_id, scheduler=real)
    with _WaitingWriter(home, 60.0, scheduler) as writer:
        session = LedgerSession(read_ledger(home.folder).events, writer)
        present = session.leases[lease.token, lease.resource]
        if present.run_id == lease.run_id:
            session.record(make_event(present, present.state, scheduler.now(), run_id=run_id))
    return None


def _run_place(mine: t.Sequence[RunHost]) -> ModuleResult:
    nodes = [{"id": item.node.get("id"), "run_dir": item.run_dir, "decides": item.decides} for item in mine]
    return {"nodes": nodes}


def _binding_event(lease: Lease, job: Job, run_id: str, place: ModuleResult, now: float) -> LedgerEvent:
    # The pool's own rule, set when it was created for no particular run, holds unless the job has one.
    keeps_rules = lease.run_id in (None, run_id)
    return make_event(
        lease,
        lease.state,
        now,
        run_id=run_id,
        release=(lease.release if keeps_rules else None) if job.release == "never" else job.release,
        max_cost_usd=job.max_cost_usd or (lease.max_cost_usd if keeps_rules else None),
        evidence={"run_place": place},
    )


def _is_change(lease: Lease, event: LedgerEvent) -> bool:
    place = (event.evidence or {}).get("run_place")
    before = (lease.run_id, lease.release, lease.max_cost_usd, lease.run_place)
    return before != (event.run_id, event.release, event.max_cost_usd, place)


class _WaitingWriter:
    """The ledger's only writer, awaited for up to ``patience_s``."""

    def __init__(self, home: StateHome, patience_s: float, scheduler: Scheduler, *, for_deletion: bool = False) -> None:
        self._writer = open_ledger(home, for_deletion=for_deletion)
        self._until = scheduler.now() + patience_s
        self._scheduler = scheduler

    def __enter__(self) -> Appender:
        while True:
            try:
                return self._writer.__enter__()
            except RefusedError:
                if self._scheduler.now() >= self._until:
                    raise
                self._scheduler.wait((), self._scheduler.now() + _INTERVAL_S)

    def __exit__(self, *_failure: object) -> None:
        self._writer.__exit__(None, None, None)


def open_replica(request: RunRequest, home: StateHome, variable: t.Callable[[str], t.Any]) -> SendReplica | None:
    """Return what copies the ledger to the reaper's machine, None where the variables name none."""
    host = variable("muster_reaper_host")
    if not host:
        return None
    state = str(variable("muster_reaper_state") or ledger_replica.STATE)
    return ledger_replica.replica_sender(request.connect([str(host)])[0], home.folder.name, state)
