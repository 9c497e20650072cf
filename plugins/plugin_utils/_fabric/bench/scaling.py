# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Step times measured by ``scaling_bench.py`` on growing numbers of nodes, at a fixed batch per rank. Pure.

The loss of a measurement is how much longer a step takes than on the smallest number of nodes (the base). It is split
into the growth of compute, input and straggler time, which are timed in phases that do not overlap; the rest is
communication that the backward pass does not hide. The parts add up to the loss.
"""

from __future__ import annotations

import dataclasses

from ....module_utils._model import validators as f
from ....module_utils._model.errors import InputError

# A rank whose compute takes this much longer than the median rank's delays all others.
STRAGGLER = 1.15
_SECONDS = f.decimal(0)


@dataclasses.dataclass(frozen=True, slots=True)
class RankTimes:
    """Median times of one rank in seconds; ``uid`` is the user it ran as."""

    rank: int = f.field(f.integer(0))
    node: str = f.field(f.text)
    uid: int = f.field(f.integer(0))
    step_s: float = f.field(_SECONDS)
    input_s: float = f.field(_SECONDS)
    compute_s: float = f.field(_SECONDS)
    straggler_s: float = f.field(_SECONDS)
    communication_s: float = f.field(_SECONDS)


@dataclasses.dataclass(frozen=True, slots=True)
class ScalingPoint:
    """What the bench measured on one number of nodes."""

    nodes: int
    ranks: int
    device: str
    step_s: float
    samples_per_s: float
    input_s: float
    compute_s: float
    straggler_s: float
    communication_s: float
    per_rank: tuple[RankTimes, ...] = ()

    @property
    def slowest(self) -> tuple[RankTimes, float] | None:
        """Return the straggler and its ratio to the median rank; None when no rank exceeds ``STRAGGLER``."""
        ranks = sorted(self.per_rank, key=_busy_s)
        if len(ranks) < 2:
            return None
        median_s = _busy_s(ranks[(len(ranks) - 1) // 2])
        ratio = _busy_s(ranks[-1]) / median_s if median_s else 1.0
        return (ranks[-1], round(ratio, 3)) if ratio > STRAGGLER else None


def _busy_s(rank: RankTimes) -> float:
    return rank.input_s + rank.compute_s


def read_point(document: object) -> ScalingPoint:
    """Return the measurement in a document of scaling_bench.py.

    :raises InputError: when the document is not one.
    """
    value = f.dictionary(document, "acceptance")
    if value.get("schema") != 1:
        raise InputError("acceptance.schema", "is not 1")
    ranks = tuple(f.section(RankTimes)(item, "acceptance.per_rank") for item in value.get("per_rank") or [])
    seconds = {key: _SECONDS(value.get(key), f"acceptance.{key}") for key in _TIMES}
    if not ranks or not seconds["step_s"]:
        raise InputError("acceptance", "holds no measurement")
    # Counted from the ranks that reported, not from the number requested.
    nodes = len({item.node for item in ranks})
    return ScalingPoint(nodes, len(ranks), str(value.get("device")), per_rank=ranks, **seconds)


_TIMES = ("step_s", "samples_per_s", "input_s", "compute_s", "straggler_s", "communication_s")


def efficiency(base: ScalingPoint, point: ScalingPoint) -> float:
    """Return the throughput per rank divided by the base's."""
    return (point.samples_per_s / point.ranks) / (base.samples_per_s / base.ranks)


def step_loss(base: ScalingPoint, point: ScalingPoint) -> dict[str, float]:
    """Return by how many seconds each part of a step is longer than at the base; the sum is the steps' difference.

    ``unexplained`` is negative when the phases add up to more than the whole step, because they overlap in it.
    """
    parts = {
        "compute": point.compute_s - base.compute_s,
        "input": point.input_s - base.input_s,
        "straggler": point.straggler_s - base.straggler_s,
    }
    rest = point.step_s - base.step_s - sum(parts.values())
    parts["communication"], parts["unexplained"] = max(0.0, rest), min(0.0, rest)
    return {key: round(value, 7) for key, value in parts.items()}


def node_counts(most: int) -> list[int]:
    """Return the numbers of nodes to measure: powers of two up to ``most``, and ``most`` itself."""
    counts = [1]
    while counts[-1] * 2 <= most:
        counts.append(counts[-1] * 2)
    return counts if counts[-1] == most else [*counts, most]
