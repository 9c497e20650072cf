# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What has to be done so that a server holds a set of objects: read once per kind, compare, decide.

This is a private utility of the collection; it may change without notice.
"""

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
        """What tells objects of one server apart."""
        return (*self.resource.family, self.namespace or "", self.name)

    @property
    def title(self) -> str:
        """What errors and results call it."""
        return title(self.resource.kind, self.namespace, self.name)

    @property
    def stage(self) -> int:
        """When it is applied."""
        return apply_stage(self.resource)


class ApplyStep(t.NamedTuple):
    """A target, the object that is there, and whether an apply is needed."""

    target: ApplyTarget
    live: KubeObject | None
    needed: bool


# What others' objects go with: these are removed only by who names the kind.
_HOLDERS = frozenset({("", "Namespace"), ("apiextensions.k8s.io", "CustomResourceDefinition")})


class Prune(t.NamedTuple):
    """What to remove: objects with all these labels that our field manager applied and nobody wants any more.

    ``kinds`` are looked through beside those of the wanted objects; namespaces and definitions, with which other
    people's objects go, only when they are among ``kinds``. A kind of an API that the server has not has no objects.
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
    """Return ``work`` of each item in order, eight at a time."""
    if len(items) < 2:
        return [work(item) for item in items]
    with ThreadPoolExecutor(min(IN_FLIGHT, len(items))) as pool:
        return list(pool.map(work, items))


def resolve_targets(client: Client, objects: Sequence[KubeObject], namespace: str | None = None) -> list[ApplyTarget]:
    """Return where the objects go; definitions among them are known to the client's catalog from here on."""
    for value in objects:
        if value["kind"] == "CustomResourceDefinition":
            client.catalog.add(discovery.parse_definition(value))
    found = [_resolve_target(client, value, namespace) for value in objects]
    seen: set[tuple[str, str, str, str]] = set()
    for target in found:
        if target.key in seen:
            raise InputError("objects", f"{target.title} is given twice")
        seen.add(target.key)
    return found


def _resolve_target(client: Client, value: KubeObject, namespace: str | None) -> ApplyTarget:
    resource = client.catalog.find(value["apiVersion"], value["kind"])
    meta = value["metadata"]
    place = str(meta.get("namespace") or namespace or client.namespace) if resource.namespaced else None
    rest = {key: part for key, part in meta.items() if key != "namespace"}
    placed = {**value, "metadata": {**rest, **({"namespace": place} if place else {})}}
    return ApplyTarget(resource, place, str(meta["name"]), placed)


def make_plan(client: Client, wanted: Sequence[ApplyTarget], manager: str, prune: Prune | None = None) -> ApplyPlan:
    """Read what is there and return what is to be done."""
    if prune is not None:
        _check_labels(wanted, prune)
    groups: dict[Resource, list[ApplyTarget]] = {}
    for target in wanted:
        groups.setdefault(target.resource, []).append(target)
    named = _resolve_kinds(client, prune.kinds) if prune else []
    for resource in named:
        groups.setdefault(resource, [])
    selector = prune.selector if prune else ""
    places = {target.namespace or "" for target in wanted if target.namespace}
    readings = [KindReader(client, *group, selector, places) for group in groups.items()]
    read = run_parallel(KindReader.objects, readings)
    found = {_object_key(group, item): item for group, items in zip(groups, read, strict=True) for item in items}
    steps = tuple(_plan_step(target, found.get(target.key), manager) for target in wanted)
    keys = {target.key for target in wanted}
    removals = [
        ApplyTarget(group, (item["metadata"].get("namespace")), item["metadata"]["name"], item)
        for group, items in zip(groups, read, strict=True)
        for item in items
        if prune is not None
        and (group.family not in _HOLDERS or group in named)
        and _object_key(group, item) not in keys
        and _is_prunable(item, manager, prune)
        # The same set may lie in other namespaces, too: those are another call's.
        and (not places or item["metadata"].get("namespace") in {None, *places})
    ]
    return ApplyPlan(steps, tuple(sorted(removals, key=lambda target: -target.stage)))


