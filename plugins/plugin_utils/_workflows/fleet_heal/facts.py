# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Collect the facts for ``fleet_heal``: nodes, what their provider lists, the ledger, the run."""

from __future__ import annotations

import dataclasses
import time
import typing as t

from ....module_utils._model.errors import InputError, MusterError, RefusedError, UnreachableError
from ....module_utils._model.gpu_faults import find_lost_gpu
from ....module_utils._model.heal_plan import FleetFacts, FleetNode, FleetRun
from ....module_utils._model.job import parse_job
from ....module_utils._model.lease import Instance
from ....module_utils._model.ledger import Lease
from ....module_utils._node import files
from ..._hosts.node_client import NodeClient, on_each_node
from ..._kube.api.client import Client
from ..._kube.api.errors import KubeError
from ..._kube.api.kinds import KubeObject
from ..._kube.jobs.spec import gang_selector
from ..._kube.nodes import gpu_claims, out_of_service
from ..._kube.nodes.capacity import describe_sick_gpus
from ..._kube.placement import free_nodes
from ..._provision.api import ProviderApi, ThreadScheduler, ask_for_id, read_identities
from ..._provision.bill.listing_rules import find_account_problem, index_leases, list_shown
from ..._provision.create_state import AccountListed
from ..._provision.delete import list_account
from ..._provision.ledger.ledger_store import read_ledger
from ..node_pool import present as node_pool_present
from ..node_pool.accounts import open_providers
from ..shared import cluster_identity, kube_connection
from ..shared.request import RunRequest
from ..shared.state_dir import StateHome, names_cluster, read_record
from ..training_job.kubernetes.lease_guard import find_lease
from ..training_job.load import drop_template

# In the cluster's folder: since when nodes do not answer, by the earlier calls of heal.
SILENT = "silent.json"
# A host that did not answer in two calls further apart than this may have answered between them.
_SAME_SILENCE_S = 2 * 3600
# The taints that keep jobs off a control plane; without them it runs jobs (K3s, single nodes).
_CONTROL_PLANES = {f"node-role.kubernetes.io/{name}" for name in ("control-plane", "master")}
_HOLDING = ("created", "adopted", "joined", "lost")
_USABLE_STATES = ("creating", "running", "unknown")


class NodeCondition(t.NamedTuple):
    """How a node answers now.

    ``silent_s`` is how long its cluster has not heard from it, None for a host of an inventory. ``mark`` differs
    between two silences of one Node.
    """

    is_ready: bool
    silent_s: float | None = None
    is_out_of_service: bool = False
    mark: str = ""
    gpu_fault: str = ""
    is_closed: bool = False


class Silence(t.NamedTuple):
    """Since when a node does not answer, and when heal saw that last; Unix seconds."""

    since: float
    seen: float
    mark: str


@dataclasses.dataclass
class HealFacts:
    """Facts for the plan, and what its actions need: leases and tokens by node, the job, the client.

    ``hosts``: the provider's id of the machine of a node, where it lists one.
    """

    facts: FleetFacts
    leases: dict[str, Lease]
    job: dict[str, t.Any]
    client: Client | None
    providers: list[object]
    silent: dict[str, Silence]
    reported: t.Mapping[str, str]
    hosts: t.Mapping[str, str] = dataclasses.field(default_factory=dict)

    @property
    def tokens(self) -> dict[str, str | None]:
        """Return the tokens by node, None for a node that is not rented."""
        return {node.name: node.token for node in self.facts.nodes}

    def may_return(self, name: str) -> bool:
        """Return whether a node without a lease may return under its name."""
        return name in self.reported


def read_facts(request: RunRequest, home: StateHome, context: node_pool_present.Context) -> HealFacts:
    """Read the state of nodes, accounts, ledger and run; nothing is changed."""
    options = request.options
    record = _find_record(home, options.get("run_id")) or {}
    job = dict(record.get("job") or {})
    on_kubernetes = _is_on_kubernetes(home, record, options)
    client = _open_client(request, record) if on_kubernetes else None
    run = _build_run(record, job, on_kubernetes, options.get("on_lost_node"))
    if run is not None and client is not None and not run.ended:
        run = dataclasses.replace(run, names=_find_pod_nodes(client, record, run))
    members = run.names if run else ()
    reported = _read_reported(options)
    states, unfit, now = _read_states(request, home, client, run, job, members, reported)
    providers = list(options.get("providers") or [])
    if not options.get("gpu_faults", True):
        states = {name: state._replace(gpu_fault="") for name, state in states.items()}
    candidates = list(dict.fromkeys([*([] if client else request.hosts), *members, *states, *reported]))
    leases, listed, hosts = _read_leases(request, home, candidates, providers, context)
    _warn_of_unknown_names(request, reported, {*states, *leases, *request.hosts, *members})
    names = list(dict.fromkeys([*candidates, *leases]))
    silent = _update_silence(home, states, now)
    all_nodes = [_build_node(name, states, leases, listed, reported, silent, now) for name in names]
    nodes = tuple(dataclasses.replace(node, unfit=unfit.get(node.name, "")) for node in all_nodes)
    may_rent, may_join = bool(options.get("rentable")), bool(options.get("joinable"))
    facts = FleetFacts(nodes, run, client is not None, may_rent, may_join, float(options["patience_s"]))
    return HealFacts(facts, leases, job, client, providers, silent, reported, hosts)


