# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Credentials that are read again."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._kube.api.client import Client
from ansible_collections.muster.training.plugins.plugin_utils._kube.api.connect import connect
from ansible_collections.muster.training.plugins.plugin_utils._kube.api.errors import KubeError
from ansible_collections.muster.training.tests.support.fake_clock import FakeClock
from ansible_collections.muster.training.tests.support.scripted_http import Call, Script

Object = dict[str, t.Any]


PODS = "/api/v1/namespaces/team/pods"


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


def test_a_401_reads_the_token_file_once_more(tmp_path: t.Any) -> None:
    path = tmp_path / "token"
    path.write_text("stale-token-0123")
    first = Call("GET", f"{PODS}/p", status=401, answer=status(401), effect=lambda: path.write_text("fresh-token-0123"))
    second = Call("GET", f"{PODS}/p", answer={"kind": "Pod"}, headers={"Authorization": "Bearer fresh-token-0123"})
    with Script(first, second) as script:
        make(script, token="", token_file=str(path)).get("Pod", "p", "team")
    refused = Call("GET", f"{PODS}/p", status=401, answer=status(401))
    expected = r"credential of user options .* was rejected \(401\)"
    with Script(refused) as script, pytest.raises(KubeError, match=expected) as caught:
        make(script).get("Pod", "p", "team")
    assert "token-0123456789" not in str(caught.value)
