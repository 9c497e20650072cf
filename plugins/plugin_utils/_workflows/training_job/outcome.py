# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Following a started gang to its end, and what the end proves.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import dataclasses
import json
import pathlib
import time
import typing as t

from ....module_utils._model import drill, error_line
from ....module_utils._model.errors import one_line
from ....module_utils._model.job import Job
from ....module_utils._node import files
from ..._hosts import gang
from ..._hosts.node_client import NodeClient
from ..shared import run_record
from .follower import Follower, Outcome, describe, tail
from .hosts.state import Dict, Plan, Request, result
from .lease_guard import Custody


def follow(
    request: Request,
    plan: Plan,
    members: t.Sequence[gang.GangMember],
    folder: pathlib.Path,
    current: Dict,
    drilling: drill.Drill | None,
    changed: bool,
    custody: Custody,
) -> Dict:
    by_name = {member.remote.name: member for member in members}
    claim = json.loads((folder / "claim.json").read_text())
    prices = {host.name: host.price_usd_per_hour for host in plan.hosts}
    state = {"record": current}

    def restart(remote: NodeClient) -> None:
        member = dataclasses.replace(gang.without_peers(by_name[remote.name], members), missing={})
        gang.prepare_gang([member], plan.source.placed, claim, plan.run_id)
        gang.start_gang([by_name[remote.name]], plan.run_id)

    def save(follower: Follower) -> None:
        state["record"] = run_record.update(state["record"], follower.story, prices, time.time())
        files.write_json(folder / "run.json", state["record"])

    follower = Follower(
        plan.job, plan.run_id, folder, plan.remotes, request.progress, restart, save, drilling, custody.over
    )
    try:
        outcome = follower.run()
    except KeyboardInterrupt:
        request.progress.say(f"run {plan.run_id} goes on without us: the same command follows it, cancel stops it")
        raise
    gang.stop_gang(plan.remotes, plan.run_id, plan.job.checkpoints.grace_s + 20)
    outcome = explained(folder, attended(plan.job, follower, outcome))
    ended = finished(follower, outcome, state["record"], prices)
    return custody.end(result(ended, folder, changed), outcome.outcome)


def finished(
    follower: Follower,
    outcome: Outcome,
    current: Dict,
    prices: t.Mapping[str, float | None],
    at: float | None = None,
) -> Dict:
    """Write down how a followed run ended, say it, and return its record. ``at``: when, if it was not just now."""
    # It quotes the program's last words.
    outcome = dataclasses.replace(outcome, detail=one_line(outcome.detail))
    follower.event("ended", detail=outcome.outcome)
    values = {"outcome": outcome.outcome, "exit_code": outcome.exit_code, "cause": outcome.cause}
    ended = run_record.end(current, time.time() if at is None else at, **values, detail=outcome.detail)
    ended = run_record.update(ended, follower.story, prices, time.time())
    proof = drill_proof(follower.job, follower)
    if proof:
        ended["drill"] = proof
    files.write_json(follower.folder / "run.json", ended)
    said = describe({**follower.state(), "nodes": 0})
    follower.progress.say(f"run {follower.run_id} {outcome.outcome}: {outcome.detail} · {said}")
    return ended


def attended(job: Job, follower: Follower, outcome: Outcome) -> Outcome:
    """Fail a run that saw fewer ranks than asked, whatever its exit code."""
    last = follower.story.attempts[-1] if follower.story.attempts else None
    seen = len(last.ranks) if last else 0
    believed = last.world_size if last else None
    least = job.elastic.min * job.nproc if job.elastic.min is not None else job.world_size
    complete = least <= seen <= job.world_size and believed in (None, seen)
    if outcome.outcome != "succeeded":
        return outcome
    # An elastic gang goes on without ranks that ended.
    bad = [(rank, item[1]) for rank, item in sorted(last.exits.items()) if item[1]] if last else []
    if bad and job.elastic.min is None:
        words = ", ".join(f"rank {rank} ended with exit code {code}" for rank, code in bad[:4])
        return Outcome("failed", 1, "attendance", f"{words}, and its launcher calls the gang done")
    if complete:
        return outcome
    detail = f"{seen} ranks with world size {believed} were seen, {job.world_size} were asked"
    if last is None and job.on_kubernetes:
        detail += "; nothing of its ranks was heard, or could be read beside its checkpoints"
    return Outcome("failed", 1, "attendance", detail)


def explained(folder: pathlib.Path, outcome: Outcome) -> Outcome:
    """Add what the failed program said last, so that nobody has to open a log for the first answer.

    Its node's log comes first; mpirun prints what all ranks say where it runs itself.
    """
    if outcome.cause not in ("crash", "fatal_exit_code") or outcome.node is None:
        return outcome
    own = folder / run_record.log_file(outcome.node)
    for place in [own, *sorted(other for other in own.parent.glob("*.log") if other != own)]:
        said = error_line.last_error(tail(place))
        if said:
            return dataclasses.replace(outcome, detail=f"{outcome.detail}: {said}")
    return outcome


def drill_proof(job: Job, follower: Follower) -> Dict | None:
    if follower.drilled_at is None:
        return None
    return drill.judge_drill(follower.story, follower.drilled_at, job.checkpoints.interval_steps, job.world_size)
