# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plans an apply: reads the live objects once per kind, compares, and decides what is applied and what is removed."""

from __future__ import annotations

import typing as t
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from ....module_utils._model.errors import InputError, RefusedError
from ..api import discovery
from ..api.client import Client
from ..api.errors import KubeError
from ..api.kinds import KubeObject, Resource, apply_stage, title
from ..api.pages import ListPage
from ..api.transport import IN_FLIGHT
from .apply_noop import applied_fields, is_noop


class ApplyTarget(t.NamedTuple):
    """One wanted object, and where it goes."""

    resource: Resource
    namespace: str | None
    name: str
    value: KubeObject

    @property
    def key(self) -> tuple[str, str, str, str]:
        """The object's key among all objects of a server."""
        return (*self.resource.family, self.namespace or "", self.name)

    @property
    def title(self) -> str:
        """The object's name in errors and results."""
        return title(self.resource.kind, self.namespace, self.name)

    @property
    def stage(self) -> int:
        """The stage in which it is applied."""
        return apply_stage(self.resource)


class ApplyStep(t.NamedTuple):
    """A target, the live object, and whether an apply is needed."""

    target: ApplyTarget
    live: KubeObject | None
    needed: bool


# With these kinds all objects in them or of them are deleted: they are pruned only when they are named.
_CONTAINER_KINDS = frozenset({("", "Namespace"), ("apiextensions.k8s.io", "CustomResourceDefinition")})


# Live objects with their kinds, by group, kind, namespace and name.
type LiveObjects = dict[tuple[str, str, str, str], tuple[Resource, KubeObject]]


class Prune(t.NamedTuple):
    """What to remove: objects with all these labels that our field manager applied and that are no longer wanted.

    ``kinds`` are searched beside those of the wanted objects; namespaces and definitions, with which other users'
    objects are deleted, only when they are among ``kinds``. A kind of an API that the server lacks has no objects.
    """

    labels: t.Mapping[str, str]
    kinds: tuple[str, ...] = ()

    @property
    def selector(self) -> str:
        """The labels as a label selector."""
        return ",".join(f"{key}={value}" for key, value in sorted(self.labels.items()))


class ApplyPlan(t.NamedTuple):
    """Steps in the order of the wanted objects, and the objects to remove."""

    steps: tuple[ApplyStep, ...]
    removals: tuple[ApplyTarget, ...] = ()


def run_parallel[T, R](work: Callable[[T], R], items: Sequence[T]) -> list[R]:
    """Return the results of ``work`` for the items in their order, eight at a time."""
    if len(items) < 2:
        return [work(item) for item in items]
    with ThreadPoolExecutor(min(IN_FLIGHT, len(items))) as pool:
        return list(pool.map(work, items))


def resolve_targets(client: Client, objects: Sequence[KubeObject], namespace: str | None = None) -> list[ApplyTarget]:
    """Return the objects with their resources and namespaces; the client's catalog learns new definitions' kinds."""
    for value in objects:
        if value["kind"] == "CustomResourceDefinition":
            client.catalog.add(discovery.parse_definition(value))
    targets = [_resolve_target(client, value, namespace) for value in objects]
    keys: set[tuple[str, str, str, str]] = set()
    for target in targets:
        if target.key in keys:
            raise InputError("objects", f"{target.title} is given twice")
        keys.add(target.key)
    return targets


def _resolve_target(client: Client, value: KubeObject, namespace: str | None) -> ApplyTarget:
    resource = client.catalog.find(value["apiVersion"], value["kind"])
    meta = value["metadata"].copy()
    space = str(meta.pop("namespace", None) or namespace or client.namespace) if resource.namespaced else None
    if space is None:
        meta.pop("namespace", None)
    else:
        meta["namespace"] = space
    return ApplyTarget(resource, space, str(meta["name"]), {**value, "metadata": meta})


def make_plan(client: Client, wanted: Sequence[ApplyTarget], manager: str, prune: Prune | None = None) -> ApplyPlan:
    """Read the live objects and return what has to be done."""
    if prune is not None:
        _check_labels(wanted, prune)
    named = _resolve_kinds(client, prune.kinds) if prune else []
    live = _read_live_objects(client, wanted, named, prune)
    objects = {key: item for key, (_unused, item) in live.items()}
    steps = tuple(_plan_step(target, objects.get(target.key), manager) for target in wanted)
    return ApplyPlan(steps, _plan_removals(live, wanted, named, manager, prune) if prune else ())


def _read_live_objects(
    client: Client, wanted: Sequence[ApplyTarget], named: Sequence[Resource], prune: Prune | None
) -> LiveObjects:
    """Return the live objects of the wanted kinds and of the kinds that are pruned, with their kind, by key."""
    groups: dict[Resource, list[ApplyTarget]] = {}
    for target in wanted:
        groups.setdefault(target.resource, []).append(target)
    for resource in named:
        groups.setdefault(resource, [])
    selector = prune.selector if prune else ""
    readers = [KindReader(client, *group, selector, _namespaces(wanted)) for group in groups.items()]
    lists = zip(groups, run_parallel(KindReader.objects, readers), strict=True)
    return {_object_key(group, item): (group, item) for group, items in lists for item in items}


