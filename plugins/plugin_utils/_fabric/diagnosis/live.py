# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Values of the diagnosis of a running job: what its nodes report, how its steps progress, the result. Pure rules.

Input is one :class:`NodeObservation` a node: the answer of the node agent's ``examine``, the node's facts, the
diagnoses of its logs and the steps in its metrics. The result holds a state, the causes (the deciding one first) and
other observations.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import dataclasses
import statistics
import typing as t

from ....module_utils._model.node import Node
from ....module_utils._model.verdict import Cause, Outcome
from .file import FileDiagnosis
from .live_causes import cause_weight, explained_codes

Dict = dict[str, t.Any]
StepState = t.Literal["not_started", "starting", "moving", "slow", "hanging", "ended"]
# A job whose steps take milliseconds may still write a checkpoint of gigabytes between two of them.
HANG_S = 30.0
HANG_STEPS = 5.0
SLOWED = 1.5
# Below this a difference is the machine's own unrest.
SLOWED_S = 0.1
_MANY_STEPS = 12


@dataclasses.dataclass(frozen=True, slots=True)
class NodeObservation:
    """What one node showed; ``seen`` is the agent's answer, None with ``problem`` when it gave none."""

    name: str
    seen: Dict | None
    problem: str = ""
    node: Node | None = None
    logs: tuple[FileDiagnosis, ...] = ()
    steps: tuple[tuple[float, int], ...] = ()

    @property
    def ranks(self) -> list[Dict]:
        """Return the ranks that started here, newest start of each."""
        return list((self.seen or {}).get("ranks") or [])

    @property
    def alive(self) -> list[Dict]:
        """Return the ranks that live here."""
        return [rank for rank in self.ranks if rank.get("alive")]

    def interface_of(self, address: str) -> str | None:
        """Return the interface that owns a local address."""
        if self.node is None:
            return None
        items = (*self.node.addresses.lan, *self.node.addresses.mesh, *self.node.addresses.public)
        return next((item.interface for item in items if item.address == address), None)


@dataclasses.dataclass(frozen=True, slots=True)
class RunObservation:
    """Everything a live diagnosis rests on. ``world_size`` is what the job asks for, None when nobody knows."""

    run_id: str
    looks: tuple[NodeObservation, ...]
    world_size: int | None = None

    @property
    def now(self) -> float:
        """Return the latest clock of the nodes, Unix seconds."""
        return max((look.seen["at"] for look in self.looks if look.seen), default=0.0)

    @property
    def gang(self) -> list[tuple[NodeObservation, Dict]]:
        """Return (node, rank) of the newest start: an older attempt's ranks say nothing about this one."""
        found = [(look, rank) for look in self.looks for rank in look.ranks]
        newest = max((rank.get("attempt") or 0 for _unused, rank in found), default=0)
        return [(look, rank) for look, rank in found if (rank.get("attempt") or 0) == newest or rank.get("alive")]

    @property
    def expected(self) -> int | None:
        """Return how many ranks there should be: as asked, else as the ranks themselves were told."""
        told = [rank["world_size"] for _unused, rank in self.gang if rank.get("world_size")]
        return self.world_size or max(told, default=None)

    @property
    def steps(self) -> list[tuple[float, int]]:
        """Return (time, step) of the newest start, in order; of several ranks that write a step the first counts."""
        began = min((rank.get("started_at") or 0.0 for _unused, rank in self.gang), default=0.0)
        first: dict[int, float] = {}
        for at, step in sorted(item for look in self.looks for item in look.steps if item[0] >= began):
            first.setdefault(step, at)
        return sorted((at, step) for step, at in first.items())


