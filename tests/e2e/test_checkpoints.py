# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checkpoints end to end: one folder for all nodes or none started, and a run that begins anew is told apart."""

from __future__ import annotations

import pathlib
import sys
import typing as t

import pytest

from ansible_collections.muster.training.tests.e2e.playbook_world import NODES, World, assert_refused, own_homes

LAYOUT_PROGRAM = pathlib.Path(__file__).parents[1] / "fakes" / "layout_program.py"
COUNTING = pathlib.Path(__file__).parents[1] / "fakes" / "counting_program.py"


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


# argv: steps. Saves each step under a temporary name, renames, and reports it; "half.tmp" was torn by a kill.
SAVER = """
import json, os, pathlib, sys, time
folder = pathlib.Path(os.environ["MUSTER_CHECKPOINT_DIR"]); folder.mkdir(parents=True, exist_ok=True)
print("found", sorted(path.name for path in folder.glob("step-*")), flush=True)
(folder / "half.tmp").write_text("torn"); (folder / "config").write_text("of the program")
for step in range(1, int(sys.argv[1]) + 1):
    (folder / "new.tmp").write_text(str(step)); (folder / "new.tmp").rename(folder / f"step-{step}")
    with open(os.environ["MUSTER_METRICS_FILE"], "a") as handle:
        for line in ({"step": step}, {"checkpoint_step": step, "path": str(folder / f"step-{step}")}):
            handle.write(json.dumps({"at": time.time(), **line}) + chr(10))
    time.sleep(0.02)
"""


def saver(world: World, steps: int, **checkpoints: t.Any) -> dict[str, t.Any]:
    command = [sys.executable, "-I", "-S", "-c", SAVER, str(steps)]
    return world.job(nodes=1, command=command, checkpoints={"path": str(world.root / "ckpt"), **checkpoints})


def names(folder: pathlib.Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))


def test_only_complete_checkpoints_beyond_the_kept_ones_are_removed(world: World) -> None:
    result = world.play(job=saver(world, 5, keep=2))
    assert result.code == 0, result.output
    assert names(world.root / "ckpt" / world.run_id) == ["config", "half.tmp", "step-4", "step-5"]
    removed = [event["detail"] for event in world.events() if event["kind"] == "checkpoint_removed"]
    assert sorted(removed) == ["step-1", "step-2", "step-3"]


def test_a_required_checkpoint_that_is_not_there_refuses_the_start(world: World) -> None:
    folder = world.root / "ckpt" / world.run_id
    folder.mkdir(parents=True)
    (folder / "step-1.tmp").write_text("being written")
    refused = world.play(job=saver(world, 1, resume="required"))
    assert_refused(world, refused, f"resume is required, and {folder} has no complete checkpoint", "resume: auto")
    (folder / "step-1.tmp").rename(folder / "step-1")
    result = world.play(job=saver(world, 1, resume="required"))
    assert result.code == 0 and "found ['step-1']" in (world.run_folder() / "logs" / "node-1.log").read_text()


def test_a_start_that_must_not_resume_has_an_empty_folder(world: World) -> None:
    failing = saver(world, 2, resume="never")
    failing["command"] = ["sh", "-c", '"$@"; exit 3', "sh", *failing["command"]]
    assert world.play(job=failing).code != 0
    result = world.play(job=saver(world, 2, resume="never"))
    assert result.code == 0, result.output
    assert sorted(path.name for path in (world.root / "ckpt" / world.run_id).iterdir()) == ["attempt-1", "attempt-2"]
    log = (world.run_folder() / "logs" / "node-1.log").read_text()
    assert log.count("found []") == 2 and world.record()["problems"] == []


# Layout -> what is fetched of the last checkpoint, besides what lies in it.
LAYOUTS = {
    "transformers": ("checkpoint-40", []),
    "deepspeed": ("global_step40", ["latest"]),
    "lightning": ("lightning_logs/version_0/checkpoints/epoch=0-step=40.ckpt", []),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_program_that_reports_nothing_is_killed_while_it_saves_and_resumes(world: World, layout: str) -> None:
    """Its layout tells which checkpoints are whole: they are recorded, kept, proven and fetched, half-saved ones not."""
    command = [sys.executable, "-I", "-S", str(LAYOUT_PROGRAM), layout]
    job = world.job(nodes=1, command=command, checkpoints={"path": str(world.root / "ckpt"), "keep": 2})
    assert world.play(job=job).code != 0 and world.record()["checkpoint"]["step"] == 20
    result = world.play(job=job)
    assert result.code == 0, result.output
    record, (name, beside) = world.record(), LAYOUTS[layout]
    assert (record["checkpoint"]["step"], record["checkpoint"]["layout"]) == (40, layout)
    assert record["checkpoint"]["layout_by"].startswith("its name, ")
    assert [item["resumed"] for item in record["attempts"]] == [None, True] and record["steps_lost"] == 10
    by_name = layout != "deepspeed"
    passed = [event["detail"] for event in world.events() if event["kind"] == "checkpoint_passed_over"]
    assert len(passed) == by_name and all("is half saved" in said and said in result.output for said in passed)
    removed = {event["detail"] for event in world.events() if event["kind"] == "checkpoint_removed"}
    assert len(removed) == 2 and not any("40" in item for item in removed), removed
    fetched = world.play("fetch", muster_fetch_dest=str(world.root / "got"))
    assert fetched.code == 0, fetched.output
    got = {str(path.relative_to(world.root / "got")) for path in (world.root / "got").rglob("*") if path.is_file()}
    assert {path for path in got if path != name and not path.startswith(f"{name}/")} == set(beside) and len(got) > len(
        beside
    )


@pytest.mark.skipif(pathlib.Path("/run/systemd/system").is_dir(), reason="systemd limits the unit as a whole")
def test_memory_without_systemd_is_limited_and_said(world: World) -> None:
    hog = "held = [bytearray(64 << 20) for _ in range(200)]; print('allocated', len(held))"
    job = world.job(nodes=1, command=[sys.executable, "-c", hog], resources={"memory": "1Gi"})
    result = world.play(job=job)
    assert result.code != 0 and "MemoryError" in result.output, result.output
    assert "resources.memory limits each process by itself on node-1 (no systemd)" in result.output


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
