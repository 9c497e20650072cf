# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The stages of a fabric test in their order, and the search for a bad node when pairs of neighbours name none."""

from __future__ import annotations

import dataclasses
import typing as t

from ....module_utils._model.expectation import GATE_PASS, Expectation
from ..._fabric.bench import plan as plans
from ..._fabric.bench.suspects import Suspects, bisect_nodes
from ..._fabric.verdict import pairs
from ..shared.progress import Progress
from . import bench_group
from .bench_group import Bench, GroupRun
from .hosts_target import FabricTarget

# Runs the groups of one stage; a parameter, so that the order of stages can be tested without a cluster.
RunStage = t.Callable[[plans.BenchStage], list[GroupRun]]


@dataclasses.dataclass(frozen=True, slots=True)
class StageOutcome:
    """The results of all stages: runs by stage, and the suspects of the search by halves (None when not needed)."""

    runs: t.Mapping[str, list[GroupRun]]
    suspects: Suspects | None = None

    @property
    def rates(self) -> dict[tuple[str, str], float | None]:
        """GB/s of each tested pair, None for one whose test failed; an island of two nodes is its one pair."""
        two = [group for group in self.runs.get("island", []) if len(group.nodes) == 2 and group.result]
        groups = [*self.runs.get("pairs", []), *self.runs.get("neighbours", []), *two]
        return {(group.nodes[0], group.nodes[1]): group.busbw_gb_s for group in groups}


def run_stages(
    target: FabricTarget, progress: Progress, plan: plans.BenchPlan, expected: Expectation, bench: Bench, token: str
) -> StageOutcome:
    """Run the stages of a plan and report the result of each group."""

    def run_one(stage: plans.BenchStage) -> list[GroupRun]:
        groups = bench_group.run_stage(target.run_group, stage, bench, f"{plan.island}-{token}")
        for group in groups:
            rate = group.busbw_gb_s
            figure = f"{rate:.3g} GB/s" if rate is not None else f"no result: {group.problem}"
            progress.say(f"  {stage.name} {' – '.join(group.nodes[:8])}: {figure} ({group.seconds:.1f} s)")
        return groups

    outcome = run_in_order(plan, expected, run_one)
    for line in pairs.format_matrix(outcome.rates):
        progress.say(f"  {line}")
    return outcome


def run_in_order(plan: plans.BenchPlan, expected: Expectation, run_one: RunStage) -> StageOutcome:
    """Run the stages in order; a stage that is needed only when the island falls short is otherwise skipped."""
    runs: dict[str, list[GroupRun]] = {}
    for stage in plan.stages:
        if stage.only_if_short and not falls_short(runs.get("island", []), expected.busbw_gb_s):
            continue
        runs[stage.name] = run_one(stage)
    outcome = StageOutcome(runs)
    reference = expected.busbw_gb_s or max((rate for rate in outcome.rates.values() if rate is not None), default=None)
    no_suspect = "neighbours" in runs and not pairs.find_pair_causes(outcome.rates, expected.busbw_gb_s)
    if no_suspect and reference and falls_short(runs.get("island", []), reference):
        stage = next(stage for stage in plan.stages if stage.name == "neighbours")
        return dataclasses.replace(outcome, suspects=search_bad_node(stage, plan, reference, run_one))
    return outcome


def search_bad_node(stage: plans.BenchStage, plan: plans.BenchPlan, reference: float, run_one: RunStage) -> Suspects:
    """Find the bad node of an island in log2(N) steps: a group is good when it reaches the gate of ``reference``."""
    names = next(item.rounds[0][0] for item in plan.stages if item.name == "island")
    steps = bisect_nodes(names)
    try:
        rounds = next(steps)
        while True:
            runs = run_one(dataclasses.replace(stage, name="halves", rounds=tuple(rounds)))
            rounds = steps.send({run.nodes: not falls_short([run], reference) for run in runs})
    except StopIteration as end:
        return t.cast(Suspects, end.value)


def falls_short(groups: t.Sequence[GroupRun], expected: float | None, gate: float = GATE_PASS) -> bool:
    """Return whether one of the groups has no result or a bandwidth below the gate."""
    return any(group.busbw_gb_s is None or group.busbw_gb_s < gate * (expected or 0.0) for group in groups)
