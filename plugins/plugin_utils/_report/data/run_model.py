# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The model of one run: everything that the pages, report.json and the checks are made from."""

from __future__ import annotations

import dataclasses
import statistics
import typing as t

from ....module_utils._model.account import BUCKETS, AccountTimes, build_spans, sum_seconds
from ....module_utils._model.resumes import RestartCost, total_steps_lost
from ....module_utils._model.stored_checkpoints import StoredCheckpoint
from . import parsing
from .attempts import (
    AttemptView,
    RunClock,
    all_checkpoints,
    checkpoint_interval,
    effective_steps,
    read_attempts,
    read_clock,
)
from .faults import Fault, Promise, find_faults
from .load import Checkpoint, Line, RunFolder, StepRecord
from .stalls import Span, find_stalls

OutcomeWord = t.Literal["succeeded", "failed", "cancelled", "lost", "running", "waiting", "unknown"]


@dataclasses.dataclass(frozen=True, slots=True)
class NodeDevices:
    """The GPUs and RDMA devices that a node gave; None where that is not known."""

    node: str
    gpus: int | None = None
    model: str | None = None
    driver: str | None = None
    rdma: tuple[str, ...] | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class KnownHang:
    """When (Unix seconds) the ranks of an attempt hung, for how long (None: to its end), and who was waited for."""

    attempt: str
    at: float | None
    seconds: float | None
    text: str


