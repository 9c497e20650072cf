# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Writing the run record: how it begins, what a run's history adds, how it ends, and what the run has cost."""

from __future__ import annotations

import dataclasses
import datetime
import getpass
import pathlib
import typing as t

from ....module_utils._model import account
from ....module_utils._model.job import Checkpoints
from ....module_utils._model.quantity import parse_finite
from ....module_utils._model.resumes import Resume
from ....module_utils._model.run_attempt import Attempt, describe_sharing
from ....module_utils._model.run_history import RunHistory
from ....module_utils._model.run_record import (
    SCHEMA,
    RecordedHang,
    RunAccount,
    RunAttempt,
    RunCost,
    RunEnd,
    RunNode,
    RunRecord,
    SavedCheckpoint,
    State,
    WorldSize,
)
from ....module_utils._model.stop_on import describe_nan
from ....module_utils._node import files

Prices = t.Mapping[str, float | None]
# Seconds.
_ACCOUNT_S = 60.0
_HANGING_S = 5.0


def format_time(at: float | None) -> str | None:
    """Return Unix seconds as ISO 8601 UTC with milliseconds, None for a value that is not a time."""
    if at is None:
        return None
    try:
        return datetime.datetime.fromtimestamp(at, datetime.UTC).isoformat(timespec="milliseconds")
    except (ValueError, OverflowError, OSError):
        return None


def new_record(run_id: str, job: t.Mapping[str, object], now: float, **values: t.Any) -> RunRecord:
    """Return the record of a run that is about to start; ``values`` are fields of it, all others are unknown."""
    at = t.cast(str, format_time(now))
    size = WorldSize(asked=job_world_size(job))
    begun = RunRecord(
        SCHEMA,
        run_id,
        dict(job),
        "starting",
        at,
        _current_user(),
        queued_at=at,
        world_size=size,
        cost=RunCost(None, False),
        metrics_file="metrics.jsonl",
    )
    return dataclasses.replace(begun, **values)


def write_record(folder: pathlib.Path, record: RunRecord) -> None:
    """Write the record into the run's folder."""
    files.write_json(folder / "run.json", record.to_dict())


def log_file(node: str) -> str:
    """Return where a node's log is kept in the run's folder."""
    return f"logs/{files.plain_name(node)}.log"


def job_world_size(job: t.Mapping[str, t.Any]) -> int:
    """Return the ranks that a job in its YAML form asks for."""
    return int(job["nodes"]) * _ranks_per_node(job)


def _ranks_per_node(job: t.Mapping[str, t.Any]) -> int:
    if job.get("launcher") == "command":
        return 1
    return int(job.get("processes_per_node") or job.get("gpus_per_node") or 1)


def read_grace_s(job: t.Mapping[str, t.Any]) -> int:
    """Return the seconds that ranks have to save after SIGTERM, of a recorded job: its own, else the default."""
    return int((job.get("checkpoints") or {}).get("grace_s") or Checkpoints().grace_s)


