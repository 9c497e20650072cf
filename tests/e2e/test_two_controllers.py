# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The same run id started from two controllers: exactly one has it, the other one is told so."""

from __future__ import annotations

import sys

from ansible_collections.muster.training.tests.e2e.playbook_world import Result, World, script, until


def assert_one_won(world: World, results: list[Result]) -> tuple[int, int]:
    """Assert that one command ended well and one with a clear error; return (winner, loser)."""
    outputs = "\n".join(result.output for result in results)
    assert sorted(result.code != 0 for result in results) == [False, True], outputs
    winner = next(index for index, result in enumerate(results) if result.code == 0)
    loser = 1 - winner
    assert "Traceback" not in outputs and len(results[loser].errors) == 1, outputs
    assert f"run {world.run_id} belongs to another controller" in results[loser].errors[0]
    assert f"state-{winner}" in results[loser].errors[0], "the error says where the run is followed"
    assert world.record(state=world.root / f"state-{winner}")["outcome"] == "succeeded"
    assert world.record(state=world.root / f"state-{winner}")["world_size"]["seen"] == 2
    assert not (world.root / "duplicate").exists() and world.processes() == {}
    assert len((world.root / "began").read_text().splitlines()) == 2, "two ranks began, and no more"
    kept = world.run_folder(state=world.root / f"state-{loser}")
    assert not (kept / "run.json").exists() and not (kept / "claim.json").exists()
    return winner, loser


def states(world: World) -> list[dict[str, str]]:
    """Return the state homes of two controllers."""
    return [{"path": str(world.root / f"state-{number}")} for number in (0, 1)]


def test_at_the_same_time(world: World) -> None:
    """Both commands start in the same moment."""
    plays = [world.start(job=world.rank_job(), muster_state=state) for state in states(world)]
    until(lambda: len(world.ranks()) == 2 and any(play.process.poll() is not None for play in plays), "one to win")
    world.finish()
    assert_one_won(world, [play.wait() for play in plays])


def test_one_after_the_other(world: World) -> None:
    """The second one is refused before it does anything, with a way out that then works."""
    first, second = states(world)
    job = world.rank_job()
    winner = world.start(job=job, muster_state=first)
    until(lambda: len(world.ranks()) == 2, "both ranks")
    loser = world.play(job=job, muster_state=second)
    assert "muster_take_over: true" in loser.errors[0]
    cancelled = world.play("cancel", muster_state=second)
    assert cancelled.code != 0 and f"run {world.run_id} does not exist" in cancelled.errors[0]
    assert len(world.ranks()) == 2
    world.finish()
    assert assert_one_won(world, [winner.wait(), loser]) == (0, 1)


def test_taking_over(world: World) -> None:
    """The second controller is told to take the run over and follows it to a good end; the first one says so and ends."""
    first, second = states(world)
    job = world.rank_job()
    former = world.start(job=job, muster_state=first)
    until(lambda: len(world.ranks()) == 2, "both ranks")
    before = world.processes()
    play = world.start(job=job, muster_state=second, muster_take_over=True)
    until(lambda: "already running, following it" in play.output, "the second controller to follow")
    ended = former.wait()
    assert ended.code != 0 and "which follows it now" in ended.errors[0], ended.output
    assert world.processes() == before
    shown = world.play("status", muster_state=first)
    assert "taken over" in shown.output and "state-1 has held it since" in shown.output, shown.output
    refused = world.play("cancel", muster_state=first)
    assert refused.errors[0].endswith("Cancel it there, or here with muster_take_over: true"), refused.errors
    assert world.processes() == before
    world.finish()
    result = play.wait()
    assert result.code == 0 and result.changed == 0, result.output
    assert world.record(state=world.root / "state-1")["world_size"] == {"asked": 2, "seen": 2}


def test_when_each_is_first_on_one_node(world: World) -> None:
    """The connection of each controller to one of the nodes is slow, so that each claims another node first."""
    text = f'#!/bin/sh\ncase "$*" in */run.py) sleep 1.5 ;; esac\nexec {sys.executable} "$@"\n'
    slow = {"ansible_python_interpreter": script(world.root / "slow-python", text)}
    # The agent is installed before, so that both claim in their first request after looking.
    assert world.play(job=world.job(), muster_run_id="before").code == 0
    plays = [
        world.start(job=world.rank_job(), muster_state=state, hosts={node: slow})
        for state, node in zip(states(world), ("node-2", "node-1"), strict=True)
    ]
    until(lambda: len(world.ranks()) == 2 or all(play.process.poll() is not None for play in plays), "one to win")
    world.finish()
    assert_one_won(world, [play.wait() for play in plays])
