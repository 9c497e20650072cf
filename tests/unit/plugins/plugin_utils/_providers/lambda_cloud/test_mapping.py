# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From an instance of Lambda Cloud to a node record."""

from __future__ import annotations

from ansible_collections.muster.training.plugins.plugin_utils._providers.lambda_cloud import mapping as lambda_cloud
from ansible_collections.muster.training.tests.support.listings import listing
from ansible_collections.muster.training.tests.unit.plugins.plugin_utils._providers.records import one


def test_lambda_record() -> None:
    host, record = one("lambda", 0)
    assert record == {
        "id": "0920582c7ff041399e34823a0be62549",
        "name": "lab-h100-0-1f2e3d4c",
        "ownership": "rented",
        "provider": "lambda",
        "account": "acc",
        "product": "gpu_8x_h100_sxm5",
        "kind": "vm",
        "state": "running",
        "region": "us-west-3",
        "site": None,
        "preemptible": False,
        "ssh": {"host": None, "port": None, "user": "ubuntu"},
        "addresses": {
            "mesh": [],
            "lan": [{"address": "10.19.0.2", "interface": None, "prefix": None}],
            "public": [{"address": "198.51.100.2", "interface": None, "prefix": None}],
        },
        "network_types": ["lan", "public"],
        "gpu": {"model": "H100", "count": 8, "memory_gib": 80.0, "arch": None},
        "cpu": {"count": 208, "arch": "x86_64"},
        "memory_gib": 1800.0,
        "price_usd_per_hour": 23.92,
        "owner": {"cluster": "lab", "pool": "h100", "token": "1f2e3d4c"},
        "created_at": None,
        "fabric_hint": "us-west-3",
        "k3s": {"capable": True, "reasons": []},
    }
    assert host.data["lambda_tags"] == {"muster-cluster": "lab"} and host.direct is None


def test_lambda_without_addresses_and_on_arm() -> None:
    _host, booting = one("lambda", 1)
    assert booting["state"] == "creating" and booting["network_types"] == [] and booting["fabric_hint"] is None
    _host, grace = one("lambda", 2)
    assert (grace["cpu"]["arch"], grace["state"], grace["gpu"]["memory_gib"]) == ("aarch64", "failed", 96.0)
    assert one("lambda", 3)[1]["state"] == "gone"
    raw = {**listing("lambda")["data"][0], "cluster_id": "1cc-1", "instance_type": {"architecture": "arm64"}}
    record = lambda_cloud.to_host(raw, "").record
    assert (record["fabric_hint"], record["cpu"]["arch"], record["account"]) == ("1cc-1", "aarch64", None)
