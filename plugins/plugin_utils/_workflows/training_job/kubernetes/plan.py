# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From a job and what its cluster says of itself to the objects that run it; everything is judged before a write.

A user with the rights of a team may not read nodes or queues: what cannot be asked is left to the scheduler.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import dataclasses
import typing as t

from .....module_utils._model.errors import InputError, RefusedError
from .....module_utils._model.job import Job
from .....module_utils._model.job_backends import ENGINE_LAUNCHERS
from .....module_utils._model.pod_spec import PROGRAM_FILES
from ...._hosts import agent_package
from ...._kube.api.client import Client
from ...._kube.api.errors import KubeError
from ...._kube.jobs import code_archive, placement, supporting_objects
from ...._kube.jobs import registry as jobs_registry
from ...._kube.jobs.spec import ISLAND_LABEL, ROLE_LABEL, Fleet, KubePlan, Object, Queue, object_name, secret_name
from ...._launch import registry
from ...._launch.base import RunContext
from ..hosts import plan as hosts_plan

_FORBIDDEN = (401, 403)
_QUEUE = "kueue.x-k8s.io/v1beta2"


@dataclasses.dataclass(frozen=True)
class Facts:
    """What the cluster told. What may be None is so when this user may not read it, or when nothing depends on it."""

    nodes: list[Object] | None
    queues: tuple[str, ...]
    queue: Queue | None
    claims: t.Mapping[str, Object] | None
    policies: list[Object]
    priorities: tuple[str, ...] | None = None
    classes: tuple[str, ...] | None = None
    # Whether the namespace's LocalQueues could be read.
    queues_known: bool = True
    # Secrets that the job names, by name: their keys, None for one that is not there. What may not be read is missing.
    secrets: t.Mapping[str, frozenset[str] | None] = dataclasses.field(default_factory=dict)
    ranges: tuple[Object, ...] = ()
    # Whether the last verdict on the nodes' network counts, which it does not for the next one.
    fabric: bool = True

    @property
    def tolerations(self) -> t.Sequence[t.Mapping[str, t.Any]]:
        """Return what the queue adds to the pods' own tolerations."""
        return self.queue.tolerations if self.queue else ()

    @property
    def node_labels(self) -> t.Mapping[str, str]:
        """Return where the queue sends the pods."""
        return self.queue.node_labels if self.queue else {}

    @property
    def by_queue(self) -> bool:
        """Return whether the queue chooses an island for each gang."""
        return bool(self.queue and self.queue.island_level)

    def islands(self, job: Job) -> dict[str, int]:
        """Return the room of each island, empty where islands do not matter to the job."""
        one_a_node = _one_a_node(job, self.nodes or [])
        return placement.island_rooms(job, self.verdicts(job), one_a_node, by_queue=self.by_queue)

    def verdicts(self, job: Job) -> tuple[placement.Verdict, ...]:
        """Return which nodes the job may run on."""
        return placement.judge(
            job, self.nodes or [], tolerations=self.tolerations, node_labels=self.node_labels, fabric=self.fabric
        )

    def eligible(self, job: Job) -> set[str]:
        """Return the uids of the nodes that the job may run on; empty where nodes may not be read."""
        fitting = {item.node for item in self.verdicts(job) if not item.reasons}
        found = [item["metadata"] for item in self.nodes or [] if item["metadata"]["name"] in fitting]
        return {str(meta.get("uid") or meta["name"]) for meta in found}

    @property
    def warnings(self) -> list[str]:
        """Return what could not be judged."""
        found = []
        if self.nodes is None:
            found.append("nodes cannot be read with this kubeconfig: the scheduler will judge")
        if not self.queues_known and self.queue is None:
            found.append("queues cannot be read with this kubeconfig: name one in placement.queue if there is one")
        return found


def look(client: Client, job: Job, namespace: str) -> Facts:
    """Read what the plan depends on: nodes, queues, claims and policies."""
    nodes = _readable(client, "v1/Node", None)
    listed_queues = _queues(client, namespace, job.placement.queue) if _for_kueue(job) else []
    found = listed_queues or []
    names = tuple(item["metadata"]["name"] for item in found)
    wanted = _chosen(job, names)
    listed = _readable(client, "v1/PersistentVolumeClaim", namespace) if any(mount.pvc for mount in job.mounts) else []
    claims = {item["metadata"]["name"]: item for item in listed} if listed is not None else None
    policies = _readable(client, "networking.k8s.io/v1/NetworkPolicy", namespace) or []
    queue = _queue(client, next(item for item in found if item["metadata"]["name"] == wanted)) if wanted else None
    if listed_queues is None and job.placement.queue:
        # Who may not list them may submit to one all the same.
        names, queue = (job.placement.queue,), Queue(job.placement.queue)
    classes = _readable(client, f"{_QUEUE}/WorkloadPriorityClass", None) if job.placement.priority and queue else None
    waiting = any(placement.pending_class((claims or {}).get(mount.pvc or "") or {}) for mount in job.mounts)
    storage = _readable(client, "storage.k8s.io/v1/StorageClass", None) if waiting else None
    return Facts(
        nodes,
        names,
        queue,
        claims,
        policies,
        _names(classes),
        _names(storage),
        queues_known=listed_queues is not None,
        secrets=_secrets(client, job, namespace),
        ranges=tuple(_readable(client, "v1/LimitRange", namespace) or ()),
    )


