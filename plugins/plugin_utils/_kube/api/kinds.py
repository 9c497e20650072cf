# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Kinds and where they live: the built-in ones as a table, objects' names for people, what is applied before what.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import datetime
import typing as t
from collections.abc import Mapping

from ....module_utils._http.urls import route
from ....module_utils._model.errors import InputError

KubeObject = dict[str, t.Any]


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

# The groups that are compiled into the API server. Many another one ends alike.
_GROUPS = """apps autoscaling batch policy admissionregistration.k8s.io apiextensions.k8s.io apiregistration.k8s.io
certificates.k8s.io coordination.k8s.io discovery.k8s.io events.k8s.io flowcontrol.apiserver.k8s.io networking.k8s.io
node.k8s.io rbac.authorization.k8s.io resource.k8s.io scheduling.k8s.io storage.k8s.io"""
BUILT_IN_GROUPS: t.Final = frozenset({"", *_GROUPS.split()})

# What others need to be there goes first; what can refuse others goes last.
_NEEDED = """ServiceAccount Secret ConfigMap ResourceQuota LimitRange PriorityClass StorageClass RuntimeClass
IngressClass PersistentVolume PersistentVolumeClaim Role ClusterRole RoleBinding ClusterRoleBinding NetworkPolicy
Service PodDisruptionBudget ValidatingAdmissionPolicy"""
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


def identity(value: Mapping[str, t.Any]) -> tuple[str, str, str]:
    """Return apiVersion, kind and name of an object, or raise :class:`InputError` naming what it lacks."""
    metadata = value.get("metadata")
    name = metadata.get("name") if isinstance(metadata, Mapping) else None
    known = f"{value.get('kind') or 'object'} {name or ''}".strip()
    for key in ("apiVersion", "kind"):
        if not isinstance(value.get(key), str) or not value[key]:
            raise InputError(f"manifest of {known}", f"has no {key}")
    if not isinstance(name, str) or not name:
        raise InputError(f"manifest of {known}", "has no metadata.name", "generateName cannot be applied")
    return value["apiVersion"], value["kind"], name


def parse_time(stamp: t.Any) -> float | None:
    """Return the Unix time of a date that stands in an object (RFC 3339), None where it is none."""
    try:
        return datetime.datetime.fromisoformat(str(stamp)).timestamp()
    except (ValueError, OverflowError):
        return None


def title(kind: str, namespace: str | None, name: str | None) -> str:
    """Return how errors and results call an object: ``ConfigMap team-a/settings``."""
    place = f"{namespace}/{name}" if namespace and name else name or (f"in {namespace}" if namespace else "")
    return f"{kind} {place}".rstrip()
