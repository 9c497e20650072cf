# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether an apply would change anything, told from the live object; quantities as the API server reads them."""

from __future__ import annotations

import copy
import typing as t

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._kube.objects.apply_noop import is_noop

Object = dict[str, t.Any]


def live(fields: Object, value: Object, **entry: t.Any) -> Object:
    note = {"manager": "muster", "operation": "Apply", "apiVersion": "apps/v1", "fieldsV1": fields, **entry}
    return {**value, "metadata": {"name": "x", "namespace": "n", "managedFields": [note]}}


def wanted(spec: Object) -> Object:
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "x", "namespace": "n"}, "spec": spec}


CONTAINER = {"name": "c", "image": "i", "ports": [{"containerPort": 80}], "resources": {"limits": {"cpu": "500m"}}}
FIELDS: Object = {
    "f:spec": {
        "f:containers": {
            'k:{"name":"c"}': {
                ".": {},
                "f:name": {},
                "f:image": {},
                "f:ports": {'k:{"containerPort":80,"protocol":"TCP"}': {".": {}, "f:containerPort": {}}},
                "f:resources": {"f:limits": {"f:cpu": {}}},
            }
        },
        "f:args": {},
        "f:set": {'v:"a"': {}, 'v:"b"': {}},
    }
}
SPEC: Object = {"containers": [CONTAINER], "args": ["x"], "set": ["a", "b"]}
LIVE: Object = {
    "spec": {
        "containers": [
            {"name": "other"},
            {**CONTAINER, "ports": [{"containerPort": 80, "protocol": "TCP"}], "imagePullPolicy": "Always"},
        ],
        "args": ["x"],
        "set": ["b", "a", "c"],
        "replicas": 1,
    }
}


def changed(path: str, value: t.Any) -> Object:
    spec = copy.deepcopy(SPEC)
    *above, last = path.split(".")
    place: t.Any = spec
    for part in above:
        place = place[int(part)] if part.isdigit() else place[part]
    if value is ...:
        del place[last]
    else:
        place[int(last) if last.isdigit() else last] = value
    return wanted(spec)


def test_the_same_is_covered() -> None:
    assert is_noop(wanted(SPEC), live(FIELDS, LIVE), "muster")


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("containers.0.image", "other"),
        ("containers.0.image", ...),
        ("containers.0.ports.0.containerPort", 81),
        ("containers.0.resources.limits.cpu", "501m"),
        ("containers.0.resources.limits.memory", "1Gi"),
        ("args", ["y"]),
        ("args", ["x", "y"]),
        ("args", ...),
        ("set", ["a"]),
        ("set", ["a", "d"]),
        ("replicas", 1),
        ("containers.0.stdin", True),
    ],
)
def test_any_difference_is_not_covered(path: str, value: t.Any) -> None:
    assert not is_noop(changed(path, value), live(FIELDS, LIVE), "muster")


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("containers.0.resources.limits.cpu", 0.5),
        ("containers.0.resources.limits.cpu", "0.5"),
        ("containers.0.stdin", False),
        ("nodeSelector", {}),
        ("set", ["b", "a"]),
    ],
)
def test_what_the_server_writes_otherwise_is_covered(path: str, value: t.Any) -> None:
    assert is_noop(changed(path, value), live(FIELDS, LIVE), "muster")


@pytest.mark.parametrize(
    "entry", [{"manager": "other"}, {"operation": "Update"}, {"apiVersion": "apps/v1beta1"}, {"subresource": "status"}]
)
def test_what_others_applied_is_not_ours(entry: Object) -> None:
    assert not is_noop(wanted(SPEC), live(FIELDS, LIVE, **entry), "muster")


def test_a_changed_order_of_named_items_is_seen() -> None:
    items = [{"name": "a"}, {"name": "b"}]
    fields = {"f:spec": {"f:list": {f'k:{{"name":"{n}"}}': {".": {}, "f:name": {}} for n in "ab"}}}
    there = live(fields, {"spec": {"list": items}})
    assert is_noop(wanted({"list": items}), there, "muster")
    assert not is_noop(wanted({"list": items[::-1]}), there, "muster")


