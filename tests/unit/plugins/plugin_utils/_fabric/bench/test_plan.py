# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plans of the bench, and the bench's result document."""

from __future__ import annotations

import itertools
import typing as t

from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.module_utils._model.island import Island
from ansible_collections.muster.training.plugins.module_utils._model.node import Gpu, Node
from ansible_collections.muster.training.plugins.plugin_utils._fabric.bench import plan
from ansible_collections.muster.training.plugins.plugin_utils._fabric.topology.islands import find_islands
from ansible_collections.muster.training.tests.unit.plugins.plugin_utils._fabric.fleets import (
    fixture_node,
    gpu_node,
    node,
)


def planned(fleet: list[Node], backend: t.Any = "nccl", **options: t.Any) -> plan.BenchPlan:
    return plan.build_bench_plan(find_islands(fleet)[0], fleet, backend=backend, **options)


def test_four_gpu_nodes_get_every_stage() -> None:
    found = planned([gpu_node(f"n{i}", i) for i in range(1, 5)])
    assert [stage.name for stage in found.stages] == ["inside", "pairs", "island", "rails"]
    inside, pairs, island, rails = found.stages
    assert inside.rounds == ((("n1",), ("n2",), ("n3",), ("n4",)),) and inside.processes_per_node == 8
    assert len(pairs.rounds) == 3 and pairs.environment == {"NCCL_ALGO": "RING"}
    assert island.rounds == ((("n1", "n2", "n3", "n4"),),) and island.environment == {}
    assert rails.only_if_short and rails.split_mod == 8
    assert pairs.sizes[-1] == plan.GIB and pairs.timeout_s * len(pairs.rounds) == 180


def test_two_nodes_are_one_island_test_with_ring() -> None:
    found = planned([node("a", 1, gbps=1), node("b", 2, gbps=1)], backend="gloo")
    assert [(stage.name, stage.rounds) for stage in found.stages] == [("island", ((("a", "b"),),))]
    assert found.stages[0].sizes == (4 * plan.MIB, 32 * plan.MIB) and found.stages[0].environment == {}
    two = planned([gpu_node("a", 1), gpu_node("b", 2)])
    assert next(stage for stage in two.stages if stage.name == "island").environment == {"NCCL_ALGO": "RING"}


def test_many_nodes_are_tested_as_neighbours() -> None:
    found = planned([node(f"n{i}", i) for i in range(1, 14)], backend="gloo")
    assert [stage.name for stage in found.stages] == ["neighbours", "island"]
    assert sum(len(groups) for groups in found.stages[0].rounds) == 13


def test_nodes_of_one_machine_are_tested_one_pair_at_a_time() -> None:
    found = planned([node(f"n{i}", i, boot_id="same") for i in range(1, 5)], backend="gloo")
    assert [len(groups) for groups in found.stages[0].rounds] == [1] * 6


def test_single_nodes() -> None:
    assert [stage.name for stage in planned([gpu_node("a")]).stages] == ["inside"]
    assert planned([node("a")], backend="gloo").stages == ()


def test_sizes_fit_memory_links_and_unified_memory() -> None:
    spark = [fixture_node("dgx_spark", "s1", 31), fixture_node("dgx_spark", "s2", 32)]
    assert planned(spark).stages[-1].sizes[-1] == plan.GIB
    small = [gpu_node(f"n{i}", i, gpu=Gpu("small", 1, 2.0)) for i in (1, 2)]
    assert planned(small).stages[-1].sizes[-1] == plan.GIB // 2
    slow = planned([node("a", 1, gbps=0.1), node("b", 2, gbps=0.1)], backend="gloo").stages[-1].sizes[-1]
    # Two runs of it fit into the time of a size.
    assert slow == 4 * plan.MIB and 2 * slow * 8 < 0.1e9 * 0.6 * 1.4
    assert plan.largest_size([Node("unknown")], 8) == plan.GIB


@given(st.integers(2, 20))
def test_rounds_hold_every_pair_once_and_share_no_node(count: int) -> None:
    names = [f"n{i:02}" for i in range(count)]
    rounds = plan.rounds_of_pairs(names)
    assert sorted(pair for groups in rounds for pair in groups) == list(itertools.combinations(names, 2))
    ring = plan.rounds_of_neighbours(names) if count > 2 else ()
    assert sum(len(groups) for groups in ring) == (count if count > 2 else 0)
    for groups in (*rounds, *ring):
        flat = [name for group in groups for name in group]
        assert len(flat) == len(set(flat))


DOCUMENT: dict[str, t.Any] = {
    "schema": 1,
    "collective": "all_reduce",
    "backend": "gloo",
    "ranks": 2,
    "nodes": 2,
    "results": [
        {
            "size_bytes": 33554432,
            "iterations": 3,
            "time_us": 282282.58,
            "algbw_gb_s": 0.1189,
            "busbw_gb_s": 0.1189,
            "wrong_values": 0,
        },
        {
            "size_bytes": 4194304,
            "iterations": 27,
            "time_us": 35552.26,
            "algbw_gb_s": 0.118,
            "busbw_gb_s": 0.118,
            "wrong_values": 2,
        },
    ],
    "skipped": [{"size_bytes": 99999999, "reason": "too slow for the time budget"}],
    "evidence": [
        {
            "rank": rank,
            "host": "vm",
            "node": f"node-{rank + 1}",
            "pid": 9624 + rank,
            "sockets": [
                {
                    "local": f"10.77.0.{rank + 1}:33485",
                    "peer": f"10.77.0.{2 - rank}:49262",
                    "interface": "eth0",
                    "tx_bytes": [152, 1152],
                    "rx_bytes": [160, 1160],
                    "peer_rank": 1 - rank,
                }
            ],
            "netdev": {"eth0": {"rx_bytes": [4772, 327869950], "tx_bytes": [2855, 327870075]}},
            "rdma": {},
        }
        for rank in (0, 1)
    ],
}


def test_plan_needs_only_the_island_s_nodes() -> None:
    island = Island("x", ("a", "b"), "C", "ethernet", 1, 1.0)
    fleet = [node("a", 1), node("b", 2), gpu_node("c", 3)]
    assert plan.build_bench_plan(island, fleet, backend="nccl").stages[-1].processes_per_node == 1
