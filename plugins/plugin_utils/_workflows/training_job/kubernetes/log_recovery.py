# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Recovering the logs of attempts that were not followed from the checkpoint volume; their pods no longer exist."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import time
import typing as t

from .....module_utils._model.errors import MusterError
from .....module_utils._model.run_history import RunHistory, parse_time
from .....module_utils._model.run_record import BackendRef, RunRecord
from .....module_utils._node import files
from .....module_utils._node.pod_log import MARK
from .....module_utils._secrets.scrubber import scrub
from ...._kube.api.client import Client
from ...._kube.api.kinds import KubeObject
from ...._kube.api.logs import LogPosition
from ...._kube.jobs import log_reader_job
from ...._kube.jobs.spec import CONTAINER, KubePlan, gang_selector
from ...._kube.objects import wait
from ...._kube.objects.apply import apply
from ...shared.run_record import update_record, write_record
from ..follower import Follower
from .network_preflight import delete_objects
from .pod_logs import LineCounts, LogGap, PodLogs

_LIMIT_S = 120.0
# Above every attempt's number.
_NO_LIMIT = 1 << 31
_STREAMS = ("events", "metrics", "usage")
Dict = dict[str, t.Any]


def missing_attempts(events: t.Iterable[Dict], first: int) -> set[int]:
    """Return the attempts of a start that began with number ``first`` without any event, before the last one.

    Empty also where the start has no events at all.
    """
    told = {line.get("attempt") for line in events if line.get("kind") != "submitted"}
    seen = {number for number in told if isinstance(number, int) and number >= first}
    return set(range(first, max(seen))) - seen if seen else set()


def recover_logs(client: Client, plan: KubePlan, follower: Follower, done: bool) -> None:
    """Complete the run's folder and history by attempts that were not followed. An unreadable volume is reported.

    :param done: whether the engine says that the job was done; then some attempt there must have been.
    """
    first = next(iter(plan.pods.values())).attempt
    story = follower.story
    unheard = missing_attempts(_read_lines(follower.folder / "events.jsonl"), first)
    wanted: t.Collection[int] = unheard | {n for n in story.following.unread_attempts(story.attempts) if n >= first}
    if done and not any(item.n >= first for item in follower.story.attempts):
        wanted = range(first, _NO_LIMIT)
    made = log_reader_job.build(plan) if wanted else None
    if made is None:
        return
    names = f"any attempt from {first} on" if isinstance(wanted, range) else f"attempt {_join_numbers(wanted)}"
    follower.progress.say(f"The logs of {names} were not read to their end; recovering them from the checkpoint volume")
    try:
        lines = _read_volume(client, made)
    except MusterError as exc:
        follower.progress.say(f"The checkpoint volume cannot be read: {exc.message}")
        return
    finally:
        delete_objects(client, made)
    found = select_lines(lines, wanted)
    for number in sorted({int(line["attempt"]) for line in found}):
        follower.record_event("log_recovered", attempt=number)
    merge_lines(follower, found)


def find_gaps(folder: pathlib.Path) -> list[LogGap]:
    """Return what of the logs of an ended run was not read, as its events say."""
    gaps: list[LogGap] = []
    for line in _read_lines(folder / "events.jsonl"):
        if line.get("kind") in ("submitted", "log_completed"):
            gaps = []
        elif line.get("kind") == "log_gap":
            gaps.append(LogGap(str(line.get("node")), str(line.get("detail")), bool(line.get("is_end"))))
    return gaps


def complete_record(client: Client, record: RunRecord, follower: Follower) -> RunRecord:
    """Read what of the logs of an ended run was not read and is still in its pods; return its record with that."""
    before = find_gaps(follower.folder)
    gaps = _read_rest(client, t.cast(BackendRef, record.backend_ref).namespace, follower, before)
    read = ", ".join(sorted(gap.node for gap in before if gap not in gaps))
    if read:
        follower.record_event("log_completed", detail=read)
        for gap in gaps:
            follower.record_event("log_gap", **gap._asdict())
    follower.story = _rebuild_history(follower.folder)
    prices = {node.id: node.price_usd_per_hour for attempt in record.attempts for node in attempt.nodes}
    kept = [part for part in str(record.detail).split("; ") if part not in {gap.detail for gap in before}]
    detail = "; ".join([*kept, *(gap.detail for gap in gaps)])
    record = update_record(dataclasses.replace(record, detail=detail), follower.story, prices, time.time())
    write_record(follower.folder, record)
    if read:
        last = max((attempt.last_step or 0 for attempt in record.attempts), default=0)
        follower.progress.say(f"run {record.run_id}: its record was completed from the log of {read}, to step {last}")
    return record


