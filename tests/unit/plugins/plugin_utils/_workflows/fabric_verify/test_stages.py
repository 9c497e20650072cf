# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The order of stages and the search for a bad node, with results made up for each group."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.expectation import Expectation
from ansible_collections.muster.training.plugins.plugin_utils._fabric.bench import plan as bench_plan
from ansible_collections.muster.training.plugins.plugin_utils._fabric.bench.result import BenchResult
from ansible_collections.muster.training.plugins.plugin_utils._workflows.fabric_verify import (
    stages,
)
from ansible_collections.muster.training.plugins.plugin_utils._workflows.fabric_verify.bench_group import GroupRun


def plan(count: int) -> bench_plan.BenchPlan:
    names = tuple(f"n{number:02d}" for number in range(count))
    sizes = (1 << 20, 1 << 24)
    stages = [bench_plan.BenchStage("neighbours", bench_plan.rounds_of_neighbours(names), 1, sizes, 0.1, 9.0)]
    stages.append(bench_plan.BenchStage("island", ((names,),), 1, sizes, 0.1, 9.0))
    stages.append(bench_plan.BenchStage("rails", ((names,),), 1, sizes, 0.1, 9.0, only_if_short=True))
    return bench_plan.BenchPlan("x", "nccl", "all_reduce", tuple(stages))


def result_of(busbw: float) -> BenchResult:
    row = {"size_bytes": 1 << 24, "iterations": 1, "time_us": 1.0, "algbw_gb_s": busbw, "busbw_gb_s": busbw}
    common = {"schema": 1, "collective": "all_reduce", "backend": "nccl", "ranks": 1, "nodes": 1}
    return BenchResult.from_dict({**common, "results": [{**row, "wrong_values": 0}], "evidence": [{"rank": 0}]})


def runner(asked: list[str], slow: t.Callable[[tuple[str, ...]], bool]) -> stages.RunStage:
    def one(stage: bench_plan.BenchStage) -> list[GroupRun]:
        asked.append(stage.name)
        groups = [group for groups in stage.rounds for group in groups]
        return [GroupRun(group, result_of(5.0 if slow(group) else 10.0), (0, 1), 2, "", {}, 0.1) for group in groups]

    return one


def test_a_healthy_island_needs_no_search_and_no_rails() -> None:
    asked: list[str] = []
    outcome = stages.run_in_order(plan(16), Expectation(10.0, "override"), runner(asked, lambda group: False))
    assert asked == ["neighbours", "island"] and outcome.suspects is None and len(outcome.rates) == 16


def test_a_node_that_neighbours_name_needs_no_search() -> None:
    asked: list[str] = []
    outcome = stages.run_in_order(plan(16), Expectation(10.0, "override"), runner(asked, lambda g: "n05" in g))
    assert asked == ["neighbours", "island", "rails"] and outcome.suspects is None


@pytest.mark.parametrize("expected", [10.0, None])
def test_a_node_that_only_larger_groups_show_is_found_by_halving(expected: float | None) -> None:
    asked: list[str] = []
    # Alone with one neighbour the node looks well: its fault needs load.
    outcome = stages.run_in_order(
        plan(16),
        Expectation(expected, "override" if expected else "peer"),
        runner(asked, lambda group: "n05" in group and (len(group) > 2 or asked[-1] == "halves")),
    )
    assert outcome.suspects is not None and outcome.suspects.bad == ("n05",)
    assert asked.count("halves") <= 4
