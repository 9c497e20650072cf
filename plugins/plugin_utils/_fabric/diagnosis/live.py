# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Values of the diagnosis of a running job: what its nodes report, how its steps progress, the result. Pure rules.

Input is one :class:`NodeObservation` a node: the answer of the node agent's ``examine``, the node's facts, the
diagnoses of its logs and the steps in its metrics. The result holds a state, the causes (the deciding one first) and
other observations.
"""

from __future__ import annotations

import dataclasses
import statistics
import typing as t

from ....module_utils._model import stall
from ....module_utils._model.node import Node
from ....module_utils._model.quantity import parse_finite
from ....module_utils._model.run_attempt import Attempt, RankExit
from ....module_utils._model.verdict import Cause, Outcome
from ....module_utils._model.wording import name_some
from ..verdict.cause_info import Backend
from ..verdict.cause_table import SYMPTOMS
from .file import FileDiagnosis
from .known_run import KnownRun
from .live_causes import KEEPS_FROM_STARTING, cause_weight, explained_codes

# late: no step came for longer than usual, and not yet for so long that the run stands. restarting: an attempt is over,
# the run is not, and the next one has made no step yet.
StepState = t.Literal["not_started", "starting", "restarting", "moving", "slow", "late", "hanging", "ended"]
SLOWED = 1.5
# A smaller difference is normal variation of the machine.
SLOWED_S = 0.1
_MANY_STEPS = 12
_MANY_NODES = 8


@dataclasses.dataclass(frozen=True, slots=True)
class NodeObservation:
    """What one node reported; ``answer`` is its agent's, None when it did not answer (``problem`` says why).

    ``errors``: by rank the last line of its last traceback. ``events`` and ``metrics`` are the newest lines of its own.
    """

    name: str
    answer: dict[str, t.Any] | None
    problem: str = ""
    node: Node | None = None
    logs: tuple[FileDiagnosis, ...] = ()
    steps: tuple[tuple[float, int], ...] = ()
    errors: t.Mapping[int, str] = dataclasses.field(default_factory=dict)
    events: tuple[t.Mapping[str, t.Any], ...] = ()
    metrics: tuple[t.Mapping[str, t.Any], ...] = ()

    @property
    def ranks(self) -> list[dict[str, t.Any]]:
        """Return the ranks that started on this node, the newest start of each."""
        return list((self.answer or {}).get("ranks") or [])

    @property
    def live_ranks(self) -> list[dict[str, t.Any]]:
        """Return the ranks that are running on this node."""
        return [rank for rank in self.ranks if rank.get("alive")]

    def interface_of(self, address: str) -> str | None:
        """Return the interface that owns a local address."""
        if self.node is None:
            return None
        items = (*self.node.addresses.lan, *self.node.addresses.mesh, *self.node.addresses.public)
        return next((item.interface for item in items if item.address == address), None)


@dataclasses.dataclass(frozen=True, slots=True)
class RunObservation:
    """What all nodes of a run reported. ``world_size`` is what the job asks for, None when it is not known.

    ``backend``: where it runs, for advice that holds there. ``succeeded``: by its record it has. ``known``: what its
    record and events say, None without a record.
    """

    run_id: str
    nodes: tuple[NodeObservation, ...]
    world_size: int | None = None
    backend: Backend | None = None
    succeeded: bool = False
    known: KnownRun | None = None

    @property
    def now(self) -> float:
        """Return the latest clock of the nodes, Unix seconds."""
        return max(
            (node.answer["at"] for node in self.nodes if node.answer), default=self.known.at if self.known else 0.0
        )

    @property
    def gang(self) -> list[tuple[NodeObservation, dict[str, t.Any]]]:
        """Return (node, rank) of the newest attempt, and ranks of earlier attempts that are still running."""
        ranks = [(node, rank) for node in self.nodes for rank in node.ranks]
        newest = max((rank.get("attempt") or 0 for _node, rank in ranks), default=0)
        return [(node, rank) for node, rank in ranks if (rank.get("attempt") or 0) == newest or rank.get("alive")]

    @property
    def attempt(self) -> Attempt:
        """Return the newest attempt, by which it is judged who ended it: its ranks, their ends, and its last step."""
        gang = self.gang
        found = Attempt(max((rank.get("attempt") or 0 for _node, rank in gang), default=0), 0.0)
        found.ranks = {rank["rank"]: node.name for node, rank in gang}
        for node, rank in gang:
            at, code = parse_finite(rank.get("ended_at")), rank.get("exit_code")
            if at is not None and isinstance(code, int):
                found.exits[rank["rank"]] = RankExit(at, code, node.name)
        found.last_step = self.steps[-1][1] if self.steps else None
        return found

    @property
    def known_attempt(self) -> Attempt | None:
        """Return the newest attempt of the run's events, None where its nodes know of a later one."""
        found = self.known.attempt if self.known else None
        newest = max((rank.get("attempt") or 0 for _node, rank in self.gang), default=0)
        return found if found is not None and found.counted >= newest else None

    @property
    def started_ranks(self) -> set[int]:
        """Return the ranks that started in the newest attempt: by its nodes, or by what was read of pods now gone."""
        known = self.known_attempt
        return {rank["rank"] for _node, rank in self.gang} | set(known.ranks if known else ())

    @property
    def is_between(self) -> bool:
        """Return whether an attempt has ended, not well, and the run has not: of a run with no rank that runs."""
        if self.known is None or self.known.over is not False or not self.started_ranks:
            return False
        ends = [rank.get("exit_code") for _node, rank in self.gang]
        known = self.known_attempt
        return not (known.has_ended_well if known else bool(ends) and not any(code != 0 for code in ends))

    @property
    def live_ranks(self) -> list[tuple[NodeObservation, dict[str, t.Any]]]:
        """Return (node, rank) of the ranks that are running."""
        return [(node, rank) for node in self.nodes for rank in node.live_ranks]

    @property
    def rank_count(self) -> int | None:
        """Return how many ranks there should be: as the job asks, else the world size that the ranks were given."""
        sizes = [rank["world_size"] for _node, rank in self.gang if rank.get("world_size")]
        return self.world_size or max(sizes, default=None)

    @property
    def steps(self) -> list[tuple[float, int]]:
        """Return (time, step) of the newest attempt, in order; of several ranks that write a step the first counts."""
        began = min((rank.get("started_at") or 0.0 for _node, rank in self.gang), default=0.0)
        first: dict[int, float] = {}
        read = [item for node in self.nodes for item in node.steps]
        for at, step in sorted(item for item in (*read, *(self.known.steps if self.known else ())) if item[0] >= began):
            first.setdefault(step, at)
        return sorted((at, step) for step, at in first.items())