def _read_rest(client: Client, space: str, follower: Follower, before: t.Sequence[LogGap]) -> list[LogGap]:
    """Read on in the logs of the pods that are still there; return what was still not read."""
    known = {uid: place for uid, place in follower.offsets.items() if uid}
    read = {uid: (str(place["stamp"]), int(place["same"])) for uid, place in known.items() if "stamp" in place}
    nodes = {uid: str(place.get("node") or uid) for uid, place in known.items()}
    logs = PodLogs(nodes, read, follower.take_text, lambda *_unused: None, lambda _node: "", follower.progress)
    logs.counts = LineCounts({uid: place.get("counts") for uid, place in known.items()})
    whole: dict[str, bool] = {}
    for pod in client.list("v1/Pod", space, labels=gang_selector(follower.run_id)).items:
        meta, uid = pod["metadata"], pod["metadata"]["uid"]
        nodes[uid] = str((pod.get("spec") or {}).get("nodeName") or uid)
        stream = client.stream_log(space, meta["name"], CONTAINER, after=read.get(uid), uid=uid, timeout_s=_LIMIT_S)
        stream.finish()
        for line in stream:
            logs.take(uid, t.cast(LogPosition, stream.position), line)
        whole[nodes[uid]] = whole.get(nodes[uid], True) and stream.is_whole
    logs.flush()
    at = {uid: {"stamp": stamp, "same": same, "node": nodes.get(uid)} for uid, (stamp, same) in read.items()}
    counted = {uid: {**place, "counts": logs.counts.saved(uid)} for uid, place in at.items()}
    files.write_json(follower.folder / "offsets.json", {**known, **counted})
    for name in _STREAMS:
        _merge_file(follower.folder / f"{name}.jsonl", ())
    left = [gap for gap in before if not (gap.is_end and whole.get(gap.node))]
    return [*left, *(gap for gap in logs.gaps(whole=False) if gap not in left)]


def _join_numbers(numbers: t.Iterable[int]) -> str:
    return ", ".join(str(number) for number in sorted(numbers))


def select_lines(lines: t.Iterable[Dict], wanted: t.Collection[int]) -> list[Dict]:
    """Return the lines of these attempts; what a program wrote among them may have any form."""
    return [line for line in lines if isinstance(line.get("attempt"), int) and line["attempt"] in wanted]


def merge_lines(follower: Follower, lines: t.Iterable[Dict]) -> None:
    """Put lines into the run's folder, in the order of their times, and rebuild its history."""
    news: dict[str, list[Dict]] = {stream: [] for stream in _STREAMS}
    for line in lines:
        if line.get("stream") in news and isinstance(line.get("data"), dict):
            news[str(line["stream"])].append(line["data"])
        elif line.get("stream") == "kept" and isinstance(line.get("node"), str):
            place = follower.folder / "logs" / f"{files.plain_name(line['node'])}.attempt-{line['attempt']}.log"
            files.private_dir(place.parent)
            files.append_text(place, scrub(f"{line.get('data')}\n"))
    for stream, items in news.items():
        _merge_file(follower.folder / f"{stream}.jsonl", items)
    follower.story = _rebuild_history(follower.folder)
    # The files are in another order now, and maybe shorter.
    files.write_json(follower.folder / "offsets.json", {uid: place for uid, place in follower.offsets.items() if uid})


def _read_volume(client: Client, made: t.Sequence[KubeObject]) -> list[Dict]:
    *supporting, main = made
    apply(client, supporting)
    apply(client, [main])
    space, name = main["metadata"]["namespace"], main["metadata"]["name"]
    outcome = wait.wait(client, [wait.WaitTarget(client.resource(main), space, name)], timeout_s=_LIMIT_S)
    if outcome.end != "done":
        raise MusterError(outcome.summary() or f"the Job that reads it did not finish within {_LIMIT_S:.0f} s")
    found: list[Dict] = []
    for pod in client.list("v1/Pod", space, labels=f"batch.kubernetes.io/job-name={name}").items:
        for raw in client.stream_log(space, pod["metadata"]["name"], CONTAINER, follow=False, timeout_s=60):
            text = raw.decode(errors="replace")
            found += files.parse_json_lines(text[len(MARK) :]) if text.startswith(MARK) else []
    return found


def _merge_file(place: pathlib.Path, news: t.Sequence[Dict]) -> None:
    """Add lines that are not there to a file of JSON lines that is in the order of their times."""
    if not place.exists() and not news:
        return
    known = _read_lines(place)
    # A part of an attempt may have been read before.
    lines = sorted([*known, *(line for line in news if line not in known)], key=_line_time)
    text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
    files.write_atomic(place, scrub(text).encode())


def _rebuild_history(folder: pathlib.Path) -> RunHistory:
    story = RunHistory()
    for stream, feed in (("events", story.event), ("metrics", story.metric)):
        for line in _read_lines(folder / f"{stream}.jsonl"):
            feed(line)
    return story


def _read_lines(place: pathlib.Path) -> list[Dict]:
    return list(files.parse_json_lines(place.read_text(encoding="utf-8", errors="replace"))) if place.exists() else []


def _line_time(line: t.Mapping[str, t.Any]) -> float:
    return parse_time(line.get("at")) or 0.0
