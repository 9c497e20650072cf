# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Recovering the logs of attempts that were not followed from the checkpoint volume; their pods no longer exist.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import json
import pathlib
import typing as t

from .....module_utils._model.errors import MusterError
from .....module_utils._model.run_history import RunHistory, parse_time
from .....module_utils._node import files
from .....module_utils._node.pod_log import MARK
from .....module_utils._secrets.scrubber import scrub
from ...._kube.api.client import Client
from ...._kube.api.kinds import KubeObject
from ...._kube.jobs import log_reader_job
from ...._kube.jobs.spec import CONTAINER, KubePlan
from ...._kube.objects import wait
from ...._kube.objects.apply import apply
from ..follower import Follower
from .network_preflight import delete_objects

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
    wanted: t.Collection[int] = missing_attempts(_read_lines(follower.folder / "events.jsonl"), first)
    if done and not any(item.n >= first for item in follower.story.attempts):
        wanted = range(first, _NO_LIMIT)
    made = log_reader_job.build(plan) if wanted else None
    if made is None:
        return
    names = f"any attempt from {first} on" if isinstance(wanted, range) else f"attempt {_join_numbers(wanted)}"
    follower.progress.say(f"No logs received for {names}; recovering them from the checkpoint volume")
    try:
        lines = _read_volume(client, made)
    except MusterError as exc:
        follower.progress.say(f"The checkpoint volume cannot be read: {exc.message}")
        return
    finally:
        delete_objects(client, made)
    merge_lines(follower, select_lines(lines, wanted))


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
    """Add lines to a file of JSON lines that is in the order of their times."""
    if not news:
        return
    lines = sorted([*_read_lines(place), *news], key=_line_time)
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
