# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Real programs on two hosts: trained, one rank killed in mid-run, resumed, proven, fetched and pruned without an edit."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import time
import typing as t

import pytest

from ansible_collections.muster.training.tests.e2e.playbook_world import World, until
from ansible_collections.muster.training.tests.programs import jobs
from ansible_collections.muster.training.tests.programs.table import PROGRAMS, Program

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
    named = jobs.find_python()
    assert named, "MUSTER_PROGRAMS_PYTHON names no interpreter (make venv-programs)"
    return named


def job_of(program: Program, world: World, python: str) -> dict[str, t.Any]:
    """Return the program's job over its nodes."""
    data = [{"name": kind, "path": str(jobs.make_data(python, kind))} for kind in program.data]
    return jobs.build_job(program, python, str(world.root / "shared"), python=python, datasets=data)


def rank_pid(world: World, rank: int) -> int:
    """Return the process of a rank of the first attempt."""
    place = world.node_folder(f"node-{rank + 1}") / "events.jsonl"
    events = [json.loads(line) for line in place.read_text().splitlines()]
    return next(item["pid"] for item in events if item["kind"] == "worker_started" and item["rank"] == rank)


def kill_in_mid_run(program: Program, world: World, play: t.Any) -> None:
    """Kill the last rank some time after the first checkpoint."""
    folder = world.root / "shared" / world.run_id

    def has_saved() -> bool:
        assert play.process.poll() is None, play.output[-4000:]
        return any(folder.glob(program.first))

    until(has_saved, f"a checkpoint {program.first} in {folder}", LIMIT_S)
    time.sleep(program.after_s)
    assert play.process.poll() is None, "the run ended before a rank was killed"
    os.kill(rank_pid(world, program.ranks - 1), signal.SIGKILL)


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
        place = jobs.keep_output(f"runs/{program.name}", world.run_folder(), play.output)
    note = {"name": program.name, "seconds": round(time.monotonic() - began)}
    assert result.code == 0, result.output[-6000:]
    record = world.record()
    note |= {key: record.get(key) for key in ("checkpoint", "attempts", "steps_lost", "steps_read", "problems")}
    (place / "note.json").write_text(json.dumps(note, indent=1))
    jobs.assert_recorded(program, record)
    folder = world.root / "shared" / world.run_id
    path = record["checkpoint"]["path"]
    name = str(pathlib.PurePath(path).relative_to(folder)) if path else program.first
    jobs.assert_kept(program, folder, name, world.events())
    if program.ranks == 1:
        # Of several each prints its own loss, and the library may write down the mean of all.
        compared, written = jobs.assert_read(program, python, folder, world.metrics())
        print(f"{compared} of {written} losses are those that the library wrote down")
    got = world.root / "got"
    fetched = world.play("fetch", muster_fetch_dest=str(got), limit_s=LIMIT_S)
    assert fetched.code == 0, fetched.output
    jobs.assert_loads(program, python, got / name)
    pruned = world.play("prune", muster_prune_runs=[world.run_id])
    nodes = ", ".join(f"node-{number + 1}" for number in range(program.ranks))
    assert pruned.code == 0 and f"{world.run_id}: removed from {nodes}" in pruned.output, pruned.output
