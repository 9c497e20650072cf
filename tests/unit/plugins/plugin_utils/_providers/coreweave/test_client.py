# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The client of CoreWeave against scripted answers: clusters and their node pools."""

from __future__ import annotations

import json

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import TransportError
from ansible_collections.muster.training.plugins.plugin_utils._providers.coreweave.client import (
    NODE_POOLS,
    CoreweaveClient,
)
from ansible_collections.muster.training.tests.support.listings import CANARY, listing
from ansible_collections.muster.training.tests.support.scripted_http import Call, Script
from ansible_collections.muster.training.tests.unit.plugins.plugin_utils._providers.connections import BEARER, access


def test_coreweave_reads_pools_of_running_clusters_only() -> None:
    recorded = listing("coreweave")
    calls = [
        Call("GET", "/v1beta1/cks/clusters", answer=recorded["clusters"], headers=BEARER),
        Call("GET", NODE_POOLS, answer=recorded["nodepools"], headers=BEARER),
    ]
    with Script(*calls) as script:
        found = CoreweaveClient(access(script)).list_clusters(node_pools=True)
    assert str(script.origins[1]) == "https://abc123-abcd1234.k8s.us-east-04a.coreweave.com"
    assert found[0]["nodePools"][0]["targetNodes"] == 4 and "nodePools" not in found[1]
    assert CANARY not in json.dumps(found)


def test_coreweave_without_its_api_server_keeps_the_cluster() -> None:
    recorded = listing("coreweave")
    calls = [
        Call("GET", "/v1beta1/cks/clusters", answer=recorded["clusters"]),
        Call("GET", NODE_POOLS, status=403),
    ]
    with Script(*calls) as script:
        assert CoreweaveClient(access(script)).list_clusters(node_pools=True)[0]["nodePools"] is None


@pytest.mark.parametrize("endpoint", [None, "", "a b", "evil.example.com/x", "user@evil", "x:99"])
def test_coreweave_sends_no_token_to_an_odd_endpoint(endpoint: str | None) -> None:
    with Script() as script, pytest.raises(TransportError):
        CoreweaveClient(access(script)).node_pools({"apiServerEndpoint": endpoint})