@dataclasses.dataclass(frozen=True, slots=True)
class StepProgress:
    """How the job's steps progress. ``step_s`` is the usual time of a step in seconds, ``late_s`` the newest steps'."""

    state: StepState
    last_step: int | None = None
    since_step_s: float | None = None
    step_s: float | None = None
    late_s: float | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class RunDiagnosis:
    """The result. ``outcome``: fail, warn, pass, unproven (no cause was found).

    pass: it progresses without any finding, or has succeeded. ``unseen``: the nodes that did not answer: what runs
    there is not known, and is not counted in ``ranks_alive``.
    """

    run_id: str
    outcome: Outcome
    progress: StepProgress
    causes: tuple[Cause, ...]
    also: tuple[Cause, ...]
    ranks_expected: int | None
    ranks_alive: int
    unseen: tuple[str, ...] = ()

    @property
    def has_succeeded(self) -> bool:
        """Return whether the run has succeeded, and nothing is left to find."""
        return self.outcome == "pass" and self.progress.state != "moving"

    def to_dict(self) -> dict[str, object]:
        """Return the diagnosis as JSON-able values."""
        progress = dataclasses.asdict(self.progress)
        return {
            "run_id": self.run_id,
            "outcome": self.outcome,
            "state": progress.pop("state"),
            "progress": progress,
            "ranks": {
                "expected": self.ranks_expected,
                "alive": self.ranks_alive,
                **({"unknown_on": list(self.unseen)} if self.unseen else {}),
            },
            "causes": [_cause_dict(cause) for cause in self.causes],
            "also": [_cause_dict(cause) for cause in self.also],
        }


