# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Manifests: what is read, what is left out, what is refused with its place."""

from __future__ import annotations

import base64
import datetime
import pathlib
import typing as t

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError, MusterError
from ansible_collections.muster.training.plugins.plugin_utils._kube.api.kinds import (
    BUILT_IN,
    GATES,
    Resource,
    apply_stage,
)
from ansible_collections.muster.training.plugins.plugin_utils._kube.objects import diff, manifests

MAP = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n"


def test_documents_lists_and_empty_ones() -> None:
    text = f"---\n{MAP}---\n---\n# nothing\n---\napiVersion: v1\nkind: List\nitems:\n- {{apiVersion: v1, kind: Pod, metadata: {{name: b}}}}\n"
    assert [item["kind"] for item in manifests.parse(text, "x")] == ["ConfigMap", "Pod"]
    assert len(manifests.collect([MAP, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "c"}}], "x")) == 2


def test_a_manifest_is_read_as_kubectl_reads_it() -> None:
    """YAML 1.1 knows numbers to the base of sixty, dates and a bare "=", and would read them as such."""
    text = (
        "apiVersion: v1\nkind: X\nmetadata: {name: x}\ndata: {at: 12:30:45, day: 2026-01-02, eq: =, n: 12, on: 1.5}\n"
    )
    (value,) = manifests.collect(text, "objects")
    assert value["data"] == {"at": "12:30:45", "day": "2026-01-02", "eq": "=", "n": 12, "true": 1.5}


def test_values_of_ansible_become_plain_ones() -> None:
    """What templates and inline YAML give are subclasses, which YAML's dumper does not know."""

    class Tagged(int):
        pass

    class Ratio(float):
        pass

    value = {"apiVersion": "v1", "kind": "X", "metadata": {"name": "x"}, "spec": {"n": Tagged(1), "r": [Ratio(0.5)]}}
    item = manifests.clean(value)
    assert type(item["spec"]["n"]) is int and type(item["spec"]["r"][0]) is float
    assert "n: 1" in diff.to_yaml(item)
    with pytest.raises(InputError, match="X x: holds a date. Write it as text, in quotes"):
        manifests.clean({**value, "spec": datetime.date(2026, 1, 2)})


def test_what_the_server_writes_is_left_out() -> None:
    text = f"{MAP}status: {{a: 1}}\ndata: {{day: 2026-01-01, none: null, on: 'yes'}}\n"
    item = manifests.parse(
        text.replace("{name: a}", "{name: a, uid: x, resourceVersion: '1', creationTimestamp: null}"), "x"
    )[0]
    assert item["metadata"] == {"name": "a"} and "status" not in item
    assert item["data"] == {"day": "2026-01-01", "true": "yes"}


def test_texts_of_a_secret_are_encoded() -> None:
    value = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "s"},
        "stringData": {"a": "text"},
        "data": {"b": "eA=="},
    }
    item = manifests.clean(value)
    assert item["data"] == {"a": base64.b64encode(b"text").decode(), "b": "eA=="} and "stringData" not in item


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: [", r"objects: is not valid YAML \(line 2"),
        ("- 1\n", "not an object"),
        ("kind: Pod\n", "has no apiVersion"),
        ("apiVersion: v1\nkind: Pod\n", "Pod: has no metadata.name"),
        ("apiVersion: v1\nkind: Pod\nmetadata: {generateName: a-}\n", "generateName cannot be applied"),
        ("a: &a [*a]\n", "objects|manifest"),
        ("a: 1\nb:\n  c: 1\n  d: 2\n  c: 3\n", r"gives the key c twice \(line 5, column 3\)"),
        ("apiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData: text\n", "Secret s: stringData must be"),
        ("apiVersion: v1\nkind: Secret\nmetadata: {name: s}\ndata: [a]\nstringData: {a: b}\n", "s: data must be a map"),
        ("apiVersion: v1\nkind: Pod\nmetadata: {name: p, labels: [a]}\n", "Pod p: labels must be a mapping"),
        ("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ndata: {b: !!binary eA==}\n", "neither text nor number"),
    ],
)
def test_what_is_wrong_is_said(text: str, expected: str) -> None:
    with pytest.raises(InputError, match=expected):
        manifests.collect(text, "objects")