def _is_on_kubernetes(home: StateHome, record: t.Mapping[str, t.Any], options: t.Mapping[str, t.Any]) -> bool:
    """Return whether the nodes are those of a cluster: by the run, else by the user's word, else by the last run.

    A cluster that was brought up from here does not make a fleet one of pods: its machines may train as hosts.
    """
    if record.get("backend"):
        return bool(record["backend"] == "kubernetes")
    if not options.get("kubeconfig") or names_cluster(options):
        return bool(options.get("kubeconfig"))
    newest = home.runs()[:1]
    last = read_record(newest[0]) if newest else None
    return (last or {}).get("backend") != "hosts"


def _read_reported(options: t.Mapping[str, t.Any]) -> dict[str, str]:
    """Return why nodes are taken for lost by the options that name them."""
    lost = {str(name): "named in lost_nodes" for name in options.get("lost_nodes") or []}
    return lost | {name: f"notice of preemption: {text}" for name, text in read_notices(options).items()}


def read_notices(options: t.Mapping[str, t.Any]) -> dict[str, str]:
    """Return the nodes that will be taken away, and what says so."""
    named = {str(name): "its provider gave notice" for name in options.get("preempted_nodes") or []}
    return named | {str(name): str(text) for name, text in (options.get("notices") or {}).items()}


def _read_states(
    request: RunRequest,
    home: StateHome,
    client: Client | None,
    run: FleetRun | None,
    job: dict[str, t.Any],
    members: t.Sequence[str],
    reported: t.Mapping[str, str],
) -> tuple[dict[str, NodeCondition], dict[str, str], float]:
    """Return how nodes answer, why nodes cannot run the gang, and the time by the clock that dates the answers."""
    if client is None:
        return _contact_hosts(request, list(dict.fromkeys([*request.hosts, *members]))), {}, time.time()
    live = client.list("v1/Node").items
    clock = client.transport.stats.server_time()
    states = _read_cluster_nodes(live, clock, members)
    if not request.options.get("cluster_id"):
        # Nodes of the same names on another cluster belong to others, with or without a run.
        cluster_identity.require_node_cluster(client, home, states)
        cluster_identity.require_run_cluster(client, home, states.keys() & reported.keys())
    # The cluster's times are compared with its own clock; the controller's may be minutes ahead.
    return states, _find_unfit(client, live, run, job), time.time() if clock is None else clock


def _warn_of_unknown_names(request: RunRequest, reported: t.Mapping[str, str], known: t.Container[str]) -> None:
    """Say which reported names are no node: it may have been removed for good, but a misspelt name must be visible."""
    for name in reported:
        if name not in known:
            option = "lost_nodes" if name in (request.options.get("lost_nodes") or []) else "preempted_nodes"
            request.progress.say(f"warning: {option} names {name}, which is not a node of this fleet")


def _find_record(home: StateHome, run_id: str | None) -> dict[str, t.Any] | None:
    """Return the record of the run to heal: the one of the option, else the newest that was not ended."""
    if run_id:
        value = read_record(home.run_folder(str(run_id)))
        if value is None:
            raise RefusedError(
                f"run {run_id} does not exist in {home.folder}", "List the runs with the status playbook"
            )
        return value
    newest = home.runs()[:1]
    value = read_record(newest[0]) if newest else None
    return None if value is None or value.get("outcome") in ("succeeded", "cancelled", "failed") else value


def _build_run(
    record: dict[str, t.Any], job: dict[str, t.Any], on_kubernetes: bool, policy_option: str | None
) -> FleetRun | None:
    if not record or record.get("outcome") in ("succeeded", "cancelled"):
        return None
    restart, elastic = job.get("restart") or {}, job.get("elastic") or {}
    policy = policy_option or str(restart.get("on_lost_node") or "wait")
    min_nodes = elastic.get("min")
    if min_nodes is None and not on_kubernetes and policy == "shrink":
        # The hosts of a run are chosen again at each start: any number of them can be a gang.
        min_nodes = 1
    names = tuple(str(name) for name in record.get("hosts") or ())
    return FleetRun(
        str(record["run_id"]), int(job.get("nodes") or 1), policy, min_nodes, record["state"] == "ended", names
    )


