# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A training program of two ranks, each of which saves its part of a checkpoint on its own node and reports nothing.

``parts_program.py CASE MEETING``: 60 steps, a checkpoint at each tenth. In the first attempt rank 1 is killed while it
saves the third one, of which rank 0 has its part by then. The ranks agree on the newest step that both can load, as
collectives do, by files in the folder MEETING. CASE is a file with ``{name, parts, tracker, said, gathered,
temporary}``: the names and the content (base64) of each rank's files in the order in which they are written.
"""

from __future__ import annotations

import base64
import json
import os
import pathlib
import shutil
import signal
import sys
import time
import typing as t

FOLDER = pathlib.Path(os.environ["MUSTER_CHECKPOINT_DIR"])
RANK, ATTEMPT = int(os.environ["RANK"]), int(os.environ["MUSTER_ATTEMPT"])
CASE: dict[str, t.Any] = json.loads(pathlib.Path(sys.argv[1]).read_text())
MEETING = pathlib.Path(sys.argv[2]) / str(ATTEMPT)
PART = {name: base64.b64decode(content) for name, content in CASE["parts"][RANK].items()}
KILLED_AT = 30
LAST = 60


def exchange(name: str, value: t.Any) -> list[t.Any]:
    """Return the values of both ranks."""
    MEETING.mkdir(parents=True, exist_ok=True)
    own = MEETING / f"{name}-{RANK}"
    own.with_suffix(".part").write_text(json.dumps(value))
    own.with_suffix(".part").rename(own)
    places = [MEETING / f"{name}-{rank}" for rank in (0, 1)]
    while not all(place.exists() for place in places):
        time.sleep(0.01)
    return [json.loads(place.read_text()) for place in places]


def locate(step: int, temporary: str = "") -> dict[pathlib.Path, bytes]:
    """Return the files of this rank's part of a step."""
    place = FOLDER / f"{CASE['name'].format(step)}{temporary}"
    return {
        pathlib.Path(os.path.normpath(os.path.join(place, name.format(step)))): content
        for name, content in PART.items()
    }


def save(step: int) -> None:
    """Write this rank's part, then what is written when both have theirs."""
    place = FOLDER / CASE["name"].format(step)
    late = {place / name for name in CASE["gathered"]}
    files = {path: content for path, content in locate(step, CASE["temporary"]).items() if path not in late}
    *_, last = files
    if RANK == 1:
        exchange(f"saved-{step}", None)
    for path, content in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        if RANK == 1 and path == last and (step, ATTEMPT) == (KILLED_AT, 1):
            path.write_bytes(content[: len(content) // 2])
            os.kill(os.getpid(), signal.SIGKILL)
        path.write_bytes(content)
    if CASE["temporary"]:
        # What an earlier attempt left is written over.
        shutil.rmtree(place, ignore_errors=True)
        place.with_name(f"{place.name}{CASE['temporary']}").rename(place)
    if RANK == 0:
        exchange(f"saved-{step}", None)
    exchange(f"gathered-{step}", None)
    if RANK == 0:
        for path in late:
            path.write_bytes(locate(step)[path])
        if CASE["tracker"]:
            place.with_name(CASE["tracker"]).write_text(CASE["said"].format(step))


def load() -> int:
    """Return the newest step of which both ranks have their part whole, 0 without any."""
    steps = range(10, LAST + 1, 10)
    whole = [
        step
        for step in steps
        if all(path.exists() and path.read_bytes() == content for path, content in locate(step).items())
    ]
    mine, other = exchange("whole", whole)
    return max(set(mine) & set(other), default=0)


def main() -> None:
    """Train."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    begun = load()
    print(f"resumed from {begun}", flush=True)
    for step in range(begun + 1, LAST + 1):
        with open(os.environ["MUSTER_METRICS_FILE"], "a") as handle:
            handle.write(json.dumps({"at": time.time(), "step": step, "loss": 1 / step}) + "\n")
        time.sleep(0.01)
        if step % 10 == 0:
            save(step)


main()
