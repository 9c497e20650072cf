# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the end of a run proves: its outcome, its attendance, its drill, and the module's result."""

from __future__ import annotations

import dataclasses
import pathlib
import time
import typing as t

from ....module_utils._model import account
from ....module_utils._model.drill import describe_no_step, describe_time
from ....module_utils._model.errors import MusterError, RefusedError, one_line
from ....module_utils._model.job import Job
from ....module_utils._model.run_record import RunRecord
from ....module_utils._node import files
from ..shared import run_record
from ..shared.progress import Progress
from ..shared.request import Result
from ..shared.state_dir import load_record
from .follower import Follower, RunOutcome
from .movement import describe_state


def record_end(
    follower: Follower,
    outcome: RunOutcome,
    record: RunRecord,
    prices: t.Mapping[str, float | None],
    at: float | None = None,
) -> RunRecord:
    """Write down how a followed run ended, say it, and return its record. ``at``: when, if it was not just now."""
    # It quotes the last lines that the program printed.
    for line in record.differences:
        follower.progress.say(f"warning: {line}. The run is not proven to be one program on all nodes")
    findings = [*map(str, (record.transport or {}).get("drift") or []), *record.differences]
    detail = "; ".join([outcome.detail, *(findings if outcome.outcome == "succeeded" else [])])
    outcome = dataclasses.replace(outcome, detail=one_line(detail))
    follower.report_resumes()
    follower.record_event("ended", detail=outcome.outcome)
    ended = run_record.end_record(
        record,
        time.time() if at is None else at,
        outcome=outcome.outcome,
        exit_code=outcome.exit_code,
        cause=outcome.cause,
        detail=outcome.detail,
    )
    ended = run_record.update_record(ended, follower.story, prices, time.time())
    run_record.write_record(follower.folder, ended)
    if follower.drilled_at is not None:
        ended = dataclasses.replace(ended, drill=_judge_drill(follower, follower.drilled_at))
        run_record.write_record(follower.folder, ended)
    seen = follower.story.ranks_seen()
    ended_now: dict[str, object] = {"nodes": 0, "waiting": None, "silent": {}, "unheard": []}
    ended_now |= {"step_age_s": None, "stalled_s": None}
    said = describe_state({**follower.state(), "ranks": seen, **ended_now})
    since = follower.story.nan_since
    verdict = f"{outcome.outcome}, not clean" if ended.problems else outcome.outcome
    verdict = verdict if since is None else f"{outcome.outcome} with a loss of NaN since step {since}"
    problems = [problem for problem in ended.problems if problem not in outcome.detail]
    left = follower.story.left.describe_left(follower.story.checkpoint, follower.story.checkpoint_at)
    found = [left] if left else []
    parts = [f"run {follower.run_id} {verdict}: {outcome.detail}", *problems, *found, said]
    spent = account.describe(ended.account.seconds, ended.account.usd) if ended.account else ""
    if spent:
        follower.progress.say(f"account: {spent}")
    # The last word is how it ended.
    follower.progress.say(" · ".join(parts))
    return ended


def _judge_drill(follower: Follower, at: float) -> dict[str, t.Any]:
    # Late: of use for drills alone.
    from ..._report.data import drills

    cut_s = follower.drill.cut_s if follower.drill else None
    return drills.judge_cut(follower.folder, at, cut_s) if cut_s else drills.judge_drill(follower.folder, at)


def check_attendance(job: Job, follower: Follower, outcome: RunOutcome) -> RunOutcome:
    """Fail a run that saw fewer ranks than asked, whatever its exit code."""
    last = follower.story.attempts[-1] if follower.story.attempts else None
    seen = len(last.ranks) if last else 0
    believed = last.world_size if last else None
    least = job.elastic.min * job.nproc if job.elastic.min is not None else job.world_size
    complete = least <= seen <= job.world_size and believed in (None, seen)
    if outcome.outcome != "succeeded":
        return outcome
    # An elastic gang continues without ranks that ended.
    bad = [(rank, item[1]) for rank, item in sorted(last.exits.items()) if item[1]] if last else []
    if bad and job.elastic.min is None:
        words = ", ".join(f"rank {rank} exited with code {code}" for rank, code in bad[:4])
        return RunOutcome("failed", 1, "attendance", f"{words} although the launcher reported success")
    if complete:
        return outcome
    size = f" with world size {believed}" if believed is not None else ""
    detail = f"{seen} ranks{size} were seen, {job.world_size} are required"
    if last is None and job.on_kubernetes:
        detail += "; no events of its ranks were received, or could be recovered from the checkpoint volume"
    return RunOutcome("failed", 1, "attendance", detail)


def add_drill(result: Result, follower: Follower, record: RunRecord) -> Result:
    """Return the result of a run with what its drill proved; a drill that killed nothing has failed."""
    if follower.drill is None:
        return result
    if follower.drilled_at is not None:
        return {**result, "drill": dict(record.drill or {})}
    late = f"the run ended before {describe_time(follower.drill)}", "Drill an earlier step"
    if follower.story.first_step_at is None:
        late = describe_no_step(follower.job.metrics.preset)
    problem, fix = follower.drill_problem or late
    msg = f"run {record.run_id} {record.outcome}: nothing was killed, {problem}"
    proof = {"resumed": False, "problem": f"nothing was killed, {problem}"}
    return {**_fail(result, record, f"{result.get('msg') or msg}. {fix}"), "drill": proof}


