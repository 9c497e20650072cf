# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One run, understood: the value from which every page, the summary and the checks are made.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import dataclasses
import statistics
import typing as t

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
from .faults import Fault, find_faults
from .load import Checkpoint, RunFolder, StepRecord

OutcomeWord = t.Literal["succeeded", "failed", "cancelled", "lost", "running", "waiting", "unknown"]


@dataclasses.dataclass(frozen=True, slots=True)
class RunModel:
    """A run with everything that was derived from it; ``kept`` and ``lost`` are steps, one list a segment.

    :ivar outcome: the record's, except that a run which saw fewer ranks than asked is failed (contracts: "Run record").
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
    kept: tuple[tuple[StepRecord, ...], ...]
    lost: tuple[tuple[StepRecord, ...], ...]
    interval: int | None
    ranks_asked: int | None
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
        """How often the job started again; a start of which no rank was seen counts by the next one's number."""
        numbers = [int(item.label) for item in self.attempts if item.label.isdecimal()]
        return max(len(self.attempts), 1, *numbers) - 1

    @property
    def job(self) -> dict[str, t.Any]:
        """The job as it was recorded."""
        return parsing.read_mapping(self.run.record.get("job"))

    @property
    def derived(self) -> dict[str, t.Any]:
        """What was derived from the job before launch (world_size, effective_batch, connection, ...)."""
        return parsing.read_mapping(self.run.record.get("derived"))

    @property
    def fabric(self) -> dict[str, t.Any] | None:
        """The fabric verdicts: of the run's own folder, else what the record refers to, else None."""
        return self.run.fabric or parsing.read_mapping(self.run.record.get("fabric")) or None

    @property
    def verdicts(self) -> list[dict[str, t.Any]]:
        """The verdict of every island."""
        fabric = self.fabric or {}
        return parsing.read_rows(fabric.get("islands")) or (
            [fabric] if "outcome" in fabric or "transport" in fabric else []
        )

    @property
    def unit(self) -> str:
        """The unit of the throughput, as one reads it."""
        return {"tokens_per_s": "tokens/s", "samples_per_s": "samples/s"}.get(self.run.unit or "", "steps/s")

    @property
    def curve(self) -> list[StepRecord]:
        """The steps that count, in order."""
        return [item for part in self.kept for item in part]


def build_run_model(run: RunFolder) -> RunModel:
    """Return the run with all that follows from its files."""
    record = run.record
    job, derived = parsing.read_mapping(record.get("job")), parsing.read_mapping(record.get("derived"))
    clock = read_clock(run)
    attempts = read_attempts(run, clock)
    kept, lost = effective_steps(run.segments)
    faults = find_faults(attempts, bool(parsing.read_mapping(job.get("elastic"))))
    curve = [item for part in kept for item in part]
    losses = [item.loss for item in curve if item.loss is not None]
    asked, seen = _ranks(run, derived)
    cost = parsing.read_mapping(record.get("cost"))
    steps = [item.last_step for item in attempts if item.last_step is not None]
    gpus = parsing.read_integer(job.get("gpus_per_node"))
    return RunModel(
        run=run,
        run_id=parsing.read_text(record.get("run_id"), 100) or run.name,
        name=parsing.read_text(job.get("name"), 80) or parsing.read_text(record.get("run_id"), 80) or run.name,
        outcome=_outcome(record, asked, seen),
        clock=clock,
        attempts=attempts,
        faults=faults,
        kept=tuple(tuple(part) for part in kept),
        lost=tuple(tuple(part) for part in lost),
        interval=checkpoint_interval(run),
        ranks_asked=asked,
        ranks_seen=seen,
        last_step=max(steps, default=None),
        first_loss=losses[0] if losses else None,
        final_loss=final_loss(losses),
        steps_per_s=_pace(curve),
        throughput=_throughput(curve),
        steps_lost=_total(record.get("steps_lost"), [item.steps_lost for item in faults], attempts),
        seconds_lost=_total(record.get("seconds_lost"), [item.seconds_lost for item in faults], attempts),
        checkpoint=_checkpoint(run),
        usd=parsing.read_number(cost.get("usd")),
        usd_complete=cost["complete"] if isinstance(cost.get("complete"), bool) else None,
        usd_per_hour=parsing.read_number(derived.get("price_usd_per_hour")),
        loopback=_loopback(run, derived),
        cpu_only=gpus == 0,
    )


def _outcome(record: dict[str, t.Any], asked: int | None, seen: int | None) -> OutcomeWord:
    said = parsing.read_text(record.get("outcome"), 20)
    if said == "succeeded":
        return "failed" if asked is not None and seen is not None and seen < asked else "succeeded"
    if said in ("failed", "cancelled", "lost"):
        return t.cast(OutcomeWord, said)
    states: dict[str | None, OutcomeWord] = {
        "queued": "waiting",
        "starting": "waiting",
        "running": "running",
        "restarting": "running",
    }
    return states.get(parsing.read_text(record.get("state"), 20), "unknown")


def _ranks(run: RunFolder, derived: dict[str, t.Any]) -> tuple[int | None, int | None]:
    size = parsing.read_mapping(run.record.get("world_size"))
    asked, seen = parsing.read_integer(size.get("asked")), parsing.read_integer(size.get("seen"))
    reported = [item.world_size for item in run.segments if item.world_size is not None]
    if asked is None:
        asked = parsing.read_integer(derived.get("world_size"))
    return asked, seen if seen is not None else min(reported, default=None)


def _checkpoint(run: RunFolder) -> Checkpoint | None:
    given = parsing.read_mapping(run.record.get("checkpoint"))
    step, path = parsing.read_integer(given.get("step")), parsing.read_text(given.get("path"))
    if step is not None:
        return Checkpoint(None, step, path)
    saved = all_checkpoints(run.segments)
    return max(saved, key=lambda item: item.step, default=None)


def final_loss(losses: t.Sequence[float]) -> float | None:
    """Return the median of the last ten losses: a single step is noise."""
    return statistics.median(losses[-10:]) if losses else None


def _pace(curve: list[StepRecord]) -> float | None:
    timed = [item for item in curve if item.at is not None]
    if len(timed) < 2 or timed[0].at is None or timed[-1].at is None or timed[-1].at <= timed[0].at:
        return None
    return (timed[-1].step - timed[0].step) / (timed[-1].at - timed[0].at)


def _throughput(curve: list[StepRecord]) -> float | None:
    known = [item.throughput for item in curve if item.throughput is not None]
    return statistics.median(known) if known else None


def _total(recorded: t.Any, parts: list[t.Any], attempts: tuple[AttemptView, ...]) -> t.Any:
    """Return the record's total, else the sum of the parts when every one is known (one attempt, no fault: 0)."""
    own = parsing.read_number(recorded)
    if own is not None:
        return int(own) if own.is_integer() else own
    return sum(parts) if attempts and None not in parts else None


def _loopback(run: RunFolder, derived: dict[str, t.Any]) -> bool:
    fabric = run.fabric or {}
    islands = [*parsing.read_rows(fabric.get("islands")), fabric]
    named = any("loopback" in (item.get("lane"), item.get("link")) for item in islands)
    return named or derived.get("connection") == "local"
