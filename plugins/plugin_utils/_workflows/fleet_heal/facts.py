# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What ``fleet_heal`` knows before it decides: nodes, what their provider lists, the ledger, the run.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import dataclasses
import time
import typing as t

from ....module_utils._model.errors import InputError, RefusedError, UnreachableError
from ....module_utils._model.heal_plan import Facts, Node, Run
from ....module_utils._model.job import parse_job
from ....module_utils._model.lease import Rental, Traits
from ....module_utils._model.ledger import Lease
from ....module_utils._node import files
from ..._hosts.node_client import each
from ..._kube.api.client import Client
from ..._kube.api.errors import KubeError
from ..._kube.jobs import free_nodes
from ..._kube.jobs.spec import Object
from ..._kube.nodes import out_of_service
from ..._provision.api import ThreadScheduler
from ..._provision.delete import list_account
from ..._provision.ledger.ledger_store import read_ledger
from ..node_pool import present as node_pool_present
from ..node_pool.accounts import open_providers
from ..shared import cluster_identity, kube_connection
from ..shared.state_dir import StateHome, read_record
from ..training_job.hosts.state import Dict, Request
from ..training_job.kubernetes.lease_guard import lease_of

# Of the cluster's folder: since when a node does not answer, as far as heal has seen.
SILENT = "silent.json"
# A host that did not answer at looks further apart than this may have answered between them.
_SAME_SILENCE_S = 2 * 3600
# Whether a node answers or is Ready, for how many seconds the cluster did not hear of it, whether it is out of service,
# and what tells this silence of a Node from another one.
NodeCondition = tuple[bool, float | None, bool, str]
# What keeps jobs off a control plane; one without these takes them (K3s and single nodes are made so).
_CONTROL_PLANES = {f"node-role.kubernetes.io/{name}" for name in ("control-plane", "master")}
_HOLDING = ("created", "adopted", "joined", "lost")
_USABLE_STATES = ("creating", "running", "unknown")


@dataclasses.dataclass
class HealFacts:
    """Facts for the plan, and what carrying it out needs: leases and tokens by node, the job, the client."""

    facts: Facts
    leases: dict[str, Lease]
    job: Dict
    client: Client | None
    providers: list[Dict]
    silent: dict[str, Dict]
    told: t.Mapping[str, str]

    @property
    def tokens(self) -> dict[str, str | None]:
        """Return the tokens by node, None for what is not rented."""
        return {node.name: node.token for node in self.facts.nodes}

    def may_return(self, name: str) -> bool:
        """Return whether a node that nobody rented may come back under its name."""
        return name in self.told


def read_facts(request: Request, home: StateHome, context: node_pool_present.Context) -> HealFacts:
    """Ask everybody; nothing is changed."""
    options = request.options
    found = _find_record(home, options.get("run_id"))
    job = dict((found or {}).get("job") or {})
    on_kubernetes = (found or {}).get("backend") == "kubernetes" or bool(options.get("kubeconfig"))
    client = _open_client(request, found) if on_kubernetes else None
    if client is not None and (found or {}).get("backend") == "kubernetes" and not options.get("cluster_id"):
        # Nodes of another cluster would all seem gone, and be replaced.
        cluster_identity.insist(client, found, ended=True)
    run = _build_run(found, job, on_kubernetes, options.get("on_lost_node"))
    told = {str(name): "it was named as lost" for name in options.get("lost_nodes") or []}
    told |= {str(name): "its provider gave notice" for name in options.get("preempted_nodes") or []}
    names = list(dict.fromkeys([*([] if client else request.hosts), *(run.names if run else ())]))
    live = client.list("v1/Node").items if client else []
    clock = client.line.tally.server_time() if client else None
    states = _read_cluster_nodes(live, clock, names) if client else _contact_hosts(request, names)
    if client is not None and not options.get("cluster_id"):
        # Nodes of the same names on another cluster are somebody else's, whatever run there is or none.
        cluster_identity.insist_ledger(client, home, states)
        cluster_identity.insist_records(client, home, states.keys() & told.keys())
    # What the cluster dates is measured by its own clock, which the controller's may be minutes ahead of.
    now = time.time() if clock is None else clock
    unfit = _find_unfit(client, live, run, job) if client else {}
    names = list(dict.fromkeys([*names, *states, *told]))
    providers = list(options.get("providers") or [])
    leases, listed = _read_leases(request, home, names, providers, context)
    for name in told.keys() - {*states, *leases, *request.hosts, *(run.names if run else ())}:
        # It may be gone for good; whoever misspelt it would believe that all is well.
        request.progress.say(f"warning: {name}: {told[name]}, and no node is called so")
    names = list(dict.fromkeys([*names, *leases]))
    silent = _update_silence(home, states, now)
    known = [_build_node(name, states, leases, listed, told, silent, now) for name in names]
    nodes = tuple(dataclasses.replace(node, unfit=unfit.get(node.name, "")) for node in known)
    terms, joins = bool(options.get("rentable")), bool(options.get("joinable"))
    facts = Facts(nodes, run, client is not None, terms, joins, float(options["patience_s"]))
    return HealFacts(facts, leases, job, client, providers, silent, told)


