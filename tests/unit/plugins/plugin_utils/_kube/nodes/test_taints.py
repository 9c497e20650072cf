# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Taints of a node: the inventory's are set, changed and removed; those of others stay."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError, RefusedError
from ansible_collections.muster.training.plugins.plugin_utils._kube.api.errors import KubeError
from ansible_collections.muster.training.plugins.plugin_utils._kube.nodes import taints
from ansible_collections.muster.training.tests.support.scripted_client import scripted_client
from ansible_collections.muster.training.tests.support.scripted_http import Call, Script

NODE = "/api/v1/nodes/gpu-1"
GPU = {"key": "example.com/gpu", "value": "a", "effect": "NoSchedule"}
OTHER = {"key": "node.kubernetes.io/not-ready", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"}


def node(*current: dict[str, t.Any], owned: str = "") -> dict[str, t.Any]:
    meta: dict[str, t.Any] = {"name": "gpu-1", "resourceVersion": "7"}
    if owned:
        meta["annotations"] = {taints.ANNOTATION: owned}
    return {"kind": "Node", "metadata": meta, "spec": {"taints": list(current)}}


@pytest.mark.parametrize(
    ("live", "wanted", "after", "note"),
    [
        (node(OTHER), ["example.com/gpu=a:NoSchedule"], [OTHER, GPU], "example.com/gpu=a:NoSchedule"),
        # A changed value replaces the old one, whoever set it.
        (
            node(GPU, OTHER, owned="example.com/gpu=a:NoSchedule"),
            ["example.com/gpu=b:NoSchedule"],
            [OTHER, {**GPU, "value": "b"}],
            "example.com/gpu=b:NoSchedule",
        ),
        (node(GPU, OTHER, owned="example.com/gpu=a:NoSchedule"), [], [OTHER], None),
        # What was set when the node was registered is noted as the inventory's.
        (node(GPU), ["example.com/gpu=a:NoSchedule"], None, "example.com/gpu=a:NoSchedule"),
    ],
)
def test_what_is_changed(live: t.Any, wanted: list[str], after: t.Any, note: str | None) -> None:
    patch = taints.plan_taints(live, wanted)
    assert patch is not None and patch["metadata"]["annotations"] == {taints.ANNOTATION: note}
    assert (patch.get("spec") or {}).get("taints") == after


def test_what_is_as_it_should_be_is_not_written() -> None:
    assert (
        taints.plan_taints(node(GPU, OTHER, owned="example.com/gpu=a:NoSchedule"), ["example.com/gpu=a:NoSchedule"])
        is None
    )
    assert taints.plan_taints(node(OTHER), []) is None
    with Script(Call("GET", NODE, answer=node(OTHER))) as script:
        assert not taints.set_taints(scripted_client(script), "gpu-1", [])


@pytest.mark.parametrize("text", ["", "key", "key=value", "key:Never", "=v:NoSchedule", "a b:NoSchedule"])
def test_a_taint_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="taints: .* is not a taint"):
        taints.parse_taint(text)


def test_a_node_that_others_change_at_the_same_time_is_read_again() -> None:
    conflict = {"kind": "Status", "code": 409, "reason": "Conflict", "message": "modified"}
    body = {
        "metadata": {"annotations": {taints.ANNOTATION: "k:NoExecute"}, "resourceVersion": "7"},
        "spec": {"taints": [{"key": "k", "effect": "NoExecute"}]},
    }
    calls = [
        Call("GET", NODE, answer=node()),
        Call("PATCH", NODE, body=body, status=409, answer=conflict),
        Call("GET", NODE, answer=node()),
        Call("PATCH", NODE, body=body, answer=node()),
    ]
    with Script(*calls) as script:
        assert taints.set_taints(scripted_client(script), "gpu-1", ["k:NoExecute"])
    refused = {**conflict, "code": 403, "reason": "Forbidden"}
    calls = [Call("GET", NODE, answer=node()), Call("PATCH", NODE, status=403, answer=refused)]
    with Script(*calls) as script, pytest.raises(KubeError):
        taints.set_taints(scripted_client(script), "gpu-1", ["k:NoExecute"])


def test_a_node_that_is_not_there_is_named() -> None:
    missing = {"kind": "Status", "code": 404, "reason": "NotFound", "message": "not found"}
    refusal = pytest.raises(RefusedError, match="the cluster has no node gpu-1. Let it join first")
    with Script(Call("GET", NODE, status=404, answer=missing)) as script, refusal:
        taints.set_taints(scripted_client(script), "gpu-1", [])