def describe_gpus(run: RunObservation) -> str:
    """Return how busy the GPUs of a run are, empty where no node has said it.

    A kernel that waits for another rank keeps its GPU busy; an idle GPU has no kernel, and its program waits elsewhere.
    """
    groups: dict[str, list[str]] = {}
    for node in run.nodes:
        gpus = (node.answer or {}).get("gpus") or []
        shares = [gpu["busy_percent"] for gpu in gpus if gpu["busy_percent"] is not None]
        if shares:
            low, high = round(min(shares)), round(max(shares))
            groups.setdefault(f"{low} %" if low == high else f"{low}-{high} %", []).append(node.name)
    named = sorted(groups.items(), key=lambda group: len(group[1]))
    return "; ".join(f"{share} busy on {name_some(nodes, _MANY_NODES)}" for share, nodes in named)


def conclude_diagnosis(
    run: RunObservation,
    progress: StepProgress,
    current: t.Sequence[Cause],
    logged: t.Sequence[Cause],
    known: t.Sequence[Cause] = (),
) -> RunDiagnosis:
    """Return the diagnosis from all findings: fatal ones decide, then consequences, then advice.

    :param current: what is true at this moment.
    :param logged: what logs say; for a job that progresses they describe something that is over.
    :param known: those of the current ones that the run's record names.
    """
    # What was reported before a run succeeded is over, as it is while its steps continue.
    ends = [rank.get("exit_code") for _node, rank in run.gang]
    is_over = progress.state in ("ended", "not_started")
    if is_over and run.succeeded:
        # Its folders may have been removed since, and its nodes may be gone.
        current, logged = (), (*current, *logged)
    # What its record says of its end goes before what its nodes show: a node that was lost has said nothing more.
    is_other = bool(run.known and run.known.describe_end())
    succeeded = is_over and (run.succeeded or (bool(ends) and not is_other and not any(code != 0 for code in ends)))
    # Of ranks that no node has named nothing is known, unless the record says how the run ended.
    is_proven = succeeded and (run.succeeded or len(ends) >= (run.rank_count or 0))
    moves = progress.state == "moving" or succeeded
    unique = list({(cause.code, cause.node, cause.evidence): cause for cause in (*current, *logged)}.values())
    by_weight: dict[str, list[Cause]] = {"fatal": [], "secondary": [], "advice": []}
    for cause in unique:
        if not moves or cause in current:
            by_weight[cause_weight(cause.code)].append(cause)
    by_weight["fatal"] = _without_symptoms(_without_known(by_weight["fatal"], known))
    leading = by_weight["fatal"] or by_weight["secondary"] or by_weight["advice"]
    leading = [*_find_reports_of_ends(leading, logged), *leading]
    codes = {cause.code for cause in leading}
    reasons = [
        cause for cause in by_weight["advice"] if cause not in leading and codes & {*explained_codes(cause.code)}
    ]
    causes = [*reasons, *leading]
    also = [cause for cause in unique if cause not in causes]
    noted = [cause for cause in unique if not succeeded or cause in current]
    state = "succeeded" if is_proven else progress.state
    stops = [cause for cause in by_weight["fatal"] if state != "restarting" or cause.code in KEEPS_FROM_STARTING]
    outcome = _judge(state, is_fatal=bool(stops), is_noted=bool(noted))
    alive = sum(len(node.live_ranks) for node in run.nodes)
    unseen = tuple(node.name for node in run.nodes if node.answer is None)
    return RunDiagnosis(run.run_id, outcome, progress, tuple(causes), tuple(also), run.rank_count, alive, unseen)


