# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node that is removed: which pods are evicted, and what check mode returns."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._kube.nodes import drain
from ansible_collections.muster.training.tests.support.scripted_client import scripted_client
from ansible_collections.muster.training.tests.support.scripted_http import Call, Script

NODE = "/api/v1/nodes/gpu-3"
SECRET = "/api/v1/namespaces/kube-system/secrets/gpu-3.node-password.k3s"
MISSING = {"kind": "Status", "code": 404, "reason": "NotFound", "message": "not found"}


def pod(name: str, phase: str = "Running", owner: str = "", **annotations: str) -> t.Any:
    meta: dict[str, t.Any] = {"name": name, "namespace": "n", "annotations": annotations}
    if owner:
        meta["ownerReferences"] = [{"kind": owner, "controller": True}]
    return {"metadata": meta, "status": {"phase": phase}}


def test_pods_that_stay_are_those_of_the_node_itself_and_those_that_have_ended() -> None:
    static = pod("static")
    static["metadata"]["annotations"] = {"kubernetes.io/config.mirror": "x"}
    pods = [pod("a"), pod("b", owner="Job"), pod("c", owner="DaemonSet"), pod("d", "Succeeded"), pod("e", "Failed")]
    assert [item["metadata"]["name"] for item in drain.filter_evictable([*pods, static])] == ["a", "b"]


@pytest.mark.parametrize(("closed", "is_closed"), [(True, False), (False, True)])
def test_a_node_is_cordoned_and_uncordoned_once(closed: bool, is_closed: bool) -> None:
    live = {"kind": "Node", "metadata": {"name": "gpu-3"}, "spec": {"unschedulable": is_closed}}
    body = {"spec": {"unschedulable": closed or None}}
    with Script(Call("GET", NODE, answer=live), Call("PATCH", NODE, body=body, answer=live)) as script:
        assert drain.set_cordon(scripted_client(script), "gpu-3", closed)
    live["spec"] = {"unschedulable": closed}
    with Script(Call("GET", NODE, answer=live)) as script:
        assert not drain.set_cordon(scripted_client(script), "gpu-3", closed)


def test_a_missing_node_is_no_change() -> None:
    gone = Call("GET", NODE, status=404, answer=MISSING)
    with Script(gone, Call("GET", SECRET, status=404, answer=MISSING)) as script:
        removal = drain.remove_node(scripted_client(script), "gpu-3", 60, lambda _line: None)
    assert not removal.changed and not removal.found


def test_check_mode_names_what_would_go() -> None:
    live = {"kind": "Node", "metadata": {"name": "gpu-3", "uid": "u"}, "spec": {}}
    calls = [
        Call("GET", NODE, answer=live),
        Call("GET", NODE, answer=live),
        Call("PATCH", NODE, answer=live),
        Call("GET", "/api/v1/pods", answer={"items": [pod("a"), pod("c", owner="DaemonSet")]}),
        Call("GET", SECRET, answer={"kind": "Secret", "metadata": {"name": "x"}}),
    ]
    with Script(*calls) as script:
        removal = drain.remove_node(scripted_client(script), "gpu-3", 60, lambda _line: None, check=True)
    assert ("dryRun", "All") in script.done[2].query
    assert (removal.evicted, removal.deleted, removal.password_deleted, removal.forced) == (["n/a"], True, True, [])