@dataclasses.dataclass(frozen=True, slots=True)
class RunModel:
    """A run with everything that was derived from it; ``counted`` and ``lost`` are steps, one list a segment.

    :ivar outcome: the record's; but a run in which fewer ranks took part than the job needs is failed.
    :ivar ranks_needed: the ranks asked for, of an elastic job the fewest that it may run with.
    :ivar steps_per_s: steps gained from the first logged step to the last, by the wall clock, faults included.
    :ivar throughput: median of the reported figures, in ``unit``.
    """

    run: RunFolder
    run_id: str
    name: str
    outcome: OutcomeWord
    clock: RunClock
    attempts: tuple[AttemptView, ...]
    faults: tuple[Fault, ...]
    counted: tuple[tuple[StepRecord, ...], ...]
    lost: tuple[tuple[StepRecord, ...], ...]
    interval: int | None
    ranks_asked: int | None
    ranks_needed: int | None
    ranks_seen: int | None
    last_step: int | None
    first_loss: float | None
    final_loss: float | None
    steps_per_s: float | None
    throughput: float | None
    steps_lost: int | None
    seconds_lost: float | None
    checkpoint: Checkpoint | None
    usd: float | None
    usd_complete: bool | None
    usd_per_hour: float | None
    loopback: bool
    cpu_only: bool

    @property
    def restarts(self) -> int:
        """How often the job started again, as recorded; else by the numbers of its attempts."""
        recorded = self.run.record.get("restarts")
        if isinstance(recorded, int):
            return recorded
        numbers = [int(attempt.label) for attempt in self.attempts if attempt.label.isdecimal()]
        return max(len(self.attempts), 1, *numbers) - 1

    @property
    def job(self) -> dict[str, object]:
        """The job as it was recorded."""
        return parsing.read_mapping(self.run.record.get("job"))

    @property
    def derived(self) -> dict[str, object]:
        """What was derived from the job before launch (world_size, effective_batch, connection, ...)."""
        return parsing.read_mapping(self.run.record.get("derived"))

    @property
    def store_name(self) -> str | None:
        """The binding of the object store in which the nodes store checkpoints; Ray Train does that by itself."""
        if self.run.record.get("engine") == "rayjob":
            return None
        return parsing.read_text(parsing.read_mapping(self.job.get("checkpoints")).get("binding"), 80)

    @property
    def shared_machines(self) -> str | None:
        """That pods of the newest attempt shared machines, as ``2 pods on 1 machine``."""
        return parsing.read_text(self.run.record.get("sharing"), 60)

    @property
    def is_on_one_machine(self) -> bool:
        """Whether all ranks of the newest attempt were on one machine, so that they used no network."""
        return bool(self.attempts) and len({stay.name for stay in self.attempts[-1].nodes}) == 1

    @property
    def devices(self) -> tuple[NodeDevices, ...]:
        """What each node of the newest attempt gave; none for a job that asks for no GPU."""
        if not parsing.read_integer(self.job.get("gpus_per_node")):
            return ()
        recorded = parsing.read_mapping(self.run.record.get("devices"))
        names = recorded or ([stay.name for stay in self.attempts[-1].nodes] if self.attempts else [])
        return tuple(_read_devices(name, recorded.get(name)) for name in sorted(names, key=parsing.natural_key))

    @property
    def stored_checkpoint(self) -> StoredCheckpoint | None:
        """The newest checkpoint that is in the run's object store, with its name there."""
        recorded = parsing.read_mapping(self.run.record.get("stored"))
        name = parsing.read_text(recorded.get("path"))
        if name is None:
            return self.run.history.newest_stored()
        return StoredCheckpoint(0.0, parsing.read_integer(recorded.get("step")), name)

    @property
    def fabric(self) -> Line | None:
        """The fabric verdicts: of the run's own folder, else what the record refers to, else None."""
        return self.run.fabric or parsing.read_mapping(self.run.record.get("fabric")) or None

    @property
    def verdicts(self) -> list[dict[str, object]]:
        """The verdict of every island."""
        fabric = dict(self.fabric or {})
        bare = [fabric] if "outcome" in fabric or "transport" in fabric else []
        return parsing.read_rows(fabric.get("islands")) or bare

    @property
    def unit(self) -> str:
        """The unit of the throughput, as one reads it."""
        return f"{self.run.unit.removesuffix('_per_s')}/s" if self.run.unit else "steps/s"

    @property
    def inventory(self) -> str | None:
        """The inventory that the run was started with."""
        return parsing.read_text(self.run.record.get("inventory"), 300)

    @property
    def command_line(self) -> tuple[str, ...]:
        """The options of ansible-playbook by which a later command finds the same inventory and variables."""
        return tuple(parsing.read_texts(self.run.record.get("command_line")))

    @property
    def values_not_kept(self) -> tuple[str, ...]:
        """The variables that were given by value, which such a command does not have."""
        return tuple(parsing.read_texts(self.run.record.get("unrepeated")))

    @property
    def stalls(self) -> tuple[Span, ...]:
        """Where the run stood still between its steps."""
        return find_stalls(self.attempts)

    @property
    def hangs(self) -> tuple[KnownHang, ...]:
        """Each time in which ranks waited for one that did not come, as its record says."""
        rows = parsing.read_rows(self.run.record.get("hangs"))
        return tuple(
            KnownHang(
                parsing.read_text(row.get("attempt"), 12) or "",
                parsing.read_time(row.get("since")),
                parsing.read_number(row.get("seconds")),
                parsing.read_text(row.get("text"), 400) or "",
            )
            for row in rows
        )

    @property
    def account(self) -> tuple[dict[str, float], dict[str, float] | None] | None:
        """Seconds and dollars by what the time of the run went to; None where it is not known since when it ran.

        They are the record's; of a run that has none in it, they come from its events, without money.
        """
        given = parsing.read_mapping(self.run.record.get("account"))
        seconds = _read_amounts(given.get("seconds"))
        if seconds:
            return seconds, _read_amounts(given.get("usd"))
        clock = self.clock
        if clock.submitted is None or clock.end is None:
            return None
        admitted = parsing.read_time(self.run.record.get("admitted_at"))
        spans = build_spans(self.run.history, AccountTimes(clock.submitted, admitted, clock.end, clock.over))
        return sum_seconds(spans), None

    @property
    def steps_problem(self) -> str | None:
        """Why the printed steps or losses are not those of the run, None where they are."""
        return parsing.read_text(self.run.history.steps_read.get("problem"), 200)

    @property
    def nan_since(self) -> int | None:
        """The first step since when the loss is not a number (NaN or infinite), None while its last value is one."""
        since = None
        for step in self.curve:
            if step.loss is not None:
                since = None
            elif step.has_bad_loss and since is None:
                since = step.step
        return since

    @property
    def curve(self) -> list[StepRecord]:
        """The steps that count, in order."""
        return [step for part in self.counted for step in part]


