# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plan of an apply reads each kind once."""

from __future__ import annotations

import typing as t

from ansible_collections.muster.training.plugins.plugin_utils._kube.api.client import Client
from ansible_collections.muster.training.plugins.plugin_utils._kube.api.connect import connect
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


def applied(value: Object, **fields: Object) -> Object:
    entry = {"manager": "muster", "operation": "Apply", "apiVersion": value["apiVersion"], "fieldsV1": fields}
    return {**value, "metadata": {**value["metadata"], "uid": value["metadata"]["name"], "managedFields": [entry]}}


def test_apply_reads_each_kind_once_and_sends_what_differs() -> None:
    same, other, new = config_map("same", x="1"), config_map("other", x="1"), config_map("new", x="1")
    owned = {"f:data": {"f:x": {}}}
    there = [applied(same, **owned), applied(config_map("other", x="0"), **owned)]
    sent = {"query": [("fieldManager", "muster"), ("fieldValidation", "Ignore"), ("force", "false")]}
    with Script(
        Call("GET", MAPS, answer={"items": there, "metadata": {}}),
        Call("PATCH", f"{MAPS}/other", answer=applied(other, **owned), **sent),
    ) as script:
        result = apply(make(script), [same, other])
    assert [change.action for change in result.changes] == ["unchanged", "configured"]
    assert (result.requests, result.writes) == (2, 1)
    with Script(
        Call("GET", f"{MAPS}/new", status=404, answer=status(404)),
        Call("PATCH", f"{MAPS}/new", status=201, answer=applied(new, **owned), body=new),
    ) as script:
        assert [change.action for change in apply(make(script), new).changes] == ["created"]
