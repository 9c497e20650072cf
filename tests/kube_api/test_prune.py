# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pruning against a real API server: what is removed with a set that has become smaller, and what never."""

from __future__ import annotations

import json
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError, MusterError
from ansible_collections.muster.training.plugins.plugin_utils._kube.api.client import Client
from ansible_collections.muster.training.plugins.plugin_utils._kube.api.errors import KubeError
from ansible_collections.muster.training.plugins.plugin_utils._kube.objects.apply import apply
from ansible_collections.muster.training.plugins.plugin_utils._kube.objects.apply_plan import Prune
from ansible_collections.muster.training.tests.kube_api.test_apply import config_map, reader
from ansible_collections.muster.training.tests.support.kube_api import ApiServer

Object = dict[str, t.Any]


def test_prune_goes_on_after_the_first_page(client: Client, namespace: str) -> None:
    """A server does not count what follows a page of those with a label."""
    meta = {"namespace": namespace, "labels": {"page": namespace}}
    ours = [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {**meta, "name": f"c{n:03}"}} for n in range(520)]
    apply(client, ours)
    assert apply(client, ours, prune=Prune({"page": namespace})).writes == 0
    assert len(apply(client, ours[:2], prune=Prune({"page": namespace})).changes) == 520
    # Nothing is wanted any more: which kinds to look through is said then.
    last = apply(client, [], prune=Prune({"page": namespace}, ("v1/ConfigMap",)))
    assert [change.action for change in last.changes] == ["pruned", "pruned"]
    assert apply(client, [], prune=Prune({"page": namespace})).changes == ()
    assert client.list("ConfigMap", namespace, labels=f"page={namespace}").items == []


def test_prune_removes_only_what_is_ours(client: Client, namespace: str, api: ApiServer) -> None:
    labels = {"set": namespace}
    ours = [config_map(name, namespace, labels, a="1") for name in ("one", "two", "three")]
    apply(client, ours)
    foreign = config_map("foreign", namespace, labels, a="1")
    api.kubectl("create", "-f", "-", stdin=json.dumps(foreign))
    other = config_map("unlabelled", namespace, a="1")
    apply(client, [other])
    prune = Prune(labels, ("v1/Secret",))
    before = client.transport.stats.writes
    predicted = apply(client, ours[:1], check=True, prune=prune)
    assert client.transport.stats.writes == before + 2, "the server is asked about removals, too"
    assert sorted(c.target.name for c in predicted.changes if c.action == "pruned") == ["three", "two"]
    result = apply(client, ours[:1], prune=prune)
    assert sorted(c.target.name for c in result.changes if c.action == "pruned") == ["three", "two"]
    left = {item["metadata"]["name"] for item in client.list("ConfigMap", namespace).items}
    assert left == {"one", "foreign", "unlabelled"}
    assert not apply(client, ours[:1], prune=prune).changed
    with pytest.raises(MusterError, match="unlabelled does not have the labels"):
        apply(client, [other], prune=prune)


def test_prune_leaves_the_same_set_in_other_namespaces(client: Client, namespace: str) -> None:
    """Whether one namespace is named or several: what lies elsewhere is another call's."""
    labels, spaces = {"set": namespace}, [f"{namespace}-{name}" for name in "abc"]
    for space in spaces:
        client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": space}})
        apply(client, [config_map(name, space, labels) for name in ("one", "two")])
    for named in (spaces[:1], spaces[:2]):
        result = apply(client, [config_map("one", space, labels) for space in named], prune=Prune(labels))
        assert [c.target.namespace for c in result.changes if c.action == "pruned"] == named[-1:]
    assert len(client.list("ConfigMap", spaces[2], labels=f"set={namespace}").items) == 2
    for space in spaces:
        client.delete("Namespace", space)


def test_prune_looks_into_all_namespaces_of_the_set(client: Client, namespace: str) -> None:
    """What is gone from the set may have been the last of its kind in a namespace."""
    other = f"{namespace}-b"
    client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": other}})
    labels = {"set": namespace}

    def item(kind: str, name: str, place: str) -> Object:
        return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name, "namespace": place, "labels": labels}}

    rest = [item("ConfigMap", "p1", namespace), item("Secret", "s", namespace), item("Secret", "s", other)]
    apply(client, [*rest, {**item("ConfigMap", "p2", other), "data": {"a": "b"}}])
    result = apply(client, rest, prune=Prune(labels))
    assert [change.target.title for change in result.changes if change.action == "pruned"] == [f"ConfigMap {other}/p2"]


def test_a_namespace_goes_only_when_its_kind_is_named(client: Client, namespace: str) -> None:
    """With it goes what other people have put into it."""
    labels = {"set": namespace}

    def space(name: str) -> Object:
        return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}

    apply(client, [space(f"{namespace}-old")])
    new = [space(f"{namespace}-new")]
    result = apply(client, new, prune=Prune(labels))
    assert [change.action for change in result.changes] == ["created"]
    result = apply(client, new, prune=Prune(labels, ("v1/Namespace",)))
    assert [change.action for change in result.changes] == ["unchanged", "pruned"]


def test_prune_passes_over_an_api_that_is_not_there(client: Client, namespace: str) -> None:
    labels = {"set": namespace}
    result = apply(client, [], prune=Prune(labels, ("nowhere.example.com/v1/Thing", "v1/ConfigMap")))
    assert not result.changes
    with pytest.raises(InputError, match="v1 ConfigMop: the API server does not serve this kind"):
        apply(client, [], prune=Prune(labels, ("v1/ConfigMop",)))


def test_a_namespace_where_nothing_of_a_kind_is_wanted_may_be_closed(
    client: Client, api: ApiServer, namespace: str
) -> None:
    """Who may not look there has put nothing there; where there is no place to look, that is said."""
    other, labels = f"{namespace}-b", {"set": namespace}
    client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": other}})
    limited = reader(client, api, namespace, "get", "list", "patch", "create", "delete")
    reader(client, api, other, "get", "list", "patch", "create", "delete", resources=("secrets",))
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": other, "labels": labels}}
    ours = [config_map("one", namespace, labels, a="1"), config_map("two", namespace, labels, a="1"), secret]
    rest = [ours[0], secret]
    apply(limited, ours)
    result = apply(limited, rest, prune=Prune(labels))
    assert [change.target.title for change in result.changes if change.action == "pruned"] == [
        f"ConfigMap {namespace}/two"
    ]
    with pytest.raises(KubeError, match="cannot list"):
        apply(limited, [], prune=Prune(labels, ("v1/ConfigMap",)))