def update_record(record: RunRecord, story: RunHistory, prices: Prices, now: float) -> RunRecord:
    """Return ``record`` with what the run's history says so far."""
    steps, seconds = story.losses()
    resumes = judge_resumes(record.job, story)
    binding, stored = stored_in(record), story.newest_stored()
    unstored = story.describe_unstored(binding, record.is_ended) if binding else story.describe_missing()
    sharing = story.find_sharing(_ranks_per_node(record.job))
    former = _former_prices(story)
    # A controller that does not know a node's price has not found out that there is none.
    prices = former | {name: former.get(name) if price is None else price for name, price in prices.items()}
    # Another controller submitted a run of which this one has no start: it was not later than its first rank.
    begun = None if story.starts or not story.attempts else format_time(story.attempts[0].started_at)
    submitted_at = min(record.submitted_at, begun or record.submitted_at)
    updated = dataclasses.replace(
        record,
        submitted_at=submitted_at,
        state=record.state if record.is_ended else _running_state(story),
        first_step_at=record.first_step_at or format_time(story.first_step_at),
        attempts=tuple(
            _build_attempt(attempt, story, resumes[attempt.n], prices, record.leases) for attempt in story.attempts
        ),
        hangs=tuple(
            RecordedHang(attempt.n, str(format_time(since)), None if until is None else round(until - since, 1), text)
            for attempt in story.attempts
            for since, until, text in attempt.hangs
        ),
        problems=(
            *((describe_nan(story.nan_since),) if story.nan_since is not None else ()),
            *(f"attempt {n} {item.problem}" for n, item in resumes.items() if item.problem),
            *([unstored] if unstored else []),
            *filter(None, [story.following.describe_unread(story.attempts)]),
        ),
        stored=SavedCheckpoint(stored.step, stored.name) if stored else record.stored,
        unstored=unstored or None,
        sharing=describe_sharing(*sharing) if sharing else None,
        steps_read=story.steps_read or None,
        world_size=dataclasses.replace(record.world_size, seen=story.ranks_seen() if story.attempts else None),
        checkpoint=_describe_checkpoint(story) or record.checkpoint,
        restarts=story.restarts,
        steps_lost=steps,
        seconds_lost=None if seconds is None else round(seconds, 3),
        held=tuple(_list_held_nodes(record, story, prices, now)),
        cost=_sum_cost(record, story, prices, now),
    )
    return dataclasses.replace(updated, account=_update_account(updated, story, prices, now))


def _update_account(record: RunRecord, story: RunHistory, prices: Prices, now: float) -> RunAccount | None:
    """Return where the time of a run went: at its end, and before every minute, of long runs more seldom.

    It goes through all steps, in 10 microseconds each: that is to take a hundredth of the time of a follower. Of a
    young run, whose shares move fast, it is not older than a tenth of the run; of one that hangs, than a few seconds.
    """
    young_s = max(0.0, now - _seconds(record.submitted_at)) / 10
    most_s = _HANGING_S if story.attempts and story.attempts[-1].hangs_now else _ACCOUNT_S
    known, every_s = record.account, max(min(most_s, young_s), len(story.readings) / 1000)
    if known is not None and not record.is_ended and 0 <= now - _seconds(known.at) < every_s:
        return known
    clock = read_clock(record, now)
    spans = account.build_spans(story, clock)
    held = list_stays(record, story, prices, now)
    usd = None if held is None else account.sum_usd(spans, held)
    return RunAccount(
        str(format_time(clock.end)),
        {name: round(seconds, 3) for name, seconds in account.sum_seconds(spans).items()},
        None if usd is None else {name: round(dollars, 4) for name, dollars in usd.items()},
    )


def read_clock(record: RunRecord, now: float) -> account.AccountTimes:
    """Return the times of a recorded run that its account is counted by."""
    admitted = None if record.admitted_at is None else _seconds(record.admitted_at)
    end = _seconds(record.ended_at) if record.ended_at else now
    return account.AccountTimes(_seconds(record.submitted_at), admitted, end, record.is_ended)


def stored_in(record: RunRecord) -> str | None:
    """Return the binding of the object store in which the nodes store checkpoints; Ray Train does that by itself."""
    return None if record.engine == "rayjob" else (record.job.get("checkpoints") or {}).get("binding")


def end_record(
    record: RunRecord,
    now: float,
    *,
    outcome: RunEnd | None = None,
    exit_code: int | None = None,
    cause: str | None = None,
    detail: str | None = None,
) -> RunRecord:
    """Return ``record`` as ended."""
    submitted = _seconds(record.submitted_at)
    now = max(now, submitted)
    return dataclasses.replace(
        record,
        state="ended",
        ended_at=format_time(now),
        duration_s=round(now - submitted, 3),
        outcome=outcome,
        exit_code=exit_code,
        cause=cause,
        detail=detail,
    )