def _judge(state: str, *, is_fatal: bool, is_noted: bool) -> Outcome:
    """Return the outcome of a run in this state; ``is_noted``: there is any cause at all."""
    if is_fatal and state != "moving":
        return "fail"
    if state in ("hanging", "late", "not_started", "starting"):
        return "unproven"
    if is_noted or state == "slow":
        return "warn"
    return "pass" if state in ("moving", "succeeded") else "unproven"


def _without_known(fatal: t.Sequence[Cause], known: t.Sequence[Cause]) -> list[Cause]:
    """Return fatal causes without what follows from those that the record names, and each of them once.

    What nodes, pods and logs show of the same cause says more than the record's line.
    """
    seen = [cause for cause in fatal if cause not in known]
    new = [item for item in known if not any(item.code == one.code and item.node in (one.node, None) for one in seen)]
    places = {(item.code, item.node) for item in known}
    # A pod is taken off a node that is lost.
    follows = {("pod_evicted", item.node) for item in known if item.code == "node_unreachable"}
    follows |= {(item.code, None) for item in new}
    ends = {"rank_ended", "rank_left", "ranks_missing"} if any(item.code not in SYMPTOMS for item in known) else set()
    kept = [one for one in seen if (one.code, one.node) not in follows and one.code not in ends]
    return [*new, *sorted(kept, key=lambda one: (one.code, one.node) not in places)]


def _find_reports_of_ends(leading: t.Sequence[Cause], logged: t.Sequence[Cause]) -> list[Cause]:
    """Return what the logs of ranks say that ended by themselves, where nothing but their ends is known."""
    if any(cause.code != "rank_ended" or "killed by signal" in cause.evidence for cause in leading):
        return []
    places = {cause.node for cause in leading}
    return [cause for cause in logged if cause.node in places and cause_weight(cause.code) == "secondary"]


def _without_symptoms(fatal: t.Sequence[Cause]) -> list[Cause]:
    """Return fatal causes without those that others explain: the end of a rank by a cause on its node.

    A collective that timed out is explained by any other cause.
    """
    reasons = [cause for cause in fatal if cause.code not in SYMPTOMS]
    reasons = reasons or [cause for cause in fatal if cause.code == "collective_timeout"]
    # That ranks are missing says as little of the reason as that one has ended.
    explained = {cause.node for cause in reasons if cause.code != "ranks_missing"}
    kept = [
        cause for cause in fatal if cause in reasons or (cause.code == "rank_ended" and cause.node not in explained)
    ]
    return sorted(kept, key=lambda cause: cause.code in ("rank_left", "rank_ended", "ranks_missing"))


def measure_progress(run: RunObservation) -> StepProgress:
    """Return how the job progresses, by the steps in its metrics, else by whether its ranks are running."""
    gang, steps = run.gang, run.steps
    last = steps[-1][1] if steps else None
    since = round(max(0.0, run.now - steps[-1][0]), 3) if steps else None
    if not any(rank.get("alive") for _node, rank in gang):
        is_over = bool(run.known and run.known.over)
        state: StepState = "restarting" if run.is_between else "ended" if gang or is_over else "not_started"
        return StepProgress(state, last, since)
    if not steps or since is None:
        return StepProgress("restarting" if run.attempt.n > 1 else "starting")
    usual, late = _step_times(steps)
    began = min(rank.get("started_at") or steps[0][0] for _node, rank in gang)
    pace = stall.measure_pace(steps)
    movement = stall.judge(since, pace, None if pace else steps[0][0] - began)
    if movement != "moving":
        return StepProgress("hanging" if movement == "stalled" else "late", last, since, usual, late)
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


def _cause_dict(cause: Cause) -> dict[str, str]:
    values = {"code": cause.code, "evidence": cause.evidence, "fix": cause.fix}
    return {**values, "node": cause.node} if cause.node else values