def _find_record(home: StateHome, run_id: str | None) -> Dict | None:
    """Return the record of the run to heal: the one that was named, else the newest that did not end well."""
    if run_id:
        value = read_record(home.run_folder(str(run_id)))
        if value is None:
            raise RefusedError(f"there is no run {run_id} in {home.folder}", "List the runs with the status playbook")
        return value
    newest = home.runs()[:1]
    value = read_record(newest[0]) if newest else None
    return None if value is None or value.get("outcome") in ("succeeded", "cancelled", "failed") else value


def _build_run(found: Dict | None, job: Dict, on_kubernetes: bool, wanted: str | None) -> Run | None:
    if found is None or found.get("outcome") in ("succeeded", "cancelled"):
        return None
    restart, elastic = job.get("restart") or {}, job.get("elastic") or {}
    policy = wanted or str(restart.get("on_lost_node") or "wait")
    least = elastic.get("min")
    if least is None and not on_kubernetes and policy == "shrink":
        # The hosts of a run are chosen anew at each start: whatever is left can be a gang.
        least = 1
    names = tuple(str(name) for name in found.get("hosts") or ())
    return Run(str(found["run_id"]), int(job.get("nodes") or 1), policy, least, found["state"] == "ended", names)


def _open_client(request: Request, found: Dict | None) -> Client:
    # The patience with nodes is none with the API server.
    options = {key: value for key, value in request.options.items() if key != "patience_s"}
    context = ((found or {}).get("backend_ref") or {}).get("context")
    return kube_connection.open_client(options, request.base, request.progress.say, context=context)


def _find_unfit(client: Client, live: t.Sequence[Object], run: Run | None, job: Dict) -> dict[str, str]:
    """Return why nodes cannot take the run's gang; who may not read all pods does not know what others hold."""
    if run is None:
        return {}
    try:
        wanted = parse_job(job)
    except InputError:
        # The record of another version: all nodes that are ready count.
        return {}
    try:
        pods = client.list("v1/Pod").items
    except KubeError as error:
        if error.status != 403:
            raise
        pods = []
    return free_nodes.unfit(wanted, live, pods, run.run_id)


def _read_cluster_nodes(
    live: t.Sequence[Object], clock: float | None, used: t.Container[str]
) -> dict[str, NodeCondition]:
    """Return how each Node is, by the server's clock; control planes only where they take jobs.

    :param used: the nodes that the run is on, whatever they are.
    """
    found = {}
    for item in live:
        name, taints = str(item["metadata"]["name"]), (item.get("spec") or {}).get("taints") or ()
        keys = {taint["key"] for taint in taints if taint["effect"] != "PreferNoSchedule"}
        if name in used or not keys & _CONTROL_PLANES:
            ready, seconds = out_of_service.readiness(item, clock)
            found[name] = (ready, seconds, out_of_service.out_of_service(item), out_of_service.since(item))
    return found