def test_data_is_never_read_as_quantities() -> None:
    value: Object = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}, "data": {"limits": "1000m"}}
    fields = {"f:data": {"f:limits": {}}}
    there = live(fields, {"data": {"limits": "1"}}, apiVersion="v1")
    assert not is_noop(value, there, "muster")
    assert is_noop(value, live(fields, {"data": {"limits": "1000m"}}, apiVersion="v1"), "muster")


def test_what_was_taken_away_inside_a_whole_value_is_seen() -> None:
    fields = {"f:spec": {"f:rules": {}}}
    there = live(fields, {"spec": {"rules": [{"a": 1, "b": 2, "scope": "*"}]}})
    assert is_noop(wanted({"rules": [{"a": 1, "b": 2}]}), there, "muster")
    assert not is_noop(wanted({"rules": [{"a": 1}]}), there, "muster")
    assert not is_noop(wanted({"rules": [{"a": True, "b": 2}]}), there, "muster")


def test_an_object_of_which_only_the_name_is_wanted() -> None:
    """The server keeps no entry for who applied no field."""
    bare: Object = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "x", "namespace": "n"}}
    there = {**bare, "metadata": {**bare["metadata"], "uid": "1"}, "secrets": []}
    assert is_noop(bare, there, "muster")
    labelled = {**bare, "metadata": {**bare["metadata"], "labels": {"a": "b"}}}
    assert not is_noop(labelled, there, "muster")
    assert not is_noop(bare, live({"f:metadata": {"f:labels": {"f:a": {}}}}, bare, apiVersion="v1"), "muster")
    older = live({"f:metadata": {"f:labels": {"f:a": {}}}}, bare, apiVersion="v1beta1")
    assert not is_noop(bare, older, "muster"), "an apply would take the fields away that the older version has"


def of(api_version: str, kind: str, **parts: t.Any) -> Object:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": "x"}, **parts}


@pytest.mark.parametrize(
    ("api_version", "kind", "there", "more"),
    [
        ("v1", "ConfigMap", {"data": {"a": "b"}}, {"data": {"a": "b", "empty": ""}}),
        ("v1", "Secret", {"data": {"a": "Yg=="}}, {"data": {"a": "Yg==", "args": ""}}),
        ("v1", "ServiceAccount", {}, {"automountServiceAccountToken": False}),
        ("batch/v1", "Job", {"spec": {"a": 1}}, {"spec": {"a": 1, "ttlSecondsAfterFinished": 0}}),
        ("example.com/v1", "Scaler", {"spec": {"a": 1}}, {"spec": {"a": 1, "minReplicas": 0, "suspend": False}}),
        ("example.com/v1", "Scaler", {"spec": {"a": 1}}, {"spec": {"a": 1, "stdin": False, "args": []}}),
        ("v1", "Namespace", {}, {"metadata": {"name": "x", "labels": {"node-role/x": ""}}}),
        # In a value that is replaced as a whole: an empty selector of namespaces lets all of them in.
        ("networking.k8s.io/v1", "NetworkPolicy", {"spec": {"from": [{"a": 1}]}},
         {"spec": {"from": [{"a": 1, "namespaceSelector": {}}]}}),
    ],
)  # fmt: skip
def test_what_is_empty_and_new_is_sent(api_version: str, kind: str, there: Object, more: Object) -> None:
    fields = {f"f:{key}": {f"f:{name}": {} for name in part} for key, part in there.items()}
    object_there = live(fields, of(api_version, kind, **there), apiVersion=api_version)
    assert is_noop(of(api_version, kind, **there), object_there, "muster")
    assert not is_noop(of(api_version, kind, **{**there, **more}), object_there, "muster")


