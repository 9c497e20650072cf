# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From a job and a cluster's facts to the plan of its objects. Nothing is changed on the cluster here."""

from __future__ import annotations

import dataclasses
import typing as t

from .....module_utils._model.errors import RefusedError
from .....module_utils._model.job import Job
from .....module_utils._model.job_backends import IN_CLUSTER, backend_warnings
from .....module_utils._model.network_plan import NetworkPlan, plan_cluster_network
from .....module_utils._model.node_environment import Environment, group_nodes
from .....module_utils._model.pod_spec import PROGRAM_FILES
from ...._hosts import agent_package
from ...._kube.api.kinds import KubeObject
from ...._kube.jobs import code_archive, supporting_objects
from ...._kube.jobs import registry as jobs_registry
from ...._kube.jobs.spec import ROLE_LABEL, KubePlan, external_secret_name, object_name, pull_secret_name, secret_name
from ...._kube.placement.decision import PlacementDecision, decide_network, decide_placement, find_packing
from ...._kube.placement.node_fit import judge_cluster, read_hcas
from ...._kube.placement.volume_claims import check_volumes
from ...._launch import registry
from .. import source as code_source
from ..job_secrets import external_secrets
from .cluster_facts import ClusterFacts, uses_kueue


@dataclasses.dataclass(frozen=True, slots=True)
class ClusterDecision:
    """What is decided of a job on a cluster before anything is made there.

    ``job``: with the network that its placement stands for. ``facts``: what the cluster said of itself. ``notes``: what
    was decided for the user. ``problem``: why the cluster cannot run the job, None when it can.
    """

    job: Job
    namespace: str
    facts: ClusterFacts
    placement: PlacementDecision
    network: NetworkPlan
    notes: tuple[str, ...] = ()
    problem: RefusedError | None = None

    @property
    def warnings(self) -> list[str]:
        """Return what could not be checked, and what of the job may not be meant."""
        names = name_unseen(self.job, self.facts)
        return [*self.facts.warnings, *names, *backend_warnings(self.job), *self.network.warnings]


def name_unseen(job: Job, facts: ClusterFacts) -> list[str]:
    """Return what the job names of the cluster that could not be looked up: a name that is wrong waits for ever."""
    place = job.placement
    asked = []
    if place.island and facts.nodes is None:
        asked.append(f"placement.island: {place.island}")
    if place.priority and uses_kueue(job) and facts.priorities is None:
        asked.append(f"placement.priority: {place.priority}")
    return [f"job.{name} could not be looked up with this kubeconfig: check its spelling" for name in asked]


def decide(
    job: Job,
    namespace: str,
    facts: ClusterFacts,
    *,
    verdicts: t.Sequence[t.Any] = (),
    environment: t.Mapping[str, Environment] | None = None,
    fabric: bool = True,
) -> ClusterDecision:
    """Return whether and where the job may run, and on which network. Nodes are judged once.

    :param verdicts: the entries of the cluster's ``fabric.json``.
    :param environment: the nodes' variables where they are known already, as in a fabric test.
    :param fabric: whether the last verdict on the nodes' network counts, which it does not for the next one.
    """
    problem = _find_problem(job, facts, namespace)
    judged = judge_cluster(job, facts.nodes, facts.tolerations, facts.node_labels, fabric=fabric)
    networks = facts.networks.get(judged.rdma_resource or "", ())
    job, note = decide_network(job, judged.rdma_resource, facts.enforced, networks)
    placement = decide_placement(job, judged, by_queue=facts.by_queue, networks=networks)
    network = plan_cluster_network(
        job,
        placement.possible_nodes,
        placement.islands,
        verdicts,
        environment,
        # A device of a network has a name of its own in the pod.
        hcas={} if networks else read_hcas(facts.nodes or ()),
        rdma=judged.rdma_resource is not None and job.resources.rdma is not False,
        one_island=bool(placement.islands) or environment is not None,
    )
    notes = (note,) if note else ()
    problem = problem or placement.problem or _check_topology(judged.device_class, facts)
    if problem is None and fabric and facts.queue and facts.queue.topology:
        usable = [item.node for item in placement.usable_nodes]
        problem = find_packing(job, facts.nodes or (), usable, facts.queue.name)
    return ClusterDecision(job, namespace, facts, placement, network, notes, problem)


def _check_topology(device_class: str | None, facts: ClusterFacts) -> RefusedError | None:
    """Return why claimed GPUs and the queue do not go together: Kueue places by topology what pods request alone."""
    if device_class is None or facts.queue is None or not facts.queue.topology:
        return None
    return RefusedError(
        f"job.placement.queue: {facts.queue.name} places pods by topology, and Kueue counts no GPUs there that pods "
        f"claim (DeviceClass {device_class})",
        "Use a queue whose ResourceFlavor has no topologyName (gang_scheduling_topology: ''), or another "
        "gpu_stack_provider",
    )