def _resolve_kinds(client: Client, kinds: Sequence[str]) -> list[Resource]:
    """Return the kinds that the server has; of an API that it has not, it has no objects either."""
    found = []
    for kind in kinds:
        try:
            found.append(client.resource(kind))
        except InputError:
            api_version, _unused, name = kind.rpartition("/")
            if not name or not api_version or client.catalog.serves(api_version):
                raise
    return found


def _check_labels(wanted: Sequence[ApplyTarget], prune: Prune) -> None:
    if not prune.labels:
        raise InputError("prune_labels", "must name at least one label", "Only objects with these labels are removed")
    for target in wanted:
        labels = target.value["metadata"].get("labels") or {}
        if any(labels.get(key) != value for key, value in prune.labels.items()):
            raise InputError("prune_labels", f"{target.title} does not have the labels {prune.selector}")


def _is_prunable(item: KubeObject, manager: str, prune: Prune) -> bool:
    meta = item["metadata"]
    labels = meta.get("labels") or {}
    owned = any(owner.get("controller") for owner in meta.get("ownerReferences") or [])
    fits = all(labels.get(key) == value for key, value in prune.labels.items())
    return fits and not owned and not meta.get("deletionTimestamp") and applied_fields(item, manager) is not None


def _object_key(resource: Resource, item: KubeObject) -> tuple[str, str, str, str]:
    meta = item["metadata"]
    return (*resource.family, str(meta.get("namespace") or ""), str(meta["name"]))


def _plan_step(target: ApplyTarget, live: KubeObject | None, manager: str) -> ApplyStep:
    if live is not None and live["metadata"].get("deletionTimestamp"):
        waits = ", ".join(live["metadata"].get("finalizers") or []) or deletion_blockers(live)
        raise RefusedError(f"{target.title} is being deleted and waits for: {waits}", "Wait until it is gone")
    return ApplyStep(target, live, live is None or not is_noop(target.value, live, manager))


def deletion_blockers(live: KubeObject) -> str:
    """Return what a namespace still waits for, as its conditions tell."""
    said = [
        str(item.get("message"))
        for item in (live.get("status") or {}).get("conditions") or []
        if item.get("status") == "True" and item.get("message")
    ]
    return "; ".join(said)[:300] or "its end"


class KindReader(t.NamedTuple):
    """Reads what is there of one kind, with as little as possible."""

    client: Client
    resource: Resource
    wanted: list[ApplyTarget]
    selector: str
    places: set[str]

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
        named = sorted(self._places()) if self.resource.namespaced else []
        space = named[0] if len(named) == 1 else None
        try:
            return self._rest(self._first(space), space)
        except KubeError as error:
            if error.status != 403:
                raise
            refused = error
        places = named if space is None else []
        if places:
            # Who may not read the whole cluster may read namespaces.
            try:
                return [item for items in run_parallel(self._of_place, places) for item in items]
            except KubeError as error:
                if error.status != 403:
                    raise
                refused = error
        if self.selector:
            raise refused
        # Who may not list may still read what is named.
        return self._each(self.wanted)

    def _of_place(self, place: str) -> list[KubeObject]:
        try:
            return self._rest(self._first(place), place)
        except KubeError as error:
            if error.status != 403 or any(target.namespace == place for target in self.wanted):
                raise
            # Nothing of this kind is to be there, and who may not look has put nothing there.
            return []

    def _places(self) -> set[str]:
        """Return the namespaces to look into. Where something is to go, it may lie where no such object is wanted."""
        return self.places if self.selector else {target.namespace or "" for target in self.wanted} or self.places

    def _first(self, namespace: str | None) -> ListPage:
        return self.client.list(self.resource, namespace, labels=self.selector, whole=False)

    def _rest(self, first: ListPage, namespace: str | None) -> list[KubeObject]:
        if not first.remaining:
            return first.items
        if first.remaining > 4 * len(self.wanted) and not self.selector:
            # Few of many: one by one is less than all pages.
            return self._each([target for target in self.wanted if namespace in (None, target.namespace)])
        return self.client.list(self.resource, namespace, labels=self.selector).items

    def _each(self, wanted: Sequence[ApplyTarget]) -> list[KubeObject]:
        found = run_parallel(lambda target: self.client.get(self.resource, target.name, target.namespace), wanted)
        return [item for item in found if item is not None]
