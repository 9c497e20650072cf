# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Giving back nodes, keys and devices: which leases, the engine's proof, and a failure while anything of ours bills.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import dataclasses
import typing as t
from collections.abc import Mapping

from ....module_utils._model import validators
from ....module_utils._model.errors import InputError, MusterError
from ....module_utils._model.lease import TeardownProof, cluster_name, pool_name
from ....module_utils._model.ledger import Lease
from ....module_utils._node.files import write_json
from ....module_utils._secrets.scrubber import scrub_value
from ..._provision.api import AccountApi, Scheduler, ThreadScheduler
from ..._provision.delete import delete_leases, preview_deletion
from ..._provision.delete_state import DeleteRequest, DeleteState
from ..._provision.due_rules import find_due_leases
from ..._provision.ledger.ledger_session import LedgerSession
from ..._provision.ledger.ledger_store import LedgerWriter, read_ledger
from ..._provision.run_exit_ssh import SshRunReader
from ..shared.state_dir import StateHome
from . import run_states
from .accounts import open_accounts
from .present import KNOWN_HOSTS, Context, Dict, ReadOnlyLedger

PROOF = "teardown.json"
_CLUSTER = ("kubeconfig", "context")
_CLUSTER_S = 30
Scope = t.Callable[[Lease], bool]
Key = tuple[str, str]


def ensure_absent(options: Mapping[str, t.Any], context: Context) -> Dict:
    """Return the result of ``node_pool`` with state absent; failed while anything of ours is there or unproved."""
    scheduler = context.scheduler
    if scheduler is None:
        with ThreadScheduler() as real:
            return ensure_absent(options, dataclasses.replace(context, scheduler=real))
    home = StateHome(options["state_home"], cluster_name(options["cluster"]))
    found = open_accounts(options["providers"], context.externals)
    timeout_s = validators.integer(10, 86400)(options["release_timeout_s"], "release_timeout_s")
    request = DeleteRequest(options["cluster"], scheduler.now() + timeout_s, options["orphans"] == "delete")
    if context.check:
        return _preview(options, home, request, found, context, scheduler)
    if not home.folder.exists() and not found:
        return _build_result(TeardownProof(), False, [])
    with LedgerWriter(home.folder) as writer:
        text = read_ledger(home.folder)
        session = LedgerSession(text.events, writer)
        scope, reasons = _select_leases(
            options, home, session, _due_reasons(options, home, session, found, context, scheduler)
        )
        proof = delete_leases(request, scope, found, session, scheduler)
        lines = len(session.events) - len(text.events)
    proof = dataclasses.replace(proof, hygiene=tuple(options.get("hygiene") or ()))
    whole = options.get("pool") is None and options.get("nodes") is None and not options["due_only"]
    if whole or proof.leases:
        write_json(home.folder / PROOF, scrub_value(proof.to_dict()))
    result = _build_result(proof, lines > 0, list(text.warnings), session.problem)
    return t.cast(Dict, scrub_value({**result, "reasons": reasons}))


def _due_reasons(
    options: Mapping[str, t.Any],
    home: StateHome,
    session: LedgerSession,
    found: Mapping[str, AccountApi],
    context: Context,
    scheduler: Scheduler,
) -> dict[Key, str]:
    """Return why leases are due, when only those are meant; machines are asked about runs that nobody follows."""
    if not options["due_only"]:
        return {}
    look = context.read_run_end or SshRunReader(home.folder / KNOWN_HOSTS, options.get("ssh_private_key_file"))
    runs = run_states.read_run_states(
        home.folder, session.leases.values(), found, look, scheduler, _run_reader(options, context)
    )
    return find_due_leases(session.leases.values(), runs, scheduler.now())


def _run_reader(options: Mapping[str, t.Any], context: Context) -> run_states.ReadClusterRun | None:
    """Return what asks the cluster about runs in pods, None where no cluster is given."""
    if not options.get("kubeconfig"):
        return None
    # A cluster that cannot be asked says nothing of its runs: their machines are due by their other rules only.
    try:
        from ..shared.kube_connection import open_client
        from .run_status_kubernetes import read_run_end

        client = open_client({"patience_s": _CLUSTER_S, **{key: options.get(key) for key in _CLUSTER}}, context.base)
    except (MusterError, ImportError) as error:
        context.report(f"warning: the cluster is not asked about its runs: {error}")
        return None
    return lambda place: read_run_end(client, place)


