# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The newest checkpoint that is whole over all nodes of a run, where each has a folder of its own.

The program reports a step as soon as one rank has saved it; another node may lack its part.
"""

from __future__ import annotations

import dataclasses
import typing as t

from .....module_utils._model import job_checkpoints
from .....module_utils._model.node_report import NodeReport, SeenCheckpoint
from .....module_utils._node import checkpoint_sets
from ...._hosts.node_client import NodeClient, on_each_node

if t.TYPE_CHECKING:
    from .follower import HostsFollower


def agree(seen: t.Mapping[str, SeenCheckpoint]) -> dict[str, SeenCheckpoint]:
    """Return what each node has of the newest checkpoint that is whole; where nothing is newer, what it has newest."""
    chosen = _choose(seen)
    if chosen.problem or not chosen.newer:
        return dict(seen)
    return {
        node: dataclasses.replace(item, name=next(iter(chosen.names.get(node, ())), None))
        for node, item in seen.items()
    }


def note_partial(follower: HostsFollower, remotes: t.Sequence[NodeClient]) -> None:
    """Record that a part of the checkpoint that was reported last is on no node, with the newest that is whole."""
    job, saved = follower.job, follower.story.checkpoint
    wanted = job_checkpoints.checkpoint_to_find(job, follower.run_id)
    is_apart = job_checkpoints.are_copied(job) and not job.checkpoints.binding
    if saved is None or wanted is None or not is_apart or follower.lost_since:
        return
    answers, errors = on_each_node(
        remotes, lambda remote: remote.call("info", run_id=follower.run_id, checkpoints=wanted)
    )
    reports = {name: NodeReport.from_dict(answer) for name, answer in answers.items()}
    chosen = _choose({name: report.checkpoint for name, report in reports.items() if report.checkpoint})
    names = [name for found in chosen.names.values() for name in found]
    step = None if errors or chosen.problem else job_checkpoints.find_whole(saved[0], names, chosen.newer)
    if step is not None:
        node = next(iter(chosen.names))
        there = {"step": step, "path": chosen.names[node][0]}
        told: dict[str, t.Any] = {"checkpoint_step": saved[0], "path": saved[1], "node": node, "there": there}
        follower.record_event("checkpoint_missing", **told, parts=", ".join(chosen.newer))


def _choose(seen: t.Mapping[str, SeenCheckpoint]) -> checkpoint_sets.CheckpointSet:
    return checkpoint_sets.choose_set(
        {node: [checkpoint_sets.Held(**row) for row in item.held] for node, item in seen.items()}
    )