def _secrets(client: Client, job: Job, namespace: str) -> dict[str, frozenset[str] | None]:
    """Return the keys of the Secrets that the job names, None for one that is not there."""
    found: dict[str, frozenset[str] | None] = {}
    for name in dict.fromkeys(str(ref.path) for ref in job.secret_refs if ref.source == "kubernetes"):
        try:
            live = client.get("v1/Secret", name, namespace)
        except KubeError as exc:
            if exc.status not in _FORBIDDEN:
                raise
            continue
        found[name] = None if live is None else frozenset(live.get("data") or {})
    return found


def _judge_secrets(job: Job, facts: Facts, namespace: str) -> None:
    for ref in job.secret_refs:
        if ref.source != "kubernetes" or str(ref.path) not in facts.secrets:
            continue
        keys, what = facts.secrets[str(ref.path)], f"job.secret_refs: '{ref.name}'"
        if keys is None:
            fix = "Make it (muster.training.kube_secret), or name another"
            raise RefusedError(f"{what}: there is no Secret {ref.path} in the namespace {namespace}", fix)
        wanted = (".dockerconfigjson", ".dockercfg") if ref.deliver == "registry" else (ref.key or ref.name,)
        if not keys & set(wanted):
            known = f"it has {', '.join(sorted(keys))}" if keys else "it has none"
            fix = "Name a Secret for images" if ref.deliver == "registry" else "Set key to one of them"
            raise RefusedError(f"{what}: the Secret {ref.path} has no key {wanted[0]} ({known})", fix)


def _for_kueue(job: Job) -> bool:
    """Return whether Kueue admits the job; Volcano has queues and priorities of its own, which are its to judge."""
    return job.engine != "volcano"


def judge(job: Job, facts: Facts, namespace: str) -> None:
    """Refuse what the cluster cannot run.

    :raises RefusedError: naming the option and what there is instead.
    """
    kueue = _for_kueue(job)
    asked = job.placement.queue if kueue else None
    if asked and asked not in facts.queues:
        known = f"there are: {', '.join(facts.queues)}" if facts.queues else "there is none"
        raise RefusedError(
            f"job.placement.queue: no LocalQueue {asked} in the namespace {namespace} ({known})",
            "Name another one, make it (playbook team), or leave it out where the cluster has no Kueue",
        )
    if kueue and not asked and len(facts.queues) > 1:
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
        placement.claims(job, facts.claims, namespace, facts.classes)
    _judge_secrets(job, facts, namespace)
    if facts.nodes is None and job.resources.rdma:
        raise RefusedError(
            "job.resources.rdma: nodes may not be read here, so nobody knows what their RDMA resource is called",
            "Let the user read nodes (team_reads_nodes), or leave it out",
        )
    if facts.nodes is not None:
        placement.refuse(job, facts.verdicts(job), _one_a_node(job, facts.nodes))
        placement.refuse_islands(job, facts.islands(job), by_queue=facts.by_queue)


def plan(
    job: Job, source: hosts_plan.Source, run_id: str, cluster: str, namespace: str, attempt: int, facts: Facts
) -> KubePlan:
    """Return the plan of a run whose first attempt has the number ``attempt``."""
    context = RunContext(run_id, hosts_plan.port(run_id), attempt, job.checkpoint_folder(run_id))
    nodes = facts.nodes or []
    rdma = placement.rdma_resource(job, nodes, facts.tolerations)
    roomy = placement.roomy(job, facts.islands(job))
    kept_in = roomy[0] if len(roomy) == 1 and not facts.by_queue else None
    secret = any(ref.source != "kubernetes" for ref in job.secret_refs)
    made = KubePlan(
        job=job,
        run_id=run_id,
        cluster=cluster,
        namespace=namespace,
        pods=registry.pods(job, context),
        program={name: agent_package.read_sources()[name] for name in PROGRAM_FILES},
        archive=_packed(source),
        queue=facts.queue,
        fleet=Fleet(
            placement.expressions(job, nodes, kept_in, fabric=facts.fabric),
            rdma_resource=rdma,
            whole_node=_whole(job, nodes),
        ),
        secret=secret_name(object_name(run_id)) if secret else None,
        pull_secrets=tuple(str(ref.path) for ref in job.secret_refs if ref.deliver == "registry"),
        ranges=facts.ranges,
    )
    labelled = [{**made.labels, ROLE_LABEL: role} for role in made.pods]
    denied = any(supporting_objects.denies_egress(facts.policies, labels) for labels in labelled)
    return dataclasses.replace(made, egress_denied=denied)


def objects(made: KubePlan) -> list[Object]:
    """Return the run's objects; the last one runs the job."""
    return jobs_registry.build(made)


