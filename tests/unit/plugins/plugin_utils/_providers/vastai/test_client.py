# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The client of Vast.ai against scripted answers: pages, filters, quotas."""

from __future__ import annotations

import json

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import ApiError, TransportError
from ansible_collections.muster.training.plugins.plugin_utils._providers.vastai.client import VastClient, filter_text
from ansible_collections.muster.training.tests.support.fake_clock import FakeClock
from ansible_collections.muster.training.tests.support.listings import CANARY, listing, vast_pages
from ansible_collections.muster.training.tests.support.scripted_http import Call, Script
from ansible_collections.muster.training.tests.unit.plugins.plugin_utils._providers.connections import BEARER, access


@pytest.mark.parametrize("count", [0, 25, 26, 51])
def test_vast_reads_all_pages(count: int) -> None:
    instances = [{**listing("vastai")[0], "id": number} for number in range(count)]
    answer = vast_pages(instances)
    starts = [[("limit", "25")]]
    while (token := answer(starts[-1])["next_token"]) is not None:
        starts.append([("limit", "25"), ("after_token", token)])
    calls = [Call("GET", "/api/v1/instances/", answer=answer(query), query=query, headers=BEARER) for query in starts]
    with Script(*calls) as script:
        found = VastClient(access(script)).instances()
    assert [item["id"] for item in found] == list(range(count)) and len(calls) == max(1, -(-count // 25))
    assert CANARY not in json.dumps(found)


def test_vast_filters_and_addresses() -> None:
    select = filter_text({"label": {"eq": "lab"}})
    query = [("limit", "25"), ("select_filters", '{"label":{"eq":"lab"}}')]
    for url in ("", "https://console.vast.ai/api", "https://console.vast.ai/api/v0/", "https://console.vast.ai/api/v1"):
        with Script(Call("GET", "/api/v1/instances/", answer=vast_pages([])([]), query=query)) as script:
            client = VastClient(access(script, api_url=url))
            assert client.instances(select) == [] and str(client.http.base) == "https://console.vast.ai/api/v0"


def test_vast_plain_text_429_is_waited_for_and_a_quota_is_not() -> None:
    clock = FakeClock()
    busy = Call("GET", "/api/v1/instances/", status=429, raw=b"API requests too frequent: endpoint threshold=3.0")
    with Script(busy, Call("GET", "/api/v1/instances/", answer=vast_pages([])([]))) as script:
        assert VastClient(access(script, clock=clock)).instances() == []
    assert len(clock.slept) == 1
    quota = Call("GET", "/api/v1/instances/", status=429, answer={"error": "search_quota_exceeded"})
    with Script(quota) as script, pytest.raises(ApiError, match="search_quota_exceeded"):
        VastClient(access(script)).instances()


def test_vast_counts_more_than_it_shows() -> None:
    short = {"success": True, "instances": [], "total_instances": 1, "next_token": None}
    with (
        Script(Call("GET", "/api/v1/instances/", answer=short)) as script,
        pytest.raises(TransportError, match="0 of 1"),
    ):
        VastClient(access(script)).instances()


def test_vast_tells_an_error_in_a_200() -> None:
    retired = {"success": False, "error": "deprecated_endpoint", "msg": "use\x1b[2J v2"}
    with (
        Script(Call("GET", "/api/v1/instances/", answer=retired)) as script,
        pytest.raises(TransportError, match=r"Vast.ai: .*not whole: .*\(deprecated_endpoint\) \(use\ufffd") as caught,
    ):
        VastClient(access(script)).instances()
    assert "\x1b" not in str(caught.value)
    with (
        Script(Call("GET", "/api/v1/instances/", answer={"success": False})) as script,
        pytest.raises(TransportError, match="not whole: 'success' is false"),
    ):
        VastClient(access(script)).instances()
