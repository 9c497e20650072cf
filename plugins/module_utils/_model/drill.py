# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A drill: what to kill, when, and whether anything could be proven by it. Pure rules."""

from __future__ import annotations

import dataclasses
import typing as t

from . import validators as f
from .errors import InputError
from .job import Job
from .run_history import RunHistory

_METRICS_FILE = "MUSTER_METRICS_FILE"
NO_STEP_FIX = f"Set job.metrics.preset or job.metrics.step_pattern, or append to {_METRICS_FILE}"
DRILL_FIX = (
    'Have the program append {"checkpoint_step": N} to MUSTER_METRICS_FILE when it has saved, and '
    '{"resumed_from_step": N} when it resumes; or set checkpoints.interval_steps'
)

# Longer than a silent node may go unnoticed, shorter than a lost node is waited for (restart.wait_s).
DEFAULT_CUT_S = 60


@dataclasses.dataclass(frozen=True, slots=True)
class Drill:
    """Kill ``target`` (one rank's process, a node's agent with its ranks, all of the run on a node), or cut a node off.

    ``at_step`` or ``after_s`` (seconds after the first step) says when, and without both it is with the first
    checkpoint, which is never after the job's end; ``rank`` or ``node`` says where. ``seconds`` is
    how long a node is cut off its network.
    """

    target: str = f.field(f.choice("worker", "agent", "host", "cut"), "worker")
    rank: int | None = f.field(f.integer(0), None)
    node: str | None = f.field(f.text, None)
    at_step: int | None = f.field(f.integer(1), None)
    after_s: float | None = f.field(f.decimal(0), None)
    seconds: int | None = f.field(f.integer(1, 86400), None)

    @property
    def cut_s(self) -> int | None:
        """How long the node is cut off, None for a drill that kills."""
        return (self.seconds or DEFAULT_CUT_S) if self.target == "cut" else None


def parse_drill(value: t.Any, world_size: int, nodes: t.Sequence[str], nproc: int) -> Drill:
    """Return the drill with its node and rank resolved.

    :raises InputError: when it names a node or a rank that the job does not have.
    """
    drill = f.section(Drill)(value, "drill")
    if drill.at_step is not None and drill.after_s is not None:
        raise InputError("drill.at_step", "set either at_step or after_s, and not both")
    if drill.at_step is None and drill.after_s is None:
        # A kill waits for a checkpoint that it could prove a resume from.
        drill = dataclasses.replace(drill, after_s=0.0)
    if drill.seconds is not None and drill.target != "cut":
        raise InputError("drill.seconds", f"has no effect with target: {drill.target}", "Use target: cut")
    rank = drill.rank
    if rank is None and drill.node is None:
        rank = world_size - 1
    if rank is not None and rank >= world_size:
        raise InputError("drill.rank", f"must be below the world size {world_size}, not {rank}")
    # With a node and no rank, any rank on that node: torchrun numbers nodes in the order in which they join.
    node = drill.node or nodes[(rank or 0) // nproc]
    if node not in nodes:
        raise InputError("drill.node", f"'{node}' is not a node of the job", f"Its nodes are: {', '.join(nodes)}")
    return dataclasses.replace(drill, node=node, rank=rank)


def parse_pod_drill(value: t.Any, job: Job, nodes: t.Sequence[str] | None) -> Drill:
    """Return the drill of a job in pods: where each rank will be only the scheduler knows.

    :param nodes: the cluster's nodes, None where they may not be read.
    :raises InputError: when it could prove nothing, or names what the job or the cluster does not have.
    """
    check_provable(job)
    named = str(value.get("node") or "") if isinstance(value, dict) else ""
    places = ([named] if nodes is None else nodes) if named else [""] * job.nodes
    drill = parse_drill(value, job.world_size, places, job.nproc)
    if drill.target == "worker":
        raise InputError(
            "drill.target",
            "a single rank cannot be killed on Kubernetes",
            "Set drill.target: agent, which kills the rank's pod",
        )
    return drill


def is_due(drill: Drill, story: RunHistory, now: float) -> bool:
    """Return whether the time to inject the fault has come."""
    if drill.at_step is not None:
        return story.last.get("step", -1) >= drill.at_step
    first = story.first_step_at
    return first is not None and now - first >= (drill.after_s or 0.0)


def can_prove(story: RunHistory, interval_steps: int | None) -> bool:
    """Return whether a kill now would prove a resume: a checkpoint was reported, or is due by the declared interval."""
    if story.checkpoint is not None:
        return True
    steps = [attempt.first_step for attempt in story.attempts if attempt.first_step is not None]
    last = story.last.get("step")
    return bool(interval_steps and steps and last is not None and last - min(steps) >= interval_steps)


def check_provable(job: Job) -> None:
    """Refuse a drill of a program that only prints its steps, where nothing could say that it resumed.

    :raises InputError: before anything is started.
    """
    patterns = job.metrics.patterns
    if "step" in patterns and not (
        patterns.keys() & {"checkpoint_step", "resumed_from_step"} or job.checkpoints.interval_steps
    ):
        raise InputError(
            "drill",
            "nothing could be proven: the program prints its steps, and neither its checkpoints nor where it resumes",
            "Set job.checkpoints.interval_steps, or job.metrics.checkpoint_pattern and job.metrics.resume_pattern",
        )


def check_reported(job: Job, sources: t.Iterable[str]) -> None:
    """Refuse a drill of a script of which no step could be read: it neither prints what is matched nor reports.

    :param sources: the texts of the code that is sent along.
    :raises InputError: before anything is started.
    """
    if not job.script or job.script.startswith("/") or job.code is None or job.code.source == "image":
        return
    if job.metrics.patterns:
        return
    given = (*job.args, *job.env, *map(str, job.env.values()))
    if not any(_METRICS_FILE in text for text in (*given, *sources)):
        raise InputError(
            "drill",
            f"nothing could be proven: no step would be read, because no file of the code names {_METRICS_FILE} and "
            "job.metrics has no pattern",
            NO_STEP_FIX,
        )


def describe_no_step(preset: str | None) -> tuple[str, str]:
    """Return what is wrong where no step of a program was read, and what to do.

    :param preset: that of the job, by which its lines were read.
    """
    if preset is None:
        return "no step of the program was read", NO_STEP_FIX
    fix = f"See in its log (playbook logs) which it prints; set job.metrics.step_pattern, or append to {_METRICS_FILE}"
    return f"no line of the program has a step as preset {preset} prints it", fix


def describe_time(drill: Drill) -> str:
    """Return when a drill was to kill, as a phrase."""
    if drill.at_step is not None:
        return f"step {drill.at_step}"
    if drill.after_s:
        return f"{drill.after_s:g} s after its first step"
    return "its first step" if drill.cut_s else "its first checkpoint"
