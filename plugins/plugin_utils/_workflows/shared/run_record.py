# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The run record (contracts: "Run record"): written while the run lives, kept when its nodes are gone.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import datetime
import getpass
import typing as t

from ....module_utils._model.run_history import Attempt, RunHistory
from ....module_utils._node import files

SCHEMA = 1
Record = dict[str, t.Any]


def iso(at: float | None) -> str | None:
    """Return Unix seconds as ISO 8601 UTC with milliseconds, None for what is no time."""
    if at is None:
        return None
    try:
        return datetime.datetime.fromtimestamp(at, datetime.UTC).isoformat(timespec="milliseconds")
    except (ValueError, OverflowError, OSError):
        return None


def new(run_id: str, job: t.Mapping[str, t.Any], now: float, **values: t.Any) -> Record:
    """Return the record of a run that is about to start; unknown fields are null."""
    empty = ("backend_ref", "image_digest", "code_sha256", "admitted_at", "first_step_at", "ended_at", "duration_s")
    return {
        "schema": SCHEMA,
        "run_id": run_id,
        "job": dict(job),
        "state": "starting",
        "submitted_by": _user(),
        "backend": "hosts",
        "engine": None,
        **dict.fromkeys(empty),
        "versions": {},
        "submitted_at": iso(now),
        "queued_at": iso(now),
        "outcome": None,
        "exit_code": None,
        "cause": None,
        "detail": None,
        "attempts": [],
        "world_size": {"asked": job_world_size(job), "seen": None},
        "transport_seen": None,
        "checkpoint": None,
        "steps_lost": None,
        "seconds_lost": None,
        "cost": {"usd": None, "complete": False},
        "fabric": None,
        "metrics_file": "metrics.jsonl",
        "generation": 1,
        **values,
    }


def log_file(node: str) -> str:
    """Return where a node's log is kept in the run's folder."""
    return f"logs/{files.plain_name(node)}.log"


def job_world_size(job: t.Mapping[str, t.Any]) -> int:
    """Return the ranks that a job in its YAML form asks for."""
    if job.get("launcher") == "command":
        return int(job["nodes"])
    return int(job["nodes"]) * int(job.get("processes_per_node") or job.get("gpus_per_node") or 1)


def update(record: Record, story: RunHistory, prices: t.Mapping[str, float | None], now: float) -> Record:
    """Return ``record`` with what the story says by now."""
    steps, seconds = story.losses()
    checkpoint = {"step": story.checkpoint[0], "path": story.checkpoint[1]} if story.checkpoint else None
    restarting = len(story.attempts) > 1 and story.attempts[-1].first_step is None
    running = "restarting" if restarting else "running"
    first = record["first_step_at"] or iso(story.first_step_at)
    return {
        **record,
        "state": record["state"] if record["state"] == "ended" else (running if story.attempts else "starting"),
        "first_step_at": first,
        "attempts": [_attempt(item, prices) for item in story.attempts],
        "world_size": {**record["world_size"], "seen": story.ranks_seen() if story.attempts else None},
        "checkpoint": checkpoint or record["checkpoint"],
        "steps_lost": steps if len(story.attempts) > 1 else 0,
        "seconds_lost": round(seconds, 3),
        "cost": _cost(record, story, prices, now),
    }


def end(record: Record, now: float, **values: t.Any) -> Record:
    """Return ``record`` as ended."""
    started = datetime.datetime.fromisoformat(record["submitted_at"]).timestamp()
    now = max(now, started)
    return {**record, "state": "ended", "ended_at": iso(now), "duration_s": round(now - started, 3), **values}


def _attempt(item: Attempt, prices: t.Mapping[str, float | None]) -> Record:
    span = {"from": iso(item.started_at), "to": iso(item.ended_at)}
    return {
        "n": item.n,
        "started_at": iso(item.started_at),
        "ended_at": iso(item.ended_at),
        "cause": item.cause,
        "node": item.failed_node,
        "exit_code": item.exit_code,
        "first_step": item.first_step,
        "last_step": item.last_step,
        "resumed_from_step": item.resumed_from,
        "ranks": len(item.ranks),
        "rank_list": sorted(item.ranks),
        "nodes": [
            {"id": name, "token": None, **span, "price_usd_per_hour": prices.get(name)} for name in item.node_names
        ],
        "logs": [log_file(name) for name in item.node_names],
    }


def _cost(record: Record, story: RunHistory, prices: t.Mapping[str, float | None], now: float) -> Record:
    # What waits in a queue holds no node.
    started = datetime.datetime.fromisoformat(record["admitted_at"] or record["submitted_at"]).timestamp()
    ended = datetime.datetime.fromisoformat(record["ended_at"]).timestamp() if record["ended_at"] else now
    dollars = 0.0
    for name, price in prices.items():
        if price is None:
            return {"usd": None, "complete": False}
        dollars += price * _stay(name, story, started, ended) / 3600
    return {"usd": round(dollars, 4), "complete": record["state"] == "ended"}


def _stay(name: str, story: RunHistory, started: float, ended: float) -> float:
    """Return the seconds that a node counts for: from the first attempt with a rank on it to the one without.

    Before the first attempt and after the last one the run holds its nodes, too. A node without any rank, as under
    mpirun or Ray's head, counts for the whole run. An attempt of which not all ranks were heard says nothing.
    """
    most = max((len(item.ranks) for item in story.attempts), default=0)
    whole = [item for item in story.attempts if len(item.ranks) >= (item.world_size or most)]
    used = [number for number, item in enumerate(whole) if name in item.ranks.values()]
    if used and used[0] > 0:
        started = max(started, whole[used[0]].started_at)
    if used and used[-1] + 1 < len(whole):
        ended = min(ended, whole[used[-1] + 1].started_at)
    away = sum(max(0.0, min(until, ended) - max(since, started)) for since, until in story.unplaced_spans())
    return max(0.0, ended - started - away)


def _user() -> str | None:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return None