def build_run_model(run: RunFolder) -> RunModel:
    """Return the run with all that follows from its files."""
    record = run.record
    job, derived = parsing.read_mapping(record.get("job")), parsing.read_mapping(record.get("derived"))
    clock = read_clock(run)
    attempts = read_attempts(run, clock)
    counted, lost = effective_steps(run.segments)
    curve = [step for part in counted for step in part]
    losses = [step.loss for step in curve if step.loss is not None]
    ranks_asked, ranks_seen = _read_ranks(run, derived)
    ranks_needed = _ranks_needed(job, derived, ranks_asked)
    interval = checkpoint_interval(run)
    is_elastic = parsing.read_integer(parsing.read_mapping(job.get("elastic")).get("min")) is not None
    promise = Promise(is_elastic, ranks_needed, interval, *_read_resume_options(run, attempts))
    faults = find_faults(attempts, dataclasses.replace(promise, steps_known=run.history.are_steps_known))
    cost = parsing.read_mapping(record.get("cost"))
    steps = [attempt.last_step for attempt in attempts if attempt.last_step is not None]
    known = run.history.are_steps_known
    return RunModel(
        run=run,
        run_id=parsing.read_text(record.get("run_id"), 100) or run.name,
        name=parsing.read_text(job.get("name"), 80) or parsing.read_text(record.get("run_id"), 80) or run.name,
        outcome=_read_outcome(record, ranks_needed, ranks_seen),
        clock=clock,
        attempts=attempts,
        faults=faults,
        counted=tuple(tuple(part) for part in counted),
        lost=tuple(tuple(part) for part in lost),
        interval=interval,
        ranks_asked=ranks_asked,
        ranks_needed=ranks_needed,
        ranks_seen=ranks_seen,
        last_step=max(steps, default=None) if known else None,
        first_loss=losses[0] if losses else None,
        final_loss=_final_loss(curve, max(steps, default=0)),
        steps_per_s=_steps_per_second(counted, find_stalls(attempts)) if known else None,
        throughput=_median_throughput(curve),
        steps_lost=_total_steps_lost(record, attempts, faults) if known or not faults else None,
        seconds_lost=_total_seconds_lost(record, attempts, faults) if run.history.losses()[1] is not None else None,
        checkpoint=_last_checkpoint(run),
        usd=parsing.read_number(cost.get("usd")),
        usd_complete=complete if isinstance(complete := cost.get("complete"), bool) else None,
        usd_per_hour=parsing.read_number(derived.get("price_usd_per_hour")),
        loopback=_is_loopback(run, derived),
        cpu_only=parsing.read_integer(job.get("gpus_per_node")) == 0,
    )


def _read_devices(node: str, value: object) -> NodeDevices:
    given = parsing.read_mapping(value)
    return NodeDevices(
        parsing.read_text(node, 80) or "",
        parsing.read_integer(given.get("gpus")),
        parsing.read_text(given.get("model"), 60),
        parsing.read_text(given.get("driver"), 40),
        tuple(parsing.read_texts(given["rdma"])) if isinstance(given.get("rdma"), list) else None,
    )


def _read_outcome(record: Line, ranks_needed: int | None, ranks_seen: int | None) -> OutcomeWord:
    outcome = parsing.read_text(record.get("outcome"), 20)
    if outcome == "succeeded":
        missing = ranks_needed is not None and ranks_seen is not None and ranks_seen < ranks_needed
        return "failed" if missing else "succeeded"
    if outcome in ("failed", "cancelled", "lost"):
        return t.cast(OutcomeWord, outcome)
    states: dict[str | None, OutcomeWord] = {
        "queued": "waiting",
        "starting": "waiting",
        "running": "running",
        "restarting": "running",
        "ending": "running",
    }
    return states.get(parsing.read_text(record.get("state"), 20), "unknown")


def _read_ranks(run: RunFolder, derived: Line) -> tuple[int | None, int | None]:
    """Return (ranks asked for, ranks that took part in the newest attempt)."""
    size = parsing.read_mapping(run.record.get("world_size"))
    asked, seen = parsing.read_integer(size.get("asked")), parsing.read_integer(size.get("seen"))
    if asked is None:
        asked = parsing.read_integer(derived.get("world_size"))
    if seen is None and run.history.attempts:
        seen = run.history.ranks_seen()
    reported = [segment.world_size for segment in run.segments if segment.world_size is not None]
    return asked, seen if seen is not None else min(reported, default=None)