def _select_leases(
    options: Mapping[str, t.Any], home: StateHome, session: LedgerSession, reasons: Mapping[Key, str]
) -> tuple[Scope, list[Dict]]:
    """Return which leases are meant, and for those that are due, why."""
    leases = session.leases
    pool = pool_name(options["pool"]) if options.get("pool") is not None else None
    nodes = options.get("nodes")
    names = _find_tokens(nodes or [], leases.values())

    def scope(lease: Lease) -> bool:
        if options["due_only"] and (lease.token, lease.resource) not in reasons:
            return False
        # An empty list of nodes is a list: a play whose hosts came to nothing must not end everything.
        return (pool is None or lease.pool == pool) and (nodes is None or lease.token in names)

    told = [{"name": leases[key].name, "token": key[0], "reason": reason} for key, reason in reasons.items()]
    return scope, told


def _find_tokens(nodes: t.Sequence[str], leases: t.Collection[Lease]) -> set[str]:
    """Return the tokens of the leases that are named by name, id or token. A name that means nothing is refused."""
    tokens: set[str] = set()
    for index, name in enumerate(nodes):
        # A machine of a cluster has a number of its own behind the cluster's name.
        meant = {
            lease.token
            for lease in leases
            if name in (lease.token, lease.name, *lease.ids) or name.startswith(f"{lease.name}-")
        }
        if not meant:
            raise InputError(f"nodes[{index}]", "is in no lease of this cluster", "Name nodes that were rented here")
        tokens |= meant
    return tokens


def _preview(
    options: Mapping[str, t.Any],
    home: StateHome,
    request: DeleteRequest,
    found: Mapping[str, AccountApi],
    context: Context,
    scheduler: Scheduler,
) -> Dict:
    text = read_ledger(home.folder)
    session = LedgerSession(text.events, ReadOnlyLedger())
    scope, reasons = _select_leases(
        options, home, session, _due_reasons(options, home, session, found, context, scheduler)
    )
    state = preview_deletion(request, scope, found, session, scheduler)
    names = sorted(termination.lease.name for termination in state.terminations.values())
    problems = [termination.problem for termination in state.terminations.values() if termination.problem]
    result: Dict = {
        "changed": bool(names),
        "leases": [],
        "orphans": _orphan_entries(state),
        "reasons": reasons,
        "problem": "; ".join(sorted(set(problems))),
        "diff": {"before": {"leases": names}, "after": {"leases": []}},
        "ledger_warnings": list(text.warnings),
    }
    return t.cast(Dict, scrub_value(result))


def _orphan_entries(state: DeleteState) -> list[Dict]:
    items = state.orphans.values()
    return [{"provider": item.provider, "id": item.id, "name": item.name} for item in items]


def _build_result(proof: TeardownProof, changed: bool, warnings: list[str], problem: str = "") -> Dict:
    names = sorted(lease.token for lease in proof.leases)
    result: Dict = {
        **{key: value for key, value in proof.to_dict().items() if key != "schema"},
        "changed": changed,
        "clean": proof.clean and not problem,
        "ledger_warnings": warnings,
        "diff": {"before": {"leases": names}, "after": {"leases": []}},
    }
    words = _describe_remaining(proof)
    if problem:
        words.append(problem)
    if words:
        price = proof.residual_usd_per_hour
        cost = "an unknown price" if price is None else f"{price:.2f} USD per hour"
        result |= {"failed": True, "msg": f"not everything is given back (at {cost}): {'; '.join(words)}"}
    return result


def _describe_remaining(proof: TeardownProof) -> list[str]:
    words = []
    for item in proof.billing:
        ids = ", ".join(item.get("ids") or []) or "no id known"
        words.append(f"{item.get('name') or item['provider']} ({ids}): {item['problem']}")
    words += [f"orphan {item['name']} ({item['id']} at {item['provider']})" for item in proof.orphans]
    words += [f"left over: {item.resource} {item.name} ({item.id} at {item.provider})" for item in proof.leftovers]
    return words
