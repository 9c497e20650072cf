# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NCCL's environment and configuration file for a node, and the interface of its collectives."""

from __future__ import annotations

import dataclasses

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError
from ansible_collections.muster.training.plugins.module_utils._model.harmful_variables import FORBIDDEN
from ansible_collections.muster.training.plugins.module_utils._model.island import Island
from ansible_collections.muster.training.plugins.module_utils._model.node import (
    Address,
    Addresses,
    Interface,
    Node,
)
from ansible_collections.muster.training.plugins.module_utils._model.verdict import Verdict
from ansible_collections.muster.training.plugins.plugin_utils._fabric.bench.nccl_environment import (
    build_nccl_environment,
    find_collective_interface,
    find_proven_network,
    format_nccl_conf,
)
from ansible_collections.muster.training.plugins.plugin_utils._fabric.topology.islands import find_islands
from ansible_collections.muster.training.tests.unit.plugins.plugin_utils._fabric.fleets import (
    fixture_node,
    gpu_node,
    rdma,
)


def test_environment_of_an_hgx_node() -> None:
    fleet = [fixture_node("hgx_h100_ib", "a", 11), fixture_node("hgx_h100_ib", "b", 12)]
    island = find_islands(fleet)[0]
    values = build_nccl_environment(fleet[0], island, peers=fleet)
    assert values == {"NCCL_SOCKET_IFNAME": "=ibp24s0", "GLOO_SOCKET_IFNAME": "ibp24s0"}
    assert build_nccl_environment(fleet[0], island, interface="eno1", proven="IB") == {
        "NCCL_SOCKET_IFNAME": "=eno1",
        "GLOO_SOCKET_IFNAME": "eno1",
        "NCCL_NET": "IB",
    }
    assert format_nccl_conf(values) == "NCCL_SOCKET_IFNAME==ibp24s0\n"


def test_environment_of_a_dgx_spark_names_both_halves() -> None:
    fleet = [fixture_node("dgx_spark", "s1", 31), fixture_node("dgx_spark", "s2", 32)]
    values = build_nccl_environment(fleet[0], find_islands(fleet)[0], peers=fleet)
    assert values["NCCL_IB_HCA"] == "=roceP2p1s0f1,rocep1s0f1"
    assert values["NCCL_IB_SUBNET_AWARE_ROUTING"] == "1"


def test_storage_ports_are_excluded_by_exact_names() -> None:
    storage = (*rdma(2), dataclasses.replace(rdma(1)[0], name="mlx5_10", rate_gbps=100.0))
    fleet = [gpu_node("a", 1, storage), gpu_node("b", 2, rdma(2))]
    island = find_islands(fleet)[0]
    assert build_nccl_environment(fleet[0], island)["NCCL_IB_HCA"] == "=mlx5_0,mlx5_1"
    assert "NCCL_IB_HCA" not in build_nccl_environment(fleet[1], island)


def test_interface_is_the_one_that_all_peers_share() -> None:
    def both(name: str, fast: str, slow: str) -> Node:
        lan = (Address(slow, "eno1", 24), Address(fast, "eth1", 24))
        interfaces = (Interface("eno1", speed_gbps=1), Interface("eth1", speed_gbps=100))
        return Node(name, addresses=Addresses(lan=lan), interfaces=interfaces)

    a, b = both("a", "10.9.0.1", "10.0.0.1"), both("b", "10.9.0.2", "10.0.0.2")
    island = Island("x", ("a", "b"), "C", "ethernet")
    assert find_collective_interface(a, island, [a, b]) == "eth1"
    # The fast network of c is another one.
    c = both("c", "10.8.0.3", "10.0.0.3")
    assert find_collective_interface(a, dataclasses.replace(island, nodes=("a", "c")), [a, c]) == "eno1"
    mesh = Node("m", addresses=Addresses(mesh=(Address("100.64.0.1", "tailscale0", 32),)))
    assert find_collective_interface(mesh, Island("y", ("m", "n"), "D", "mesh")) == "tailscale0"
    assert build_nccl_environment(Node("bare"), island) == {}


