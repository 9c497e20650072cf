# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Refusals of the API server, each in one line."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import MusterError
from ansible_collections.muster.training.plugins.plugin_utils._kube.api.client import Client
from ansible_collections.muster.training.plugins.plugin_utils._kube.api.connect import connect
from ansible_collections.muster.training.plugins.plugin_utils._kube.api.errors import KubeError
from ansible_collections.muster.training.plugins.plugin_utils._kube.objects.apply import apply
from ansible_collections.muster.training.tests.support.fake_clock import FakeClock
from ansible_collections.muster.training.tests.support.scripted_http import Call, Script

Object = dict[str, t.Any]


MAPS = "/api/v1/namespaces/team/configmaps"


def status(code: int, reason: str = "", message: str = "", causes: list[Object] | None = None) -> Object:
    details = {"causes": causes} if causes else {}
    return {
        "kind": "Status",
        "status": "Failure",
        "code": code,
        "reason": reason,
        "message": message,
        "details": details,
    }


def make(script: Script, clock: FakeClock | None = None, **options: t.Any) -> Client:
    given = {"host": "https://kube.example", "token": "token-0123456789", **options}
    exchange: t.Any = script
    return connect(given, environ={}, exchange=exchange, clock=clock or FakeClock())


def config_map(name: str = "a", **data: str) -> Object:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "team"}, "data": data}


REFUSALS: list[tuple[int, Object, str]] = [
    (
        409,
        status(
            409,
            "Conflict",
            "Apply failed",
            [
                {"reason": "FieldManagerConflict", "field": ".spec.a", "message": 'conflict with "helm" using v1'},
                {"reason": "FieldManagerConflict", "field": ".spec.b", "message": 'conflict with "helm" using v1'},
            ],
        ),
        "conflicts with other field managers: helm owns .spec.a, .spec.b",
    ),
    (
        403,
        status(
            403,
            "Forbidden",
            "it is being terminated",
            [{"reason": "NamespaceTerminating", "field": "metadata.namespace"}],
        ),
        "its namespace is being deleted",
    ),
    (
        422,
        status(
            422, "Invalid", "x", [{"reason": "FieldValueInvalid", "field": "spec.a", "message": "field is immutable"}]
        ),
        "is not valid: spec.a: field is immutable. An immutable field needs a new object",
    ),
    (410, status(410, "Gone", "too old\nresource version"), "too old resource version"),
    (400, status(400, "BadRequest", 'strict decoding error: unknown field "spec.x"'), 'unknown field "spec.x"'),
    (
        500,
        status(500, "InternalError", 'failed calling webhook "a.b": Post "https://x": EOF'),
        "the admission webhook a.b does not answer",
    ),
]


@pytest.mark.parametrize(("code", "said", "expected"), REFUSALS, ids=[str(entry[0]) for entry in REFUSALS])
def test_refusals_are_one_line_with_object_and_reason(code: int, said: Object, expected: str) -> None:
    with Script(Call("POST", MAPS, status=code, answer=said)) as script, pytest.raises(KubeError) as caught:
        make(script).create(config_map())
    text = str(caught.value)
    assert text.startswith("ConfigMap team/a: ") and expected in text and "\n" not in text


def test_a_secret_in_a_refusal_is_not_shown() -> None:
    from ansible_collections.muster.training.plugins.module_utils._secrets.scrubber import scrub

    secret: Object = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "s", "namespace": "team"},
        "stringData": {"password": "correct-horse-7"},
    }
    path = "/api/v1/namespaces/team/secrets/s"
    with (
        Script(
            Call("GET", path, status=404, answer=status(404)),
            Call("PATCH", path, status=422, answer=status(422, "Invalid", "correct-horse-7 and Y29ycmVjdC1ob3JzZS03")),
        ) as script,
        pytest.raises(MusterError) as caught,
    ):
        apply(make(script), [secret])
    assert "horse" not in scrub(str(caught.value)) and "Y29ycmVjdC1ob3J" not in scrub(str(caught.value))
