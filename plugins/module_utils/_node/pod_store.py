# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a pod does with object stores before its program starts: datasets are staged, checkpoints are fetched.

Everything that it needs for that is signed and in one file of the run's Secret. Each pod decides by itself from what is
in the bucket, which is the same for all pods of a start: no program writes there before all have begun.
"""

# pylint: disable=ansible-bad-function  # on a node by itself, with no AnsibleModule around it
from __future__ import annotations

import contextlib
import gzip
import json
import os
import pathlib
import time
import typing as t

from . import (
    checkpoint_reports,
    checkpoint_store,
    checkpoint_sync,
    dataset_stage,
    files,
    metric_lines,
    pod_preflight,
)
from .checkpoint_choice import NodeCheckpoints, choose_checkpoints
from .s3_client import S3Error, Store

# The addresses of this pod's own checkpoints, as the thread that stores them reads them.
ADDRESSES: t.Final = "checkpoints.json"
_UNREACHABLE = 69
_STAGE_S: t.Final = 30.0
Given = dict[str, t.Any]
Say = t.Callable[[str], None]


def read(spec: t.Mapping[str, t.Any]) -> Given:
    """Return the addresses that the pod was given, empty where the job uses no store.

    :raises PodRefusal: when they are not in the pod.
    """
    if not spec.get("store"):
        return {}
    try:
        return t.cast(Given, json.loads(gzip.decompress(pathlib.Path(spec["store"]).read_bytes())))
    except (OSError, ValueError) as exc:
        raise pod_preflight.PodRefusal(f"the signed addresses are not in the pod: {exc}") from exc


def stage(given: Given, run_dir: pathlib.Path, say: Say) -> None:
    """Stage the datasets into the pod; what a container has fetched before it was restarted is not fetched again.

    :raises PodRefusal: when one cannot be had.
    """
    for item in given.get("datasets", []):
        try:
            _stage_one(item, run_dir, say)
        except OSError as exc:
            place = exc.filename or item.get("cache") or run_dir
            problem = f"dataset {item['name']}: {place} cannot be written: {exc.strerror}"
            raise pod_preflight.PodRefusal(problem, os.EX_UNAVAILABLE) from exc


def _stage_one(item: t.Mapping[str, t.Any], run_dir: pathlib.Path, say: Say) -> None:
    """Stage one dataset, in the folder that pods of a node share where there is one: each takes what others staged."""
    state = pathlib.Path(item["cache"]) if item.get("cache") else run_dir / "staged"
    about = {"dataset": item["dataset"], "name": item["name"], "ca": item["ca"], "shared": bool(item.get("cache"))}
    began = time.monotonic()
    found = dataset_stage.plan({**about, "objects": item["objects"]}, state)
    _require(found, item["name"])
    missing, needed = found["missing"], found.get("needed", 0)
    while missing:
        urls = {str(number): item["urls"][number] for number in missing}
        checks = {number: url for number, url in item.get("checks", {}).items() if number in urls}
        answer = dataset_stage.stage({**about, "urls": urls, "checks": checks, "seconds": _STAGE_S}, state)
        _require(answer, item["name"])
        missing = answer["missing"]
    place = run_dir / "data" / files.plain_name(item["name"])
    place.parent.mkdir(parents=True, exist_ok=True)
    tree = dataset_stage.StagedDataset(state, item["dataset"]).folder / "tree"
    tree.mkdir(exist_ok=True)
    if not place.is_symlink():
        place.symlink_to(tree)
    seconds = time.monotonic() - began
    what = f"{len(item['objects'])} objects, {needed / 2**20:.1f} MiB"
    say(f"dataset {item['name']}: {what} staged in {seconds:.1f} s")


def restore(
    given: Given,
    rank: int,
    attempt: int,
    folder: pathlib.Path,
    run_dir: pathlib.Path,
    rules: t.Mapping[str, t.Any],
    say: Say,
) -> dict[str, t.Any]:
    """Bring this pod to the newest checkpoint that all pods have that have any; return its rules for storing more.

    :param attempt: this one's number: of other pods, what this attempt stored already does not count.

    :raises PodRefusal: when the store cannot be read, or a copy is damaged that other pods count on: its manifest is
        deleted then, so that all pods take the one before when they start again.
    """
    bucket = given.get("checkpoints")
    if not bucket or str(rank) not in bucket["ranks"]:
        return dict(rules)
    own = bucket["ranks"][str(rank)]
    if rules.get("resume") != "never":
        _fetch_newest(bucket, rank, attempt, folder, str(rules["format"]), run_dir, say)
    addresses = {"ca": bucket["ca"], "expires_at": bucket["expires_at"], "slots": own}
    place = run_dir / ADDRESSES
    files.write_atomic(place, json.dumps(addresses).encode())
    return {**rules, "store": str(place), "folder": str(folder), "first": rank == 0, "attempt": attempt}


def note_printed(pattern: str, run_dir: pathlib.Path) -> t.Callable[[bytes], None]:
    """Return what is called with each line that the program prints: it notes those that report a checkpoint."""
    patterns = metric_lines.compile_patterns({"checkpoint_step": pattern})

    def hear(line: bytes) -> None:
        found = metric_lines.parse_lines(patterns, line.decode(errors="replace"), time.time())
        with contextlib.suppress(OSError):
            for report in found:
                files.append_json(run_dir / checkpoint_reports.PRINTED, report)

    return hear


def _fetch_newest(
    bucket: Given, rank: int, attempt: int, folder: pathlib.Path, form: str, run_dir: pathlib.Path, say: Say
) -> None:
    excluded: set[tuple[str, int]] = set()
    while True:
        stored = {number: _list_stored(bucket, number) for number in bucket["ranks"]}
        local = _list_local(bucket, rank, folder, form, run_dir)
        nodes = {number: NodeCheckpoints((), tuple(rows)) for number, rows in stored.items()}
        # What lies here is not known to the other pods: it saves a transfer, and decides only for a pod that is alone.
        alone = len(nodes) == 1
        me = str(rank)
        nodes[me] = NodeCheckpoints(tuple(local) if alone else (), tuple(stored[me]))
        source = _find_source(stored, me, form, attempt)
        if source != me:
            nodes[source] = NodeCheckpoints((), tuple(_earlier(stored[source], attempt)))
        choice = choose_checkpoints(nodes, excluded)[source]
        kept = [row["name"] for row in local if row["ok"]]
        aside = list(choice.aside)
        if not alone and choice.fetch:
            aside = [row["name"] for row in local if _is_newer(row, choice.fetch)]
        checkpoint_store.set_aside(folder, aside)
        if choice.fetch is None or choice.fetch["name"] in kept:
            return
        slot = bucket["ranks"][source][choice.fetch["slot"]]
        damaged = _fetch_one(bucket["ca"], slot, choice.fetch, folder, form)
        if not damaged:
            size = choice.fetch["bytes"] / 2**20
            say(f"node {rank}: fetched checkpoint {choice.fetch['name']} from the bucket ({size:.1f} MiB)")
            return
        say(f"node {rank}: {damaged}; taking the one before")
        if not alone:
            _forget(bucket["ca"], slot)
            raise pod_preflight.PodRefusal(f"stored checkpoint {choice.fetch['name']} is damaged", _UNREACHABLE)
        excluded.add((choice.fetch["name"], choice.fetch["saved_at"]))


def _find_source(stored: t.Mapping[str, t.Sequence[Given]], me: str, form: str, attempt: int) -> str:
    """Return the pod whose checkpoints this one takes: its own, or those of the only one that has any, for all.

    A pod that began sooner may have stored already what it saved since: nothing of this attempt is a reason.
    """
    having = [number for number, rows in stored.items() if rows]
    is_source = form != "dcp" and len(having) == 1 and bool(_earlier(stored[having[0]], attempt))
    return having[0] if is_source else me


def _earlier(rows: t.Sequence[Given], attempt: int) -> list[Given]:
    """Return what attempts before this one stored."""
    return [row for row in rows if isinstance(row.get("attempt"), int) and row["attempt"] < attempt]


def _is_newer(row: t.Mapping[str, t.Any], chosen: t.Mapping[str, t.Any]) -> bool:
    return bool(row["saved_at"] > chosen["saved_at"] and row["name"] != chosen["name"])


def _list_stored(bucket: Given, number: str) -> list[dict[str, t.Any]]:
    return _candidates(bucket, number, pathlib.Path("/nonexistent"), "files", pathlib.Path("/nonexistent"))["stored"]


def _list_local(
    bucket: Given, rank: int, folder: pathlib.Path, form: str, run_dir: pathlib.Path
) -> list[dict[str, t.Any]]:
    return _candidates(bucket, str(rank), folder, form, run_dir)["local"]


def _candidates(
    bucket: Given, number: str, folder: pathlib.Path, form: str, run_dir: pathlib.Path
) -> dict[str, list[dict[str, t.Any]]]:
    urls = [slot["manifest"]["get"] for slot in bucket["ranks"][number]]
    request = {"ca": bucket["ca"], "format": form, "folder": str(folder), "manifests": urls}
    answer = checkpoint_sync.list_candidates(request, run_dir)
    if answer.get("problem"):
        raise pod_preflight.PodRefusal(f"checkpoints in the bucket: {answer['problem']}", _UNREACHABLE)
    return answer


def _fetch_one(
    ca: str | None, slot: t.Mapping[str, t.Any], row: t.Mapping[str, t.Any], folder: pathlib.Path, form: str
) -> str:
    """Fetch the checkpoint of a slot; return why it cannot be used, empty where it is here and whole."""
    request = {"ca": ca, "folder": str(folder), "format": form, "name": row["name"], "saved_at": row["saved_at"]}
    answer = checkpoint_sync.restore({**request, "manifest": slot["manifest"]["get"], "parts": slot["fetch"]})
    if answer.get("problem"):
        raise pod_preflight.PodRefusal(f"checkpoint {row['name']}: {answer['problem']}", _UNREACHABLE)
    return str(answer.get("damaged") or "")


def _forget(ca: str | None, slot: t.Mapping[str, t.Any]) -> None:
    store = Store(ca)
    try:
        store.send_again("DELETE", slot["manifest"]["delete"], allow=(404,))
    except S3Error as exc:
        raise pod_preflight.PodRefusal(f"a damaged checkpoint cannot be passed over: {exc.problem}") from exc
    finally:
        store.close()


def _require(answer: t.Mapping[str, t.Any], name: str) -> None:
    if answer.get("problem"):
        fix = f" ({answer['fix']})" if answer.get("fix") else ""
        raise pod_preflight.PodRefusal(f"dataset {name}: {answer['problem']}{fix}", os.EX_UNAVAILABLE)
