# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Each layout with ``shared: false``: two nodes with a part each, one killed while it saves, resumed, pruned, fetched."""

from __future__ import annotations

import base64
import json
import pathlib
import sys
import typing as t

import pytest

from ansible_collections.muster.training.tests.e2e.playbook_world import NODES, World, own_homes
from ansible_collections.muster.training.tests.support.layout_parts import CASES, Case

PROGRAM = pathlib.Path(__file__).parents[1] / "fakes" / "parts_program.py"
# A part of it is marked last of all, one has a tracker, one has all in one file.
SHORT = frozenset({"transformers", "deepspeed", "dcp"})
PARAMS = [pytest.param(name, marks=() if name in SHORT else pytest.mark.long) for name in CASES]


def build_job(world: World, case: Case) -> dict[str, t.Any]:
    """Return the job of the program that saves in the shapes of a case."""
    (world.root / "case.json").write_text(
        json.dumps(
            {
                "name": case.name,
                "parts": [
                    {name: base64.b64encode(content).decode() for name, content in tree.items()}
                    for tree in (case.first, case.second)
                ],
                "tracker": case.tracker[0],
                "said": case.tracker[1],
                "gathered": case.gathered,
                "temporary": case.temporary,
            }
        )
    )
    command = [sys.executable, "-I", "-S", str(PROGRAM), str(world.root / "case.json"), str(world.root / "meeting")]
    return world.job(command=command, checkpoints={"path": "~/ckpt", "shared": False, "keep": 2, "grace_s": 1})


def list_paths(folder: pathlib.Path) -> set[str]:
    """Return the paths of the files in a folder that are not hidden."""
    paths = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    return {str(path) for path in paths if path.name == ".metadata" or not any(part[0] == "." for part in path.parts)}


def name_files(case: Case, node: str, *steps: int) -> set[str]:
    """Return the paths of the files that a node has of some steps, and the tracker."""
    tree = case.first if node == NODES[0] else case.second
    found = {case.path(step, name) for step in steps for name in tree}
    tracker = {str(pathlib.PurePath(case.name).with_name(case.tracker[0]))} if case.tracker[0] else set()
    return found | (tracker if node == NODES[0] else set())


def fetch(world: World, case: Case, step: int, hosts: dict[str, t.Any]) -> str:
    """Fetch, and assert that the parts of a step came from both nodes; return what the playbook printed."""
    got = world.root / f"got-{step}"
    fetched = world.play("fetch", muster_fetch_dest=str(got), hosts=hosts)
    assert fetched.code == 0, fetched.output
    assert list_paths(got) == {path for node in NODES for path in name_files(case, node, step)}, fetched.output
    return fetched.output


@pytest.mark.parametrize("layout", PARAMS)
def test_a_run_of_parts_resumes_from_the_last_step_of_all_and_is_fetched(world: World, layout: str) -> None:
    """Rank 1 is killed while it saves step 30, of which rank 0 has its part; the last one of both is that of step 20."""
    case = CASES[layout]
    job, hosts = build_job(world, case), own_homes(world)
    killed = world.play(job=job, hosts=hosts)
    assert killed.code != 0 and world.record()["attempts"][0]["last_step"] == 30, killed.output
    left = f"{case.name.format(30)} is of a later step, which not every rank or node has saved, and was left"
    # A tracker still names step 20: of a later one nothing is known.
    assert (left in fetch(world, case, 20, hosts)) is not bool(case.tracker[0])
    result = world.play(job=job, hosts=hosts)
    assert result.code == 0, result.output
    record = world.record()
    assert (record["checkpoint"]["step"], record["checkpoint"]["layout"]) == (60, layout), record
    before, after = record["attempts"]
    assert (before["last_step"], after["first_step"], after["resumed"]) == (30, 21, True), record
    assert (record["steps_lost"], record["problems"]) == (10, []), record
    for node in NODES:
        folder = world.root / f"home-{node}" / "ckpt" / world.run_id
        assert list_paths(folder) == name_files(case, node, 50, 60), node
    removed = {(event["node"], event["detail"]) for event in world.events() if event["kind"] == "checkpoint_removed"}
    assert {(node, case.name.format(step)) for node in NODES for step in (10, 40)} <= removed, removed
    fetch(world, case, 60, hosts)
