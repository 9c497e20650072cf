# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The out-of-service taint, the silence of a node, and the order in which its pods are released."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._kube.nodes import out_of_service as subject
from ansible_collections.muster.training.tests.support.scripted_client import scripted_client
from ansible_collections.muster.training.tests.support.scripted_http import Call, Script

NODE = "/api/v1/nodes/gpu-3"
OTHER = {"key": "nvidia.com/gpu", "effect": "NoSchedule"}
TAINT = {"key": subject.OUT_OF_SERVICE, "value": "nodeshutdown", "effect": "NoExecute"}


def node(*taints: dict[str, str], ready: str = "True", since: str = "2026-01-01T00:00:00Z") -> t.Any:
    condition = {"type": "Ready", "status": ready, "lastTransitionTime": since}
    return {
        "kind": "Node",
        "metadata": {"name": "gpu-3", "uid": "u", "resourceVersion": "7"},
        "spec": {"taints": list(taints)} if taints else {},
        "status": {"conditions": [condition]},
    }


@pytest.mark.parametrize(
    ("ready", "now", "expected"),
    [
        ("True", 1767225660.0, (True, 0.0)),
        ("Unknown", 1767225660.0, (False, 60.0)),
        ("Unknown", None, (False, None)),
        ("False", 1767225660.0, (False, None)),
    ],
)
def test_only_the_control_plane_dates_a_silence(ready: str, now: float | None, expected: tuple[bool, float]) -> None:
    assert subject.readiness(node(ready=ready), now) == expected


def test_a_taint_is_added_beside_others_and_removed_alone() -> None:
    def patch(taints: t.Any) -> Call:
        body = {"metadata": {"resourceVersion": "7"}, "spec": {"taints": taints}}
        return Call("PATCH", NODE, body=body, answer=node())

    pods = Call("GET", "/api/v1/pods", answer={"items": []})
    get, read = Call("GET", NODE, answer=node(OTHER)), Call("GET", NODE, answer=node(OTHER))
    with Script(get, read, patch([OTHER, TAINT]), pods) as script:
        released = subject.release_pods(scripted_client(script), "gpu-3", gone=False)
    assert released == ["Node gpu-3 is out of service"]
    with Script(Call("GET", NODE, answer=node(OTHER, TAINT)), patch([OTHER])) as script:
        assert subject.remove_taint(scripted_client(script), "gpu-3")
    with Script(Call("GET", NODE, answer=node(OTHER))) as script:
        assert not subject.remove_taint(scripted_client(script), "gpu-3")


def test_another_change_of_the_taints_is_read_again() -> None:
    conflict = {"kind": "Status", "code": 409, "reason": "Conflict", "message": "changed"}
    calls = [
        Call("GET", NODE, answer=node(TAINT)),
        Call("PATCH", NODE, status=409, answer=conflict),
        Call("GET", NODE, answer=node(OTHER, TAINT)),
        Call("PATCH", NODE, body={"metadata": {"resourceVersion": "7"}, "spec": {"taints": [OTHER]}}, answer=node()),
    ]
    with Script(*calls) as script:
        assert subject.remove_taint(scripted_client(script), "gpu-3")


def test_the_node_of_a_machine_that_is_gone_is_deleted() -> None:
    calls = [
        Call("GET", NODE, answer=node()),
        Call("DELETE", NODE, answer={"kind": "Status"}),
        Call("GET", "/api/v1/pods", answer={"items": []}),
    ]
    with Script(*calls) as script:
        assert subject.release_pods(scripted_client(script), "gpu-3", gone=True) == ["Node gpu-3 was deleted"]
