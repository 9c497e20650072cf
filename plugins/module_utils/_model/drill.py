# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A drill: what to kill, when, and whether the run proved that it resumed. Pure rules.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import dataclasses
import typing as t

from . import validators as f
from .errors import InputError
from .run_history import Attempt, RunHistory


@dataclasses.dataclass(frozen=True, slots=True)
class Drill:
    """Kill ``target`` (one rank's process, a node's agent with its ranks, or all of the run on a node).

    ``at_step`` or ``after_s`` (seconds after the first step) says when; ``rank`` or ``node`` says where.
    """

    target: str = f.field(f.choice("worker", "agent", "host"), "worker")
    rank: int | None = f.field(f.integer(0), None)
    node: str | None = f.field(f.text, None)
    at_step: int | None = f.field(f.integer(1), None)
    after_s: float | None = f.field(f.decimal(0), None)


def parse_drill(value: t.Any, world_size: int, nodes: t.Sequence[str], nproc: int) -> Drill:
    """Return the drill with its node and rank resolved.

    :raises InputError: when it names a node or a rank that the job does not have.
    """
    drill = f.section(Drill)(value, "drill")
    if (drill.at_step is None) == (drill.after_s is None):
        raise InputError("drill.at_step", "one of at_step and after_s is required")
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


def is_due(drill: Drill, story: RunHistory, now: float) -> bool:
    """Return whether the time to inject the fault has come."""
    if drill.at_step is not None:
        return story.last.get("step", -1) >= drill.at_step
    first = story.first_step_at
    return first is not None and now - first >= (drill.after_s or 0.0)


def judge_drill(story: RunHistory, fault_at: float, interval_steps: int | None, world_size: int) -> dict[str, t.Any]:
    """Return what the drill proved about the attempt before and the attempt after ``fault_at``.

    ``resumed`` is proven only by the step counter: the first step after the fault continues a checkpoint that is at
    most one interval behind the last step before it, with all ranks back.
    """
    before = [attempt for attempt in story.attempts if attempt.started_at <= fault_at]
    after = [attempt for attempt in story.attempts if attempt.started_at > fault_at and attempt.first_step is not None]
    empty = {"resumed": False, "steps_lost": None, "seconds_to_resume": None, "world_size": None}
    if not before or not after or before[-1].last_step is None:
        return {**empty, "problem": "no step was recorded after the fault"}
    old, new = before[-1], after[-1]
    lost = t.cast(int, old.last_step) - (new.resumed_from or 0)
    first, resumed_at = t.cast(int, new.first_step), t.cast(float, after[0].first_step_at)
    problem = _resume_problem(new, first, t.cast(int, old.last_step), interval_steps, world_size)
    return {
        "resumed": not problem,
        "steps_lost": max(0, lost),
        "seconds_to_resume": round(resumed_at - fault_at, 3),
        "world_size": len(new.ranks),
        "problem": problem,
    }


def _resume_problem(new: Attempt, first: int, last: int, interval_steps: int | None, world_size: int) -> str:
    """Return why ``new``, which began with the step ``first``, does not resume an attempt that ended with ``last``."""
    if new.resumed_from is None or not new.resumed_from <= first <= new.resumed_from + 1:
        return f"step {first} does not continue the checkpoint of step {new.resumed_from}"
    if new.resumed_from == 0 and last > (interval_steps or 0):
        return "the run restarted at step 0"
    lost = last - new.resumed_from
    if interval_steps is not None and lost > interval_steps:
        return f"{lost} steps were lost, the checkpoint interval is {interval_steps}"
    return "" if len(new.ranks) == world_size else f"{len(new.ranks)} of {world_size} ranks resumed"
