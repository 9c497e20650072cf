# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a cluster says of itself that a plan depends on: nodes, queues, volume claims, policies, secrets."""

from __future__ import annotations

import dataclasses
import typing as t

from .....module_utils._model.errors import InputError, RefusedError
from .....module_utils._model.job import Job
from .....module_utils._model.job_backends import ENGINE_LAUNCHERS
from .....module_utils._model.rdma_resources import NETWORK_RESOURCE, list_resources, needs_node_network
from ...._kube.api.client import Client
from ...._kube.api.errors import KubeError
from ...._kube.api.kinds import KubeObject
from ...._kube.jobs import registry as jobs_registry
from ...._kube.jobs.spec import ISLAND_LABEL, Queue
from ...._kube.nodes.gpu_claims import show_offered
from ...._kube.placement.volume_claims import pending_storage_class

_QUEUE = "kueue.x-k8s.io/v1beta2"
_NETWORKS = "k8s.cni.cncf.io/v1/NetworkAttachmentDefinition"
_ENFORCE = "pod-security.kubernetes.io/enforce"


@dataclasses.dataclass(frozen=True)
class ClusterFacts:
    """What the cluster reported. None: this user may not read it, or nothing depends on it."""

    nodes: list[KubeObject] | None
    queues: tuple[str, ...]
    queue: Queue | None
    claims: t.Mapping[str, KubeObject] | None
    policies: list[KubeObject]
    priorities: tuple[str, ...] | None = None
    classes: tuple[str, ...] | None = None
    # Whether the namespace's LocalQueues could be read.
    queues_readable: bool = True
    # Secrets that the job names, by name: their keys, None for one that does not exist. Unreadable ones are missing.
    secrets: t.Mapping[str, frozenset[str] | None] = dataclasses.field(default_factory=dict)
    ranges: tuple[KubeObject, ...] = ()
    # By resource the networks that take it, as a pod of the job's namespace names them.
    networks: t.Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    # The Pod Security level that the namespace enforces, empty for none. Read where the job's network depends on it.
    enforced: str | None = None

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

    @property
    def warnings(self) -> list[str]:
        """Return what could not be checked."""
        lines = []
        if self.nodes is None:
            lines.append("nodes cannot be read with this kubeconfig: the scheduler alone decides where pods run")
        if not self.queues_readable and self.queue is None:
            lines.append("queues cannot be read with this kubeconfig: name one in placement.queue if there is one")
        return lines


def read_cluster_facts(client: Client, job: Job, namespace: str) -> ClusterFacts:
    """Return what the cluster says of its nodes, queues, claims and policies."""
    nodes = _list_readable(client, "v1/Node", None)
    if nodes and job.gpus_per_node:
        nodes = show_offered(client, nodes)
    enforced = read_security_level(client, namespace) if _asks_security(job, nodes) else None
    listed_queues = _list_queues(client, namespace, job.placement.queue) if uses_kueue(job) else []
    queues = listed_queues or []
    names = tuple(item["metadata"]["name"] for item in queues)
    queue_name = _choose_queue(job, names)
    claims = _read_claims(client, job, namespace)
    policies = _list_readable(client, "networking.k8s.io/v1/NetworkPolicy", namespace) or []
    local = next((item for item in queues if item["metadata"]["name"] == queue_name), None)
    queue = _read_queue(client, local) if local else None
    if listed_queues is None and job.placement.queue:
        # Who may not list them may submit to one all the same.
        names, queue = (job.placement.queue,), Queue(job.placement.queue)
    classes = None
    if job.placement.priority and queue:
        classes = _list_readable(client, f"{_QUEUE}/WorkloadPriorityClass", None)
    waiting = any(pending_storage_class((claims or {}).get(mount.pvc or "") or {}) for mount in job.mounts)
    storage = _list_readable(client, "storage.k8s.io/v1/StorageClass", None) if waiting else None
    return ClusterFacts(
        nodes,
        names,
        queue,
        claims,
        policies,
        _names(classes),
        _names(storage),
        queues_readable=listed_queues is not None,
        secrets=_read_secret_keys(client, job, namespace),
        ranges=tuple(_list_readable(client, "v1/LimitRange", namespace) or ()),
        enforced=enforced,
        networks=read_networks(client, namespace) if _list_rdma(job, nodes) else {},
    )


def _asks_security(job: Job, nodes: t.Iterable[KubeObject] | None) -> bool:
    """Return whether the job's network depends on what the namespace allows: some RDMA devices are shared."""
    return job.placement.network_mode == "auto" and any(needs_node_network(name) for name in _list_rdma(job, nodes))


def _list_rdma(job: Job, nodes: t.Iterable[KubeObject] | None) -> set[str]:
    """Return the RDMA resources that the job may get."""
    if isinstance(job.resources.rdma, str):
        return {job.resources.rdma}
    return {name for node in nodes or () for name in list_resources(node.get("status", {}).get("allocatable"))}


def read_networks(client: Client, namespace: str) -> dict[str, tuple[str, ...]]:
    """Return by resource the networks of a namespace that take it (Multus), none where the cluster has none."""
    if not client.catalog.serves(_NETWORKS.rpartition("/")[0]):
        return {}
    found: dict[str, tuple[str, ...]] = {}
    for item in _list_readable(client, _NETWORKS, namespace) or ():
        resource = (item["metadata"].get("annotations") or {}).get(NETWORK_RESOURCE)
        if resource:
            found[resource] = (*found.get(resource, ()), f"{namespace}/{item['metadata']['name']}")
    return {resource: tuple(sorted(names)) for resource, names in found.items()}