def test_without_an_address_in_the_islands_network_the_records_own_rule_chooses() -> None:
    """Rented machines in several sites have public addresses only, or a mesh beside an Ethernet that was declared."""
    island = Island("x", ("a", "b"), "C", "ethernet")
    public = [
        Node(name, addresses=Addresses(public=(Address(f"198.51.100.{i}", "ens3", 24),))) for i, name in enumerate("ab")
    ]
    assert find_collective_interface(public[0], island, public) == "ens3"
    both = Addresses(mesh=(Address("100.64.0.1", "tailscale0", 32),), public=(Address("198.51.100.1", "ens3", 24),))
    assert find_collective_interface(Node("a", addresses=both), island, public[1:]) == "tailscale0"
    bridge = Address("172.17.0.1", "docker0", 16)
    behind = [
        Node(n, addresses=Addresses(lan=(bridge, Address(f"10.9.{i}.1", "eth1", 24)))) for i, n in enumerate("ab")
    ]
    assert find_collective_interface(behind[0], island, behind) == "eth1", "each node has a bridge of its own"


@pytest.mark.parametrize("name", sorted(FORBIDDEN))
def test_forbidden_names_never_reach_the_file(name: str) -> None:
    with pytest.raises(InputError, match=name):
        format_nccl_conf({name: "3"})


@pytest.mark.parametrize("value", ["", " eth0", "eth0\n", "a\nNCCL_ALGO=TREE", "eth0\t"])
def test_a_value_cannot_break_its_line(value: str) -> None:
    with pytest.raises(InputError):
        format_nccl_conf({"NCCL_SOCKET_IFNAME": value})


def test_environment_never_contains_a_forbidden_name() -> None:
    for kind in ("hgx_h100_ib", "dgx_spark", "a100_roce", "plain_ethernet"):
        fleet = [fixture_node(kind, "a", 11), fixture_node(kind, "b", 12)]
        for island in find_islands(fleet):
            assert not FORBIDDEN & set(build_nccl_environment(fleet[0], island, peers=fleet, proven="IB"))


def test_an_address_that_no_fact_knows_and_one_machine_leave_the_choice_to_the_launcher() -> None:
    lan = Addresses(lan=(Address("10.9.0.1", "eth1", 24),))
    node, island = Node("a", addresses=lan), Island("x", ("a", "b"), "C", "ethernet")
    assert find_collective_interface(node, island) == "eth1"
    assert find_collective_interface(node, island, address="10.9.0.1") == "eth1"
    assert find_collective_interface(node, island, address="192.168.7.1") is None
    assert build_nccl_environment(node, island, address="192.168.7.1") == {}
    assert build_nccl_environment(node, dataclasses.replace(island, link="loopback")) == {}


@pytest.mark.parametrize(
    ("outcome", "verdict", "kind", "vias", "pinned"),
    [
        ("pass", "rdma_gdr", "nccl_log", ["IB", "IB"], "IB"),
        ("warn", "rdma_no_gdr", "nccl_log", ["AWS Libfabric"], "AWS Libfabric"),
        # HPC-X's plugin was measured: NCCL's own is another one.
        ("pass", "rdma_gdr", "nccl_log", ["IBext_v8"], "IBext_v8"),
        ("pass", "rdma_gdr", "nccl_log", ["IB", "IBext_v8"], None),
        ("pass", "rdma_gdr", "rdma_counters", ["rdma"], None),
        ("fail", "rdma_gdr", "nccl_log", ["IB"], None),
        ("pass", "tcp", "nccl_log", ["Socket"], None),
    ],
)
def test_the_network_that_was_measured_is_pinned(
    outcome: str, verdict: str, kind: str, vias: list[str], pinned: str | None
) -> None:
    pairs = [{"a": "a", "b": "b", "via": via, "evidence": "log:1"} for via in vias]
    transport = {"verdict": verdict, "evidence_kind": kind, "pairs": pairs}
    found = Verdict.from_dict({"island": "x", "outcome": outcome, "transport": transport, "exit_code": 0})
    assert find_proven_network(found) == pinned
