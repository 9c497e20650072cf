# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs that nobody follows: what ``status``, ``logs`` and ``cancel`` say of them is what happened on the nodes."""

from __future__ import annotations

import re
import sys
import typing as t

import pytest

from ansible_collections.muster.training.tests.e2e.playbook_world import NODES, World, until

LAST_WORDS = "these are the last words"


def job(world: World, code: int = 0, **values: t.Any) -> dict[str, t.Any]:
    """Return a job that works until :meth:`World.finish` and then speaks its last words."""
    program = (
        "import pathlib, sys, time\n"
        f"while not pathlib.Path({str(world.root / 'finish')!r}).exists(): time.sleep(0.05)\n"
        f"print({LAST_WORDS!r}, flush=True)\n"
        f"sys.exit({code})\n"
    )
    return world.job(command=[sys.executable, "-I", "-S", "-c", program], **values)


def end_unfollowed(world: World, code: int = 0, **values: t.Any) -> None:
    """Start a run that nobody follows, and let it end."""
    result = world.play(job=job(world, code, **values), training_job_wait=False)
    assert result.code == 0 and f"Run {world.run_id} is not followed; it keeps running on node-1" in result.output
    assert world.record()["state"] != "ended"
    world.finish()
    until(lambda: not world.processes(), f"the end of {world.processes()}")


@pytest.mark.parametrize(("code", "outcome"), [(0, "succeeded"), (3, "failed")])
def test_status_records_how_a_run_ended(world: World, code: int, outcome: str) -> None:
    end_unfollowed(world, code, restart={"max_crashes": 0})
    before = world.digest()
    assert world.play("status", args=["--check"]).code == 0
    assert {path: text for path, text in world.digest().items() if "ansible" not in path} == before
    result = world.play("status")
    assert result.code == 0 and re.search(rf"{world.run_id} +{outcome} ", result.output), result.output
    record = world.record()
    assert (record["state"], record["outcome"], record["exit_code"]) == ("ended", outcome, code)
    assert record["world_size"] == {"asked": 2, "seen": 2}
    ended = max(event["at"] for event in world.events() if event["kind"] == "agent_exit")
    assert record["ended_at"] is not None and record["duration_s"] > 0
    last = [event for event in world.events() if event["kind"] == "ended"]
    assert len(last) == 1 and last[0]["at"] >= ended
    if code == 0:
        assert world.play(job=job(world)).changed == 0, "train has nothing left to do"


def test_logs_fetch_what_was_written_since(world: World) -> None:
    end_unfollowed(world)
    result = world.play("logs")
    assert result.code == 0 and result.output.count(LAST_WORDS) == len(NODES), result.output


@pytest.mark.parametrize(("code", "outcome"), [(0, "succeeded"), (3, "failed")])
def test_cancel_keeps_the_outcome_of_a_run_that_has_ended(world: World, code: int, outcome: str) -> None:
    end_unfollowed(world, code, restart={"max_crashes": 0})
    world.play("cancel")
    assert world.record()["outcome"] == outcome
    again = world.play("cancel")
    assert again.changed == 0 and world.record()["outcome"] == outcome


def test_status_leaves_a_run_that_works_alone(world: World) -> None:
    assert world.play(job=job(world), training_job_wait=False).code == 0
    alive = world.processes()
    assert world.play("status").code == 0
    assert world.record()["state"] == "running" and world.processes() == alive
    world.finish()
    assert world.play(job=job(world)).code == 0


def test_following_a_run_that_is_cancelled_elsewhere_fails(world: World) -> None:
    play = world.start(job=world.rank_job())
    until(lambda: len(world.ranks()) == 2 or play.process.poll() is not None, "both ranks")
    cancelled = world.play("cancel")
    assert cancelled.code == 0 and cancelled.changed == 1, cancelled.output
    result = play.wait()
    assert result.code != 0 and f"run {world.run_id} cancelled" in result.errors[0], result.output
    assert world.record()["outcome"] == "cancelled"
    assert [event["kind"] for event in world.events()].count("ended") == 1
