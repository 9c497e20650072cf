# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checkpoints end to end: one folder for all nodes or none started, and a run that begins anew is told apart."""

from __future__ import annotations

import pathlib
import sys
import typing as t

import pytest

from ansible_collections.muster.training.tests.e2e.playbook_world import NODES, World, assert_refused, script

COUNTING = pathlib.Path(__file__).parents[1] / "fakes" / "counting_program.py"


def own_homes(world: World) -> dict[str, dict[str, t.Any]]:
    """Return variables by which each node has a home, and with it a folder ~/ckpt, of its own."""
    found = {}
    for node in NODES:
        home = world.root / f"home-{node}"
        home.mkdir()
        text = f'#!/bin/sh\nHOME={home} exec {sys.executable} "$@"\n'
        found[node] = {"ansible_python_interpreter": script(world.root / f"python-{node}", text)}
    return found


def shows_folder(world: World) -> dict[str, t.Any]:
    """Return a job that writes a file of its own into the checkpoint folder."""
    return world.job(command=["sh", "-c", 'echo saved > "$MUSTER_CHECKPOINT_DIR/part-$MUSTER_NODE"'])


def test_nodes_that_do_not_see_one_folder_are_refused(world: World) -> None:
    """The error names the node that does not see it, and three ways on; no program has begun."""
    job = {**shows_folder(world), "checkpoints": {"path": "~/ckpt"}}
    result = world.play(job=job, hosts=own_homes(world))
    folder = world.root / "home-node-2" / "ckpt" / world.run_id
    words = ("node-2", f"does not see in {folder} what node-1 wrote there", "Mount one shared file system")
    assert_refused(world, result, *words, "a folder on one in checkpoints.path", "checkpoints.shared: false")
    assert not list(world.root.glob("home-*/ckpt/*/*"))


def test_a_part_per_node_is_said_in_the_plan(world: World) -> None:
    job = {**shows_folder(world), "checkpoints": {"path": "~/ckpt", "shared": False}}
    result = world.play(job=job, hosts=own_homes(world))
    assert result.code == 0, result.output
    assert "each node keeps its part of the checkpoints in ~/ckpt (checkpoints.shared: false)" in result.output
    for node in NODES:
        folder = world.root / f"home-{node}" / "ckpt" / world.run_id
        assert [path.name for path in folder.iterdir()] == [f"part-{node}"]


def test_a_folder_that_all_nodes_see_is_used_and_nothing_else_is_left_in_it(world: World) -> None:
    result = world.play(job={**shows_folder(world), "checkpoints": {"path": str(world.root / "ckpt")}})
    assert result.code == 0, result.output
    folder = world.root / "ckpt" / world.run_id
    assert sorted(path.name for path in folder.iterdir()) == [f"part-{node}" for node in NODES]


@pytest.mark.parametrize("begin", [None, 0])
def test_a_program_that_begins_anew_after_a_kill_did_not_resume(world: World, begin: int | None) -> None:
    """The same program twice: killed at step 27, then started again; once it resumes from step 20, once it does not."""
    killed = [sys.executable, "-I", "-S", str(COUNTING), "27", "10", "1000"]
    first = world.job(nodes=1, command=["sh", "-c", f"{' '.join(killed)}; kill -9 $$"])
    assert world.play(job=first).code != 0
    again = [sys.executable, "-I", "-S", str(COUNTING), "40", "10", "1000", *([] if begin is None else [str(begin)])]
    result = world.play(job=world.job(nodes=1, command=again))
    assert result.code == 0, result.output
    record = world.record()
    told = "attempt 2 did not resume: it began at step 1, although a checkpoint of step 20 had been saved"
    resumed = begin is None
    assert record["outcome"] == "succeeded" and record["problems"] == ([] if resumed else [told])
    assert [item["resumed"] for item in record["attempts"]] == [None, resumed]
    assert record["steps_lost"] == (7 if resumed else 27)
    events = [event["detail"] for event in world.events() if event["kind"] == "not_resumed"]
    assert [f"attempt 2 {detail}" for detail in events] == record["problems"]
    last = [line for line in result.output.splitlines() if f"run {world.run_id} succeeded" in line][-1]
    assert ("not clean" in last and told in last) is not resumed
    report = world.play("report")
    assert report.code == 0, report.output
    (page,) = world.run_folder().rglob("report.json")
    assert ("did not resume" in page.read_text()) is not resumed
