# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The stages of a fabric test in their order, and the search for a bad node when pairs of neighbours name none.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import dataclasses
import typing as t

from ....module_utils._model.expectation import GATE_PASS, Expectation
from ..._fabric.bench import plan as plans
from ..._fabric.verdict import pairs
from ..shared.progress import Progress
from . import bench_group
from .bench_group import Bench, GroupRun
from .hosts_target import Target

# Runs the groups of one stage; a parameter, so that the order of stages can be tested without a cluster.
RunStage = t.Callable[[plans.BenchStage], list[GroupRun]]


@dataclasses.dataclass(frozen=True, slots=True)
class StageOutcome:
    """What the stages gave: runs by stage, and what the search by halves found (None when none was needed)."""

    runs: t.Mapping[str, list[GroupRun]]
    found: plans.Suspects | None = None

    @property
    def rates(self) -> dict[tuple[str, str], float | None]:
        """GB/s of each tested pair, None for one whose test failed; an island of two nodes is its one pair."""
        two = [group for group in self.runs.get("island", []) if len(group.nodes) == 2 and group.result]
        groups = [*self.runs.get("pairs", []), *self.runs.get("neighbours", []), *two]
        return {(group.nodes[0], group.nodes[1]): group.busbw_gb_s for group in groups}


def run_stages(
    ground: Target, progress: Progress, plan: plans.BenchPlan, wanted: Expectation, bench: Bench, token: str
) -> StageOutcome:
    """Run the stages of a plan and say what each gave."""

    def one(stage: plans.BenchStage) -> list[GroupRun]:
        found = bench_group.run_stage(ground.run_group, stage, bench, f"{plan.island}-{token}")
        for group in found:
            rate = group.busbw_gb_s
            figure = f"{rate:.3g} GB/s" if rate is not None else f"no result: {group.problem}"
            progress.say(f"  {stage.name} {' – '.join(group.nodes[:8])}: {figure} ({group.seconds:.1f} s)")
        return found

    outcome = run_in_order(plan, wanted, one)
    for line in pairs.format_matrix(outcome.rates):
        progress.say(f"  {line}")
    return outcome


def run_in_order(plan: plans.BenchPlan, wanted: Expectation, one: RunStage) -> StageOutcome:
    """Run the stages in order; one that is asked for only when the island falls short is left out otherwise."""
    done: dict[str, list[GroupRun]] = {}
    for stage in plan.stages:
        if stage.only_if_short and not falls_short(done.get("island", []), wanted.busbw_gb_s):
            continue
        done[stage.name] = one(stage)
    outcome = StageOutcome(done)
    reference = wanted.busbw_gb_s or max((rate for rate in outcome.rates.values() if rate is not None), default=None)
    unnamed = "neighbours" in done and not pairs.find_pair_causes(outcome.rates, wanted.busbw_gb_s)
    if unnamed and reference and falls_short(done.get("island", []), reference):
        stage = next(stage for stage in plan.stages if stage.name == "neighbours")
        return dataclasses.replace(outcome, found=search_bad_node(stage, plan, reference, one))
    return outcome


def search_bad_node(stage: plans.BenchStage, plan: plans.BenchPlan, reference: float, one: RunStage) -> plans.Suspects:
    """Name the bad node of an island in log2(N) steps: a group is well when it reaches the gate of ``reference``."""
    names = next(item.rounds[0][0] for item in plan.stages if item.name == "island")
    steps = plans.bisect_nodes(names)
    try:
        rounds = next(steps)
        while True:
            runs = one(dataclasses.replace(stage, name="halves", rounds=tuple(rounds)))
            answers = {run.nodes: not falls_short([run], reference) for run in runs}
            rounds = steps.send(answers)
    except StopIteration as end:
        return t.cast(plans.Suspects, end.value)


def falls_short(groups: t.Sequence[GroupRun], expected: float | None, gate: float = GATE_PASS) -> bool:
    """Return whether one of the groups has no result or falls below the gate."""
    return any(group.busbw_gb_s is None or group.busbw_gb_s < gate * (expected or 0.0) for group in groups)
