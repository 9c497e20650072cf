# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From a device of a tailnet to a node record."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._providers.tailscale import mapping as tailscale
from ansible_collections.muster.training.plugins.plugin_utils._providers.tailscale.client import from_v1
from ansible_collections.muster.training.tests.support.listings import listing
from ansible_collections.muster.training.tests.unit.plugins.plugin_utils._providers.records import NOW, one, to_device


@pytest.mark.parametrize(
    ("index", "name", "state", "online", "expired", "reachable"),
    [
        (0, "spark-01", "running", True, False, True),
        (1, "spark-02", "offline", False, False, False),
        (2, "spark-03", "offline", True, True, False),
        (3, "spark-04", "offline", True, False, False),
        (4, "hello", "running", True, False, True),
        (5, "lab-h100-0-1f2e3d4c", "running", True, False, True),
        (6, "node", "running", True, False, True),
        (7, "node", "offline", False, False, False),
    ],
)
def test_tailnet_devices(index: int, name: str, state: str, online: bool, expired: bool, reachable: bool) -> None:
    host, record = one("tailscale", index)
    assert (host.name, record["state"]) == (name, state)
    found = [host.data[f"tailscale_{key}"] for key in ("online", "expired", "reachable")]
    assert found == [online, expired, reachable]
    assert record["ownership"] == ("rented" if index == 5 else "owned")


def test_tailnet_names_and_variables() -> None:
    host, record = one("tailscale", 0)
    assert host.dns == "spark-01.tail1234.ts.net" and record["network_types"] == ["mesh"]
    assert (
        host.data["tailscale_node_id"] == "n1CNTRL" == record["id"]
        and host.data["tailscale_client_version"] == "1.98.0"
    )
    assert tailscale.short_name({"nodeId": "7", "name": "gpu-1.ts.net", "hostname": "GPU"}) == "GPU"
    assert tailscale.short_name({"nodeId": "7", "name": "gpu-1.ts.net", "hostname": "gpu-1"}) == "gpu-1"
    assert tailscale.short_name({"nodeId": "7", "name": "renamed.ts.net", "hostname": "gpu"}) == "renamed"
    assert tailscale.short_name({"nodeId": "7", "name": "gpu-a1.ts.net", "hostname": "gpu"}) == "gpu-a1"
    assert tailscale.short_name({"nodeId": "7"}) == "7"


@pytest.mark.parametrize(
    ("device", "expected"),
    [
        ({"lastSeen": "2026-11-21T09:55:00Z"}, True),
        ({"lastSeen": "2026-11-21T11:55:00+02:00"}, True),
        ({"lastSeen": "2026-11-21T09:00:00"}, False),
        ({"lastSeen": "0001-01-01T00:00:00Z"}, None),
        ({"lastSeen": "yesterday"}, None),
        ({}, None),
        ({"connectedToControl": False, "lastSeen": "2026-11-21T09:59:59Z"}, False),
    ],
)
def test_online_without_a_connection_flag(device: dict[str, t.Any], expected: bool | None) -> None:
    assert tailscale.is_online(device, NOW) is expected


def test_headscale_nodes() -> None:
    first, second = (to_device(from_v1(raw), "acc") for raw in listing("headscale_v1")["nodes"])
    assert (first.record["state"], first.data["tailscale_is_ephemeral"], first.dns) == ("running", True, None)
    assert (second.record["state"], second.data["tailscale_expired"], second.name) == ("offline", True, "old-renamed")
