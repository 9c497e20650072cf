# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What an island should reach: rows, the computed figure and its exceptions, and the variables of its nodes."""

from __future__ import annotations

import dataclasses
import typing as t

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.module_utils._model.expectation import Expectation, ExpectationRow
from ansible_collections.muster.training.plugins.module_utils._model.island import Island, IslandOverride
from ansible_collections.muster.training.plugins.module_utils._model.node import (
    Gpu,
    Node,
)
from ansible_collections.muster.training.plugins.plugin_utils._fabric.bench.expectation import (
    compute_expectation,
    pcie_gbps,
    peer_expectation,
    tcp_gb_s,
    usable_gbps,
    with_expectation,
)
from ansible_collections.muster.training.plugins.plugin_utils._fabric.bench.expectation_table import ROWS
from ansible_collections.muster.training.plugins.plugin_utils._fabric.topology.islands import find_islands
from ansible_collections.muster.training.tests.unit.plugins.plugin_utils._fabric.fleets import (
    fixture_node,
    gpu_node,
    node,
    rdma,
)


def expect(fleet: list[Node], **options: t.Any) -> Expectation:
    return compute_expectation(find_islands(fleet)[0], fleet, **options)


def with_gpu(fleet: list[Node], **changes: t.Any) -> list[Node]:
    return [dataclasses.replace(item, gpu=dataclasses.replace(item.gpu, **changes)) for item in fleet]


def test_h100_uses_the_row_and_names_its_source() -> None:
    found = expect([gpu_node(f"n{index}", index) for index in (1, 2, 3)])
    assert (found.busbw_gb_s, found.source, found.transport, found.algorithm) == (370, "override", "rdma_gdr", None)
    assert "Together AI" in found.reasons[0]


def test_two_nodes_are_judged_with_ring() -> None:
    found = expect([gpu_node("a", 1), gpu_node("b", 2)])
    assert found.algorithm == "RING" and any("NCCL_ALGO=RING" in reason for reason in found.reasons)


def test_unknown_hardware_is_computed_from_its_nics() -> None:
    fleet = with_gpu([gpu_node(f"n{i}", i, rdma(4, 200)) for i in (1, 2, 3)], model="NVIDIA B200")
    found = expect(fleet)
    assert (found.busbw_gb_s, found.source) == (92.0, "computed")
    assert (found.gate_pass, found.gate_fail) == (0.85, 0.70)


def test_dgx_spark_from_its_fixture() -> None:
    fleet = [fixture_node("dgx_spark", "s1", 31), fixture_node("dgx_spark", "s2", 32)]
    found = expect(fleet)
    assert (found.busbw_gb_s, found.source, found.gate_pass, found.transport) == (
        23.74,
        "override",
        0.92,
        "rdma_no_gdr",
    )
    total, reasons = usable_gbps(fleet[0])
    assert total == 200 and "halves of one 200 Gb/s port" in reasons[-1]


def test_dgx_spark_with_two_cables_is_bound_by_pcie() -> None:
    spark = fixture_node("dgx_spark", "s1", 31)
    both = tuple(dataclasses.replace(nic, state="active", rate_gbps=200.0) for nic in spark.nics if nic.rdma)
    total, reasons = usable_gbps(dataclasses.replace(spark, nics=both))
    # 25.67 GB/s was measured with two cables.
    assert total is not None and 0.9 < 25.67 / (total / 8) < 1 and "PCIe gen 5 x4" in reasons[0]


def test_narrow_slot_limits_its_nic() -> None:
    fleet = [gpu_node(f"n{i}", i, rdma(1, 400, pci_gen=4, pci_width=16)) for i in (1, 2, 3)]
    found = expect(with_gpu(fleet, model="other"))
    limit = pcie_gbps(4, 16)
    assert limit is not None and found.busbw_gb_s == round(limit / 8 * 0.92, 2)
    assert any("PCIe gen 4 x16" in reason for reason in found.reasons)


def test_one_gpu_a_node_cannot_fill_four_nics() -> None:
    found = expect(with_gpu([gpu_node(f"n{i}", i, rdma(4)) for i in (1, 2, 3)], count=1, nvswitch=False))
    # nccl-tests#232 saw about 50.
    assert found.busbw_gb_s is not None and 45 < found.busbw_gb_s < 55
    assert any("1 GPU a node" in reason for reason in found.reasons)


def test_without_nvswitch_only_peers_can_tell() -> None:
    found = expect(with_gpu([gpu_node(f"n{i}", i) for i in (1, 2, 3)], nvswitch=False, model="NVIDIA L40S"))
    assert found.busbw_gb_s is None and found.source == "peer" and "no NVSwitch" in found.reasons[0]