@pytest.mark.parametrize(
    ("there", "then"),
    [
        ({"spec": {"storage": {"version": "1.1"}}}, {"spec": {"storage": {"version": "1.10"}}}),
        ({"metadata": {"annotations": {"default": "1.1"}}}, {"metadata": {"annotations": {"default": "1.10"}}}),
        ({"spec": {"ports": [{"port": 1, "protocol": "TCP", "scope": "*"}]}}, {"spec": {"ports": [{"port": 1}]}}),
    ],
    ids=["a version called storage", "an annotation", "a list of another's kind"],
)
def test_other_peoples_kinds_are_not_read_as_kubernetes_own(there: Object, then: Object) -> None:
    def fields(value: t.Any) -> Object:
        return {f"f:{key}": fields(part) for key, part in value.items()} if isinstance(value, dict) else {}

    def place(parts: Object) -> Object:
        return {**of("example.com/v1", "Box"), **parts, "metadata": {"name": "x", **parts.get("metadata", {})}}

    noted = {"manager": "muster", "operation": "Apply", "apiVersion": "example.com/v1", "fieldsV1": fields(there)}
    live_object = place(there)
    live_object["metadata"] = {**live_object["metadata"], "managedFields": [noted]}
    assert is_noop(place(there), live_object, "muster")
    assert not is_noop(place(then), live_object, "muster")


def test_who_is_let_in_no_more_is_seen() -> None:
    """Without its selector of namespaces a peer is of this namespace only."""
    fields = {"f:spec": {"f:from": {}}}
    api_version = "networking.k8s.io/v1"
    wide = of(api_version, "NetworkPolicy", spec={"from": [{"podSelector": {"a": 1}, "namespaceSelector": {}}]})
    narrow = of(api_version, "NetworkPolicy", spec={"from": [{"podSelector": {"a": 1}}]})
    assert is_noop(wide, live(fields, wide, apiVersion=api_version), "muster")
    assert not is_noop(narrow, live(fields, wide, apiVersion=api_version), "muster")


def test_quotas_of_a_queue_are_quantities() -> None:
    fields = {"f:spec": {"f:resourceGroups": {}}}
    api_version = "kueue.x-k8s.io/v1beta2"

    def queue(amount: t.Any) -> Object:
        resources = [{"name": "cpu", "nominalQuota": amount}]
        return of(api_version, "ClusterQueue", spec={"resourceGroups": [{"flavors": [{"resources": resources}]}]})

    assert is_noop(queue("4000m"), live(fields, queue("4"), apiVersion=api_version), "muster")
    assert not is_noop(queue("4001m"), live(fields, queue("4"), apiVersion=api_version), "muster")


@pytest.mark.parametrize("value", [False, 0, "", [], {}])
def test_a_default_in_a_schema_is_sent(value: t.Any) -> None:
    """It is kept whatever it is, and the list of versions is replaced as a whole."""
    fields, api_version = {"f:spec": {"f:versions": {}}}, "apiextensions.k8s.io/v1"

    def definition(**more: t.Any) -> Object:
        properties = {"tty": {"type": "x", **more}}
        return of(api_version, "CustomResourceDefinition", spec={"versions": [{"schema": {"properties": properties}}]})

    assert is_noop(definition(), live(fields, definition(), apiVersion=api_version), "muster")
    assert not is_noop(definition(default=value), live(fields, definition(), apiVersion=api_version), "muster")
    assert is_noop(definition(nullable=False), live(fields, definition(), apiVersion=api_version), "muster")
    inside = definition(default={"limits": "1", "stdin": False})
    for other in ({"limits": "1"}, {"limits": "1000m", "stdin": False}, {"limits": "1", "stdin": False, "x": []}):
        assert not is_noop(definition(default=other), live(fields, inside, apiVersion=api_version), "muster")


@pytest.mark.parametrize("name", ["default", "tty", "limits"])
def test_a_property_may_be_called_like_a_field(name: str) -> None:
    fields, api_version = {"f:spec": {"f:versions": {}}}, "apiextensions.k8s.io/v1"

    def definition(**properties: t.Any) -> Object:
        return of(api_version, "CustomResourceDefinition", spec={"versions": [{"schema": {"properties": properties}}]})

    there = live(fields, definition(x={"type": "a"}), apiVersion=api_version)
    assert not is_noop(definition(**{"x": {"type": "a"}, name: {}}), there, "muster")
