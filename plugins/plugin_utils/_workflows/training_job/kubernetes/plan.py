# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From a job and a cluster's facts to the plan of its objects. Nothing is changed on the cluster here.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import dataclasses
import typing as t

from .....module_utils._model.errors import RefusedError
from .....module_utils._model.job import Job
from .....module_utils._model.node_environment import Environment, group_nodes
from .....module_utils._model.pod_spec import PROGRAM_FILES
from ...._hosts import agent_package
from ...._kube.api.kinds import KubeObject
from ...._kube.jobs import code_archive, placement, supporting_objects
from ...._kube.jobs import registry as jobs_registry
from ...._kube.jobs.spec import ROLE_LABEL, EligibleNodes, KubePlan, object_name, pull_secret_name, secret_name
from ...._launch import registry
from .. import source as code_source
from ..network import NetworkPlan, plan_cluster_network
from .cluster_facts import ClusterFacts, uses_kueue


@dataclasses.dataclass(frozen=True, slots=True)
class PlacementDecision:
    """Where a job may run, decided once for a plan.

    ``nodes``: every node with what keeps the job off it. ``one_pod_a_node``: a node takes one pod of the job only.
    ``islands``: how many pods each island has room for, empty where islands do not matter. ``node_uids``: the uids of
    the nodes that fit. ``target``: what the pods ask of their nodes.
    """

    nodes: tuple[placement.PlacementResult, ...]
    one_pod_a_node: bool
    islands: t.Mapping[str, int]
    node_uids: frozenset[str]
    target: EligibleNodes


def decide_placement(job: Job, facts: ClusterFacts, *, fabric: bool = True) -> PlacementDecision:
    """Return where the job may run.

    :param fabric: whether the last verdict on the nodes' network counts, which it does not for the next one.
    """
    nodes = facts.nodes or []
    whole_node = _takes_whole_node(job, nodes)
    one_pod_a_node = job.placement.network_mode == "host" or whole_node
    results = placement.judge_nodes(
        job, nodes, tolerations=facts.tolerations, node_labels=facts.node_labels, fabric=fabric
    )
    islands = placement.island_capacity(job, results, one_pod_a_node, by_queue=facts.by_queue)
    roomy = placement.islands_with_room(job, islands)
    island = roomy[0] if len(roomy) == 1 and not facts.by_queue else None
    fitting = {result.node for result in results if not result.reasons}
    metadata = [node["metadata"] for node in nodes if node["metadata"]["name"] in fitting]
    target = EligibleNodes(
        placement.node_expressions(job, nodes, island, fabric=fabric),
        rdma_resource=placement.rdma_resource(job, nodes, facts.tolerations),
        whole_node=whole_node,
    )
    uids = frozenset(str(meta.get("uid") or meta["name"]) for meta in metadata)
    return PlacementDecision(results, one_pod_a_node, islands, uids, target)


def require_runnable(job: Job, facts: ClusterFacts, decided: PlacementDecision, namespace: str) -> None:
    """Refuse what the cluster cannot run.

    :raises RefusedError: naming the option and what there is instead.
    """
    kueue = uses_kueue(job)
    wanted = job.placement.queue if kueue else None
    if wanted and wanted not in facts.queues:
        known = f"there are: {', '.join(facts.queues)}" if facts.queues else "there is none"
        raise RefusedError(
            f"job.placement.queue: no LocalQueue {wanted} in the namespace {namespace} ({known})",
            "Name another one, create it (playbook team), or leave it out where the cluster has no Kueue",
        )
    if kueue and not wanted and len(facts.queues) > 1:
        # Outside of all queues it would take what they share out.
        raise RefusedError(
            f"job.placement.queue: the namespace {namespace} has several LocalQueues ({', '.join(facts.queues)})",
            "Name one of them",
        )
    if kueue and job.placement.priority and facts.queue is None:
        raise RefusedError(
            "job.placement.priority: needs a LocalQueue of Kueue",
            "Set placement.queue, or ask for a LocalQueue (playbook team)",
        )
    if facts.priorities is not None and job.placement.priority not in facts.priorities:
        known = f"there are: {', '.join(facts.priorities)}" if facts.priorities else "there is none"
        # Kueue would keep such a job suspended for ever and say nothing about it.
        raise RefusedError(f"job.placement.priority: no WorkloadPriorityClass {job.placement.priority} ({known})")
    if facts.claims is not None:
        placement.check_volumes(job, facts.claims, namespace, facts.classes)
    _require_secrets(job, facts, namespace)
    if facts.nodes is None and job.resources.rdma:
        raise RefusedError(
            "job.resources.rdma: nodes cannot be read with this kubeconfig, so their RDMA resource is unknown",
            "Let the user read nodes (team_reads_nodes), or leave it out",
        )
    if facts.nodes is not None:
        placement.require_placement(job, decided.nodes, decided.one_pod_a_node)
        placement.require_island(job, decided.islands, by_queue=facts.by_queue)


