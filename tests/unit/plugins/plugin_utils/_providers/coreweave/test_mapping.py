# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From a cluster of CoreWeave to a node record."""

from __future__ import annotations

from ansible_collections.muster.training.plugins.plugin_utils._providers.coreweave import mapping as coreweave
from ansible_collections.muster.training.tests.support.listings import listing
from ansible_collections.muster.training.tests.unit.plugins.plugin_utils._providers.records import one


def test_coreweave_is_a_cluster() -> None:
    raw = {**listing("coreweave")["clusters"]["items"][0], "nodePools": [{"name": "h100", "targetNodes": 4}]}
    host = coreweave.to_host(raw, "acc")
    assert (host.record["kind"], host.record["ownership"], host.record["state"]) == ("cluster", "managed", "running")
    assert host.data["coreweave_api_server"] == "https://abc123-abcd1234.k8s.us-east-04a.coreweave.com"
    assert host.data["coreweave_node_pools"][0]["target_nodes"] == 4
    assert one("coreweave", 1)[0].data["coreweave_api_server"] is None
