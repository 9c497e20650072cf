# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Delete nodes, keys and devices with proof (``node_pool`` with state absent); fails while anything of ours
may bill.
"""

from __future__ import annotations

import dataclasses
import pathlib
import typing as t

from ....module_utils._model import validators
from ....module_utils._model.errors import InputError, MusterError
from ....module_utils._model.lease import TeardownProof, parse_cluster_name, parse_pool_name
from ....module_utils._model.ledger import Lease, make_event
from ....module_utils._node.files import read_json, write_json
from ....module_utils._secrets.scrubber import scrub, scrub_value
from ..._provision.api import AccountApi, Scheduler, ThreadScheduler, read_identities
from ..._provision.bill.known_bill import KnownBill, format_price, read_bill, see
from ..._provision.bill.listing_rules import LeaseKey, index_leases
from ..._provision.delete import delete_leases, list_accounts, preview_deletion
from ..._provision.delete_state import DeleteListing, DeleteRequest
from ..._provision.ledger.ledger_session import LedgerSession
from ..._provision.ledger.ledger_store import find_unreadable, list_other_clusters, read_ledger
from ..._provision.run_exit_ssh import SshRunReader
from ..k3s_node.tokens import is_of_server
from ..shared.open_ledger import open_ledger
from ..shared.state_dir import StateHome
from . import run_states
from .absent_result import build_result
from .accounts import ModuleResult, Options, open_accounts
from .gone_runs import end_gone_runs
from .join_tokens import end_join_tokens
from .present import KNOWN_HOSTS, Context, ReadOnlyLedger

PROOF = "teardown.json"
_CLUSTER = ("kubeconfig", "context")
_CLUSTER_S = 30
# So long the accounts are waited for before what the ledger alone says is due is ended.
_LISTING_S = 60.0
_HOLDING = ("created", "adopted", "joined")
if t.TYPE_CHECKING:
    from ..._kube.api.client import Client

Scope = t.Callable[[Lease], bool]


@dataclasses.dataclass(frozen=True, slots=True)
class _Deletion:
    """One call of the module: its options, the cluster's state, and the accounts that are configured."""

    options: Options
    home: StateHome
    accounts: t.Mapping[str, AccountApi]
    context: Context
    scheduler: Scheduler


@dataclasses.dataclass(frozen=True, slots=True)
class _Selection:
    """Which leases a call means: all of ``scope``, of what is due ``bill`` says why; ``listings`` were read for it."""

    scope: Scope
    bill: KnownBill
    listings: tuple[DeleteListing, ...]

    def list_reasons(self, leases: t.Mapping[LeaseKey, Lease]) -> list[ModuleResult]:
        """Return why leases are due, as results have it."""
        return [{"name": leases[key].name, "token": key[0], "reason": reason} for key, reason in self.bill.due.items()]


def ensure_absent(options: Options, context: Context) -> ModuleResult:
    """Return the result of ``node_pool`` with state absent; failed while anything of ours exists or is unproved."""
    scheduler = context.scheduler
    if scheduler is None:
        with ThreadScheduler() as real:
            return ensure_absent(options, dataclasses.replace(context, scheduler=real))
    home = StateHome(options["state_home"], parse_cluster_name(options["cluster"]))
    accounts = open_accounts(options["providers"], context.externals)
    timeout_s = validators.integer(10, 86400)(options["release_timeout_s"], "release_timeout_s")
    is_whole = options.get("pool") is None and options.get("nodes") is None
    consent = options["orphans"] == "delete"
    until, due_only = scheduler.now() + timeout_s, options["due_only"] is True
    request = DeleteRequest(str(options["cluster"]), until, consent, is_whole, yields=due_only)
    deletion = _Deletion(options, home, accounts, context, scheduler)
    blocked = find_unreadable(home.folder)
    if blocked:
        return _describe_unread(deletion, request, blocked)
    if context.check:
        return _preview(deletion, request)
    if home.store() is None and not home.folder.exists() and not accounts:
        return {**build_result(TeardownProof(), False, ()), "reasons": [], "unwritten": []}
    with open_ledger(home, for_deletion=True) as writer:
        content = read_ledger(home.folder)
        session = LedgerSession(content.events, writer)
        selection = _select_leases(deletion, session, request)
        _record_higher(session, selection.bill, scheduler.now())
        _record_seconds(session, selection.bill, scheduler.now())
        scope, reasons = selection.scope, selection.list_reasons(session.leases)
        token_problems = end_join_tokens(session, scope, lambda: _open_cluster(options, context), scheduler.now())
        proof = delete_leases(
            request,
            scope,
            accounts,
            session,
            scheduler,
            report=lambda line: context.report(scrub(line)),
            listings=selection.listings,
        )
        added = len(session.events) - len(content.events)
    for record in end_gone_runs(home, session.leases.values()).values():
        context.report(scrub(f"run {record.run_id} is over: {record.detail}"))
    hygiene = validators.list_of(validators.dictionary)(options.get("hygiene") or [], "hygiene")
    elsewhere = () if due_only or not is_whole else _name_other_clusters(deletion, proof)
    proof = dataclasses.replace(proof, hygiene=hygiene, notes=(*proof.notes, *elsewhere))
    _report_notes(deletion, (*content.warnings, *proof.notes))
    # What the ledger elsewhere says may bill, although nothing here knows of it.
    found = (*token_problems, writer.unread, session.problem, *selection.bill.doubts)
    problems = list(dict.fromkeys(filter(None, found)))
    if (is_whole and not options["due_only"]) or proof.leases:
        problems += _write_proof(home.folder / PROOF, proof)
    result = build_result(proof, added > 0, content.warnings, problems)
    unwritten = [event.to_dict() for event in session.unwritten]
    return t.cast(ModuleResult, scrub_value({**result, "reasons": reasons, "unwritten": unwritten}))


