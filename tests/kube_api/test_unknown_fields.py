# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A misspelt field never vanishes without a word, although the server is asked to look for them only where it must."""

from __future__ import annotations

import copy
import json
import typing as t

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._kube.api.client import Client
from ansible_collections.muster.training.plugins.plugin_utils._kube.api.errors import KubeError
from ansible_collections.muster.training.plugins.plugin_utils._kube.objects import apply_plan, manifests
from ansible_collections.muster.training.plugins.plugin_utils._kube.objects.apply import apply

Object = dict[str, t.Any]
# Parts of a definition from which the server drops what it does not know, under strict validation just the same.
OPEN = {"openAPIV3Schema", "status"}


def maps(value: t.Any, path: tuple[str | int, ...] = ()) -> t.Iterator[tuple[str | int, ...]]:
    """Where the mappings of an object are."""
    if isinstance(value, dict):
        yield path
        for key, inner in value.items():
            yield from maps(inner, (*path, key))
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from maps(inner, (*path, number))


def misspelt(value: Object, path: tuple[str | int, ...]) -> Object:
    altered = copy.deepcopy(value)
    place: t.Any = altered
    for key in path:
        place = place[key]
    place["unheardOf"] = "x"
    return altered


def test_unknown_fields_of_built_in_kinds_are_refused_or_kept_everywhere(client: Client, awkward: str) -> None:
    # What lies in a namespace is refused for the namespace first, unless it is there.
    client.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "awkward"}})
    refused, kinds = 0, set()
    for target in apply_plan.resolve_targets(client, manifests.collect(awkward, "awkward"), "awkward"):
        if not target.resource.built_in:
            continue
        kinds.add(target.resource.kind)
        for path in maps(target.value):
            if target.resource.kind == "CustomResourceDefinition" and OPEN & set(path):
                continue
            value = misspelt(target.value, path)
            try:
                after = client.apply(value, dry_run=True)
            except KubeError as error:
                # In maps of quantities or of base64 it is the value that is refused.
                refused += "unheardOf" in str(error)
            else:
                # A map of free keys, such as labels: the key is kept.
                after["metadata"].pop("managedFields")
                assert "unheardOf" in json.dumps(after), (target.title, path)
    assert refused > 180 and len(kinds) > 20


def test_unknown_fields_of_defined_kinds_are_refused(client: Client, namespace: str) -> None:
    spec = {"type": "object", "properties": {"size": {"type": "integer"}}}
    names = {"kind": "Strict", "plural": "stricts"}
    schema = {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}
    version = {"name": "v1", "served": True, "storage": True, "schema": schema}
    definition: Object = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "stricts.unknown.example"},
        "spec": {"group": "unknown.example", "scope": "Namespaced", "names": names, "versions": [version]},
    }
    value = {"apiVersion": "unknown.example/v1", "kind": "Strict", "metadata": {"name": "a", "namespace": namespace}}
    apply(client, [definition, {**value, "spec": {"size": 1}}])
    with pytest.raises(KubeError, match=r"\.spec\.sise: field not declared"):
        apply(client, [{**value, "spec": {"sise": 1}}])
    client.delete("CustomResourceDefinition", "stricts.unknown.example")
