# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plans of the bench, the search for a bad node on simulated fleets, and the bench's result document."""

from __future__ import annotations

import itertools
import math
import typing as t

import pytest
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
    assert pairs.sizes[-1] == plan.GIB and pairs.budget_s == 180


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


def search(names: list[str], broken: t.Callable[[plan.Group], bool]) -> tuple[plan.Suspects, int]:
    """Run the search against a simulated fleet; return what it found and the steps it took."""
    machine = plan.bisect_nodes(names)
    steps = 0
    try:
        rounds = next(machine)
        while True:
            steps += 1
            for groups in rounds:
                flat = [name for group in groups for name in group]
                assert len(flat) == len(set(flat)) and all(len(group) > 1 for group in groups)
            rounds = machine.send({group: not broken(group) for groups in rounds for group in groups})
    except StopIteration as end:
        return end.value, steps


@given(st.integers(3, 64), st.integers(0, 63))
def test_bisection_names_the_bad_node_in_log2_steps(count: int, bad: int) -> None:
    names = [f"n{i:02}" for i in range(count)]
    culprit = names[bad % count]
    found, steps = search(names, lambda group: culprit in group)
    assert found == plan.Suspects((culprit,))
    assert steps <= math.ceil(math.log2(count))


@given(st.integers(3, 64), st.sets(st.integers(0, 63), min_size=2, max_size=6))
def test_bisection_never_blames_a_healthy_node(count: int, bad: set[int]) -> None:
    names = [f"n{i:02}" for i in range(count)]
    culprits = {names[index % count] for index in bad}
    found, _ = search(names, lambda group: bool(culprits & set(group)))
    assert set(found.bad) <= culprits
    assert found.bad or found.undecided
    assert all(culprits & set(group) for group in found.undecided)


@given(st.integers(4, 64))
def test_a_bad_path_between_halves_is_no_bad_node(count: int) -> None:
    names = [f"n{i:02}" for i in range(count)]
    left = set(names[: math.ceil(count / 2)])
    found, steps = search(names, lambda group: bool(left & set(group)) and bool(set(group) - left))
    assert found.bad == () and steps == 1
    assert set(found.between[0][0]) == left


def test_three_nodes_with_one_bad_path_have_no_bad_node() -> None:
    found, _ = search(["a", "b", "c"], lambda group: {"a", "c"} <= set(group))
    assert found.bad == () and found.between


def test_missing_answers_count_as_failures_and_two_nodes_are_undecided() -> None:
    machine = plan.bisect_nodes([f"n{i}" for i in range(8)])
    next(machine)
    with pytest.raises(StopIteration) as end:
        while True:
            machine.send({})
    assert end.value.value.bad == () and end.value.value.undecided
    with pytest.raises(StopIteration) as end:
        next(plan.bisect_nodes(["b", "a"]))
    assert end.value.value == plan.Suspects(undecided=(("a", "b"),))


@given(st.integers(3, 8), st.integers(0, 7), st.floats(0.01, 400), st.booleans())
def test_pairs_name_the_bad_node(count: int, bad: int, speed: float, expected: bool) -> None:
    names = [f"n{i}" for i in range(count)]
    culprit = names[bad % count]
    busbw = {pair: speed * (0.5 if culprit in pair else 1.0) for pair in itertools.combinations(names, 2)}
    if not expected and count == 3:
        return
    assert plan.find_suspects_of_pairs(busbw, speed if expected else None).bad == (culprit,)


def test_one_slow_pair_is_a_path_and_a_dead_node_is_bad() -> None:
    pairs = dict.fromkeys(itertools.combinations("abcd", 2), 10.0)
    assert plan.find_suspects_of_pairs(pairs) == plan.Suspects()
    assert plan.find_suspects_of_pairs({**pairs, ("a", "c"): 2.0}) == plan.Suspects(between=((("a",), ("c",)),))
    dead = {pair: None if "b" in pair else value for pair, value in pairs.items()}
    assert plan.find_suspects_of_pairs(dead).bad == ("b",)
    assert plan.find_suspects_of_pairs({}) == plan.Suspects()
    # With three bad nodes of four, the last pair cannot tell which of its two is bad.
    most = {pair: 10.0 if "d" not in pair else 1.0 for pair in pairs}
    assert plan.find_suspects_of_pairs(dict.fromkeys(most, 1.0), 10.0).between == ((("c",), ("d",)),)


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
