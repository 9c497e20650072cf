# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An apply: dry runs in check mode, stages in order."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._kube.api.client import Client
from ansible_collections.muster.training.plugins.plugin_utils._kube.api.connect import connect
from ansible_collections.muster.training.plugins.plugin_utils._kube.api.errors import KubeError
from ansible_collections.muster.training.plugins.plugin_utils._kube.objects.apply import apply
from ansible_collections.muster.training.tests.support.fake_clock import FakeClock
from ansible_collections.muster.training.tests.support.scripted_http import Call, Script

Object = dict[str, t.Any]


PODS = "/api/v1/namespaces/team/pods"


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


def test_apply_in_check_mode_sends_dry_runs_only() -> None:
    with Script(
        Call("GET", f"{MAPS}/a", status=404, answer=status(404)),
        Call(
            "PATCH",
            f"{MAPS}/a",
            answer=config_map(),
            query=[("fieldManager", "muster"), ("fieldValidation", "Ignore"), ("dryRun", "All"), ("force", "true")],
        ),
    ) as script:
        assert apply(make(script), config_map(), "muster", True, True).changed


def test_apply_stops_before_the_next_stage_when_something_is_refused() -> None:
    pod: Object = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "team"}, "spec": {}}
    script = Script(
        Call("GET", f"{MAPS}/a", status=404, answer=status(404)),
        Call("GET", f"{PODS}/p", status=404, answer=status(404)),
        Call("PATCH", f"{MAPS}/a", status=403, answer=status(403, "Forbidden", "no right")),
    )
    unordered: t.Any = _AnyOrder(script)
    with script, pytest.raises(KubeError, match=r"ConfigMap team/a: no right \(nothing was changed\)"):
        apply(make(unordered), [pod, config_map()])


class _AnyOrder:
    """Lets reads of different kinds, which go out together, come in any order."""

    def __init__(self, script: Script) -> None:
        self._script = script

    def __call__(self, origin: t.Any, request: t.Any, deadline: t.Any) -> t.Any:
        calls = self._script._calls
        calls.sort(key=lambda call: (call.method, call.path) != (request.method, request.path))
        return self._script(origin, request, deadline)
