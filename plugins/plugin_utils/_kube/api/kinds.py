# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Kinds and their paths: the types of objects, the built-in kinds as a table, object titles, the order of an apply."""

from __future__ import annotations

import datetime
import typing as t
from collections.abc import Mapping

from ....module_utils._http.urls import route
from ....module_utils._model.errors import InputError

# All labels of ours begin so; objects of a run have its id.
PREFIX = "muster.training"
RUN_LABEL = f"{PREFIX}/run-id"
# The parts of an object that its kind defines: JSON, as the API's reference describes it.
type Fields = dict[str, t.Any]
# A part of an object that is built here.
type JsonObject = dict[str, object]


class ObjectMeta(t.TypedDict, total=False):
    """What the API notes about every object (ObjectMeta in the API's reference); dates are RFC 3339."""

    name: str
    generateName: str
    namespace: str
    uid: str
    resourceVersion: str
    generation: int
    creationTimestamp: str
    deletionTimestamp: str
    deletionGracePeriodSeconds: int
    labels: dict[str, str]
    annotations: dict[str, str]
    finalizers: list[str]
    ownerReferences: list[Fields]
    managedFields: list[Fields]


class KubeObject(t.TypedDict, total=False):
    """An object as the API serves it. What is not there may be missing or null: ``value.get("spec") or {}``."""

    apiVersion: str
    kind: str
    metadata: ObjectMeta
    spec: Fields
    status: Fields
    # Of ConfigMap and Secret.
    data: dict[str, str]
    stringData: dict[str, str]
    binaryData: dict[str, str]
    immutable: bool
    type: str
    # Of Event (v1), whose ``type`` is Normal or Warning.
    reason: str
    message: str
    count: int
    series: Fields
    involvedObject: Fields
    firstTimestamp: str
    lastTimestamp: str
    eventTime: str


# ``continue`` is a word of Python.
ListMeta = t.TypedDict("ListMeta", {"continue": str, "resourceVersion": str, "remainingItemCount": int}, total=False)


class ObjectList(t.TypedDict, total=False):
    """A page of a LIST."""

    metadata: ListMeta
    items: list[KubeObject]


class Condition(t.TypedDict, total=False):
    """One of the conditions in an object's status."""

    type: str
    status: str
    reason: str
    message: str
    lastTransitionTime: str


