# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The verdict on how training scales with nodes: efficiency, the largest loss, negative scaling, stragglers. Pure."""

from __future__ import annotations

import dataclasses
import typing as t

from ....module_utils._model.verdict import Outcome
from ..bench.scaling import ScalingPoint, efficiency, step_loss
from .cause_table import CAUSES

# Chosen for this collection: what a data-parallel step with overlapped gradients reaches on a verified network.
EFFICIENCY_PASS, EFFICIENCY_FAIL = 0.85, 0.6
# More nodes must do more work: below this share of the best total of fewer nodes, adding nodes is a loss.
SCALING_LOSS = 0.98
_PARTS = ("compute", "input", "straggler", "communication")
_FIGURES = ("nodes", "ranks", "step_s", "samples_per_s", "input_s", "compute_s", "straggler_s", "communication_s")


@dataclasses.dataclass(frozen=True, slots=True)
class ScalingVerdict:
    """An outcome, the reasons, and one row for each number of nodes."""

    outcome: Outcome
    summary: str
    reasons: tuple[str, ...]
    rows: tuple[dict[str, object], ...]


def judge_scaling(
    points: t.Sequence[ScalingPoint], passes: float = EFFICIENCY_PASS, fails: float = EFFICIENCY_FAIL
) -> ScalingVerdict:
    """Judge how the fleet scales from its smallest to its largest measured number of nodes."""
    ordered = sorted(points, key=lambda point: point.nodes)
    if not ordered:
        return ScalingVerdict("unproven", "nothing was measured", (), ())
    base, top = ordered[0], ordered[-1]
    rows = tuple(_build_row(base, point) for point in ordered)
    if len(ordered) < 2:
        summary = f"{_count_text(base)}: {base.samples_per_s:.4g} samples/s; there is nothing to compare with"
        return ScalingVerdict("unproven", summary, ("only one number of nodes was measured",), rows)
    value = efficiency(base, top)
    outcome: Outcome = "pass" if value >= passes else "warn" if value >= fails else "fail"
    reasons: list[str] = []
    negative = find_negative_scaling({point.nodes: point.samples_per_s for point in ordered})
    if negative:
        outcome = "fail"
        reasons.append(f"negative_scaling: {negative}. {CAUSES['negative_scaling'].fix}")
    if outcome != "pass":
        reasons.append(_name_largest_loss(base, top))
    if top.slowest:
        rank, ratio = top.slowest
        reasons.append(f"rank {rank.rank} on {rank.node} computes {ratio:.2f} × as long as the median rank")
    summary = (
        f"efficiency {value:.0%} from {_count_text(base)} to {_count_text(top)}, {top.samples_per_s:.4g} samples/s"
    )
    return ScalingVerdict(outcome, summary, tuple(reasons), rows)


def find_negative_scaling(throughputs: t.Mapping[int, float]) -> str:
    """Return in words where more nodes do less in total than fewer nodes; empty when they never do.

    :param throughputs: number of nodes to samples or tokens per second of all of them together.
    """
    best_nodes, best = 0, 0.0
    for nodes in sorted(throughputs):
        if best and throughputs[nodes] < best * SCALING_LOSS:
            now = f"{nodes} nodes do {throughputs[nodes]:.4g} samples or tokens per second"
            return f"{now}, {best_nodes} nodes did {best:.4g}"
        if throughputs[nodes] >= best:
            best_nodes, best = nodes, throughputs[nodes]
    return ""


def _build_row(base: ScalingPoint, point: ScalingPoint) -> dict[str, object]:
    return {
        **{key: getattr(point, key) for key in _FIGURES},
        "efficiency": round(efficiency(base, point), 4),
        "loss_s": round(point.step_s - base.step_s, 7),
        "loss": step_loss(base, point),
    }


def _name_largest_loss(base: ScalingPoint, top: ScalingPoint) -> str:
    parts = step_loss(base, top)
    worst = max(_PARTS, key=lambda key: parts[key])
    shares = ", ".join(f"{key} {parts[key] * 1e3:.3g} ms" for key in _PARTS)
    return f"most of the loss is {worst} (added to each step: {shares})"


def _count_text(point: ScalingPoint) -> str:
    nodes, ranks = point.nodes, point.ranks
    return f"{nodes} node{'s' if nodes > 1 else ''} ({ranks} rank{'s' if ranks > 1 else ''})"