def _name_other_clusters(deletion: _Deletion, proof: TeardownProof) -> tuple[str, ...]:
    """Return the machines of other clusters of this state home that the same accounts list."""
    listed = {name for _key, name in proof.unknown}
    return tuple(
        f"{lease.name} is of cluster {lease.cluster}, not of {deletion.home.folder.name}, and may bill "
        f"{format_price(lease.price_usd_per_hour)}: run this with muster_cluster={lease.cluster}"
        for lease in list_other_clusters(deletion.home.folder)
        if lease.name in listed
    )


def _describe_unread(deletion: _Deletion, request: DeleteRequest, blocked: str) -> ModuleResult:
    """Return the failure of a ledger that this user cannot read, with what the accounts list of its cluster."""
    listings = list_accounts(deletion.accounts, deletion.scheduler, request.timeout_at)
    session = LedgerSession((), ReadOnlyLedger())
    # Without the ledger an orphan is not one for certain: nothing is deleted.
    request = dataclasses.replace(request, delete_orphans=False)
    scheduler = deletion.scheduler
    _none, proof = preview_deletion(request, lambda _lease: False, deletion.accounts, session, scheduler, listings, {})
    result = build_result(proof, False, (), [blocked])
    names = ", ".join(f"{item['name']} ({format_price(item['usd_per_hour'])})" for item in proof.orphans) or "nothing"
    lists = f"; the accounts list of {request.cluster}: {names}" if deletion.accounts else ""
    return t.cast(ModuleResult, scrub_value({**result, "msg": f"{blocked}{lists}", "reasons": [], "unwritten": []}))


def _write_proof(path: pathlib.Path, proof: TeardownProof) -> list[str]:
    """Write the proof beside what was proved before; return why a disk did not take it."""
    record, before = proof.to_dict(), read_json(path)
    if isinstance(before, dict):
        again = {(item["token"], item["id"]) for item in record["leases"]}
        earlier = [item for item in before.get("leases", ()) if (item.get("token"), item.get("id")) not in again]
        record["leases"] = [*earlier, *record["leases"]]
        record["hygiene"] = [*before.get("hygiene", ()), *record["hygiene"]]
    try:
        write_json(path, scrub_value(record))
    except OSError as error:
        return [f"{path} cannot be written ({error.strerror})"]
    return []


def _find_due(deletion: _Deletion, session: LedgerSession, listings: t.Sequence[DeleteListing]) -> KnownBill:
    """Return what is known of the bill, with why leases are due; machines of runs without a follower are asked."""
    options, context = deletion.options, deletion.context
    identity = options.get("ssh_private_key_file")
    read_end = context.read_run_end or SshRunReader(deletion.home.folder / KNOWN_HOSTS, str(identity or "") or None)
    leases = session.leases.values()
    listed = {item.listing.provider: item.listing.instances for item in listings if not item.listing.problem}
    runs = run_states.read_run_states(deletion.home.folder, leases, listed, read_end, _run_reader(options, context))
    index = index_leases(str(options["cluster"]), leases, lambda _lease: False)
    identities = read_identities(deletion.accounts)
    sights = {item.listing.provider: see(identities[item.listing.provider], item.listing, index) for item in listings}
    return read_bill(index, sights, deletion.scheduler.now(), runs)