def build_result(record: RunRecord, folder: pathlib.Path, changed: bool) -> Result:
    """Return the module's result: the record, where it is, and failure when the run failed."""
    values = record.to_dict()
    result: Result = {"changed": changed, "run_id": record.run_id, "run": values, "folder": str(folder)}
    if record.outcome in ("failed", "lost"):
        more = f"; {record.unstored}" if record.unstored else ""
        return _fail(result, record, f"run {record.run_id} {record.outcome}: {record.detail}{more}")
    if record.is_ended and record.outcome == "succeeded" and record.unstored:
        return _fail(result, record, f"run {record.run_id} succeeded, but {record.unstored}. {_describe_left(record)}")
    return result


def _describe_left(record: RunRecord) -> str:
    """Return what is left of checkpoints that are not stored, and what to do."""
    if record.backend != "kubernetes":
        return "Fetch it from its nodes (playbook fetch); release: success does not delete them"
    return "What was in its pods is gone with them; fetch brings the newest that is stored"


def build_cancel_result(record: RunRecord, folder: pathlib.Path, changed: bool) -> Result:
    """Return the result of a cancel, which does not fail for a run that had failed: nothing of it is running."""
    return {"changed": changed, "run_id": record.run_id, "run": record.to_dict(), "folder": str(folder)}


def _fail(result: Result, record: RunRecord, msg: str) -> Result:
    """Return a result as failed. Ansible prints all of it: the line that matters must not drown in the record."""
    values = record.to_dict()
    keys = ("state", "outcome", "cause", "detail", "exit_code", "world_size", "ended_at", "unstored")
    short = {key: values[key] for key in keys if key in values}
    return {**result, "failed": True, "run": short, "msg": msg}


def record_cancelled(folder: pathlib.Path, record: RunRecord, progress: Progress) -> tuple[RunRecord, bool]:
    """Record that a run was cancelled, once nothing of it runs any more; return its record, and whether that is new.

    Its follower may have recorded its end meanwhile, with what its ranks said last.
    """
    known = load_record(folder) or record
    if known.is_ended:
        return known, not record.is_ended
    now = time.time()
    ended = run_record.end_record(known, now, outcome="cancelled", cause="cancelled", detail="cancelled", exit_code=143)
    try:
        run_record.write_record(folder, ended)
        files.append_json(folder / "events.jsonl", {"at": now, "kind": "cancelled"})
    except OSError as exc:
        # It is stopped, and its machines are deleted next: those that are left would cost money.
        said = f"warning: run {record.run_id} is stopped, and that cannot be recorded in {folder}"
        progress.say(f"{said}: {exc.strerror or exc}. Run cancel again once it can be written")
    return ended, True


def describe_unwritten(run_id: str, folder: pathlib.Path, exc: OSError) -> RefusedError:
    """Return the error of a follower that cannot keep what it reads, as on a full disk; its run is not touched."""
    problem = f"run {run_id} keeps running and is not followed: {exc.filename or folder} cannot be written"
    fix = "Free space there, or move the file away, then run train again: it reads what was missed. Or cancel the run"
    return RefusedError(f"{problem}: {exc.strerror or exc}", fix)


def build_uncancelled_result(
    record: RunRecord, folder: pathlib.Path, left: str, problem: MusterError, again: str
) -> Result:
    """Return the result of a cancel that failed: the record stays as it is, and says that the run keeps running.

    :param left: what of the run there still is, or that it is not known, one line. :param again: the command that
        repeats the cancel.
    """
    short = {"state": record.state, "outcome": record.outcome}
    msg = f"run {record.run_id} was not cancelled, {left}: {str(problem).rstrip('.')}. Then cancel it again: {again}"
    return {"changed": False, "failed": True, "run_id": record.run_id, "run": short, "folder": str(folder), "msg": msg}


def build_unfollowed_result(record: RunRecord, folder: pathlib.Path, changed: bool, problem: MusterError) -> Result:
    """Return the result of a run that cannot be followed any more, but runs."""
    short = {"state": record.state, "outcome": record.outcome}
    msg = f"run {record.run_id} is no longer followed; it keeps running, and the same command follows it: {problem}"
    return {
        "changed": changed,
        "failed": True,
        "run_id": record.run_id,
        "run": short,
        "folder": str(folder),
        "msg": msg,
    }


def require_trained(result: Result) -> Result:
    """Return the result of a run that was to train, as failed where it was cancelled: what follows needs its model."""
    run = result.get("run")
    if result.get("failed") or not isinstance(run, dict) or run.get("outcome") != "cancelled":
        return result
    return {**result, "failed": True, "msg": f"run {result['run_id']} cancelled: {run.get('detail')}"}


def add_problem(value: Result, problem: MusterError | None) -> Result:
    """Return a result that also reports a problem, where there was one."""
    if problem is None:
        return value
    known = [str(value["msg"])] if value.get("failed") and value.get("msg") else []
    return {**value, "failed": True, "msg": "; ".join([*known, str(problem)])}
