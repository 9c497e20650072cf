# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Real programs on two hosts: trained, one rank killed in mid-run, resumed, proven, fetched and pruned without an edit."""

from __future__ import annotations

import functools
import json
import os
import pathlib
import shutil
import signal
import subprocess
import time
import typing as t

import pytest

from ansible_collections.muster.training.tests.e2e.playbook_world import World, until
from ansible_collections.muster.training.tests.programs import sources
from ansible_collections.muster.training.tests.programs.table import PROGRAMS, Program

HERE = pathlib.Path(__file__).parent
LIMIT_S = 600


@pytest.fixture
def world(tmp_path: pathlib.Path) -> t.Iterator[World]:
    """Two nodes with nothing on them; whatever a test leaves running is ended."""
    found = World(tmp_path)
    yield found
    found.close()


@pytest.fixture(scope="session")
def python() -> str:
    """The interpreter with the programs' packages."""
    named = os.environ.get("MUSTER_PROGRAMS_PYTHON", "")
    assert shutil.which(named), "MUSTER_PROGRAMS_PYTHON names no interpreter (make venv-programs)"
    return named


@functools.cache
def make_data(python: str, kind: str) -> pathlib.Path:
    """Return the folder with data of a kind."""
    place = sources.BUILD / "data" / kind
    if not place.is_dir():
        part = place.with_suffix(".part")
        shutil.rmtree(part, ignore_errors=True)
        subprocess.run([python, str(HERE / "make_data.py"), kind, str(part)], check=True)
        part.rename(place)
    return place


def job_of(program: Program, world: World, python: str) -> dict[str, t.Any]:
    """Return the program's job over two nodes."""
    origin = program.origin
    code = sources.obtain(origin) if isinstance(origin, sources.Source) else origin
    own = dict(program.job)
    if "command" in own:
        own["command"] = [python if word == "PYTHON" else word for word in own["command"]]
    shared: dict[str, t.Any] = {"path": str(world.root / "shared"), "keep": program.keep, "grace_s": 5}
    return {
        "name": "program",
        "nodes": 2,
        "python": python,
        "datasets": [{"name": kind, "path": str(make_data(python, kind))} for kind in program.data],
        **({} if isinstance(code, str) else {"code": {"ref": str(code)}}),
        **own,
        "env": {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", **own.get("env", {})},
        "checkpoints": {**shared, **own.get("checkpoints", {})},
    }


def rank_pid(world: World, rank: int) -> int:
    """Return the process of a rank of the first attempt."""
    place = world.node_folder(f"node-{rank + 1}") / "events.jsonl"
    events = [json.loads(line) for line in place.read_text().splitlines()]
    return next(item["pid"] for item in events if item["kind"] == "worker_started" and item["rank"] == rank)


def kill_in_mid_run(program: Program, world: World, play: t.Any) -> None:
    """Kill the second rank some time after the first checkpoint."""
    folder = world.root / "shared" / world.run_id

    def has_saved() -> bool:
        assert play.process.poll() is None, play.output[-4000:]
        return any(folder.glob(program.first))

    until(has_saved, f"a checkpoint {program.first} in {folder}", LIMIT_S)
    time.sleep(program.after_s)
    assert play.process.poll() is None, "the run ended before a rank was killed"
    os.kill(rank_pid(world, 1), signal.SIGKILL)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_a_program_is_killed_resumes_and_is_fetched(world: World, python: str, program: Program) -> None:
    """The proof is the run's record: from which step it went on, which checkpoint it has, and as which layout."""
    began = time.monotonic()
    play = world.start(job=job_of(program, world, python))
    try:
        kill_in_mid_run(program, world, play)
        result = play.wait(LIMIT_S)
        if program.job.get("launcher") == "command":
            # This launcher starts a program once; a second start of the run resumes it.
            assert result.code != 0 and "the launcher 'command' starts it once" in result.output, result.output
            result = world.play(job=job_of(program, world, python), limit_s=LIMIT_S)
    finally:
        keep_output(program, world, play.output)
    note = {"name": program.name, "seconds": round(time.monotonic() - began)}
    assert result.code == 0, result.output[-6000:]
    record = world.record()
    note |= {key: record.get(key) for key in ("checkpoint", "attempts", "steps_lost", "steps_read", "problems")}
    (folder_of(program) / "note.json").write_text(json.dumps(note, indent=1))
    assert (record["outcome"], record["world_size"]) == ("succeeded", {"asked": 2, "seen": 2}), record["detail"]
    assert record["problems"] == [] and len(record["attempts"]) == 2
    assert_resumed(program, record["attempts"])
    checkpoint = record["checkpoint"]
    assert (checkpoint["layout"], checkpoint["step"]) == (program.layout, program.saved or program.last)
    name = str(pathlib.PurePath(checkpoint["path"]).relative_to(world.root / "shared" / world.run_id))
    assert_kept(program, world, name)
    assert_fetched(program, world, python, name)
    pruned = world.play("prune", muster_prune_runs=[world.run_id])
    assert pruned.code == 0 and f"{world.run_id}: removed from node-1, node-2" in pruned.output, pruned.output


def assert_resumed(program: Program, attempts: list[dict[str, t.Any]]) -> None:
    """Assert that the second attempt went on where the first one had saved, and made the last step."""
    before, after = attempts
    if program.last is None:
        # Its lines have no step: then nothing is said of it.
        assert (after["first_step"], after["resumed"]) == (None, None)
        return
    assert after["resumed"] is True and after["last_step"] == program.last, attempts
    assert before["first_step"] < after["first_step"] <= before["last_step"] + program.every, attempts


def assert_kept(program: Program, world: World, newest: str) -> None:
    """Assert that ``keep`` left the newest checkpoints, which are whole, and took the others."""
    folder = world.root / "shared" / world.run_id
    left = sorted(place for place in folder.glob(program.checkpoints) if not place.name.startswith("."))
    assert len(left) == program.keep and folder / newest in left, left
    assert [event for event in world.events() if event["kind"] == "checkpoint_removed"]


def assert_fetched(program: Program, world: World, python: str, name: str) -> None:
    """Assert that what ``fetch`` brings is a checkpoint that its library loads."""
    got = world.root / "got"
    fetched = world.play("fetch", muster_fetch_dest=str(got), limit_s=LIMIT_S)
    assert fetched.code == 0, fetched.output
    argv = [python, str(HERE / "load_checkpoint.py"), program.load, str(got / name)]
    loaded = subprocess.run(
        argv, capture_output=True, text=True, check=False, env={**os.environ, "HF_HUB_OFFLINE": "1"}
    )
    assert loaded.returncode == 0, loaded.stderr[-3000:]


def folder_of(program: Program) -> pathlib.Path:
    """Return where the output of a program is kept, for a look afterwards."""
    place = sources.BUILD / "runs" / program.name
    place.mkdir(parents=True, exist_ok=True)
    return place


def keep_output(program: Program, world: World, output: str) -> None:
    """Keep what the run printed."""
    place = folder_of(program)
    (place / "play.log").write_text(output)
    for log in (world.run_folder() / "logs").glob("*.log"):
        shutil.copy(log, place / log.name)
    for name in ("events.jsonl", "metrics.jsonl"):
        if (world.run_folder() / name).exists():
            shutil.copy(world.run_folder() / name, place / name)
