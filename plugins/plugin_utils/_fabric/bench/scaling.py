# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How training scales with nodes at a fixed batch per rank: efficiency, and which part of a step took the loss. Pure.

A step on n nodes takes ``step_s``; on the smallest size it took ``step_s`` of the base. The difference is split into
what compute, input and stragglers take more than at the base, as timed in phases that do not overlap; the rest is the
communication that the backward pass does not hide. The parts add up to the loss.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import dataclasses
import typing as t

from ....module_utils._model import validators as f
from ....module_utils._model.errors import InputError
from ....module_utils._model.verdict import Outcome
from ..diagnosis.causes import CAUSES
from ..diagnosis.combined_causes import scaling_finding

# Ours, not a standard's: what a data-parallel step with overlapped gradients reaches on a network that was verified.
EFFICIENCY_PASS, EFFICIENCY_FAIL = 0.85, 0.6
# A rank that computes so much longer than the middle one holds the others up.
STRAGGLER = 1.15
_PARTS = ("compute", "input", "straggler", "communication")
_SECONDS = f.decimal(0)


@dataclasses.dataclass(frozen=True, slots=True)
class Rank:
    """One rank's medians in seconds; ``uid`` is the user it ran as."""

    rank: int = f.field(f.integer(0))
    node: str = f.field(f.text)
    uid: int = f.field(f.integer(0))
    step_s: float = f.field(_SECONDS)
    input_s: float = f.field(_SECONDS)
    compute_s: float = f.field(_SECONDS)
    straggler_s: float = f.field(_SECONDS)
    communication_s: float = f.field(_SECONDS)


@dataclasses.dataclass(frozen=True, slots=True)
class Point:
    """What the bench measured on so many nodes."""

    nodes: int
    ranks: int
    device: str
    step_s: float
    samples_per_s: float
    input_s: float
    compute_s: float
    straggler_s: float
    communication_s: float
    per_rank: tuple[Rank, ...] = ()

    @property
    def slowest(self) -> tuple[Rank, float] | None:
        """Return the rank that computes longest, with its ratio to the middle one, when it holds others up."""
        busy = sorted(self.per_rank, key=_busy)
        if len(busy) < 2:
            return None
        middle = _busy(busy[(len(busy) - 1) // 2])
        ratio = _busy(busy[-1]) / middle if middle else 1.0
        return (busy[-1], round(ratio, 3)) if ratio > STRAGGLER else None


def _busy(rank: Rank) -> float:
    return rank.input_s + rank.compute_s


def point(document: t.Any) -> Point:
    """Return the point of a document of scaling_bench.py.

    :raises InputError: when it is none.
    """
    value = f.dictionary(document, "acceptance")
    if value.get("schema") != 1:
        raise InputError("acceptance.schema", "is not 1")
    ranks = tuple(f.section(Rank)(item, "acceptance.per_rank") for item in value.get("per_rank") or [])
    seconds = {key: _SECONDS(value.get(key), f"acceptance.{key}") for key in _TIMES}
    if not ranks or not seconds["step_s"]:
        raise InputError("acceptance", "holds no measurement")
    # Counted from what the ranks told, not from what was asked.
    nodes = len({item.node for item in ranks})
    return Point(nodes, len(ranks), str(value.get("device")), per_rank=ranks, **seconds)


_TIMES = ("step_s", "samples_per_s", "input_s", "compute_s", "straggler_s", "communication_s")


def efficiency(base: Point, now: Point) -> float:
    """Return the throughput per rank against the base's."""
    return (now.samples_per_s / now.ranks) / (base.samples_per_s / base.ranks)


def loss(base: Point, now: Point) -> dict[str, float]:
    """Return the seconds a step that each part takes more than at the base; together the difference of the steps.

    ``unexplained`` is negative where the phases alone took longer than the whole step: their parts overlap in it.
    """
    parts = {
        "compute": now.compute_s - base.compute_s,
        "input": now.input_s - base.input_s,
        "straggler": now.straggler_s - base.straggler_s,
    }
    rest = now.step_s - base.step_s - sum(parts.values())
    parts["communication"], parts["unexplained"] = max(0.0, rest), min(0.0, rest)
    return {key: round(value, 7) for key, value in parts.items()}


@dataclasses.dataclass(frozen=True, slots=True)
class Scaling:
    """The judgement: an outcome, the reasons, and one row for each size."""

    outcome: Outcome
    summary: str
    reasons: tuple[str, ...]
    rows: tuple[dict[str, t.Any], ...]


def judge(points: t.Sequence[Point], passes: float = EFFICIENCY_PASS, fails: float = EFFICIENCY_FAIL) -> Scaling:
    """Judge how the fleet scales from its smallest to its largest measured size."""
    ordered = sorted(points, key=lambda item: item.nodes)
    if not ordered:
        return Scaling("unproven", "nothing was measured", (), ())
    base, top = ordered[0], ordered[-1]
    rows = tuple(_row(base, item) for item in ordered)
    reasons: list[str] = []
    if len(ordered) < 2:
        said = f"{_count(base)} reach {base.samples_per_s:.4g} samples/s; there is nothing to compare with"
        return Scaling("unproven", said, ("one size was measured",), rows)
    value = efficiency(base, top)
    outcome: Outcome = "pass" if value >= passes else "warn" if value >= fails else "fail"
    finding = scaling_finding({item.nodes: item.samples_per_s for item in ordered})
    if finding is not None:
        outcome = "fail"
        reasons.append(f"{finding.code}: {finding.text}. {CAUSES[finding.code].fix}")
    if outcome != "pass":
        reasons.append(_blame(base, top))
    held = top.slowest
    if held:
        reasons.append(f"rank {held[0].rank} on {held[0].node} computes {held[1]:.2f} × as long as the middle rank")
    summary = f"efficiency {value:.0%} from {_count(base)} to {_count(top)}, {top.samples_per_s:.4g} samples/s"
    return Scaling(outcome, summary, tuple(reasons), rows)


def _row(base: Point, now: Point) -> dict[str, t.Any]:
    parts = ("nodes", "ranks", "step_s", "samples_per_s", "input_s", "compute_s", "straggler_s", "communication_s")
    return {
        **{key: getattr(now, key) for key in parts},
        "efficiency": round(efficiency(base, now), 4),
        "loss_s": round(now.step_s - base.step_s, 7),
        "loss": loss(base, now),
    }


def _blame(base: Point, top: Point) -> str:
    parts = loss(base, top)
    worst = max(_PARTS, key=lambda key: parts[key])
    shares = ", ".join(f"{key} {parts[key] * 1e3:.3g} ms" for key in _PARTS)
    return f"most of the loss is {worst} (a step takes more by: {shares})"


def _count(item: Point) -> str:
    return f"{item.nodes} node{'s' if item.nodes > 1 else ''} ({item.ranks} rank{'s' if item.ranks > 1 else ''})"


def sizes(most: int) -> list[int]:
    """Return the numbers of nodes to measure: powers of two up to ``most``, and ``most`` itself."""
    found = [1]
    while found[-1] * 2 <= most:
        found.append(found[-1] * 2)
    return found if found[-1] == most else [*found, most]