def build_plan(
    job: Job,
    source: code_source.CodeSource,
    run_id: str,
    cluster: str,
    namespace: str,
    attempt: int,
    facts: ClusterFacts,
    decided: PlacementDecision,
    network: NetworkPlan,
) -> KubePlan:
    """Return the plan of a run whose first attempt has the number ``attempt``."""
    pods = registry.pods(job, code_source.build_context(job, run_id, attempt))
    classes = tuple(item.to_dict() for item in group_nodes(network.environment))
    secret = any(ref.source != "kubernetes" and ref.deliver != "registry" for ref in job.secret_refs)
    pulls = [ref for ref in job.secret_refs if ref.deliver == "registry"]
    own = pull_secret_name(object_name(run_id)) if any(ref.source != "kubernetes" for ref in pulls) else None
    theirs = tuple(str(ref.path) for ref in pulls if ref.source == "kubernetes")
    plan = KubePlan(
        job=job,
        run_id=run_id,
        cluster=cluster,
        namespace=namespace,
        pods={role: dataclasses.replace(spec, network=classes) for role, spec in pods.items()},
        program={name: agent_package.read_sources()[name] for name in PROGRAM_FILES},
        archive=_pack(source),
        queue=facts.queue,
        fleet=decided.target,
        secret=secret_name(object_name(run_id)) if secret else None,
        pull_secret=own,
        pull_secrets=(*theirs, *([own] if own else [])),
        ranges=facts.ranges,
    )
    pod_labels = [{**plan.labels, ROLE_LABEL: role} for role in plan.pods]
    denied = any(supporting_objects.denies_egress(facts.policies, labels) for labels in pod_labels)
    return dataclasses.replace(plan, egress_denied=denied)


def plan_network(
    job: Job,
    decided: PlacementDecision,
    entries: t.Sequence[t.Any],
    given: t.Mapping[str, Environment] | None = None,
) -> NetworkPlan:
    """Return what the verdicts on the network mean for a job: which it may be placed to is decided by then.

    :param entries: the cluster's ``fabric.json``.
    :param given: the nodes' variables where they are known already, as in a fabric test.
    """
    fitting = [result for result in decided.nodes if not result.reasons]
    islands = {job.placement.island} if job.placement.island else set(placement.islands_with_room(job, decided.islands))
    names = [result.node for result in fitting if not islands or result.island in islands]
    return plan_cluster_network(
        job,
        names,
        islands,
        entries,
        given,
        rdma=decided.target.rdma_resource is not None and job.resources.rdma is not False,
        one_island=bool(islands) or given is not None,
    )


def build_objects(plan: KubePlan) -> list[KubeObject]:
    """Return the run's objects; the last one runs the job."""
    return jobs_registry.build(plan)


def secret_data(plan: KubePlan, values: tuple[dict[str, str], dict[str, bytes]]) -> dict[str, bytes] | None:
    """Return the content of the run's Secret by key, None when the job has no values of its own."""
    if plan.secret is None:
        return None
    env, files = values
    return {**{name: text.encode() for name, text in env.items()}, **files}


def _require_secrets(job: Job, facts: ClusterFacts, namespace: str) -> None:
    for ref in job.secret_refs:
        if ref.source != "kubernetes" or str(ref.path) not in facts.secrets:
            continue
        keys, what = facts.secrets[str(ref.path)], f"job.secret_refs: '{ref.name}'"
        if keys is None:
            fix = "Create it (muster.training.kube_secret), or name another"
            raise RefusedError(f"{what}: Secret {ref.path} does not exist in the namespace {namespace}", fix)
        wanted = (".dockerconfigjson", ".dockercfg") if ref.deliver == "registry" else (ref.key or ref.name,)
        if not keys & set(wanted):
            known = f"it has {', '.join(sorted(keys))}" if keys else "it has none"
            fix = "Name a Secret for images" if ref.deliver == "registry" else "Set key to one of them"
            raise RefusedError(f"{what}: the Secret {ref.path} has no key {wanted[0]} ({known})", fix)


def _pack(source: code_source.CodeSource) -> bytes:
    """Return code and staged data as one archive, in the places where the program looks for them."""
    files: list[tuple[str, int, bytes]] = []
    for placed in source.placed:
        for file in placed.tree.files:
            files.append((f"{placed.target}/{file.path}", file.mode, file.source.read_bytes()))
    return code_archive.pack(files) if files else b""


def _takes_whole_node(job: Job, nodes: t.Sequence[KubeObject]) -> bool:
    """Return whether a pod takes all GPUs of every node that has enough of them."""
    if not job.gpus_per_node:
        return False
    counts = [placement.gpu_count(node) for node in nodes]
    fitting = [count for count in counts if count >= job.gpus_per_node]
    return bool(fitting) and max(fitting) == job.gpus_per_node