def _record_higher(session: LedgerSession, bill: KnownBill, now: float) -> None:
    """Keep the prices that are listed above the ledger's: cost and caps count the higher one from now on."""
    for key, price in bill.higher.items():
        lease = session.leases[key]
        if lease.state in _HOLDING:
            session.record(make_event(lease, lease.state, now, price_usd_per_hour=price))


def _record_seconds(session: LedgerSession, bill: KnownBill, now: float) -> None:
    """Keep the machines that are listed beside the one of their order: they cost from the order on."""
    for key, item in bill.seconds:
        lease = session.leases[key]
        if lease.state in _HOLDING and all(known.id != item.id or known.until for known in lease.seconds):
            price = item.price_usd_per_hour
            event = make_event(lease, "adopted", now, id=item.id, price_usd_per_hour=price, evidence={"second": True})
            session.record(event)


def _run_reader(options: Options, context: Context) -> run_states.ReadClusterRun | None:
    """Return what reads the state of runs in pods from their cluster, None where no cluster is given."""
    # Without an answer of the cluster the machines of its runs are due by their other rules only.
    try:
        from .run_status_kubernetes import read_run_end

        client = _open_cluster(options, context)
    except (MusterError, ImportError) as error:
        context.report(f"warning: the runs of the cluster cannot be read: {error}")
        return None
    return (lambda ref: read_run_end(client, ref)) if client else None


def _open_cluster(options: Options, context: Context) -> Client | None:
    """Return a client of the cluster, None where none is given."""
    if not options.get("kubeconfig"):
        return None
    # Late: most teardowns need no cluster.
    from ..shared.kube_connection import open_client

    return open_client({"patience_s": _CLUSTER_S, **{key: options.get(key) for key in _CLUSTER}}, context.base)


def _select_leases(deletion: _Deletion, session: LedgerSession, request: DeleteRequest) -> _Selection:
    """Return which leases are meant, and for those that are due, why: what is listed, at what price, decides."""
    options, leases = deletion.options, session.leases
    bill = KnownBill()
    listings: tuple[DeleteListing, ...] = ()
    if options["due_only"] or deletion.context.check:
        until = min(request.timeout_at, deletion.scheduler.now() + _LISTING_S)
        listings = tuple(list_accounts(deletion.accounts, deletion.scheduler, until))
    if options["due_only"]:
        bill = _find_due(deletion, session, listings)
    pool = parse_pool_name(options["pool"]) if options.get("pool") is not None else None
    nodes = options.get("nodes")
    names = validators.list_of(validators.argument)(nodes or [], "nodes")
    tokens = _find_tokens(names, leases.values())

    def is_selected(lease: Lease) -> bool:
        if is_of_server(lease):
            return False
        # One that was proved gone is due as soon as its machine is listed again.
        if options["due_only"] and lease.open and lease.key not in bill.due:
            return False
        # An empty list of nodes selects none: a play without hosts must not delete everything.
        return (pool is None or lease.pool == pool) and (nodes is None or lease.token in tokens)

    return _Selection(is_selected, bill, listings)


def _find_tokens(nodes: t.Sequence[str], leases: t.Collection[Lease]) -> set[str]:
    """Return the tokens of the leases that are named by name, id or token. An unknown name is refused."""
    tokens: set[str] = set()
    for index, name in enumerate(nodes):
        # The name of a cluster's machine is the cluster's name with a number behind it.
        matching = {
            lease.token
            for lease in leases
            if name in (lease.token, lease.name, *lease.ids) or name.startswith(f"{lease.name}-")
        }
        if not matching:
            raise InputError(f"nodes[{index}]", "is in no lease of this cluster", "Name nodes that were rented here")
        tokens |= matching
    return tokens


def _preview(deletion: _Deletion, request: DeleteRequest) -> ModuleResult:
    """Return what a deletion would do, and what it would leave: it fails where that would."""
    content = read_ledger(deletion.home.folder)
    session = LedgerSession(content.events, ReadOnlyLedger())
    selection = _select_leases(deletion, session, request)
    would_end, proof = preview_deletion(
        request, selection.scope, deletion.accounts, session, deletion.scheduler, selection.listings, selection.bill.due
    )
    _report_notes(deletion, (*content.warnings, *proof.notes))
    result = build_result(proof, bool(would_end), content.warnings, selection.bill.doubts, would_end)
    return t.cast(ModuleResult, scrub_value({**result, "reasons": selection.list_reasons(session.leases)}))


def _report_notes(deletion: _Deletion, notes: t.Iterable[str]) -> None:
    for line in notes:
        deletion.context.report(scrub(f"warning: {line}"))