class Resource(t.NamedTuple):
    """One kind as the API serves it. ``group`` is empty for the core group."""

    group: str
    version: str
    kind: str
    plural: str
    namespaced: bool

    @property
    def api_version(self) -> str:
        """``apiVersion`` as objects write it."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def family(self) -> tuple[str, str]:
        """Group and kind: the same object may be read in several versions."""
        return self.group, self.kind

    @property
    def built_in(self) -> bool:
        """Whether it is one of the kinds that every server has."""
        return BUILT_IN.get((self.api_version, self.kind)) == self

    def path(self, namespace: str | None = None, name: str | None = None, subresource: str | None = None) -> str:
        """Return the path of the collection or of one object, percent-encoded."""
        prefix = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        if self.namespaced and namespace:
            prefix += route("/namespaces/{namespace}", namespace=namespace)
        path = f"{prefix}/{self.plural}"
        if name is not None:
            path += route("/{name}", name=name)
        return f"{path}/{subresource}" if subresource else path


def _built_in_kinds() -> t.Iterator[Resource]:
    """The stable kinds of Kubernetes 1.28 and later; their paths and scopes never change."""
    spaced: dict[str, str] = {
        "v1": "ConfigMap Endpoints Event LimitRange PersistentVolumeClaim Pod PodTemplate ReplicationController"
        " ResourceQuota Secret Service ServiceAccount",
        "apps/v1": "ControllerRevision DaemonSet Deployment ReplicaSet StatefulSet",
        "batch/v1": "CronJob Job",
        "autoscaling/v2": "HorizontalPodAutoscaler",
        "coordination.k8s.io/v1": "Lease",
        "discovery.k8s.io/v1": "EndpointSlice",
        "networking.k8s.io/v1": "Ingress NetworkPolicy",
        "policy/v1": "PodDisruptionBudget",
        "rbac.authorization.k8s.io/v1": "Role RoleBinding",
    }
    wide: dict[str, str] = {
        "v1": "Namespace Node PersistentVolume",
        "admissionregistration.k8s.io/v1": "MutatingWebhookConfiguration ValidatingWebhookConfiguration",
        "apiextensions.k8s.io/v1": "CustomResourceDefinition",
        "apiregistration.k8s.io/v1": "APIService",
        "networking.k8s.io/v1": "IngressClass",
        "node.k8s.io/v1": "RuntimeClass",
        "rbac.authorization.k8s.io/v1": "ClusterRole ClusterRoleBinding",
        "scheduling.k8s.io/v1": "PriorityClass",
        "storage.k8s.io/v1": "CSIDriver CSINode StorageClass VolumeAttachment",
    }
    for kinds, namespaced in ((spaced, True), (wide, False)):
        for api_version, names in kinds.items():
            for kind in names.split():
                yield Resource(*_split_api_version(api_version), kind, _plural(kind), namespaced)


def _split_api_version(api_version: str) -> tuple[str, str]:
    group, _unused, version = api_version.rpartition("/")
    return group, version


def _plural(kind: str) -> str:
    lower = kind.lower()
    if lower == "endpoints":
        return lower
    if lower.endswith(("s", "x", "ch", "sh")):
        return f"{lower}es"
    return f"{lower[:-1]}ies" if lower.endswith("y") else f"{lower}s"


BUILT_IN: t.Final[Mapping[tuple[str, str], Resource]] = {(r.api_version, r.kind): r for r in _built_in_kinds()}
BY_WORD: t.Final[Mapping[str, Resource]] = {
    word: r for r in BUILT_IN.values() for word in (r.kind, r.kind.lower(), r.plural)
}

# The groups that are compiled into the API server. Many other groups have the same ending.
_GROUPS = """apps autoscaling batch policy admissionregistration.k8s.io apiextensions.k8s.io apiregistration.k8s.io
certificates.k8s.io coordination.k8s.io discovery.k8s.io events.k8s.io flowcontrol.apiserver.k8s.io networking.k8s.io
node.k8s.io rbac.authorization.k8s.io resource.k8s.io scheduling.k8s.io storage.k8s.io"""
BUILT_IN_GROUPS: t.Final = frozenset({"", *_GROUPS.split()})

# What other objects need goes first; what can refuse other objects goes last.
_NEEDED = """ServiceAccount Secret ConfigMap ResourceQuota LimitRange PriorityClass StorageClass RuntimeClass
IngressClass PersistentVolume PersistentVolumeClaim Role ClusterRole RoleBinding ClusterRoleBinding NetworkPolicy
Service PodDisruptionBudget ValidatingAdmissionPolicy DeviceClass ResourceClaimTemplate"""
_GATES = """MutatingWebhookConfiguration ValidatingWebhookConfiguration APIService ValidatingAdmissionPolicyBinding
MutatingAdmissionPolicyBinding"""
_FIRST = (frozenset({"Namespace"}), frozenset({"CustomResourceDefinition"}), frozenset(_NEEDED.split()))
_LAST = frozenset(_GATES.split())
NAMESPACES, DEFINITIONS, PARTS, WORK, GATES = range(5)


def apply_stage(resource: Resource) -> int:
    """Return when objects of this kind are applied: ``NAMESPACES`` first, ``GATES`` last."""
    if resource.kind in _LAST:
        return GATES
    built_in = resource.built_in or resource.group.endswith(".k8s.io")
    for number, kinds in enumerate(_FIRST):
        if built_in and resource.kind in kinds:
            return number
    return WORK


def identity(value: Mapping[str, object]) -> tuple[str, str, str]:
    """Return apiVersion, kind and name of an object, or raise :class:`InputError` naming what it lacks."""
    metadata = value.get("metadata")
    name = metadata.get("name") if isinstance(metadata, Mapping) else None
    api_version, kind = value.get("apiVersion"), value.get("kind")
    manifest = f"manifest of {kind or 'object'} {name or ''}".rstrip()
    if not isinstance(api_version, str) or not api_version:
        raise InputError(manifest, "has no apiVersion")
    if not isinstance(kind, str) or not kind:
        raise InputError(manifest, "has no kind")
    if not isinstance(name, str) or not name:
        raise InputError(manifest, "has no metadata.name", "generateName cannot be applied")
    return api_version, kind, name


def parse_time(stamp: object) -> float | None:
    """Return the Unix time of a date of the API (RFC 3339), None where it is not one."""
    try:
        return datetime.datetime.fromisoformat(str(stamp)).timestamp()
    except (ValueError, OverflowError):
        return None


def title(kind: str, namespace: str | None, name: str | None) -> str:
    """Return how errors and results call an object: ``ConfigMap team-a/settings``."""
    place = f"{namespace}/{name}" if namespace and name else name or (f"in {namespace}" if namespace else "")
    return f"{kind} {place}".rstrip()