def _find_pod_nodes(client: Client, record: t.Mapping[str, t.Any], run: FleetRun) -> tuple[str, ...]:
    """Return the nodes of a run that is not over: the record's, and those its pods are on.

    The record has what a follower saw: nothing of a run that was left before its ranks began.
    """
    namespace = (record.get("backend_ref") or {}).get("namespace") or client.namespace
    pods = client.list("v1/Pod", namespace, labels=gang_selector(run.run_id)).items
    found = sorted({str(node) for pod in pods if (node := (pod.get("spec") or {}).get("nodeName"))})
    return tuple(dict.fromkeys((*run.names, *found)))


def _open_client(request: RunRequest, record: t.Mapping[str, t.Any]) -> Client:
    # The option patience_s is for nodes, not for the API server.
    options = {key: value for key, value in request.options.items() if key != "patience_s"}
    context = (record.get("backend_ref") or {}).get("context")
    client = kube_connection.open_client(options, request.base, request.progress.say, context=context)
    if record.get("backend") == "kubernetes" and not options.get("cluster_id"):
        # All nodes of the run would be missing from another cluster, and be replaced.
        cluster_identity.require_same_cluster(client, record, ended=True)
    return client


def _find_unfit(
    client: Client, live: t.Sequence[KubeObject], run: FleetRun | None, job: dict[str, t.Any]
) -> dict[str, str]:
    """Return why nodes cannot run the gang; without permission to read all pods, what others use is unknown."""
    if run is None:
        return {}
    try:
        parsed = parse_job(drop_template(job))
    except InputError:
        # The record of another version: all ready nodes count.
        return {}
    try:
        pods = client.list("v1/Pod").items
    except KubeError as error:
        if error.status != 403:
            raise
        pods = []
    nodes = gpu_claims.show_offered(client, live) if parsed.gpus_per_node else live
    return free_nodes.find_unavailable(parsed, nodes, gpu_claims.show_held(client, nodes, pods), run.run_id)


def _read_cluster_nodes(
    live: t.Sequence[KubeObject], clock: float | None, used: t.Container[str]
) -> dict[str, NodeCondition]:
    """Return how each Node is, by the server's clock; control planes only where they take jobs.

    :param used: the nodes that the run is on, whatever they are.
    """
    conditions = {}
    for item in live:
        name, taints = str(item["metadata"]["name"]), (item.get("spec") or {}).get("taints") or ()
        keys = {taint["key"] for taint in taints if taint["effect"] != "PreferNoSchedule"}
        if name in used or not keys & _CONTROL_PLANES:
            ready, seconds = out_of_service.readiness(item, clock)
            conditions[name] = NodeCondition(
                ready,
                seconds,
                out_of_service.has_taint(item),
                out_of_service.ready_since(item),
                describe_sick_gpus(item),
                bool((item.get("spec") or {}).get("unschedulable")),
            )
    return conditions


def _contact_hosts(request: RunRequest, names: t.Sequence[str]) -> dict[str, NodeCondition]:
    """Return which hosts of the inventory answer."""
    hosts = [name for name in names if name in request.hostvars]
    remotes = request.connect(hosts)
    faults, errors = on_each_node(remotes, _ask_host)
    return {
        name: NodeCondition(not isinstance(errors.get(name), UnreachableError), gpu_fault=faults.get(name, ""))
        for name in hosts
    }


def _ask_host(remote: NodeClient) -> str:
    """Return why a host that answers has lost a GPU, empty where it has not."""
    remote.call("info")
    try:
        return find_lost_gpu(remote.call("devices"))
    except UnreachableError:
        raise
    except MusterError:
        return ""


def _update_silence(home: StateHome, states: t.Mapping[str, NodeCondition], now: float) -> dict[str, Silence]:
    """Return since when nodes are silent: by the cluster's own times, else since an earlier call saw it first.

    What was seen long ago, or before the node became ready again, was another silence.
    """
    stored = files.read_json(home.folder / SILENT)
    before = stored if isinstance(stored, dict) else {}
    silent = {}
    for name, condition in states.items():
        if condition.is_ready:
            continue
        entry = before.get(name)
        earlier: t.Mapping[str, object] = entry if isinstance(entry, dict) else {}
        is_same_mark = bool(earlier) and earlier.get("mark") == condition.mark
        is_same = is_same_mark and (condition.mark or now - _read_number(earlier, "seen") < _SAME_SILENCE_S)
        since = min(_read_number(earlier, "since"), now) if is_same else now
        if condition.silent_s is not None:
            since = now - condition.silent_s
        silent[name] = Silence(since, now, condition.mark)
    return silent


