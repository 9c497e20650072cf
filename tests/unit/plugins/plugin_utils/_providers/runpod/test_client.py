# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The client of RunPod against scripted answers: pages, clusters, their members."""

from __future__ import annotations

import json
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import TransportError
from ansible_collections.muster.training.plugins.plugin_utils._providers.runpod.client import RunpodClient
from ansible_collections.muster.training.tests.support.listings import CANARY, listing
from ansible_collections.muster.training.tests.support.scripted_http import Call, Script
from ansible_collections.muster.training.tests.unit.plugins.plugin_utils._providers.connections import (
    BEARER,
    access,
    pods,
)


def test_runpod_lists_members_and_their_network() -> None:
    recorded = listing("runpod")
    calls = [
        Call("GET", "/v2/pods", answer=recorded["pods"], query=[("includeClusterPods", "true")], headers=BEARER),
        Call("GET", "/v2/clusters", answer=recorded["clusters"], query=[]),
    ]
    with Script(*calls) as script:
        found = RunpodClient(access(script)).list_pods()
    assert [item.get("clusterNetwork", {}).get("cidr") for item in found[:2]] == ["10.65.0.0/16"] * 2
    assert CANARY not in json.dumps(found) and "env" not in found[0]
    assert found[0]["runtime"] == {"ports": recorded["pods"]["pods"][0]["runtime"]["ports"]}


def test_runpod_without_clusters_asks_once() -> None:
    pods = {"pods": [listing("runpod")["pods"]["pods"][2]]}
    with Script(Call("GET", "/v2/pods", answer=pods)) as script:
        assert len(RunpodClient(access(script)).list_pods()) == 1


def page(items: list[t.Any], cursor: str | None, more: bool | None) -> dict[str, t.Any]:
    return {"pods": items, "pagination": {"nextCursor": cursor, "hasNextPage": more}}


def test_runpod_follows_cursors_and_drops_what_a_shifted_page_repeats() -> None:
    calls = [
        Call("GET", "/v2/pods", answer=page(pods(1, 2), "c1", True)),
        Call(
            "GET",
            "/v2/pods",
            answer=page(pods(2, 3), "c2", True),
            query=[("includeClusterPods", "true"), ("cursor", "c1")],
        ),
        Call("GET", "/v2/pods", answer=page([], "c2", False), query=[("includeClusterPods", "true"), ("cursor", "c2")]),
    ]
    with Script(*calls) as script:
        assert [item["id"] for item in RunpodClient(access(script)).pods()] == ["pod-1", "pod-2", "pod-3"]


def test_runpod_repeated_cursor_is_an_error_not_a_short_listing() -> None:
    call = Call("GET", "/v2/pods", answer=page(pods(1), "c1", True))
    with Script(call, call) as script, pytest.raises(TransportError, match="repeats its pages"):
        RunpodClient(access(script)).pods()


def test_runpod_next_page_without_cursor_is_an_error() -> None:
    with (
        Script(Call("GET", "/v2/pods", answer=page(pods(1), None, True))) as script,
        pytest.raises(TransportError, match="without cursor"),
    ):
        RunpodClient(access(script)).pods()
