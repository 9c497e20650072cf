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
from .run_history import RunHistory


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


def parse(value: t.Any, world_size: int, nodes: t.Sequence[str], nproc: int) -> Drill:
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
    # With a node and no rank, any rank that lives there: torchrun numbers nodes as they come.
    node = drill.node or nodes[(rank or 0) // nproc]
    if node not in nodes:
        raise InputError("drill.node", f"'{node}' is not a node of the job", f"Its nodes are: {', '.join(nodes)}")
    return dataclasses.replace(drill, node=node, rank=rank)


def due(drill: Drill, story: RunHistory, now: float) -> bool:
    """Return whether the moment has come."""
    if drill.at_step is not None:
        return story.last.get("step", -1) >= drill.at_step
    first = story.first_step_at
    return first is not None and now - first >= (drill.after_s or 0.0)


def verdict(story: RunHistory, fault_at: float, interval_steps: int | None, asked: int) -> dict[str, t.Any]:
    """Return what the drill proved about the attempt before and the attempt after ``fault_at``.

    ``resumed`` is proven only by the step counter: the first step after the fault continues a checkpoint that is at
    most one interval behind the last step before it, with all ranks back.
    """
    before = [item for item in story.attempts if item.started_at <= fault_at]
    after = [item for item in story.attempts if item.started_at > fault_at and item.first_step is not None]
    empty = {"resumed": False, "steps_lost": None, "seconds_to_resume": None, "world_size": None}
    if not before or not after or before[-1].last_step is None:
        return {**empty, "problem": "no step was seen after the fault"}
    old, new = before[-1], after[-1]
    lost = t.cast(int, old.last_step) - (new.resumed_from or 0)
    first, at = t.cast(int, new.first_step), t.cast(float, after[0].first_step_at)
    problem = ""
    if new.resumed_from is None or not new.resumed_from <= first <= new.resumed_from + 1:
        problem = f"step {first} does not continue the checkpoint of step {new.resumed_from}"
    elif new.resumed_from == 0 and t.cast(int, old.last_step) > (interval_steps or 0):
        problem = "the run began again at step 0"
    elif interval_steps is not None and lost > interval_steps:
        problem = f"{lost} steps were lost, the checkpoint interval is {interval_steps}"
    elif len(new.ranks) != asked:
        problem = f"{len(new.ranks)} of {asked} ranks came back"
    return {
        "resumed": not problem,
        "steps_lost": max(0, lost),
        "seconds_to_resume": round(at - fault_at, 3),
        "world_size": len(new.ranks),
        "problem": problem,
    }