def read_security_level(client: Client, namespace: str) -> str | None:
    """Return the Pod Security level that a namespace enforces, empty for none; None where it cannot be read."""
    try:
        live = client.get("v1/Namespace", namespace)
    except KubeError as exc:
        if exc.is_forbidden:
            return None
        raise
    return str((live["metadata"].get("labels") or {}).get(_ENFORCE) or "") if live else None


def _read_claims(client: Client, job: Job, namespace: str) -> dict[str, KubeObject] | None:
    if not any(mount.pvc for mount in job.mounts):
        return {}
    listed = _list_readable(client, "v1/PersistentVolumeClaim", namespace)
    return {claim["metadata"]["name"]: claim for claim in listed} if listed is not None else None


def uses_kueue(job: Job) -> bool:
    """Return whether Kueue admits the job; Volcano has queues and priorities of its own, which the cluster checks."""
    return job.engine != "volcano"


def require_engine(client: Client, job: Job) -> None:
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


def _read_secret_keys(client: Client, job: Job, namespace: str) -> dict[str, frozenset[str] | None]:
    """Return the keys of the Secrets that the job names, None for one that does not exist."""
    keys: dict[str, frozenset[str] | None] = {}
    for name in dict.fromkeys(str(ref.path) for ref in job.secret_refs if ref.source == "kubernetes"):
        try:
            live = client.get("v1/Secret", name, namespace)
        except KubeError as exc:
            if not exc.is_forbidden:
                raise
            continue
        keys[name] = None if live is None else frozenset(live.get("data") or {})
    return keys


def _names(listed: list[KubeObject] | None) -> tuple[str, ...] | None:
    return None if listed is None else tuple(item["metadata"]["name"] for item in listed)


def _list_readable(client: Client, kind: str, namespace: str | None) -> list[KubeObject] | None:
    """Return the objects of a kind, None where this user may not list them."""
    try:
        return client.list(kind, namespace).items
    except KubeError as exc:
        if exc.is_forbidden:
            return None
        raise


def _list_queues(client: Client, namespace: str, wanted: str | None) -> list[KubeObject] | None:
    """Return the LocalQueues, none where the cluster has no Kueue; None where they may not be read.

    :raises RefusedError: when the job names one and the cluster's Kueue is too old.
    """
    served = [entry.resource for entry in client.catalog.entries() if entry.resource.group == "kueue.x-k8s.io"]
    if any(resource.api_version == _QUEUE for resource in served):
        return _list_readable(client, f"{_QUEUE}/LocalQueue", namespace)
    if served and wanted:
        versions = ", ".join(sorted({resource.api_version for resource in served}))
        raise RefusedError(
            f"job.placement.queue: this cluster's Kueue serves {versions}, and {_QUEUE} is needed",
            "Upgrade Kueue to 0.15 or newer, or leave the queue out",
        )
    return []


def _choose_queue(job: Job, names: t.Sequence[str]) -> str | None:
    """Return the queue to submit to: as asked, else the only one there is."""
    if job.placement.queue:
        return job.placement.queue if job.placement.queue in names else None
    return names[0] if len(names) == 1 else None


def _read_queue(client: Client, local: KubeObject) -> Queue:
    """Return the queue with what its flavors say of topology and nodes; its name alone where those cannot be read."""
    name = local["metadata"]["name"]
    try:
        cluster_queue = client.get(f"{_QUEUE}/ClusterQueue", str(local["spec"].get("clusterQueue"))) or {}
        groups = cluster_queue.get("spec", {}).get("resourceGroups") or []
        flavors = _read_flavors(client, groups)
        topologies = [str(flavor.get("topologyName") or "") for flavor in flavors]
        has_topology = bool(topologies) and all(topologies)
        return Queue(
            name,
            tolerations=tuple(rule for flavor in flavors for rule in flavor.get("tolerations") or ()),
            # With several flavors Kueue chooses which one a gang gets.
            node_labels=flavors[0].get("nodeLabels") or {} if len(flavors) == 1 else {},
            quota_resources=frozenset(str(item) for group in groups for item in group.get("coveredResources") or ()),
            topology=has_topology,
            island_level=ISLAND_LABEL if has_topology and _has_island_level(client, topologies[0]) else None,
        )
    except KubeError as exc:
        if exc.is_forbidden:
            return Queue(name)
        raise


def _read_flavors(client: Client, groups: t.Iterable[t.Mapping[str, t.Any]]) -> list[t.Mapping[str, t.Any]]:
    """Return the specs of the flavors of a queue's resource groups, each once; empty for one that does not exist."""
    names = dict.fromkeys(item["name"] for group in groups for item in group.get("flavors") or ())
    return [(client.get(f"{_QUEUE}/ResourceFlavor", name) or {}).get("spec") or {} for name in names]


def _has_island_level(client: Client, topology: str) -> bool:
    """Return whether a topology has the level of the island label."""
    levels = (client.get(f"{_QUEUE}/Topology", topology) or {}).get("spec", {}).get("levels") or ()
    return any(level.get("nodeLabel") == ISLAND_LABEL for level in levels)