def test_mnnvl_has_rows_and_a_transport_of_its_own() -> None:
    fleet = with_gpu([gpu_node(f"n{i}", i) for i in range(1, 5)], model="NVIDIA GB200", fabric_id="u.0", count=4)
    found = expect(fleet)
    assert (found.busbw_gb_s, found.transport) == (882, "mnnvl")
    apart = [*fleet[:3], *with_gpu(fleet[3:], fabric_id="u.1")]
    assert expect(apart).transport == "rdma_gdr"


def test_one_node_inside() -> None:
    found = expect([gpu_node("a")])
    assert (found.busbw_gb_s, found.transport, found.algorithm) == (470, None, None)
    assert expect([node("a")]).busbw_gb_s is None


@pytest.mark.parametrize(
    ("gbps", "low", "high"), [(1, 0.11, 0.12), (10, 1.0, 1.16), (25, 2.3, 2.9), (100, 4, 6), (400, 4, 6)]
)
def test_tcp_is_honest(gbps: float, low: float, high: float) -> None:
    assert low <= tcp_gb_s(gbps) <= high
    found = expect([node("a", 1, gbps=gbps), node("b", 2, gbps=gbps)])
    assert found.busbw_gb_s == round(tcp_gb_s(gbps), 4) and found.transport == "tcp"


@pytest.mark.parametrize("gbps", [0.5, 1, 2, 5])
def test_gloo_over_a_slow_link_is_computed(gbps: float) -> None:
    found = expect([node("a", 1, gbps=gbps), node("b", 2, gbps=gbps)], backend="gloo")
    # Shaped veth pairs reached 0.93 to 0.955 of the line; a link shaped to half must fail.
    assert found.busbw_gb_s is not None and found.algorithm is None
    assert 0.93 * gbps / 8 >= found.gate_pass * found.busbw_gb_s
    assert 0.5 * gbps / 8 < found.gate_fail * found.busbw_gb_s


def test_gloo_on_a_fast_link_is_left_to_peers_and_uses_tcp() -> None:
    found = expect([gpu_node("a", 1), gpu_node("b", 2)], backend="gloo")
    assert found.busbw_gb_s is None and found.transport == "tcp"
    other = expect([node("a", 1, gbps=1), node("b", 2, gbps=1)], backend="gloo", collective="all_gather")
    assert other.busbw_gb_s is None and "all_gather" in other.reasons[0]


def test_unknown_rate_and_one_machine_have_no_figure() -> None:
    assert expect([node("a", 1), node("b", 2, gbps=None)]).busbw_gb_s is None
    assert expect([node("a", 1, boot_id="x"), node("b", 2, boot_id="x")]).busbw_gb_s is None
    assert expect([gpu_node("a", 1, rdma(8, None)), gpu_node("b", 2, rdma(8, None))]).busbw_gb_s is None


def test_the_user_s_rows_and_declared_figures_win() -> None:
    fleet = [gpu_node("a", 1), gpu_node("b", 2)]
    row = ExpectationRow(300, "our acceptance test", model="H100", link="ib")
    assert expect(fleet, overrides=[row]).busbw_gb_s == 300
    island = find_islands(fleet, (), [IslandOverride(("a", "b"))])[0]
    declared = dataclasses.replace(island, expected_busbw_gb_s=200.0)
    found = compute_expectation(declared, fleet, overrides=[row])
    assert (found.busbw_gb_s, found.source) == (200.0, "override")


def test_no_facts_is_no_figure() -> None:
    assert compute_expectation(Island("x", ("a",), "A", "ib"), []).busbw_gb_s is None


def test_every_row_names_who_measured_it() -> None:
    assert all(len(row.source) > 10 and row.busbw_gb_s > 0 for row in ROWS)


def test_peers_need_a_majority() -> None:
    own = Expectation()
    assert peer_expectation(own, [1.0, 9.0]).busbw_gb_s is None
    found = peer_expectation(own, [9.0, 1.0, 8.0])
    assert (found.busbw_gb_s, found.source) == (8.0, "peer")
    assert peer_expectation(Expectation(5.0, "computed"), [1.0] * 9).busbw_gb_s == 5.0
    assert with_expectation(Island("x", ("a",), "A", "ib"), found).expected_busbw_gb_s == 8.0


@given(st.integers(1, 9), st.sampled_from([10.0, 100.0, 200.0, 400.0, 800.0]), st.integers(2, 6), st.integers(1, 8))
def test_computed_figure_never_exceeds_the_wire(count: int, rate: float, nodes: int, gpus: int) -> None:
    fleet = with_gpu([gpu_node(f"n{i}", i, rdma(count, rate)) for i in range(nodes)], model="other", count=gpus)
    found = expect(fleet)
    assert found.busbw_gb_s is not None and found.busbw_gb_s <= count * rate / 8


def test_gpu_on_the_cpu_s_own_link_is_not_bound_by_a_slot() -> None:
    fleet = [gpu_node(f"n{i}", i, rdma(1), gpu=Gpu("NVIDIA GH200 480GB", 1, pci_gen=1, pci_width=1)) for i in (1, 2, 3)]
    assert expect(fleet).busbw_gb_s == 46.0