def _read_number(entry: t.Mapping[str, object], key: str) -> float:
    value = entry.get(key)
    return float(value) if isinstance(value, (int, float)) else 0.0


def _build_node(
    name: str,
    states: t.Mapping[str, NodeCondition],
    leases: t.Mapping[str, Lease],
    listed: t.Mapping[str, bool | None],
    reported: t.Mapping[str, str],
    silent: t.Mapping[str, Silence],
    now: float,
) -> FleetNode:
    lease, condition = leases.get(name), states.get(name)
    reason = reported.get(name, "")
    if not reason and lease is None and condition is None:
        reason = "missing from the inventory, the cluster and the open leases"
    return FleetNode(
        name=name,
        token=lease.token if lease else None,
        listed=listed.get(name),
        ready=condition.is_ready if condition else None,
        silent_s=now - silent[name].since if name in silent else 0.0,
        reported_lost=reason,
        marked_lost=lease is not None and lease.state == "lost",
        joined=name in states,
        tainted=condition is not None and condition.is_out_of_service,
        gpu_fault=condition.gpu_fault if condition else "",
        closed=condition is not None and condition.is_closed,
    )


def _read_leases(
    request: RunRequest,
    home: StateHome,
    names: t.Sequence[str],
    providers: list[object],
    context: node_pool_present.Context,
) -> tuple[dict[str, Lease], dict[str, bool | None], dict[str, str]]:
    """Return the open lease of each node that has one, what its account lists of it, and on which machine it is."""
    everything = tuple(read_ledger(home.folder).leases.values())
    ledger = [lease for lease in everything if lease.machine and lease.open]
    leases = {name: lease for name in names if (lease := find_lease(name, request.hostvars, ledger)) is not None}
    tokens = {lease.token for lease in leases.values()}
    # A machine that was lost may be missing from the inventory too.
    leases |= {lease.name: lease for lease in ledger if lease.token not in tokens and lease.state in _HOLDING}
    if not leases:
        return leases, {}, {}
    return (leases, *_list_leases(request, leases, everything, providers, context))


def _list_leases(
    request: RunRequest,
    leases: t.Mapping[str, Lease],
    ledger: t.Collection[Lease],
    providers: list[object],
    context: node_pool_present.Context,
) -> tuple[dict[str, bool | None], dict[str, str]]:
    """Return whether the accounts of leases list each machine as usable, None where a listing proves nothing, and the
    ids of the machines that it says they are on.
    """
    accounts = open_providers(providers, context.externals)
    listed: dict[str, bool | None] = {}
    hosts: dict[str, str] = {}
    with ThreadScheduler() as real:
        scheduler = context.scheduler or real
        for provider in sorted({lease.provider for lease in leases.values()}):
            account = accounts.get(provider)
            listing = list_account(account, scheduler).listing if account else None
            if listing is not None and listing.problem:
                request.progress.say(f"warning: {provider} cannot be listed: {listing.problem}")
            own = {name: lease for name, lease in leases.items() if lease.provider == provider}
            if account is None or listing is None or listing.problem:
                listed |= dict.fromkeys(own, None)
                continue
            listed |= {name: _is_usable(lease, listing, account, ledger) for name, lease in own.items()}
            shown = {name: item for name, lease in own.items() for item in listing.instances if lease.owns(item)}
            hosts |= {name: item.host for name, item in shown.items() if item.host}
    return listed, hosts


def _is_usable(lease: Lease, listing: AccountListed, account: ProviderApi, ledger: t.Collection[Lease]) -> bool | None:
    """Return whether an account lists a machine as usable; None where its listing proves nothing (yet).

    A machine that is not listed is gone where its provider does not know its id either: a listing may be empty.
    """
    for item in listing.instances:
        if lease.owns(item) or item.id in lease.ids:
            return item.state in _USABLE_STATES and not item.terminal
    shown = list_shown(listing.instances, index_leases(lease.cluster, ledger, lambda _lease: False))
    if find_account_problem(lease, read_identities({"": account})[""], ledger, shown):
        return None
    # A new machine may not be listed yet.
    created_at = lease.created_at or lease.intent_at
    if listing.as_of - created_at <= account.traits.list_lag_s:
        return None
    if lease.id is None:
        return False
    exists, _problem = ask_for_id(
        account, Instance(lease.provider, lease.id, lease.name, lease.token, "unknown", lease.resource)
    )
    return False if exists is False else None
