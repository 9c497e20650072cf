# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Discovers the kinds of an API server: the built-in table first, then the server's own list.

The list is read by aggregated discovery (``apidiscovery.k8s.io/v2``, two requests) or, from servers older than 1.30,
group by group; each server's list is read once per process.
"""

from __future__ import annotations

import threading
import typing as t
from collections.abc import Callable, Iterable, Mapping

from ....module_utils._model.errors import InputError
from .kinds import BUILT_IN, BY_WORD, Resource

ACCEPT = (
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,"
    "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json"
)


class _Group(t.TypedDict, total=False):
    name: str
    versions: list[dict[str, str]]
    preferredVersion: dict[str, str]


class _GroupList(t.TypedDict, total=False):
    """APIVersions or APIGroupList."""

    versions: list[str]
    groups: list[_Group]


class _ResourceList(t.TypedDict, total=False):
    """APIResourceList."""

    resources: list[dict[str, t.Any]]


class _Aggregated(t.TypedDict, total=False):
    """APIGroupDiscoveryList."""

    items: list[dict[str, t.Any]]


Get = Callable[[str, Mapping[str, str]], Mapping[str, object]]


class Catalog:
    """The kinds of one server. ``get(path, headers)`` returns decoded JSON."""

    def __init__(self, get: Get) -> None:
        self._get = get
        self._lock = threading.Lock()
        self._entries: list[DiscoveredKind] | None = None
        self._added: dict[tuple[str, str], Resource] = {}

    def add(self, resources: Iterable[Resource]) -> None:
        """Add kinds that the server will have: those of definitions about to be applied."""
        for resource in resources:
            self._added[(resource.api_version, resource.kind)] = resource

    def find(self, api_version: str, kind: str) -> Resource:
        """Return the kind, or raise :class:`InputError` with the versions in which the server has it."""
        key = (api_version, kind)
        resource = self._added.get(key) or BUILT_IN.get(key)
        if resource is not None:
            return resource
        # A definition may have been applied since the list was read.
        for fresh in (False, True):
            for entry in self.entries(fresh=fresh):
                if (entry.resource.api_version, entry.resource.kind) == key:
                    return entry.resource
        others = sorted({e.resource.api_version for e in self.entries() if e.resource.kind == kind})
        fix = f"It has {kind} in {', '.join(others)}" if others else "Install its CustomResourceDefinition first"
        raise InputError(f"{api_version} {kind}", "the API server does not serve this kind", fix)

    def find_in_version(self, api_version: str, word: str) -> Resource:
        """Return the kind of a version that ``word`` names: ``Pod``, ``pods``, ``po``."""
        resource = BY_WORD.get(word)
        if resource is not None and resource.api_version == api_version:
            return resource
        try:
            return self.find(api_version, word)
        except InputError:
            for entry in self.entries():
                if entry.resource.api_version == api_version and word.lower() in entry.names:
                    return entry.resource
            raise

    def serves(self, api_version: str) -> bool:
        """Return whether the server has anything of this group and version."""
        return any(entry.resource.api_version == api_version for entry in self.entries())

    def find_by_name(self, word: str) -> Resource:
        """Return the kind that ``word`` names: ``v1/Pod``, ``Pod``, ``pods``, ``po``, ``jobsets.jobset.x-k8s.io``."""
        version, _unused, kind = word.rpartition("/")
        if version:
            return self.find_in_version(version, kind)
        if word in BY_WORD:
            return BY_WORD[word]
        for resource in self._added.values():
            if word in (resource.kind, resource.plural):
                return resource
        for fresh in (False, True):
            for entry in self.entries(fresh=fresh):
                if word.lower() in entry.names:
                    return entry.resource
        raise InputError("kind", f"the API server does not serve the kind {word}", "Write it as group/version/Kind")

    def entries(self, *, fresh: bool = False) -> list[DiscoveredKind]:
        """Return the server's kinds, preferred versions first; they are read once, and again with ``fresh``."""
        with self._lock:
            if self._entries is None or fresh:
                self._entries = list(self._read())
            return self._entries

    def _read(self) -> t.Iterator[DiscoveredKind]:
        for root in ("/api", "/apis"):
            answer = self._get(root, {"Accept": ACCEPT})
            if answer.get("kind") == "APIGroupDiscoveryList":
                yield from _parse_aggregated(t.cast("_Aggregated", answer))
            else:
                yield from self._by_group(root, t.cast("_GroupList", answer))

    def _by_group(self, root: str, groups: _GroupList) -> t.Iterator[DiscoveredKind]:
        versions = [(f"{root}/{version}", "", version) for version in groups.get("versions") or []]
        for group in groups.get("groups") or []:
            preferred = (group.get("preferredVersion") or {}).get("version")
            served = [entry["version"] for entry in group.get("versions") or []]
            for version in sorted(served, key=lambda name: name != preferred):
                versions.append((f"{root}/{group['name']}/{version}", group["name"], version))
        for path, name, version in versions:
            resources = t.cast("_ResourceList", self._get(path, {}) or {})
            for item in resources.get("resources") or []:
                if "/" not in item["name"]:
                    resource = Resource(name, version, item["kind"], item["name"], bool(item.get("namespaced")))
                    yield DiscoveredKind.of(resource, item.get("singularName"), item.get("shortNames"))


class DiscoveredKind(t.NamedTuple):
    """A kind and every word that names it, in lower case."""

    resource: Resource
    names: frozenset[str]

    @classmethod
    def of(cls, resource: Resource, singular: str | None, short: t.Iterable[str] | None) -> DiscoveredKind:
        """Return the entry of a kind with its other names."""
        words = {resource.kind, resource.plural, singular or "", *(short or ())}
        words |= {f"{word}.{resource.group}" for word in (resource.plural, singular or "") if word and resource.group}
        return cls(resource, frozenset(word.lower() for word in words if word))


def _parse_aggregated(answer: _Aggregated) -> t.Iterator[DiscoveredKind]:
    for group in answer.get("items") or []:
        name = (group.get("metadata") or {}).get("name") or ""
        for version in group.get("versions") or []:
            for item in version.get("resources") or []:
                kind = (item.get("responseKind") or {}).get("kind")
                if kind:
                    resource = Resource(
                        name, version["version"], kind, item["resource"], item.get("scope") == "Namespaced"
                    )
                    yield DiscoveredKind.of(resource, item.get("singularResource"), item.get("shortNames"))


_catalogs: dict[str, Catalog] = {}
_catalogs_lock = threading.Lock()


def shared_catalog(server: str, get: Get) -> Catalog:
    """Return this process's catalog of ``server``; the first call creates it."""
    with _catalogs_lock:
        return _catalogs.setdefault(server, Catalog(get))


def parse_definition(definition: Mapping[str, object]) -> t.Iterator[Resource]:
    """Yield the kinds that a CustomResourceDefinition (v1) will make the server serve."""
    spec = definition.get("spec")
    if not isinstance(spec, Mapping):
        # The server says what is wrong with it; so below.
        return
    names, versions = spec.get("names"), spec.get("versions")
    if not isinstance(names, Mapping) or not isinstance(versions, list):
        return
    for version in (item for item in versions if isinstance(item, Mapping)):
        if version.get("served") and names.get("kind") and names.get("plural"):
            scope = spec.get("scope") == "Namespaced"
            yield Resource(str(spec.get("group")), str(version.get("name")), names["kind"], names["plural"], scope)
