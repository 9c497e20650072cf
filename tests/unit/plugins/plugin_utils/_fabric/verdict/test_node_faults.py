# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A NIC at reduced width lowers what is computed for it, and must not pass because of that."""

from __future__ import annotations

import dataclasses

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.expectation import Expectation
from ansible_collections.muster.training.plugins.module_utils._model.node import Node
from ansible_collections.muster.training.plugins.plugin_utils._fabric.bench.expectation import compute_expectation
from ansible_collections.muster.training.plugins.plugin_utils._fabric.topology.islands import find_islands
from ansible_collections.muster.training.plugins.plugin_utils._fabric.verdict.node_faults import find_node_faults
from ansible_collections.muster.training.plugins.plugin_utils._fabric.verdict.verdict import judge_island
from ansible_collections.muster.training.tests.unit.plugins.plugin_utils._fabric.fleets import (
    fixture_node,
    gpu_node,
    rdma,
)
from ansible_collections.muster.training.tests.unit.plugins.plugin_utils._fabric.verdict.test_verdict import GOOD

WIDE = {"pci_gen": 5, "pci_width": 16, "pci_gen_max": 5, "pci_width_max": 16}


def fleet(**narrow: int) -> list[Node]:
    nodes = [gpu_node(name, number, rdma(8, 400, **WIDE)) for number, name in enumerate("abc", 1)]
    nics = (dataclasses.replace(nodes[1].nics[0], **narrow), *nodes[1].nics[1:])
    return [nodes[0], dataclasses.replace(nodes[1], nics=nics), nodes[2]]


@pytest.mark.parametrize(
    ("narrow", "found"),
    [
        ({}, []),
        ({"pci_width": 8}, ["b"]),
        ({"pci_gen": 3}, ["b"]),
        ({"pci_width": 8, "pci_width_max": 8}, []),
        ({"pci_gen": 6, "pci_gen_max": 6, "pci_width": 8}, []),
    ],
)
def test_a_link_below_what_card_and_slot_can(narrow: dict[str, int], found: list[str]) -> None:
    nodes = fleet(**narrow)
    causes = find_node_faults(find_islands(nodes)[0], nodes)
    assert [cause.node for cause in causes] == found
    if found:
        assert causes[0].code == "pcie_degraded" and "is possible, and its link needs 400 Gb/s" in causes[0].evidence


def test_a_bandwidth_that_fits_a_fault_is_a_warning() -> None:
    nodes = fleet(pci_width=4)
    island = find_islands(nodes)[0]
    wanted = compute_expectation(island, nodes)
    lowered = dataclasses.replace(wanted, busbw_gb_s=360.0, source="computed")
    case = dataclasses.replace(GOOD, expectation=lowered, causes=find_node_faults(island, nodes))
    verdict = judge_island(case)
    assert verdict.outcome == "warn" and verdict.checks.bandwidth == "warn"
    assert "the expectation is lowered by a fault: b: mlx5_0 runs at PCIe gen 5 x4" in verdict.reasons[0]
    # Who measured or declared a figure has seen the slot.
    declared = dataclasses.replace(case, expectation=Expectation(360.0, "override", "rdma_gdr"))
    assert judge_island(declared).outcome == "pass"


def test_recorded_machines_are_not_blamed() -> None:
    # One NIC of the A100 runs at half its width, which still carries its 100 Gb/s.
    for kind in ("a100_roce", "dgx_spark", "hgx_h100_ib", "plain_ethernet"):
        nodes = [fixture_node(kind, name, number) for number, name in ((1, "x"), (2, "y"))]
        assert find_node_faults(find_islands(nodes)[0], nodes) == (), kind