def secret(made: KubePlan, values: tuple[dict[str, str], dict[str, bytes]]) -> dict[str, t.Any] | None:
    """Return the options for the run's Secret, None when the job has no values of its own."""
    if made.secret is None:
        return None
    env, files = values
    data = {**{name: text.encode() for name, text in env.items()}, **files}
    return {"name": made.secret, "labels": made.labels, "data": data}


def _packed(source: hosts_plan.Source) -> bytes:
    """Return code and staged data as one archive, in the places where the program looks for them."""
    files: list[tuple[str, int, bytes]] = []
    for placed in source.placed:
        for file in placed.tree.files:
            files.append((f"{placed.target}/{file.path}", file.mode, file.source.read_bytes()))
    return code_archive.pack(files) if files else b""


def _names(listed: list[Object] | None) -> tuple[str, ...] | None:
    return None if listed is None else tuple(item["metadata"]["name"] for item in listed)


def _readable(client: Client, kind: str, namespace: str | None) -> list[Object] | None:
    try:
        return client.list(kind, namespace).items
    except KubeError as exc:
        if exc.status in _FORBIDDEN:
            return None
        raise


def _queues(client: Client, namespace: str, asked: str | None) -> list[Object] | None:
    """Return the LocalQueues, none where the cluster has no Kueue; None where they may not be read.

    :raises RefusedError: when one was asked for and the cluster's Kueue is too old.
    """
    found = [entry.resource for entry in client.catalog.entries() if entry.resource.group == "kueue.x-k8s.io"]
    if any(resource.api_version == _QUEUE for resource in found):
        return _readable(client, f"{_QUEUE}/LocalQueue", namespace)
    if found and asked:
        versions = ", ".join(sorted({resource.api_version for resource in found}))
        raise RefusedError(
            f"job.placement.queue: this cluster's Kueue serves {versions}, and {_QUEUE} is needed",
            "Upgrade Kueue to 0.15 or newer, or leave the queue out",
        )
    return []


def insist_engine(client: Client, job: Job) -> None:
    """Refuse an engine whose operator the cluster lacks.

    :raises RefusedError: naming what to install, and the way without it.
    """
    api_version, kind, component = jobs_registry.NEEDS.get(job.engine, ("", "", ""))
    if not kind:
        return
    try:
        client.catalog.find(api_version, kind)
    except InputError:
        plain = job.launcher in ENGINE_LAUNCHERS["indexed_job"]
        raise RefusedError(
            f"job.placement.engine: {job.engine} needs {component}, and the API server does not serve "
            f"{api_version} {kind}",
            "Install it, or set placement.engine: indexed_job, which needs nothing else" if plain else "Install it",
        ) from None


def _chosen(job: Job, names: t.Sequence[str]) -> str | None:
    """Return the queue to submit to: as asked, else the only one there is."""
    if job.placement.queue:
        return job.placement.queue if job.placement.queue in names else None
    return names[0] if len(names) == 1 else None


def _queue(client: Client, local: Object) -> Queue:
    """Return the queue with what its flavors say of topology and nodes."""
    name = local["metadata"]["name"]
    try:
        outer = client.get(f"{_QUEUE}/ClusterQueue", str(local["spec"].get("clusterQueue")))
        groups = ((outer or {}).get("spec") or {}).get("resourceGroups") or []
        flavors = [item["name"] for group in groups for item in group.get("flavors") or []]
        found = [client.get(f"{_QUEUE}/ResourceFlavor", flavor) for flavor in dict.fromkeys(flavors)]
        topologies = [str((item or {}).get("spec", {}).get("topologyName") or "") for item in found]
        borne = tuple(rule for item in found for rule in (item or {}).get("spec", {}).get("tolerations") or ())
        labels = (found[0] or {}).get("spec", {}).get("nodeLabels") if len(found) == 1 else None
        covered = frozenset(str(item) for group in groups for item in group.get("coveredResources") or [])
        queue = Queue(name, tolerations=borne, node_labels=labels or {}, covered=covered)
        if not topologies or not all(topologies):
            return queue
        levels = (client.get(f"{_QUEUE}/Topology", topologies[0]) or {}).get("spec", {}).get("levels") or []
    except KubeError as exc:
        if exc.status in _FORBIDDEN:
            return Queue(name)
        raise
    islands = any(level.get("nodeLabel") == ISLAND_LABEL for level in levels)
    return dataclasses.replace(queue, topology=True, island_level=ISLAND_LABEL if islands else None)


def _one_a_node(job: Job, nodes: t.Sequence[Object]) -> bool:
    """Return whether a node takes one pod of the job only."""
    return job.placement.network_mode == "host" or _whole(job, nodes)


def _whole(job: Job, nodes: t.Sequence[Object]) -> bool:
    """Return whether a pod takes all GPUs of every node that has enough of them."""
    if not job.gpus_per_node:
        return False
    counts = [placement.gpu_count(node) for node in nodes]
    fitting = [count for count in counts if count >= job.gpus_per_node]
    return bool(fitting) and max(fitting) == job.gpus_per_node
