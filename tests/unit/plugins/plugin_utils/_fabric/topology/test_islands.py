# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Islands: who may share one synchronous job, and the reasons a person reads."""

from __future__ import annotations

import dataclasses
import time
import typing as t

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError
from ansible_collections.muster.training.plugins.module_utils._model.island import Island, IslandOverride, PairPath
from ansible_collections.muster.training.plugins.module_utils._model.node import Address, Addresses, Node
from ansible_collections.muster.training.plugins.plugin_utils._fabric.topology.islands import find_islands
from ansible_collections.muster.training.tests.unit.plugins.plugin_utils._fabric.fleets import (
    fixture_node,
    gpu_node,
    node,
    rdma,
)


def wide(name: str, **more: t.Any) -> Node:
    """A node that shares no LAN with others, on a mesh."""
    mesh = Addresses(mesh=(Address(f"100.64.0.{len(name)}", "tailscale0", 32),))
    return Node(name, addresses=mesh, boot_id=f"boot-{name}", **more)


def test_two_hgx_nodes_are_lane_a() -> None:
    found = find_islands([fixture_node("hgx_h100_ib", "gpu-2", 12), fixture_node("hgx_h100_ib", "gpu-1", 11)])
    assert len(found) == 1
    island = found[0]
    assert (island.name, island.nodes) == ("ib-8x400g", ("gpu-1", "gpu-2"))
    assert (island.lane, island.link, island.nic_count, island.nic_rate_gbps) == ("A", "ib", 8, 400)
    assert "every node has 8 x 400 Gb/s ib" in island.reasons


def test_dgx_sparks_are_lane_b_and_say_why() -> None:
    island = find_islands([fixture_node("dgx_spark", "s1", 31), fixture_node("dgx_spark", "s2", 32)])[0]
    assert (island.lane, island.link, island.nic_count, island.nic_rate_gbps) == ("B", "roce", 2, 200)
    assert any("GB10 has no GPUDirect RDMA" in reason for reason in island.reasons)


def test_proprietary_driver_makes_a100_roce_lane_b() -> None:
    island = find_islands([fixture_node("a100_roce", "a", 21), fixture_node("a100_roce", "b", 22)])[0]
    assert (island.lane, island.link, island.nic_count, island.nic_rate_gbps) == ("B", "roce", 8, 100)


def test_one_nic_less_splits_and_names_the_rule() -> None:
    found = find_islands([gpu_node("a", 1), gpu_node("b", 2), gpu_node("c", 3, rdma(7))])
    assert [island.nodes for island in found] == [("a", "b"), ("c",)]
    for island in found:
        assert any("NCCL 2.30 and later refuses unequal NIC counts" in reason for reason in island.reasons), island
    assert found[1].link == "loopback" and found[1].nic_count == 7


def test_a_nic_that_is_down_does_not_count() -> None:
    ports = rdma(8)
    broken = (*ports[:7], dataclasses.replace(ports[7], state="down"))
    assert [island.nodes for island in find_islands([gpu_node("a", 1), gpu_node("b", 2, broken)])] == [("a",), ("b",)]


def test_slower_rdma_ports_are_storage_and_not_counted() -> None:
    storage = (*rdma(8), *(dataclasses.replace(nic, name="storage", rate_gbps=100.0) for nic in rdma(1)))
    island = find_islands([gpu_node("a", 1, storage), gpu_node("b", 2)])[0]
    assert (island.lane, island.nic_count) == ("A", 8)


def test_rdma_nodes_of_different_sites_stay_apart_although_addresses_agree() -> None:
    found = find_islands([gpu_node("a", 1, site="oslo"), gpu_node("b", 2, site="rome")])
    assert [island.nodes for island in found] == [("a",), ("b",)]


def test_infiniband_subnets_keep_fabrics_apart() -> None:
    left, right = rdma(8, subnet="fe80:0000:0000:0007"), rdma(8, subnet="fe80:0000:0000:0009")
    assert len(find_islands([gpu_node("a", 1, left), gpu_node("b", 2, right)])) == 2
    assert len(find_islands([gpu_node("a", 1, left), gpu_node("b", 2, left)])) == 1


