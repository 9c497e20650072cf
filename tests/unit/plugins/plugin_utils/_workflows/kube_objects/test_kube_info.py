# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""kube_info: one object or a list, with states, and no values of Secrets."""

from __future__ import annotations

import pathlib
import typing as t

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._workflows.kube_objects import kube_info as subject
from ansible_collections.muster.training.tests.support.scripted_client import scripted_client
from ansible_collections.muster.training.tests.support.scripted_http import Call, Script

PODS = "/api/v1/namespaces/team/pods"
OPTIONS: dict[str, t.Any] = {
    "kind": "Pod",
    "namespace": "team",
    "managed_fields": False,
    "label_selectors": ["app=a", "x"],
    "field_selectors": [],
}
POD = {"metadata": {"name": "a", "managedFields": [{}]}, "status": {"phase": "Succeeded"}}


def run(monkeypatch: pytest.MonkeyPatch, call: Call, **options: t.Any) -> dict[str, t.Any]:
    with Script(call) as script:
        monkeypatch.setattr(subject, "open_client", lambda *_args: scripted_client(script))
        return subject.run({**OPTIONS, **options}, pathlib.Path())


def test_a_list_is_selected_and_each_object_has_its_state(monkeypatch: pytest.MonkeyPatch) -> None:
    query = [("labelSelector", "app=a,x"), ("limit", "500")]
    result = run(monkeypatch, Call("GET", PODS, query=query, answer={"items": [POD]}))
    assert result["states"] == [{"state": "done", "reason": "succeeded"}] and not result["changed"]
    assert result["resources"][0]["metadata"] == {"name": "a"} and result["requests"] == 1


def test_an_object_that_does_not_exist_is_an_empty_result(monkeypatch: pytest.MonkeyPatch) -> None:
    missing = {"kind": "Status", "code": 404, "reason": "NotFound", "message": "not found"}
    result = run(monkeypatch, Call("GET", f"{PODS}/a", status=404, answer=missing), name="a")
    assert result["resources"] == result["states"] == []


def test_field_managers_are_shown_when_they_are_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    result = run(monkeypatch, Call("GET", f"{PODS}/a", answer=POD), name="a", managed_fields=True)
    assert result["resources"][0]["metadata"]["managedFields"] == [{}]


def test_values_of_secrets_are_masked_wherever_they_stand() -> None:
    last = "kubectl.kubernetes.io/last-applied-configuration"
    meta = {"name": "s", "annotations": {last: "aGlkZGVu", "mine": "x"}}
    secret: t.Any = {"apiVersion": "v1", "kind": "Secret", "metadata": meta, "data": {"key": "aGlkZGVu"}}
    shown = subject.redact(secret, False)
    assert "aGlkZGVu" not in repr(shown) and list(shown["data"]) == ["key"]
    assert shown["metadata"]["annotations"] == {"mine": "x"} and "aGlkZGVu" in repr(secret)
