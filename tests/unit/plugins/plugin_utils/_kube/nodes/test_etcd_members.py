# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Members of etcd taken out by annotation: what is asked of the API, and what is refused before anything is."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import RefusedError
from ansible_collections.muster.training.plugins.plugin_utils._kube.nodes import etcd_members as members
from ansible_collections.muster.training.tests.support.scripted_client import scripted_client
from ansible_collections.muster.training.tests.support.scripted_http import Call, Script

NODES, OWN = "/api/v1/nodes", "/api/v1/nodes/c"


def server(name: str, ready: str = "True", **notes: str) -> dict[str, t.Any]:
    meta = {"name": name, "labels": {members.LABEL: "true"}, "annotations": {members.NAME: f"{name}-1", **notes}}
    return {"kind": "Node", "metadata": meta, "status": {"conditions": [{"type": "Ready", "status": ready}]}}


def removed(name: str, member: str) -> dict[str, t.Any]:
    """A Node whose member K3s has taken out: it has the name of what it was, and no name of what it is."""
    node = server(name, "Unknown", **{members.REMOVED: member})
    del node["metadata"]["annotations"][members.NAME]
    return node


def listed(*nodes: t.Any) -> Call:
    return Call("GET", NODES, answer={"items": list(nodes)})


def test_a_node_that_is_no_server_is_not_asked_about() -> None:
    plain = {"metadata": {"name": "gpu-3"}}
    for node in (plain, removed("c", "c-1")):
        with Script() as script:
            members.refuse_loss(scripted_client(script), node)
            assert members.remove_member(scripted_client(script), node) is False


def test_a_member_is_marked_and_waited_for() -> None:
    gone = removed("c", "c-1")
    body = {"metadata": {"annotations": {members.REMOVE: "true"}}}
    calls = [
        listed(server("a"), server("b"), server("c")),
        Call("PATCH", OWN, body=body, answer=server("c")),
        Call("GET", OWN, answer=server("c")),
        # One that was removed before, under the same name of the Node, tells nothing.
        Call("GET", OWN, answer=server("c", **{members.REMOVED: "c-0"})),
        Call("GET", OWN, answer=gone),
    ]
    with Script(*calls) as script:
        assert members.remove_member(scripted_client(script), server("c")) is True


def test_a_majority_that_would_be_lost_is_refused_before_anything_is_sent() -> None:
    with (
        Script(listed(server("a"), server("b", "Unknown"), server("c"))) as script,
        pytest.raises(RefusedError, match="c: of 3 servers b does not answer"),
    ):
        members.remove_member(scripted_client(script), server("c"))


def test_one_that_has_been_taken_out_is_no_member_any_more() -> None:
    out = removed("b", "b-1")
    with Script(listed(server("a"), out, server("c"))) as script:
        members.refuse_loss(scripted_client(script), server("c"))


def test_a_k3s_that_does_not_do_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(members, "_WAIT_S", 0.0)
    calls = [listed(server("a"), server("b"), server("c")), Call("PATCH", OWN, answer=server("c"))]
    with Script(*calls) as script, pytest.raises(RefusedError, match="c: K3s has not taken it out of etcd within 0 s"):
        members.remove_member(scripted_client(script), server("c"))