def note_taken_over(record: RunRecord, by: str, now: float, *, is_begun: bool) -> RunRecord:
    """Return the record of a run that another controller has taken over, from now on unless that was known before.

    :param is_begun: whether that one has begun the run anew: then the start that this record is of has ended.
    """
    known = dataclasses.replace(record, taken_over=record.taken_over or {"by": by, "at": format_time(now)})
    if not is_begun or record.is_ended:
        return known
    by = str((known.taken_over or {})["by"])
    detail = f"{by} took the run over and started it again: how it goes is recorded there"
    at = _seconds(str((known.taken_over or {})["at"]))
    return end_record(known, at, outcome="cancelled", cause="taken_over", detail=detail, exit_code=143)


def reopen_record(record: RunRecord, state: State, job: t.Mapping[str, t.Any]) -> RunRecord:
    """Return the record of a run that continues, without the end of its former start.

    :param job: in its YAML form: it may ask for other nodes than the run began with.
    """
    size = dataclasses.replace(record.world_size, asked=job_world_size(job))
    ended = dataclasses.replace(record, ended_at=None, outcome=None, exit_code=None, cause=None, detail=None)
    ended = dataclasses.replace(ended, pruned_at=None, taken_over=None)
    return dataclasses.replace(ended, state=state, job=dict(job), world_size=size)


def judge_resumes(job: t.Mapping[str, t.Any], story: RunHistory) -> dict[int, Resume]:
    """Return by attempt whether it resumed, for a job in its YAML form."""
    checkpoints = job.get("checkpoints") or {}
    return story.judge_resumes(checkpoints.get("interval_steps"), anew=checkpoints.get("resume") == "never")


def _running_state(story: RunHistory) -> State:
    if not story.attempts:
        return "starting"
    return "restarting" if len(story.attempts) > 1 and story.attempts[-1].first_step is None else "running"


def describe_nodes(names: t.Iterable[str], prices: Prices, tokens: t.Mapping[str, str]) -> list[dict[str, object]]:
    """Return nodes as the event of a start has them, so that a later controller knows those that are gone, too."""
    return [{"id": name, "token": tokens.get(name), "price_usd_per_hour": prices.get(name)} for name in names]


def _former_prices(story: RunHistory) -> dict[str, float | None]:
    """Return what the nodes of all attempts cost, as the events of their starts say: also those that are gone."""
    nodes = [item for attempt in story.attempts for item in story.nodes_of(attempt).items()]
    told: dict[str, float | None] = {}
    for name, given in nodes:
        if given:
            price = parse_finite(given.get("price_usd_per_hour"), minimum=0)
            told[name] = told.get(name) if price is None else price
    return told


def _describe_checkpoint(story: RunHistory) -> SavedCheckpoint | None:
    if story.checkpoint is None:
        return None
    return SavedCheckpoint(*story.checkpoint, extra=dict(story.layout))


def _build_attempt(
    attempt: Attempt, story: RunHistory, resume: Resume, prices: Prices, tokens: t.Mapping[str, str]
) -> RunAttempt:
    started, ended = format_time(attempt.started_at), format_time(attempt.ended_at)
    nodes = {name: given.get("token", tokens.get(name)) for name, given in story.nodes_of(attempt).items()}
    # What is at their place since then is of a later attempt.
    pruned = story.left.pruned_at is not None and attempt.started_at < story.left.pruned_at
    return RunAttempt(
        n=attempt.n,
        started_at=started,
        ended_at=ended,
        cause=attempt.cause,
        node=attempt.failed_node,
        exit_code=attempt.exit_code,
        first_step=attempt.first_step if story.are_steps_known else None,
        last_step=attempt.last_step if story.are_steps_known else None,
        # Of ranks that began at different steps, no one says where the gang is.
        resumed_from_step=None if attempt.n in story.uneven else attempt.resumed_from,
        resumed=resume.resumed,
        ranks=len(attempt.ranks),
        rank_list=tuple(sorted(attempt.ranks)),
        nodes=tuple(
            RunNode(name, token if isinstance(token, str) else None, started, ended, prices.get(name))
            for name, token in nodes.items()
        ),
        logs=() if pruned else tuple(log_file(name) for name in attempt.node_names),
        notice=attempt.notice and {**attempt.notice._asdict(), "at": format_time(attempt.notice.at)},
    )