def test_fabric_hint_of_the_provider_joins_what_addresses_do_not() -> None:
    far = Addresses(lan=(Address("172.16.0.1", "eth0", 24),))
    pair = [gpu_node("a", 1, fabric_hint="pod-7"), gpu_node("b", 2, fabric_hint="pod-7", addresses=far)]
    assert [island.nodes for island in find_islands(pair)] == [("a", "b")]
    assert len(find_islands([pair[0], dataclasses.replace(pair[1], fabric_hint="pod-8")])) == 2


def test_lan_takes_the_slowest_link_and_warns() -> None:
    island = find_islands([node("a", 1), node("b", 2, gbps=1), node("c", 3)])[0]
    assert (island.name, island.lane, island.link, island.nic_rate_gbps) == (
        "lan-1g",
        "C",
        "ethernet",
        1,
    )
    assert "1 Gb/s at b is slow for a synchronous job" in island.reasons


def test_unknown_link_speed_stays_unknown_until_a_probe_tells() -> None:
    pair = [node("a", 1), node("b", 2, gbps=None)]
    island = find_islands(pair)[0]
    assert island.nic_rate_gbps is None and any("speed of b is unknown" in reason for reason in island.reasons)
    assert find_islands(pair, [PairPath("b", "a", "lan", 2.5)])[0].nic_rate_gbps == 2.5


def test_rdma_and_plain_nodes_of_one_lan_are_two_islands() -> None:
    found = find_islands([gpu_node("a", 1), gpu_node("b", 2), node("c", 3), node("d", 4)])
    assert [(island.nodes, island.lane) for island in found] == [(("a", "b"), "A"), (("c", "d"), "C")]
    assert any("not with c, which has no RDMA" in reason for reason in found[0].reasons)


def test_mesh_is_lane_d_and_a_relay_lane_e() -> None:
    direct = find_islands([wide("a", mesh_path="direct"), wide("bb", mesh_path="direct")])
    assert [(island.lane, island.link, island.name) for island in direct] == [("D", "mesh", "mesh")]
    relayed = find_islands([wide("a", mesh_path="direct"), wide("bb", mesh_path="relayed")])
    assert [(island.lane, island.link, island.name) for island in relayed] == [("E", "mesh", "relayed")]
    assert "only through a relay" in relayed[0].reasons[0]
    unknown = find_islands([wide("a"), wide("bb")])
    assert unknown[0].lane == "D" and "not probed" in unknown[0].reasons[0]


def test_userspace_mesh_is_no_path() -> None:
    found = find_islands([wide("a", mesh_path="none"), wide("bb", mesh_path="direct")])
    assert [island.nodes for island in found] == [("a",), ("bb",)]


def test_direct_pairs_group_before_relayed_ones() -> None:
    fleet = [wide("a"), wide("bb"), wide("ccc")]
    probes = [
        PairPath("a", "bb", "mesh_relayed"),
        PairPath("a", "ccc", "mesh_direct"),
        PairPath("bb", "ccc", "mesh_relayed"),
    ]
    assert [(island.nodes, island.lane) for island in find_islands(fleet, probes)] == [
        (("a", "ccc"), "D"),
        (("bb",), "C"),
    ]


def test_a_probe_wins_over_addresses() -> None:
    pair = [node("a", 1), node("b", 2)]
    assert len(find_islands(pair, [PairPath("a", "b", "none")])) == 2
    assert find_islands(pair, [PairPath("a", "b", "lan")])[0].reasons == ()
    assert find_islands(pair)[0].reasons == ("1 of 1 paths follow from addresses and inventory, not from a probe",)


def test_nodes_of_one_machine_are_loopback() -> None:
    pair = [node("a", 1, boot_id="same"), node("b", 2, boot_id="same")]
    island = find_islands(pair)[0]
    assert (island.name, island.lane, island.link, island.nic_rate_gbps) == ("machine", "C", "loopback", None)
    assert find_islands([*pair, node("c", 3)])[0].link == "ethernet"