def _find_problem(job: Job, facts: ClusterFacts, namespace: str) -> RefusedError | None:
    """Return which of the job's queue, priority, secrets and claims the cluster lacks; naming what there is instead."""
    try:
        if uses_kueue(job):
            _require_queue(job, facts, namespace)
        _require_secrets(job, facts, namespace)
        _forbid_device_mounts(job)
        if facts.nodes is None and job.resources.rdma:
            raise RefusedError(
                "job.resources.rdma: nodes cannot be read with this kubeconfig, so their RDMA resource is unknown",
                "Let the user read nodes (team_reads_nodes), or leave it out",
            )
        if facts.claims is not None:
            check_volumes(job, facts.claims, namespace, facts.classes)
    except RefusedError as error:
        return error
    return None


def _forbid_device_mounts(job: Job) -> None:
    """Refuse a mount of RDMA's device files: a pod sees them, and may open those of its resource only."""
    for mount in job.mounts:
        if (mount.host_path or "").startswith("/dev/infiniband"):
            raise RefusedError(
                f"job.mounts: {mount.name} mounts {mount.host_path}, whose files a pod may not open",
                "Leave it out, and set job.resources.rdma: true",
            )


def _require_queue(job: Job, facts: ClusterFacts, namespace: str) -> None:
    """Refuse a queue or priority that is not there, and a job of which it is not known to which queue it goes."""
    wanted = job.placement.queue
    if wanted and wanted not in facts.queues:
        known = f"there are: {', '.join(facts.queues)}" if facts.queues else "there is none"
        raise RefusedError(
            f"job.placement.queue: no LocalQueue {wanted} in the namespace {namespace} ({known})",
            "Name another one, create it (playbook team), or leave it out where the cluster has no Kueue",
        )
    if not wanted and len(facts.queues) > 1:
        # Outside of all queues it would take what they share out.
        raise RefusedError(
            f"job.placement.queue: the namespace {namespace} has several LocalQueues ({', '.join(facts.queues)})",
            "Name one of them",
        )
    if job.placement.priority and facts.queue is None:
        raise RefusedError(
            "job.placement.priority: needs a LocalQueue of Kueue",
            "Set placement.queue, or ask for a LocalQueue (playbook team)",
        )
    if facts.priorities is not None and job.placement.priority not in facts.priorities:
        known = f"there are: {', '.join(facts.priorities)}" if facts.priorities else "there is none"
        # Kueue would keep such a job suspended for ever and say nothing about it.
        raise RefusedError(f"job.placement.priority: no WorkloadPriorityClass {job.placement.priority} ({known})")


def build_plan(
    decision: ClusterDecision, source: code_source.CodeSource, run_id: str, cluster: str, attempt: int
) -> KubePlan:
    """Return the plan of a run whose first attempt has the number ``attempt``."""
    job, facts = decision.job, decision.facts
    pods = registry.pods(job, code_source.build_context(job, run_id, attempt))
    classes = tuple(item.to_dict() for item in group_nodes(decision.network.environment))
    secret = any(ref.source not in IN_CLUSTER and ref.deliver != "registry" for ref in job.secret_refs)
    external = any(ref.source == "external_secrets" for ref in job.secret_refs)
    pulls = [ref for ref in job.secret_refs if ref.deliver == "registry"]
    own = pull_secret_name(object_name(run_id)) if any(ref.source != "kubernetes" for ref in pulls) else None
    theirs = tuple(str(ref.path) for ref in pulls if ref.source == "kubernetes")
    plan = KubePlan(
        job=job,
        run_id=run_id,
        cluster=cluster,
        namespace=decision.namespace,
        pods={role: dataclasses.replace(spec, network=classes) for role, spec in pods.items()},
        program={name: agent_package.read_sources()[name] for name in PROGRAM_FILES},
        archive=_pack(source),
        queue=facts.queue,
        fleet=decision.placement.target,
        secret=secret_name(object_name(run_id)) if secret else None,
        external_secret=external_secret_name(object_name(run_id), attempt) if external else None,
        pull_secret=own,
        pull_secrets=(*theirs, *([own] if own else [])),
        ranges=facts.ranges,
    )
    pod_labels = [{**plan.labels, ROLE_LABEL: role} for role in plan.pods]
    denied = any(supporting_objects.denies_egress(facts.policies, labels) for labels in pod_labels)
    return dataclasses.replace(plan, egress_denied=denied)


def build_objects(plan: KubePlan) -> list[KubeObject]:
    """Return the run's objects; the last one runs the job."""
    *supporting, main = jobs_registry.build(plan)
    return [*supporting, *external_secrets.build(plan), main]


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