@pytest.mark.parametrize(
    "rest",
    [
        "data: {a: 1, b: 1.5, c: true, d: ~, e: x, f: '1', g: 0o17, h: 1e3, i: !!str 5, j: !!int '7'}",
        "data: {base: &b {x: 1, y: [1, two]}, other: {<<: *b, x: 2}, same: *b}",
        "data: {1: a, true: b, 2.5: c}",
        "data: {s: !!set {x, y}}",
        "data:\n  text: |\n    one\n    two\n  folded: >-\n    one\n    two\n  empty:\n",
    ],
)
def test_documents_say_what_pyyaml_reads_in_them(rest: str) -> None:
    text = f"{MAP}{rest}\n"
    assert list(yaml.load_all(text, manifests._Loader)) == list(yaml.load_all(text, yaml.CSafeLoader))


@pytest.mark.parametrize("value", ["!!python/object/apply:os.getcwd []", "!!str [a]", "!!map x", "!!seq {}", "!x y"])
def test_tags_of_other_things_are_refused(value: str) -> None:
    with pytest.raises(InputError, match="is not valid YAML"):
        manifests.parse(f"{MAP}data: {value}\n", "objects")


def test_files_and_folders(tmp_path: pathlib.Path) -> None:
    for name, kind in (("b.yml", "Pod"), ("a.yaml", "Secret"), ("c.txt", "Job")):
        (tmp_path / name).write_text(MAP.replace("ConfigMap", kind))
    assert [item["kind"] for item in manifests.read(".", tmp_path)] == ["Secret", "Pod"]
    with pytest.raises(InputError, match=r"cannot read .*none.yml \(no such file"):
        manifests.read("none.yml", tmp_path)
    (tmp_path / "bad.yml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match=r"bad.yml is not UTF-8|bad.yml: is not valid"):
        manifests.read("bad.yml", tmp_path)


@given(st.text(max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        manifests.parse(text, "x")
    except MusterError as error:
        assert "\n" not in str(error)


def test_a_diff_shows_no_secret_but_that_it_changed() -> None:
    def secret(value: str) -> dict[str, t.Any]:
        data = {"k": base64.b64encode(value.encode()).decode()}
        return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "resourceVersion": "1"}, "data": data}

    entry = diff.diff_entry("Secret n/s", secret("first-value"), secret("other-value"))
    assert entry["before"] != entry["after"] and "resourceVersion" not in entry["before"]
    for text in ("first-value", "other-value", base64.b64encode(b"first-value").decode()):
        assert text not in str(entry)


def test_stages_put_needs_first_and_gates_last() -> None:
    order = ["Namespace", "CustomResourceDefinition", "Secret", "Deployment", "ValidatingWebhookConfiguration"]
    by_kind = {resource.kind: resource for resource in BUILT_IN.values()}
    stages = [apply_stage(by_kind[kind]) for kind in order]
    assert stages == sorted(stages) and len(set(stages)) == len(stages) and stages[-1] == GATES
    custom = Resource("vendor.example", "v1", "Service", "services", True)
    assert apply_stage(custom) == apply_stage(by_kind["Deployment"])


def test_paths_of_built_in_kinds() -> None:
    shown = {resource.kind: resource.path("n", "x") for resource in BUILT_IN.values()}
    assert shown["Ingress"] == "/apis/networking.k8s.io/v1/namespaces/n/ingresses/x"
    assert shown["NetworkPolicy"] == "/apis/networking.k8s.io/v1/namespaces/n/networkpolicies/x"
    assert shown["Endpoints"] == "/api/v1/namespaces/n/endpoints/x"
    assert shown["StorageClass"] == "/apis/storage.k8s.io/v1/storageclasses/x"
    assert shown["PriorityClass"] == "/apis/scheduling.k8s.io/v1/priorityclasses/x"


def test_the_text_of_a_lookup_is_read() -> None:
    """Ansible returns a subclass of str, which the C parser refuses."""

    class Tagged(str):
        """A text with tags."""

        __slots__ = ()

    text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n"
    assert manifests.collect(Tagged(text), "objects") == manifests.collect(text, "objects")