def test_declared_island_wins_and_shows_what_the_rules_say() -> None:
    pair = [node("a", 1, boot_id="same"), node("b", 2, boot_id="same")]
    override = IslandOverride(("b", "a"), "lab", link="ethernet", nic_rate_gbps=1.0, reason="shaped veth pair")
    island = find_islands(pair, (), [override])[0]
    assert (island.name, island.nodes, island.lane, island.link, island.nic_rate_gbps) == (
        "lab",
        ("a", "b"),
        "C",
        "ethernet",
        1.0,
    )
    assert island.reasons[0] == "declared by the user: shaped veth pair"
    assert "link would be loopback by the rules" in island.reasons


def test_a_declared_bandwidth_is_the_island_s_expectation() -> None:
    fleet = [fixture_node("hgx_h100_ib", f"gpu-{number}", number) for number in (1, 2)]
    names = tuple(node.name for node in fleet)
    declared = IslandOverride(nodes=names[::-1], expected_busbw_gb_s=350.0)
    assert [item.expected_busbw_gb_s for item in find_islands(fleet, overrides=[declared])] == [350.0]
    assert [item.expected_busbw_gb_s for item in find_islands(fleet)] == [None]


def test_declared_mixed_nics_fall_back_to_tcp() -> None:
    pair = [gpu_node("a", 1), gpu_node("c", 3, rdma(7))]
    island = find_islands(pair, (), [IslandOverride(("a", "c"))])[0]
    assert (island.lane, island.link) == ("C", "ethernet")
    assert any("TCP, because the nodes' NICs differ" in reason for reason in island.reasons)


@pytest.mark.parametrize(
    "overrides",
    [[IslandOverride(("ghost",))], [IslandOverride(("a",)), IslandOverride(("a",))], [IslandOverride(())]],
)
def test_bad_overrides_are_refused(overrides: list[IslandOverride]) -> None:
    with pytest.raises(InputError, match=r"fabric_verify_islands\[\d\].nodes"):
        find_islands([node("a")], (), overrides)


def test_equal_islands_get_names_of_their_own() -> None:
    sites = [gpu_node(name, index, site=name[0]) for index, name in enumerate(["a1", "a2", "b1", "b2"], 1)]
    assert [island.name for island in find_islands(sites)] == ["ib-8x400g", "ib-8x400g-2"]
    assert [island.name for island in find_islands([node("GPU_1.example")])] == ["solo-gpu-1-example"]


KINDS = st.sampled_from(["ib8", "ib7", "roce", "lan", "slow", "mesh", "alone"])


def _member(kind: str, index: int) -> Node:
    name = f"n{index:02}"
    if kind == "mesh":
        return wide(name + "x" * index, mesh_path="direct")
    if kind == "alone":
        return Node(name)
    if kind in ("lan", "slow"):
        return node(name, index + 1, gbps=1 if kind == "slow" else 25)
    nics = {"ib8": rdma(8), "ib7": rdma(7), "roce": rdma(2, 100, "ethernet")}[kind]
    return gpu_node(name, index + 1, nics)


@given(st.lists(KINDS, max_size=12), st.randoms())
def test_islands_partition_any_fleet_in_any_order(kinds: list[str], random: t.Any) -> None:
    fleet = [_member(kind, index) for index, kind in enumerate(kinds)]
    found = find_islands(fleet)
    assert sorted(name for island in found for name in island.nodes) == sorted(item.name for item in fleet)
    assert len({island.name for island in found}) == len(found)
    for island in found:
        assert Island.from_dict(island.to_dict()) == island
        assert len(island.name) <= 63
        if island.rdma:
            assert {kinds[int(name[1:3])] for name in island.nodes} in ({"ib8"}, {"ib7"}, {"roce"})
    random.shuffle(fleet)
    assert find_islands(fleet) == found


def test_five_hundred_nodes_take_seconds_at_most() -> None:
    fleet = [gpu_node(f"n{index:03}", index % 250 + 1, site=str(index // 250)) for index in range(500)]
    start = time.process_time()
    assert [len(island.nodes) for island in find_islands(fleet)] == [250, 250]
    assert time.process_time() - start < 10
