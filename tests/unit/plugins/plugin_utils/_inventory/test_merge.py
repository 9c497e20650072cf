# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The records of one machine from two sources."""

from __future__ import annotations

from ansible_collections.muster.training.plugins.module_utils._model.node import Node
from ansible_collections.muster.training.plugins.plugin_utils._inventory import (
    merge,
)
from ansible_collections.muster.training.plugins.plugin_utils._providers.node_record import build_record
from ansible_collections.muster.training.tests.unit.plugins.plugin_utils._inventory.hosts import FULL, make


def test_mesh_and_provider_become_one() -> None:
    rented = {**FULL.record, "ssh": {"host": "203.0.113.4", "port": 22001, "user": "root"}}
    device = build_record("n1", "node", "tailscale", "t", "owned", None, "running", mesh=("100.64.0.9",))
    device["ssh"] = {"host": "100.64.0.9", "port": None, "user": None}
    bare = make(public=("192.0.2.1",)).record
    assert merge.is_same_machine(device, rented) and merge.is_same_machine(rented, device)
    both = merge.merge_records(device, bare)
    assert (both["id"], both["provider"], both["kind"]) == ("i-1", "lambda", "vm")
    assert both["network_types"] == ["mesh", "public"] and both["ssh"]["host"] == "100.64.0.9"
    other_order = merge.merge_records(bare, device)
    assert other_order["addresses"] == both["addresses"] and other_order["ssh"]["host"] == "100.64.0.9"
    assert merge.merge_records(rented, device)["ssh"]["host"] == "203.0.113.4"
    assert Node.from_dict(both).addresses.mesh[0].address == "100.64.0.9"


def test_who_is_the_same_machine() -> None:
    ours = FULL.record
    assert merge.is_same_machine(ours, None) and merge.is_same_machine(ours, {"kind": "baremetal"})
    assert merge.is_same_machine(ours, dict(ours))
    assert not merge.is_same_machine(ours, {**ours, "id": "i-2"})
    assert not merge.is_same_machine(ours, {**ours, "account": "other"})
    assert not merge.is_same_machine(ours, {**ours, "provider": "runpod"})
    assert merge.merge_records(dict(ours), "no record") == ours
