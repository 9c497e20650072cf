# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A hang is named by rank and line, of real ranks of a program that knows nothing of it; a pause is none."""

from __future__ import annotations

import os
import pathlib
import time
import typing as t

import pytest

from ansible_collections.muster.training.tests.e2e.playbook_world import World, until
from ansible_collections.muster.training.tests.support.hung_gangs import (
    PROGRAM,
    Gang,
    Ranks,
    StartedRanks,
    name_all,
    read_lines,
)

LIMIT_S = 25.0
# Of the run that is trained by the controller.
PRINTED = {"step_pattern": r"iter (?P<step>[0-9]+) loss (?P<loss>\S+)"}
LINES = read_lines()
KINDS = sorted(set(LINES) - {"spin", "leave"})
SHORT = ("loader_worker", "other", "stop")
PAUSES = ("save", "evaluate", "short_pause", "compile")
WORLD = 3


@pytest.fixture
def started(torch_python: str) -> t.Iterator[StartedRanks]:
    found = StartedRanks(torch_python)
    yield found
    found.close()


@pytest.fixture
def ranks(torch_python: str) -> t.Iterator[Ranks]:
    found = Ranks(torch_python)
    yield found
    found.close()


def test_hangs_are_named_and_a_save_is_not(ranks: Ranks, tmp_path: pathlib.Path) -> None:
    """Three kinds at once, and a save of twelve seconds for which the others wait."""
    gangs = [Gang(ranks, tmp_path / kind, kind, WORLD, 1) for kind in SHORT]
    save = Gang(ranks, tmp_path / "save", "save", WORLD, 0, HANG_S="12")
    found = name_all([*gangs, save], 14.0)
    assert "save" not in found, found["save"].hang.text
    check(gangs, found)


def check(gangs: t.Sequence[Gang], found: t.Mapping[str, t.Any]) -> None:
    problems = []
    for gang in gangs:
        named = found.get(gang.kind)
        if named is None:
            problems.append(f"{gang.kind}: not named, {gang.history.attempts[-1].standing}")
            continue
        said = [(item.rank, item.place.line if item.place else None) for item in named.hang.culprits]
        if said != [(gang.bad, LINES[gang.kind])]:
            problems.append(f"{gang.kind}: {said} instead of {(gang.bad, LINES[gang.kind])}: {named.hang.text}")
        print(f"{gang.kind:14} {named.after_s:5.1f} s  {named.hang.text}")
    assert not problems, "\n".join(problems)


def test_train_status_and_diagnose_name_it_and_the_gang_resumes(
    world: World, torch_python: str, tmp_path: pathlib.Path
) -> None:
    """One value from the watch on a node to the screen, the record, status, diagnose and what is kept of it.

    The rank that is waited for is killed after the time that the job gives it, and the gang trains to its end.
    """
    env = {"HANG_KIND": "lock", "HANG_TRUTH": str(tmp_path / "truth"), "HANG_ONCE": "1", "HANG_SAVED": "1"}
    patterns = {"checkpoint_pattern": r"saved step (?P<step>\d+)", "resume_pattern": r"resumed from step (?P<step>\d+)"}
    job = {
        "name": "e2e",
        "nodes": 2,
        "script": str(PROGRAM),
        "env": {**env, "HANG_STEP": "12", "HANG_STEPS": "30"},
        "metrics": {**PRINTED, **patterns},
        # Time to ask what is known of it.
        "restart": {"on_hang": "restart", "hang_s": 50},
    }
    play = world.start(job=job, muster_training_python=torch_python)
    where = f"rank 1 on node-2 waits for a lock at ddp_program.py:{LINES['lock']} (lock)"
    waits = "rank 0 waits in backward at ddp_program.py:"
    until(lambda: "hangs for" in play.output, "the hang is said", 120)
    said = next(line for line in play.output.splitlines() if "hangs for" in line)
    assert "warning: the run hangs for" in said and where in said and waits in said, said
    assert time.time() - float((tmp_path / "truth").read_text().split()[2]) < 20
    status = world.play("status").output
    assert "hangs for" in status and where in status, status
    found = world.play("diagnose").output
    assert "rank_hangs" in found and where in found, found
    result = play.wait(150)
    assert "killed rank 1 on node-2, so that the gang starts again" in result.output, result.output
    record = world.record()
    assert [where in hang["text"] for hang in record["hangs"]] == [True], record
    assert [item["cause"] for item in record["attempts"]] == ["hang", None], record["attempts"]
    assert [item["resumed_from_step"] for item in record["attempts"]] == [None, 10], record["attempts"]
    assert (record["outcome"], record["attempts"][1]["last_step"]) == ("succeeded", 30)
    events = world.events()
    assert [line["ranks"][0]["rank"] for line in events if line["kind"] == "hang"] == [1]
    (told,) = [line for line in events if line["kind"] == "hang_ended"]
    assert (told["rank"], told["node"]) == (1, "node-2") and where in told["detail"]
    assert any(line["frames"] for line in events if line["kind"] == "rank_stands" and line["rank"] == 1), "it is kept"


def test_a_job_that_somebody_else_started_is_named_too(
    world: World, started: StartedRanks, tmp_path: pathlib.Path
) -> None:
    """Ranks as torchrun starts them, on the two nodes of the inventory, of which nothing is installed on either."""
    gang = Gang(started, tmp_path / "other", "lock", WORLD, 1)
    until(lambda: gang.began_at, "it hangs", 90)
    time.sleep(2)
    before = sorted(world.nodes.rglob("*")) if world.nodes.exists() else []
    result = world.play("diagnose", muster_diagnose_attach=True, muster_run_id=None, muster_train_hosts="node-1")
    assert f"ddp_program.py, {WORLD} of {WORLD} ranks seen on node-1" in result.output, result.output
    assert (
        f"hangs: rank 1 on node-1 waits for a lock at ddp_program.py:{LINES['lock']} (lock); ranks 0, 2 "
        in result.output
    )
    assert (sorted(world.nodes.rglob("*")) if world.nodes.exists() else []) == before
    assert all(os.path.exists(f"/proc/{pid}") for pid in gang.pids.values()) and result.changed == 0


@pytest.mark.long
@pytest.mark.parametrize("seed", range(int(os.environ.get("MUSTER_HANG_ROUNDS", "5"))))
def test_every_kind_is_named(ranks: Ranks, tmp_path: pathlib.Path, seed: int) -> None:
    """All kinds, each of them with another rank and another number of ranks, four gangs at a time."""
    for start in range(0, len(KINDS), 4):
        gangs = []
        for number, kind in enumerate(KINDS[start : start + 4]):
            world = (3, 4, 5)[(number + seed) % 3]
            gangs.append(
                Gang(ranks, tmp_path / kind, kind, world, (number + seed) % world, HANG_STEP=str(5 + 7 * seed))
            )
        check(gangs, name_all(gangs, LIMIT_S))
        for gang in gangs:
            for pid in gang.pids.values():
                os.killpg(pid, 9)


@pytest.mark.long
def test_pauses_are_not_hangs(ranks: Ranks, tmp_path: pathlib.Path) -> None:
    """While one rank saves, evaluates, compiles or pauses for a moment, the others wait for it, and nothing hangs."""
    gangs = [Gang(ranks, tmp_path / kind, kind, WORLD, 0, HANG_S="25") for kind in PAUSES]
    assert {kind: named.hang.text for kind, named in name_all(gangs, 40.0).items()} == {}
