# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""ansible-playbook is interrupted at any moment; the same command then brings the run to its end."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import time
import typing as t

import pytest

from ansible_collections.muster.training.tests.e2e.playbook_world import NODES, Play, Result, World, script, until

# Seconds after the start, and what must have happened: on a slow machine the seconds all come early in a run.
DELAYS = (0.3, 0.5, 0.7, 0.9, 1.1, 1.5, 2.5)
LONG_DELAYS = (0.3, 0.7, 2.5)
STAGES = ("run folder", "claim", "ranks")
KINDS = ("INT", "TERM", "KILL")


def cases() -> list[t.Any]:
    """Return every moment with every signal; a short session takes each moment once and the last one with all."""
    found = []
    for index, moment in enumerate((*DELAYS, *STAGES)):
        for number, kind in enumerate(KINDS):
            short = (number == index % len(KINDS) and moment not in LONG_DELAYS) or moment == STAGES[-1]
            found.append(pytest.param(moment, kind, marks=() if short else pytest.mark.long, id=f"{kind} at {moment}"))
    return found


def reach(world: World, play: Play, moment: float | str) -> None:
    """Wait for a moment of a run."""
    if isinstance(moment, float):
        time.sleep(max(0.0, play.began + moment - time.monotonic()))
        return
    reached: dict[str, t.Callable[[], bool]] = {
        "run folder": lambda: world.run_folder().exists(),
        "claim": lambda: any((world.node_folder(node) / "claim.json").exists() for node in NODES),
        "ranks": lambda: len(world.ranks()) == 2,
    }
    until(reached[moment], f"the moment '{moment}'")


def interrupt(play: Play, kind: str) -> Result:
    """Send the signal: to the group as a terminal does, KILL to everything as a machine that dies does."""
    if kind == "KILL":
        play.kill(signal.SIGKILL)
        return play.wait(30)
    play.signal(getattr(signal, f"SIG{kind}"))
    with contextlib.suppress(subprocess.TimeoutExpired):
        play.process.wait(20)
    if kind == "INT" and play.process.poll() is None:
        # One that reaches ansible-playbook while it starts itself was seen to be lost: a person presses Ctrl-C again.
        play.signal(signal.SIGINT)
    return play.wait(30)


def assert_ends_well(world: World, play: Play, ends: int = 1) -> None:
    """Assert that a playbook leads to one gang of two ranks, and that the whole run tells one story.

    :param ends: how often the run has ended then, with a cancellation before.
    """
    planned = f"run {world.run_id}: 2 nodes"
    until(lambda: (planned in play.output and len(world.ranks()) == 2) or play.process.poll() is not None, "both ranks")
    assert play.process.poll() is None, play.output
    assert [len(world.supervisors(node)) for node in NODES] == [1, 1], world.processes()
    world.finish()
    result = play.wait()
    assert result.code == 0 and "Traceback" not in result.output, result.output
    assert not (world.root / "duplicate").exists(), "two ranks with one number lived at the same time"
    assert world.processes() == {}
    assert_one_story(world, ends)


def assert_one_story(world: World, ends: int = 1) -> None:
    """Assert that record and events agree: no event twice, each rank once an attempt, the last attempt complete."""
    events, record = world.events(), world.record()
    assert len({json.dumps(event, sort_keys=True) for event in events}) == len(events), events
    started = [(event["attempt"], event["rank"]) for event in events if event["kind"] == "worker_started"]
    assert len(set(started)) == len(started), events
    last = max(attempt for attempt, _ in started)
    assert sorted(rank for attempt, rank in started if attempt == last) == [0, 1]
    exits = [event for event in events if event["kind"] == "worker_exit" and event["attempt"] == last]
    assert sorted((event["rank"], event["exit_code"]) for event in exits) == [(0, 0), (1, 0)]
    assert [event["kind"] for event in events].count("ended") == ends
    assert (record["state"], record["outcome"], record["exit_code"]) == ("ended", "succeeded", 0)
    assert record["world_size"] == {"asked": 2, "seen": 2}


@pytest.mark.parametrize(("moment", "kind"), cases())
def test_the_same_command_after_an_interruption(world: World, moment: float | str, kind: str) -> None:
    """Whatever the first command had done, the second leads to one complete gang and a good end."""
    job = world.rank_job()
    first = world.start(job=job)
    reach(world, first, moment)
    result = interrupt(first, kind)
    # Before the first play it is Ansible's own start that is interrupted.
    assert result.code != 0 and ("Traceback" not in result.output or "PLAY [" not in result.output), result.output
    if (moment, kind) == ("ranks", "INT"):
        (line,) = [line for line in result.output.splitlines() if line.startswith(f"Run {world.run_id} ")]
        assert "running on node-1, node-2. Follow it (with -e muster_state, -e muster_job as at its start): " in line
        assert " as at its start): ansible-playbook -i " in line
        assert f"muster.training.cancel -e muster_run_id={world.run_id}" in line
    began = world.ranks()
    assert_ends_well(world, world.start(job=job))
    if moment == "ranks":
        lines = (world.root / "began").read_text().splitlines()
        assert sorted(int(line.split()[2]) for line in lines) == sorted(began.values()), "running ranks were disturbed"


def test_the_same_command_after_only_ansible_playbook_was_killed(world: World) -> None:
    """SIGKILL reaches the process that was started and nothing else, as from the OOM killer."""
    job = world.rank_job()
    first = world.start(job=job)
    reach(world, first, "ranks")
    first.signal(signal.SIGKILL)
    first.wait()
    assert_ends_well(world, world.start(job=job))


def test_the_same_command_after_a_kill_between_the_starts_of_two_nodes(world: World) -> None:
    """The first node runs and the second one does not: the second command starts only the second one."""
    job = world.rank_job()
    # Requests to the installed agent are slow on the second node, so the first one starts well before it.
    slow = f'#!/bin/sh\ncase "$*" in */run.py) sleep 2 ;; esac\nexec {world.values()["muster_training_python"]} "$@"\n'
    hosts = {"node-2": {"ansible_python_interpreter": script(world.root / "slow-python", slow)}}
    first = world.start(job=job, hosts=hosts)
    # Its rank waits: each node asks the others which checkpoints they have before a program begins.
    until(lambda: (world.node_folder("node-1") / "units" / "agent" / "log").exists(), "the first node's unit")
    assert interrupt(first, "KILL").code != 0
    assert not (world.node_folder("node-2") / "units").exists() and 1 not in world.ranks()
    assert_ends_well(world, world.start(job=job))
