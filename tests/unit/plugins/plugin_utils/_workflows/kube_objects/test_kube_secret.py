# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""kube_secret: present, absent and check mode; a result never holds a value."""

from __future__ import annotations

import pathlib
import typing as t

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._workflows.kube_objects import kube_secret as subject
from ansible_collections.muster.training.tests.support.scripted_client import scripted_client
from ansible_collections.muster.training.tests.support.scripted_http import Call, Script

PATH = "/api/v1/namespaces/team/secrets/s"
MISSING = {"kind": "Status", "code": 404, "reason": "NotFound", "message": "not found"}
LIVE = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "team", "uid": "u"}}
OPTIONS: dict[str, t.Any] = {
    "name": "s",
    "namespace": "team",
    "type": "Opaque",
    "field_manager": "muster",
    "force_conflicts": False,
    "labels": {"app": 1},
    "data": {"key": "very-hidden-value"},
}


def run(monkeypatch: pytest.MonkeyPatch, *calls: Call, check: bool = False, **options: t.Any) -> dict[str, t.Any]:
    with Script(*calls) as script:
        monkeypatch.setattr(subject, "open_client", lambda *_args: scripted_client(script))
        return subject.run({**OPTIONS, **options}, pathlib.Path(), check, True)


def test_a_new_secret_is_reported_without_its_values(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = (Call("GET", PATH, status=404, answer=MISSING), Call("PATCH", PATH, answer=LIVE))
    result = run(monkeypatch, *calls, state="present")
    assert (result["action"], result["changed"], result["data_keys"]) == ("created", True, ["key"])
    assert len(result["hash"]) == 16 and "hidden" not in repr(result) and "dmVye" not in repr(result)


def test_a_secret_that_check_mode_would_create_has_no_hash(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = (Call("GET", PATH, status=404, answer=MISSING), Call("PATCH", PATH, answer=LIVE))
    assert run(monkeypatch, *calls, check=True, state="present")["hash"] is None


def test_only_the_very_secret_is_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    body = {
        "kind": "DeleteOptions",
        "apiVersion": "v1",
        "propagationPolicy": "Background",
        "preconditions": {"uid": "u"},
    }
    result = run(
        monkeypatch, Call("GET", PATH, answer=LIVE), Call("DELETE", PATH, body=body, answer={}), state="absent"
    )
    assert (result["changed"], result["action"]) == (True, "removed")


def test_check_mode_and_a_missing_secret_delete_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(monkeypatch, Call("GET", PATH, answer=LIVE), check=True, state="absent")["changed"]
    result = run(monkeypatch, Call("GET", PATH, status=404, answer=MISSING), state="absent")
    assert (result["changed"], result["action"]) == (False, "unchanged")