def _sum_cost(record: RunRecord, story: RunHistory, prices: Prices, now: float) -> RunCost:
    held = list_stays(record, story, prices, now)
    if held is None:
        return RunCost(None, False)
    hours = ((price, sum(end - start for start, end in stays) / 3600) for price, stays in held)
    return RunCost(round(sum(price * spent for price, spent in hours), 4), record.is_ended)


def _list_held_nodes(record: RunRecord, story: RunHistory, prices: Prices, now: float) -> t.Iterator[RunNode]:
    """Yield from when until when each node was held, one for each stay; what is held still has no end."""
    tokens = dict(record.leases)
    for attempt in story.attempts:
        tokens |= {name: given["token"] for name, given in story.nodes_of(attempt).items() if given.get("token")}
    _started, ended = _read_bounds(record, story, now)
    for name, price, stays in _list_all_stays(record, story, prices, now):
        token = tokens.get(name)
        for start, end in stays:
            until = None if end == ended and not record.is_ended and not record.taken_over else format_time(end)
            yield RunNode(name, token if isinstance(token, str) else None, format_time(start), until, price)


def list_stays(
    record: RunRecord, story: RunHistory, prices: Prices, now: float
) -> list[tuple[float, list[tuple[float, float]]]] | None:
    """Return of each node its price (USD an hour) and from when until when it was held; None where one is not known."""
    stays = _list_all_stays(record, story, prices, now)
    priced = [(price, spans) for _name, price, spans in stays if price is not None]
    return priced if len(priced) == len(stays) else None


def _list_all_stays(
    record: RunRecord, story: RunHistory, prices: Prices, now: float
) -> list[tuple[str, float | None, list[tuple[float, float]]]]:
    """Return of each node its name, its price if that is known, and from when until when it was held."""
    started, ended = _read_bounds(record, story, now)
    held = _list_held(story)
    return [(name, price, _list_node_stays(name, story, held, started, ended)) for name, price in prices.items()]


def _read_bounds(record: RunRecord, story: RunHistory, now: float) -> tuple[float, float]:
    """Return from when until when the run holds nodes."""
    # What waits in a queue holds no node.
    started = _seconds(record.admitted_at or record.submitted_at)
    # What is recorded is when its last start was admitted: one that was continued held nodes before.
    started = min([started, *(item.started_at for item in story.attempts[:1] if record.admitted_at)])
    ends = [record.ended_at, (record.taken_over or {}).get("at")]
    return started, min([now, *(_seconds(at) for at in ends if at)])


def _seconds(stamp: str) -> float:
    return datetime.datetime.fromisoformat(stamp).timestamp()


def _list_held(story: RunHistory) -> list[tuple[float, t.Collection[str]]]:
    """Return of each attempt when it began, and its nodes.

    An attempt with missing events of some ranks is not counted, unless the nodes of its start are known.
    """
    most = max((len(item.ranks) for item in story.attempts), default=0)
    told = [(item, story.nodes_of(item)) for item in story.attempts]
    return [
        (item.started_at, nodes)
        for item, nodes in told
        if len(item.ranks) >= (item.world_size or most) or any(nodes.values())
    ]


def _list_node_stays(
    name: str, story: RunHistory, held: t.Sequence[tuple[float, t.Collection[str]]], started: float, ended: float
) -> list[tuple[float, float]]:
    """Return when a node counts: from the first attempt with a rank on it to the one without.

    It does not while the run is set back, and between an end of the run and its continuation. Before the first attempt
    and after the last one the run holds its nodes, too. A node without any rank, as under mpirun or Ray's head, counts
    for the whole run.
    """
    used = [number for number, (_at, nodes) in enumerate(held) if name in nodes]
    if used and used[0] > 0:
        started = max(started, held[used[0]][0])
    if used and used[-1] + 1 < len(held):
        ended = min(ended, held[used[-1] + 1][0])
    stays: list[tuple[float, float]] = []
    for since, until in sorted([*story.unplaced_spans(), *story.pauses]):
        if since > started:
            stays.append((started, min(since, ended)))
        started = max(started, until)
    return [(start, end) for start, end in [*stays, (started, ended)] if end > start]


def _current_user() -> str | None:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return None
