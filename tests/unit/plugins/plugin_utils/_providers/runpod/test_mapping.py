# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From a pod of RunPod to a node record."""

from __future__ import annotations

from ansible_collections.muster.training.plugins.plugin_utils._providers import node_record
from ansible_collections.muster.training.plugins.plugin_utils._providers.runpod import mapping as runpod
from ansible_collections.muster.training.tests.support.listings import listing
from ansible_collections.muster.training.tests.unit.plugins.plugin_utils._providers.records import one


def test_runpod_member_and_lone_pod() -> None:
    raw = {**listing("runpod")["pods"]["pods"][0], "clusterNetwork": {"cidr": "10.65.0.0/16"}}
    host = runpod.to_host(raw, "acc")
    assert host.direct == ("203.0.113.4", 22001, "root") and host.data["runpod_cluster_cidr"] == "10.65.0.0/16"
    assert host.record["addresses"]["lan"][0]["address"] == "10.65.0.2"
    assert (host.record["fabric_hint"], host.data["runpod_cluster_rank"]) == ("cluster_abc123", 0)
    assert host.record["k3s"] == {"capable": False, "reasons": [node_record.CONTAINER]}
    second, record = one("runpod", 1)
    assert second.direct is None and second.data["runpod_cluster_rank"] is None and not second.data["runpod_reachable"]
    assert record["state"] == "creating" and record["network_types"] == []
    _host, lone = one("runpod", 2)
    assert lone["owner"]["token"] == "0a1b2c3d" and lone["gpu"]["memory_gib"] is None