@dataclasses.dataclass(frozen=True, slots=True)
class StepProgress:
    """How the job moves. Times in seconds; ``step_s`` is the usual time of a step, ``late_s`` the newest steps'."""

    state: StepState
    last_step: int | None = None
    since_step_s: float | None = None
    step_s: float | None = None
    late_s: float | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class RunDiagnosis:
    """The result. ``outcome``: fail, warn, pass (it moves and nothing was found), unproven (nothing shows why)."""

    run_id: str
    outcome: Outcome
    progress: StepProgress
    causes: tuple[Cause, ...]
    also: tuple[Cause, ...]
    ranks_expected: int | None
    ranks_alive: int

    def to_dict(self) -> Dict:
        """Return the diagnosis as JSON-able values."""
        told = dataclasses.asdict(self.progress)
        return {
            "run_id": self.run_id,
            "outcome": self.outcome,
            "state": told.pop("state"),
            "progress": told,
            "ranks": {"expected": self.ranks_expected, "alive": self.ranks_alive},
            "causes": [_cause_dict(item) for item in self.causes],
            "also": [_cause_dict(item) for item in self.also],
        }


def conclude_diagnosis(
    live: RunObservation, progress: StepProgress, now: t.Sequence[Cause], told: t.Sequence[Cause]
) -> RunDiagnosis:
    """Return the diagnosis from all findings: fatal ones decide, then consequences, then advice.

    :param now: what is so at this moment.
    :param told: what logs say; of a job that moves they tell something that is over.
    """
    moves = progress.state == "moving"
    unique = list({(item.code, item.node, item.evidence): item for item in (*now, *told)}.values())
    deciding = [item for item in unique if not (moves and item in told and item not in now)]
    by_weight: dict[str, list[Cause]] = {"fatal": [], "secondary": [], "advice": []}
    for item in deciding:
        by_weight[cause_weight(item.code)].append(item)
    causes = by_weight["fatal"] or by_weight["secondary"] or by_weight["advice"]
    leading = {item.code for item in causes}
    causes = [
        item for item in by_weight["advice"] if item not in causes and leading & {*explained_codes(item.code)}
    ] + causes
    also = [item for item in unique if item not in causes]
    outcome: Outcome = "warn" if unique or progress.state == "slow" else "pass" if moves else "unproven"
    if by_weight["fatal"] and not moves:
        outcome = "fail"
    elif progress.state in ("hanging", "not_started", "starting"):
        outcome = "unproven"
    alive = sum(len(look.alive) for look in live.looks)
    return RunDiagnosis(live.run_id, outcome, progress, tuple(causes), tuple(also), live.expected, alive)


def measure_progress(live: RunObservation) -> StepProgress:
    """Return how the job moves, by the steps in its metrics, else by whether its ranks live."""
    gang, steps = live.gang, live.steps
    if not gang:
        return StepProgress("not_started")
    alive = any(rank.get("alive") for _unused, rank in gang)
    last = steps[-1][1] if steps else None
    since = round(max(0.0, live.now - steps[-1][0]), 3) if steps else None
    if not alive:
        return StepProgress("ended", last, since)
    if not steps or since is None:
        return StepProgress("starting")
    usual, late = _step_times(steps)
    if since > max(HANG_S, HANG_STEPS * (usual or 0.0)):
        return StepProgress("hanging", last, since, usual, late)
    slower = usual is not None and late is not None and late > max(SLOWED * usual, usual + SLOWED_S)
    return StepProgress("slow" if slower else "moving", last, since, usual, late)


def _step_times(steps: t.Sequence[tuple[float, int]]) -> tuple[float | None, float | None]:
    """Return (usual, newest) seconds of a step; the newest only where there are enough steps to compare.

    Metrics may be written every tenth step: the time is divided by the steps in between.
    """
    pairs = zip(steps, steps[1:], strict=False)
    times = [(b[0] - a[0]) / (b[1] - a[1]) for a, b in pairs if b[1] > a[1]]
    if not times:
        return None, None
    if len(times) < _MANY_STEPS:
        return round(statistics.median(times), 6), None
    part = max(3, len(times) // 5)
    usual = statistics.median(times[:-part])
    return round(usual, 6), round(statistics.median(times[-part:]), 6)


def _cause_dict(item: Cause) -> Dict:
    found: Dict = {"code": item.code, "evidence": item.evidence, "fix": item.fix}
    return {**found, "node": item.node} if item.node else found