def _plan_removals(
    live: LiveObjects, wanted: Sequence[ApplyTarget], named: Sequence[Resource], manager: str, prune: Prune
) -> tuple[ApplyTarget, ...]:
    """Return the objects of an earlier call that are not wanted any more, in the order of their removal."""
    keys, namespaces = {target.key for target in wanted}, _namespaces(wanted)
    removals = [
        ApplyTarget(group, item["metadata"].get("namespace"), item["metadata"]["name"], item)
        for key, (group, item) in live.items()
        if key not in keys
        and (group.family not in _CONTAINER_KINDS or group in named)
        and _is_prunable(item, manager, prune, namespaces)
    ]
    return tuple(sorted(removals, key=lambda target: -target.stage))


def _namespaces(wanted: Sequence[ApplyTarget]) -> set[str]:
    return {target.namespace for target in wanted if target.namespace}


def _resolve_kinds(client: Client, kinds: Sequence[str]) -> list[Resource]:
    """Return the resources of the kinds; a kind of an API that the server lacks is left out."""
    resources = []
    for kind in kinds:
        try:
            resources.append(client.resource(kind))
        except InputError:
            api_version, _unused, name = kind.rpartition("/")
            if not name or not api_version or client.catalog.serves(api_version):
                raise
    return resources


def _check_labels(wanted: Sequence[ApplyTarget], prune: Prune) -> None:
    if not prune.labels:
        raise InputError("prune_labels", "must name at least one label", "Only objects with these labels are removed")
    for target in wanted:
        labels = target.value["metadata"].get("labels") or {}
        if any(labels.get(key) != value for key, value in prune.labels.items()):
            raise InputError("prune_labels", f"{target.title} does not have the labels {prune.selector}")


def _is_prunable(item: KubeObject, manager: str, prune: Prune, namespaces: set[str]) -> bool:
    meta = item["metadata"]
    # The same set of objects may exist in other namespaces: those belong to another call.
    if namespaces and meta.get("namespace") not in {None, *namespaces}:
        return False
    labels = meta.get("labels") or {}
    controlled = any(owner.get("controller") for owner in meta.get("ownerReferences") or [])
    matches = all(labels.get(key) == value for key, value in prune.labels.items())
    return (
        matches and not controlled and not meta.get("deletionTimestamp") and applied_fields(item, manager) is not None
    )


def _object_key(resource: Resource, item: KubeObject) -> tuple[str, str, str, str]:
    meta = item["metadata"]
    return (*resource.family, str(meta.get("namespace") or ""), str(meta["name"]))


def _plan_step(target: ApplyTarget, live: KubeObject | None, manager: str) -> ApplyStep:
    if live is not None and live["metadata"].get("deletionTimestamp"):
        blockers = ", ".join(live["metadata"].get("finalizers") or []) or deletion_blockers(live)
        raise RefusedError(f"{target.title} is being deleted and waits for: {blockers}", "Wait until it is deleted")
    return ApplyStep(target, live, live is None or not is_noop(target.value, live, manager))


def deletion_blockers(namespace: KubeObject) -> str:
    """Return what a terminating namespace waits for, by its conditions."""
    messages = [
        str(condition.get("message"))
        for condition in (namespace.get("status") or {}).get("conditions") or []
        if condition.get("status") == "True" and condition.get("message")
    ]
    return "; ".join(messages)[:300] or "its deletion"


class KindReader(t.NamedTuple):
    """Reads the live objects of one kind with as few requests as possible."""

    client: Client
    resource: Resource
    wanted: list[ApplyTarget]
    selector: str
    namespaces: set[str]

    def objects(self) -> list[KubeObject]:
        """Return the objects; none for a kind that is not served yet."""
        try:
            if len(self.wanted) == 1 and not self.selector:
                return self._each(self.wanted)
            return self._objects()
        except KubeError as error:
            if error.status == 404:
                return []
            raise

    def _objects(self) -> list[KubeObject]:
        named = sorted(self._wanted_namespaces()) if self.resource.namespaced else []
        space = named[0] if len(named) == 1 else None
        try:
            return self._rest(self._first(space), space)
        except KubeError as error:
            if error.status != 403:
                raise
            refused = error
        if named and space is None:
            # A user without the right to list in the whole cluster may have it in single namespaces.
            try:
                return [item for items in run_parallel(self._of_namespace, named) for item in items]
            except KubeError as error:
                if error.status != 403:
                    raise
                refused = error
        if self.selector:
            raise refused
        # A user without the right to list may still get single objects.
        return self._each(self.wanted)

    def _of_namespace(self, namespace: str) -> list[KubeObject]:
        try:
            return self._rest(self._first(namespace), namespace)
        except KubeError as error:
            if error.status != 403 or any(target.namespace == namespace for target in self.wanted):
                raise
            # No object of this kind is wanted there, and a user without the right to list has created none.
            return []

    def _wanted_namespaces(self) -> set[str]:
        """Return the namespaces to read; with a selector also those without wanted objects of this kind."""
        return (
            self.namespaces if self.selector else {target.namespace or "" for target in self.wanted} or self.namespaces
        )

    def _first(self, namespace: str | None) -> ListPage:
        return self.client.list(self.resource, namespace, labels=self.selector, whole=False)

    def _rest(self, first: ListPage, namespace: str | None) -> list[KubeObject]:
        if not first.remaining:
            return first.items
        if first.remaining > 4 * len(self.wanted) and not self.selector:
            # A few objects of many: single requests are fewer than all pages.
            return self._each([target for target in self.wanted if namespace in (None, target.namespace)])
        return self.client.list(self.resource, namespace, labels=self.selector).items

    def _each(self, wanted: Sequence[ApplyTarget]) -> list[KubeObject]:
        items = run_parallel(lambda target: self.client.get(self.resource, target.name, target.namespace), wanted)
        return [item for item in items if item is not None]
