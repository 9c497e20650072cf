# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An inventory's record and measured facts as one node: who wins, field by field."""

from __future__ import annotations

import dataclasses
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model import node_facts
from ansible_collections.muster.training.plugins.module_utils._model.node import Addresses, Gpu, Node

RECORD = Node.from_dict(
    {
        "name": "gpu-1",
        "provider": "lambda",
        "account": "acc",
        "product": "gpu_8x_h100_sxm5",
        "region": "us-west-3",
        "site": "hall-2",
        "price_usd_per_hour": 23.92,
        "fabric_hint": "c-1",
        "owner": {"cluster": "lab", "pool": "h100", "token": "1f2e3d4c"},
        "network_types": ["public"],
        "gpu": {"model": "H100", "count": 8, "memory_gib": 80},
        "cpu": {"count": 208, "arch": "x86_64"},
        "memory_gib": 1800,
        "addresses": {"lan": ["10.19.0.2"], "public": ["198.51.100.2"]},
        "k3s": {"capable": True},
    }
)
LAN = {"address": "10.19.0.2", "interface": "eno1", "prefix": 20}
FACTS = Node.from_dict(
    {
        "name": "ip-10-19-0-2",
        "product": "KVM",
        "gpu": {"model": "NVIDIA H100 80GB HBM3", "count": 7, "memory_gib": 79.6, "nvswitch": True},
        "cpu": {"count": 104},
        "memory_gib": 1771.5,
        "addresses": {"lan": [{"address": "172.17.0.1", "interface": "br0", "prefix": 16}, LAN]},
        "network_types": ["lan"],
        "nics": [{"name": "mlx5_0", "rdma": True}],
        "boot_id": "b",
    }
)


def test_what_was_measured_wins_field_by_field() -> None:
    node = node_facts.merge_facts(RECORD, FACTS)
    assert (node.gpu.count, node.gpu.model, node.gpu.memory_gib) == (7, "NVIDIA H100 80GB HBM3", 79.6)
    assert node.gpu.nvswitch and node.memory_gib == 1771.5 and node.boot_id == "b"
    assert (node.cpu.count, node.cpu.arch) == (104, "x86_64") and [nic.name for nic in node.nics] == ["mlx5_0"]


def test_what_only_an_inventory_knows_stays() -> None:
    node = node_facts.merge_facts(RECORD, FACTS)
    for name in (
        "name",
        "provider",
        "account",
        "product",
        "region",
        "site",
        "price_usd_per_hour",
        "fabric_hint",
        "owner",
    ):
        assert getattr(node, name) == getattr(RECORD, name), name
    assert node.network_types == ("lan", "public") and node.k3s.capable is True


def test_addresses_are_those_of_interfaces_the_named_ones_first() -> None:
    node = node_facts.merge_facts(RECORD, FACTS)
    assert [(item.address, item.interface) for item in node.addresses.lan] == [
        ("10.19.0.2", "eno1"),
        ("172.17.0.1", "br0"),
    ]
    # No interface has a public address: it is the provider's.
    assert [(item.address, item.interface) for item in node.addresses.public] == [("198.51.100.2", None)]


def test_loopback_addresses_of_an_inventory_stay() -> None:
    stated = Node.from_dict({"name": "a", "addresses": {"lan": "127.0.0.2"}}).addresses
    merged = node_facts.merge_addresses(stated, FACTS.addresses)
    assert [(item.address, item.interface) for item in merged.lan][0] == ("127.0.0.2", "lo")


def test_a_node_without_gpus_has_no_model_of_them() -> None:
    empty = dataclasses.replace(FACTS, gpu=Gpu(count=0))
    assert node_facts.merge_facts(RECORD, empty).gpu == Gpu(count=0)
    # Nothing was measured: nvidia-smi did not answer.
    assert node_facts.merge_facts(RECORD, dataclasses.replace(FACTS, gpu=Gpu())).gpu == RECORD.gpu


@pytest.mark.parametrize("node", [RECORD, FACTS])
def test_nothing_measured_or_nothing_stated_changes_nothing(node: Node) -> None:
    empty = Node(node.name)
    assert node_facts.merge_facts(node, empty) == node == node_facts.merge_facts(empty, node)
    assert node_facts.merge_facts(node, node) == node


def test_every_field_of_the_record_is_decided_on() -> None:
    names = {field.name for field in dataclasses.fields(Node)}
    assert names >= node_facts.STATED
    full: dict[str, t.Any] = {"limits": {"memlock": 1}, "mesh_path": "direct", "kernel": "6.8", "platform": "hgx"}
    assert node_facts.merge_facts(RECORD, Node.from_dict({"name": "x", **full})).to_dict().items() >= full.items()
    assert isinstance(node_facts.merge_facts(RECORD, FACTS).addresses, Addresses)


@pytest.mark.parametrize(
    ("variables", "network", "address"),
    [
        ({"ansible_host": "192.168.1.20"}, "lan", "192.168.1.20"),
        ({"ansible_host": "localhost"}, "lan", "127.0.0.1"),
        ({"ansible_host": "100.101.1.31"}, "mesh", "100.101.1.31"),
        ({"ansible_host": "9.9.9.9"}, "public", "9.9.9.9"),
        ({"ansible_host": "9.9.9.9", "muster_node": {"addresses": {"lan": "10.0.0.1"}}}, "lan", "10.0.0.1"),
    ],
)
def test_a_host_without_a_stated_address_has_that_of_ssh(
    variables: dict[str, t.Any], network: str, address: str
) -> None:
    listed = node_facts.read_record("n", variables).addresses
    assert {kind: [item.address for item in getattr(listed, kind)] for kind in ("mesh", "lan", "public")} == {
        "mesh": [],
        "lan": [],
        "public": [],
        network: [address],
    }


def test_a_name_is_no_address() -> None:
    assert (
        node_facts.read_record("n", {"ansible_host": "gpu-1.example.com"})
        == node_facts.read_record("n", {})
        == Node("n")
    )


def test_the_interface_that_the_user_reaches_comes_first() -> None:
    addresses = node_facts.merge_facts(RECORD, FACTS).addresses
    assert [item.interface for item in node_facts.prefer_interface(addresses, "br0").lan] == ["br0", "eno1"]
    assert node_facts.prefer_interface(addresses, None) == addresses