def _contact_hosts(request: Request, names: t.Sequence[str]) -> dict[str, NodeCondition]:
    """Return which hosts of the inventory answer."""
    known = [name for name in names if name in request.hostvars]
    remotes = request.connect(known)
    _unused, errors = each(remotes, lambda remote: remote.call("info"))
    return {name: (not isinstance(errors.get(name), UnreachableError), None, False, "") for name in known}


def _update_silence(home: StateHome, states: t.Mapping[str, NodeCondition], now: float) -> dict[str, Dict]:
    """Return since when nodes are silent: as the cluster dates it, otherwise since they were first seen so.

    What was seen long ago, or before the node was ready once more, was another silence.
    """
    before = files.read_json(home.folder / SILENT)
    told = before if isinstance(before, dict) else {}
    found = {}
    for name, (ready, seconds, _unused, mark) in states.items():
        if ready:
            continue
        kept = value if isinstance(value := told.get(name), dict) else {}
        same = (
            bool(kept) and kept.get("mark") == mark and (mark or now - _recorded_time(kept, "seen") < _SAME_SILENCE_S)
        )
        since = min(_recorded_time(kept, "since"), now) if same else now
        found[name] = {"since": since if seconds is None else now - seconds, "seen": now, "mark": mark}
    return found


def _recorded_time(kept: Dict, key: str) -> float:
    value = kept.get(key)
    return float(value) if isinstance(value, (int, float)) else 0.0


def _build_node(
    name: str,
    states: t.Mapping[str, NodeCondition],
    leases: t.Mapping[str, Lease],
    listed: t.Mapping[str, bool | None],
    told: t.Mapping[str, str],
    silent: t.Mapping[str, Dict],
    now: float,
) -> Node:
    lease, state = leases.get(name), states.get(name)
    word = told.get(name, "")
    if not word and lease is None and state is None:
        word = "no inventory, no cluster and no open lease knows it any more"
    return Node(
        name=name,
        token=lease.token if lease else None,
        listed=listed.get(name),
        ready=state[0] if state else None,
        silent_s=now - silent[name]["since"] if name in silent else 0.0,
        told=word,
        marked=lease is not None and lease.state == "lost",
        joined=name in states,
        tainted=state is not None and state[2],
    )


def _read_leases(
    request: Request, home: StateHome, names: t.Sequence[str], providers: list[Dict], context: node_pool_present.Context
) -> tuple[dict[str, Lease], dict[str, bool | None]]:
    """Return the open lease of each node that has one, and what its account lists of it."""
    ledger = [lease for lease in read_ledger(home.folder).leases.values() if lease.machine and lease.open]
    leases = {name: lease for name in names if (lease := lease_of(name, request.hostvars, ledger)) is not None}
    known = {lease.token for lease in leases.values()}
    # A machine that vanished may have vanished from the inventory too.
    leases |= {lease.name: lease for lease in ledger if lease.token not in known and lease.state in _HOLDING}
    if not leases:
        return {}, {}
    found = open_providers(providers, context.externals)
    listed: dict[str, bool | None] = {}
    with ThreadScheduler() as real:
        scheduler = context.scheduler or real
        for provider in sorted({lease.provider for lease in leases.values()}):
            account = found.get(provider)
            answer = list_account(account, scheduler).listing if account else None
            for name, lease in leases.items():
                if lease.provider == provider:
                    usable = answer is not None and account is not None and not answer.problem
                    instances = answer.instances if answer and usable else None
                    traits = account.traits if account else Traits()
                    listed[name] = _is_usable(lease, instances, traits, scheduler.now())
            if answer is not None and answer.problem:
                request.progress.say(f"warning: {provider} cannot be asked: {answer.problem}")
    return leases, listed


def _is_usable(lease: Lease, instances: tuple[Rental, ...] | None, traits: Traits, now: float) -> bool | None:
    """Return whether an account lists a machine as usable; None where its listing is not conclusive yet."""
    if instances is None:
        return None
    for item in instances:
        if item.carries(lease.cluster, lease.token) or item.id in lease.ids:
            return item.state in _USABLE_STATES and not item.doomed
    # A machine that was made just now may not be listed yet.
    made = lease.created_at or lease.intent_at
    return None if now - made <= traits.list_lag_s else False
