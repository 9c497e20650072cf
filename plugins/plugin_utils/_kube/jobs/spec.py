# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plan of a job on Kubernetes, from which builders make its objects. Pure: the same plan gives the same objects.

An engine is one file with a function ``build(plan) -> objects`` and one line in registry.py. The last object is the one
that runs the job; the objects before it are its supporting objects.
"""

from __future__ import annotations

import dataclasses
import hashlib
import re
import typing as t

from ....module_utils._model.job import Job, SecretRef
from ....module_utils._model.pod_spec import PodSpec
from ..api import kinds
from ..api.kinds import KubeObject, ObjectMeta
from ..objects.device_claims import TEMPLATE

PREFIX, RUN_LABEL = kinds.PREFIX, kinds.RUN_LABEL
CLUSTER_LABEL = f"{PREFIX}/cluster"
JOB_LABEL = f"{PREFIX}/job"
ROLE_LABEL = f"{PREFIX}/role"
# An annotation of the object that runs the job: by it a run of the same name with another job or code is noticed.
DIGEST = f"{PREFIX}/job-digest"
# An annotation of the object that runs the job: a user cancels the run, so that its deletion is wanted.
CANCELLED = f"{PREFIX}/cancelled-by"
# The roles of pods that a run has beside its gang.
NETWORK_TEST, LOG_READER = "probe", "reader"
ATTEMPT_LABEL = f"{PREFIX}/first-attempt"
# Labels of nodes: written when the fabric was verified, read here.
ISLAND_LABEL = f"{PREFIX}/island"
LANE_LABEL = f"{PREFIX}/lane"
FABRIC_LABEL = f"{PREFIX}/fabric"
NETWORK_LABEL = f"{PREFIX}/network-{{}}"
# The kinds of supporting objects, but for Secrets: listing those shows their values, and few users may do it.
SUPPORTING_KINDS = ("v1/ConfigMap", "v1/Service", "networking.k8s.io/v1/NetworkPolicy")
MANAGER = "muster.training"
CONTAINER = "node"
# An engine appends its own parts (job index, pod index, five random characters) to this within 63 characters.
_NAME_LIMIT = 40
_LABEL_LIMIT = 63


class PodTemplate(t.TypedDict):
    """The pod template of a job (PodTemplateSpec in the API's reference)."""

    metadata: ObjectMeta
    spec: dict[str, t.Any]


@dataclasses.dataclass(frozen=True, slots=True)
class Queue:
    """A LocalQueue of Kueue. ``topology``: whether its flavors have one; ``island_level``: its level of islands.

    ``tolerations``: what its flavors add to pods at admission; ``node_labels``: the node selector of its only flavor,
    empty when it has several. ``quota_resources``: the resources it has quota for, None where
    that is not known; Kueue admits no pod that requests another one.
    """

    name: str
    topology: bool = False
    island_level: str | None = None
    tolerations: tuple[t.Mapping[str, object], ...] = ()
    node_labels: t.Mapping[str, str] = dataclasses.field(default_factory=dict)
    quota_resources: frozenset[str] | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class EligibleNodes:
    """The nodes that the job may use. ``expressions`` select them, as in a node selector's term.

    ``whole_node``: the job takes all of a node, so that no two of its pods may share one. ``rdma_resource`` is the
    extended resource of the device plugin, None when the nodes have no RDMA; ``rdma_networks``: those that take it, to
    each of which a pod is attached. ``device_class``: by which pods claim GPUs (DRA), None where they request
    ``gpu_resource``.
    """

    expressions: tuple[t.Mapping[str, object], ...] = ()
    gpu_resource: str = "nvidia.com/gpu"
    rdma_resource: str | None = None
    rdma_networks: tuple[str, ...] = ()
    whole_node: bool = False
    device_class: str | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class KubePlan:
    """A job on a cluster with all decisions made.

    ``pods``: role -> specification, from the launcher. ``program``: file name -> source of what runs in a pod.
    ``archive``: the code (and staged data) as tar.gz. ``secret``: the Secret with the job's secrets by name.
    ``store_keys``: what else it holds, for object stores. ``external_secret``: the one that External Secrets makes.
    ``stream``: the variables with which programs read a store themselves, without the credentials.
    ``pull_secret``: the Secret that the run makes for the kubelet; ``pull_secrets``: all that it pulls with.
    ``egress_denied``: a policy of the namespace denies egress.
    ``pinned``: the job's image with the digest that all of its pods run, None where its tag was not resolved.
    ``begun``: Unix seconds of its submission. ``followed``: a controller follows the run and counts its lost nodes.
    ``ranges``: the namespace's LimitRanges, within which the small pods beside the gang stay.
    """

    job: Job
    run_id: str
    cluster: str
    namespace: str
    pods: t.Mapping[str, PodSpec]
    program: t.Mapping[str, str]
    archive: bytes = b""
    queue: Queue | None = None
    fleet: EligibleNodes = EligibleNodes()
    secret: str | None = None
    store_keys: tuple[str, ...] = ()
    stream: t.Mapping[str, str] = dataclasses.field(default_factory=dict)
    external_secret: str | None = None
    pull_secret: str | None = None
    pull_secrets: tuple[str, ...] = ()
    pinned: str | None = None
    egress_denied: bool = False
    begun: int = 0
    followed: bool = True
    ranges: tuple[KubeObject, ...] = ()

    @property
    def name(self) -> str:
        """Return the name of the run's objects."""
        return object_name(self.run_id)

    @property
    def image(self) -> str | None:
        """Return the image that pods run."""
        return self.pinned or self.job.image

    @property
    def first_attempt(self) -> int:
        """Return the number of the first attempt of this start."""
        return next(iter(self.pods.values())).attempt

    @property
    def labels(self) -> dict[str, str]:
        """Return the labels of every object and every pod of the run."""
        return {
            "app.kubernetes.io/managed-by": MANAGER,
            RUN_LABEL: label_value(self.run_id),
            CLUSTER_LABEL: label_value(self.cluster),
            JOB_LABEL: self.job.name,
            ATTEMPT_LABEL: str(self.first_attempt),
        }

    @property
    def queue_labels(self) -> dict[str, str]:
        """Return Kueue's labels of the object that runs the job."""
        if self.queue is None:
            return {}
        labels = {"kueue.x-k8s.io/queue-name": self.queue.name}
        if self.job.placement.priority:
            labels["kueue.x-k8s.io/priority-class"] = self.job.placement.priority
        return labels

    @property
    def rdma(self) -> bool:
        """Return whether pods get RDMA devices: as the job says, else when the nodes have them."""
        wanted = self.job.resources.rdma
        return self.fleet.rdma_resource is not None and wanted is not False

    @property
    def device_class(self) -> str | None:
        """Return the class by which pods claim their GPUs, None where they request them or have none."""
        return self.fleet.device_class if self.job.gpus_per_node else None

    @property
    def supporting_kinds(self) -> tuple[str, ...]:
        """Return the kinds of the run's supporting objects, but for Secrets."""
        return (*SUPPORTING_KINDS, *([TEMPLATE] if self.device_class else []))

    @property
    def host_network(self) -> bool:
        """Return whether pods share their node's network."""
        return self.job.placement.network_mode == "host"

    def metadata(self, name: str, **labels: str) -> ObjectMeta:
        """Return an object's metadata."""
        return {"name": name, "namespace": self.namespace, "labels": {**self.labels, **labels}}


def object_name(run_id: str) -> str:
    """Return a run's name as Kubernetes allows it (RFC 1035); a shortened or changed name gets a digest."""
    name = re.sub(r"[^a-z0-9-]+", "-", run_id.lower()).strip("-")
    if not name or not name[0].isalpha():
        name = f"run-{name}".rstrip("-")
    if name == run_id and len(name) <= _NAME_LIMIT:
        return name
    digest = hashlib.sha256(run_id.encode()).hexdigest()[:8]
    return f"{name[: _NAME_LIMIT - 9].rstrip('-')}-{digest}"


def pull_secret_name(name: str) -> str:
    """Return the name of the Secret with the credentials for registries of a run whose objects have this name."""
    return f"{name}-pull"


def secret_name(name: str) -> str:
    """Return the name of the Secret of a run whose objects have this name."""
    return f"{name}-secrets"


def external_secret_name(name: str, attempt: int) -> str:
    """Return the name of the Secret that External Secrets makes for a start; a later start never meets an earlier's."""
    return f"{name}-external-{attempt}"


def find_secret(plan: KubePlan, ref: SecretRef) -> tuple[str | None, str]:
    """Return the Secret in which pods find a secret of the job, None where the plan has none, and its key there."""
    if ref.source == "kubernetes":
        return ref.path, ref.key or ref.name
    return plan.external_secret if ref.source == "external_secrets" else plan.secret, ref.name


def label_value(text: str) -> str:
    """Return ``text`` as a label's value: unchanged when it is valid, else a name with a digest of the text."""
    if len(text) <= _LABEL_LIMIT and re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?", text):
        return text
    return object_name(text)


def selector(run_id: str) -> str:
    """Return the label selector of everything that belongs to a run."""
    return f"{RUN_LABEL}={label_value(run_id)}"


def gang_selector(run_id: str) -> str:
    """Return the label selector of the gang's pods, without those of the network test and the log reader."""
    return f"{selector(run_id)},{ROLE_LABEL} notin ({NETWORK_TEST},{LOG_READER})"


def set_owner(objects: t.Iterable[KubeObject], owner: KubeObject) -> list[KubeObject]:
    """Return the objects with the live object ``owner`` as their owner: they are deleted with it."""
    reference = {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "blockOwnerDeletion": False,
        "controller": False,
    }
    return [{**item, "metadata": {**item["metadata"], "ownerReferences": [reference]}} for item in objects]
