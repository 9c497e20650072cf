# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Delete nodes, keys and devices with proof (``node_pool`` with state absent); fails while anything of ours may bill.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import dataclasses
import pathlib
import typing as t

from ....module_utils._model import validators
from ....module_utils._model.errors import InputError, MusterError
from ....module_utils._model.lease import Instance, TeardownProof, parse_cluster_name, parse_pool_name
from ....module_utils._model.ledger import Lease
from ....module_utils._node.files import write_json
from ....module_utils._secrets.scrubber import scrub, scrub_value
from ..._provision.api import AccountApi, Scheduler, ThreadScheduler
from ..._provision.delete import delete_leases, preview_deletion
from ..._provision.delete_state import DeleteRequest
from ..._provision.due_rules import find_due_leases
from ..._provision.ledger.ledger_session import LedgerSession
from ..._provision.ledger.ledger_store import read_ledger
from ..._provision.listing_rules import LeaseKey
from ..._provision.run_exit_ssh import SshRunReader
from ..k3s_node.tokens import is_of_server
from ..shared.open_ledger import open_ledger
from ..shared.state_dir import StateHome
from . import run_states
from .accounts import ModuleResult, Options, open_accounts
from .join_tokens import end_join_tokens
from .present import KNOWN_HOSTS, Context, ReadOnlyLedger

PROOF = "teardown.json"
_CLUSTER = ("kubeconfig", "context")
_CLUSTER_S = 30
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
    if context.check:
        return _preview(deletion, request)
    if home.store() is None and not home.folder.exists() and not accounts:
        return {**_build_result(TeardownProof(), False, ()), "reasons": [], "unwritten": []}
    with open_ledger(home, for_deletion=True) as writer:
        content = read_ledger(home.folder)
        session = LedgerSession(content.events, writer)
        scope, reasons = _select_leases(deletion, session)
        token_problems = end_join_tokens(session, scope, lambda: _open_cluster(options, context), scheduler.now())
        proof = delete_leases(
            request, scope, accounts, session, scheduler, report=lambda line: context.report(scrub(line))
        )
        added = len(session.events) - len(content.events)
    hygiene = validators.list_of(validators.dictionary)(options.get("hygiene") or [], "hygiene")
    proof = dataclasses.replace(proof, hygiene=hygiene)
    # What the ledger elsewhere says may bill, although nothing here knows of it.
    problems = list(dict.fromkeys(filter(None, (*token_problems, writer.unread, session.problem))))
    if (is_whole and not options["due_only"]) or proof.leases:
        problems += _write_proof(home.folder / PROOF, proof)
    result = _build_result(proof, added > 0, content.warnings, problems)
    unwritten = [event.to_dict() for event in session.unwritten]
    return t.cast(ModuleResult, scrub_value({**result, "reasons": reasons, "unwritten": unwritten}))


def _write_proof(path: pathlib.Path, proof: TeardownProof) -> list[str]:
    """Write the proof, which the result has too; return why a disk did not take it."""
    try:
        write_json(path, scrub_value(proof.to_dict()))
    except OSError as error:
        return [f"{path} cannot be written ({error.strerror})"]
    return []


def _due_reasons(deletion: _Deletion, session: LedgerSession) -> dict[LeaseKey, str]:
    """Return why leases are due, when only those are meant; the machines of runs without a follower are asked."""
    options, context = deletion.options, deletion.context
    if not options["due_only"]:
        return {}
    identity = options.get("ssh_private_key_file")
    read_end = context.read_run_end or SshRunReader(deletion.home.folder / KNOWN_HOSTS, str(identity or "") or None)
    leases = session.leases.values()
    runs = run_states.read_run_states(
        deletion.home.folder, leases, deletion.accounts, read_end, deletion.scheduler, _run_reader(options, context)
    )
    return find_due_leases(leases, runs, deletion.scheduler.now())


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


def _select_leases(deletion: _Deletion, session: LedgerSession) -> tuple[Scope, list[ModuleResult]]:
    """Return which leases are meant, and for those that are due, why."""
    options, leases = deletion.options, session.leases
    reasons = _due_reasons(deletion, session)
    pool = parse_pool_name(options["pool"]) if options.get("pool") is not None else None
    nodes = options.get("nodes")
    names = validators.list_of(validators.argument)(nodes or [], "nodes")
    tokens = _find_tokens(names, leases.values())

    def is_selected(lease: Lease) -> bool:
        if is_of_server(lease):
            return False
        # One that was proved gone is due as soon as its machine is listed again.
        if options["due_only"] and lease.open and lease.key not in reasons:
            return False
        # An empty list of nodes selects none: a play without hosts must not delete everything.
        return (pool is None or lease.pool == pool) and (nodes is None or lease.token in tokens)

    entries: list[ModuleResult] = [
        {"name": leases[key].name, "token": key[0], "reason": reason} for key, reason in reasons.items()
    ]
    return is_selected, entries


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
    content = read_ledger(deletion.home.folder)
    session = LedgerSession(content.events, ReadOnlyLedger())
    scope, reasons = _select_leases(deletion, session)
    state = preview_deletion(request, scope, deletion.accounts, session, deletion.scheduler)
    names = sorted(item.lease.name for item in state.terminations.values())
    problems = {item.problem for item in state.terminations.values() if item.problem}
    result: ModuleResult = {
        "changed": bool(names),
        "leases": [],
        "orphans": _preview_entries(state.orphans.values()),
        "within_lease": _preview_entries(state.within_lease.values()),
        "reasons": reasons,
        "problem": "; ".join(sorted(problems)),
        "diff": {"before": {"leases": names}, "after": {"leases": []}},
        "ledger_warnings": list(content.warnings),
    }
    return t.cast(ModuleResult, scrub_value(result))


def _preview_entries(instances: t.Iterable[Instance]) -> list[ModuleResult]:
    return [{"provider": item.provider, "id": item.id, "name": item.name} for item in instances]


def _build_result(
    proof: TeardownProof, changed: bool, warnings: t.Sequence[str], problems: t.Sequence[str] = ()
) -> ModuleResult:
    names = sorted(lease.token for lease in proof.leases)
    result: ModuleResult = {
        **{key: value for key, value in proof.to_dict().items() if key != "schema"},
        "changed": changed,
        "clean": proof.clean and not problems,
        "within_lease_usd_per_hour": _sum_prices(proof.within_lease),
        "ledger_warnings": list(warnings),
        "diff": {"before": {"leases": names}, "after": {"leases": []}},
    }
    remaining = [*proof.describe_remaining(), *problems]
    if remaining:
        price = proof.residual_usd_per_hour
        cost = "an unknown price" if price is None else f"{price:.2f} USD per hour"
        msg = f"not everything is deleted, or proved to be (it may cost {cost}): {'; '.join(remaining)}"
        result |= {"failed": True, "msg": msg}
    return result


def _sum_prices(entries: t.Iterable[t.Mapping[str, t.Any]]) -> float | None:
    prices = [item.get("usd_per_hour") for item in entries]
    return None if None in prices else round(sum(price for price in prices if price is not None), 6)
