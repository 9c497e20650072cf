# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether it is certain, from the live object alone, that an apply would change nothing."""

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


def test_a_set_has_no_order() -> None:
    assert is_noop(changed("set", ["b", "a"]), live(FIELDS, LIVE), "muster")


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("containers.0.resources.limits.cpu", 0.5),
        ("containers.0.resources.limits.cpu", "0.5"),
        ("containers.0.stdin", False),
        ("nodeSelector", {}),
        ("replicas", True),
    ],
)
def test_what_the_server_may_write_otherwise_is_sent(path: str, value: t.Any) -> None:
    assert not is_noop(changed(path, value), live(FIELDS, LIVE), "muster")


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
    there = live(fields, {"spec": {"rules": [{"a": 1, "b": 2}]}})
    assert is_noop(wanted({"rules": [{"b": 2, "a": 1}]}), there, "muster")
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


def test_who_is_let_in_no_more_is_seen() -> None:
    """Without its selector of namespaces a peer is of this namespace only."""
    fields = {"f:spec": {"f:from": {}}}
    api_version = "networking.k8s.io/v1"
    wide = of(api_version, "NetworkPolicy", spec={"from": [{"podSelector": {"a": 1}, "namespaceSelector": {}}]})
    narrow = of(api_version, "NetworkPolicy", spec={"from": [{"podSelector": {"a": 1}}]})
    assert is_noop(wide, live(fields, wide, apiVersion=api_version), "muster")
    assert not is_noop(narrow, live(fields, wide, apiVersion=api_version), "muster")