def _ranks_needed(job: Line, derived: Line, ranks_asked: int | None) -> int | None:
    fewest_nodes = parsing.read_integer(parsing.read_mapping(job.get("elastic")).get("min"))
    if fewest_nodes is None:
        return ranks_asked
    sizes = (derived.get("processes_per_node"), job.get("processes_per_node"), job.get("gpus_per_node"))
    return fewest_nodes * next((size for size in map(parsing.read_integer, sizes) if size), 1)


def _read_resume_options(run: RunFolder, attempts: t.Sequence[AttemptView]) -> tuple[int | None, list[int]]:
    """Return the job's interval of checkpoints, and the attempts that it asked to start from the beginning."""
    checkpoints = parsing.read_mapping(parsing.read_mapping(run.record.get("job")).get("checkpoints"))
    never = parsing.read_text(checkpoints.get("resume"), 20) == "never"
    starts = {str(n) for n in run.history.starts} if never else set()
    anew = [index for index, attempt in enumerate(attempts) if attempt.label in starts]
    return parsing.read_integer(checkpoints.get("interval_steps")), anew


def _final_loss(curve: t.Sequence[StepRecord], last_step: int) -> float | None:
    """Return the loss that was read last, None where that is not a number, or the metrics lack the last steps."""
    if curve and curve[-1].step < last_step:
        return None
    read = [step for step in curve if step.loss is not None or step.has_bad_loss]
    return read[-1].loss if read else None


def _last_checkpoint(run: RunFolder) -> Checkpoint | None:
    recorded = parsing.read_mapping(run.record.get("checkpoint"))
    step = parsing.read_integer(recorded.get("step"))
    if step is not None:
        return Checkpoint(None, step, *(parsing.read_text(recorded.get(key)) for key in ("path", "step_by")))
    if run.history.attempts:
        saved, by = run.history.checkpoint, run.history.layout.get("step_by")
        return Checkpoint(None, saved[0], parsing.read_text(saved[1]), parsing.read_text(by)) if saved else None
    return max(all_checkpoints(run.segments), key=lambda checkpoint: checkpoint.step, default=None)


def _steps_per_second(parts: t.Sequence[t.Sequence[StepRecord]], stalls: t.Sequence[Span]) -> float | None:
    """Return the steps over the time in which they were made: without restarts, and without what stood still."""
    made, seconds = 0, 0.0
    for part in parts:
        timed = [(step.at, step.step) for step in part if step.at is not None]
        if len(timed) > 1:
            (first_at, first_step), (last_at, last_step) = timed[0], timed[-1]
            stood = sum(min(right, last_at) - left for left, right in stalls if first_at <= left < last_at)
            made, seconds = made + last_step - first_step, seconds + last_at - first_at - stood
    return made / seconds if seconds > 0 and made > 0 else None


def _median_throughput(curve: t.Sequence[StepRecord]) -> float | None:
    figures = [step.throughput for step in curve if step.throughput is not None]
    return statistics.median(figures) if figures else None


def _total_steps_lost(record: Line, attempts: t.Sequence[AttemptView], faults: t.Sequence[Fault]) -> int | None:
    """Return the record's total, else the sum over the faults; None while no step of the newest attempt is known."""
    recorded = parsing.read_integer(record.get("steps_lost"))
    if recorded is not None or not attempts:
        return recorded
    return total_steps_lost([RestartCost(fault.steps_lost, fault.seconds_lost) for fault in faults])


def _total_seconds_lost(record: Line, attempts: t.Sequence[AttemptView], faults: t.Sequence[Fault]) -> float | None:
    recorded = parsing.read_number(record.get("seconds_lost"))
    if recorded is not None or not attempts:
        return recorded
    return round(sum(fault.seconds_lost or 0.0 for fault in faults), 3)


def _is_loopback(run: RunFolder, derived: Line) -> bool:
    fabric = run.fabric or {}
    islands = [*parsing.read_rows(fabric.get("islands")), fabric]
    named = any("loopback" in (island.get("lane"), island.get("link")) for island in islands)
    return named or derived.get("connection") == "local"


def _read_amounts(value: object) -> dict[str, float] | None:
    """Return the recorded amounts of the buckets of an account, in their order; None where there are none."""
    given = parsing.read_mapping(value)
    known = {name: parsing.read_number(given.get(name)) for name in BUCKETS}
    return {name: amount for name, amount in known.items() if amount is not None and amount >= 0} or None
