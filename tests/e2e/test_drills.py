# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The drill playbook, as the README writes it, on a program that only prints; the report of the run says the same."""

from __future__ import annotations

import pathlib
import re
import typing as t
import xml.etree.ElementTree as tree

import pytest

from ansible_collections.muster.training.tests.e2e.playbook_world import Result, World

PROGRAM = """
import os, pathlib, time
place = pathlib.Path(os.environ["MUSTER_CHECKPOINT_DIR"], "rank-" + os.environ["RANK"])
step = int(place.read_text()) if place.exists() else 0
while step < 120:
    step += 1
    # Ranks of this program do not wait for each other, as those of a training do: one of them speaks.
    if os.environ["RANK"] == "0":
        print(f"iter {step} train_loss {1 / step:.4f}", flush=True)
    if step % 20 == 0:
        place.write_text(str(step))
    time.sleep(0.05)
"""
README_DRILL = {"target": "worker", "at_step": 50}


def job(world: World, interval: int | None = 20) -> dict[str, t.Any]:
    code = world.root / "code"
    code.mkdir(exist_ok=True)
    (code / "loop.py").write_text(PROGRAM)
    return {
        "name": "printer",
        "nodes": 2,
        "code": {"from": "path", "ref": str(code)},
        "script": "loop.py",
        "metrics": {"step_pattern": "iter +(?P<step>[0-9]+) train_loss (?P<loss>[0-9.]+)"},
        "checkpoints": {"grace_s": 2, **({"interval_steps": interval} if interval else {})},
    }


def play(world: World, python: str, playbook: str, **values: t.Any) -> Result:
    return world.play(playbook, muster_training_python=python, **values)


def read_junit(world: World, run_id: str) -> dict[str, bool]:
    """Return by name whether a check of the run's report passed."""
    (place,) = pathlib.Path(world.run_folder(run_id)).rglob("*.xml")
    return {case.attrib["name"]: case.find("failure") is None for case in tree.parse(place).iter("testcase")}


def repeated_steps(world: World, run_id: str) -> int:
    """Return how many steps rank 0 printed twice, by what it printed itself in its two attempts."""
    kept = world.node_folder("node-1", run_id) / "ranks"
    before, after = sorted(kept.glob("attempt_*/0/stdout.log"))
    steps = [[int(step) for step in re.findall(r"iter ([0-9]+) ", path.read_text())] for path in (before, after)]
    return len(set(steps[0]) & set(steps[1]))


def test_the_readme_s_drill_after_a_succeeded_run(world: World, torch_python: str) -> None:
    given: dict[str, t.Any] = {"job": job(world), "muster_run_id": None}
    first = play(world, torch_python, "train", **given)
    assert first.code == 0, first.output
    (base,) = (path.name for path in world.run_folder("x").parent.iterdir())
    drilled = play(world, torch_python, "drill", muster_drill=README_DRILL, **given)
    assert drilled.code == 0, drilled.output
    said = re.search(
        rf"Run {base}-drill-1 resumed in [0-9.]+ s with all 2 ranks\. Repeated steps, .*: ([0-9]+)\.", drilled.output
    )
    # The program may be ended right after a checkpoint; then nothing is repeated, and that is what has to be said.
    assert said and int(said[1]) == repeated_steps(world, f"{base}-drill-1") <= 21, drilled.output
    assert world.record(base)["attempts"][0]["last_step"] == 120, "the run that had succeeded is as it was"
    assert world.record(f"{base}-drill-1")["drill"]["resumed"] is True
    report = world.play("report", muster_run_id=f"{base}-drill-1", muster_cluster="local")
    assert report.code == 0, report.output
    assert read_junit(world, f"{base}-drill-1")["resume-1"] is True


@pytest.mark.long
def test_a_drill_of_a_run_that_is_named_and_one_that_comes_too_late(world: World, torch_python: str) -> None:
    given: dict[str, t.Any] = {"job": job(world), "muster_run_id": None}
    assert play(world, torch_python, "train", **given).code == 0
    (base,) = (path.name for path in world.run_folder("x").parent.iterdir())
    # As the report advises, with the run alone.
    again = play(world, torch_python, "drill", muster_run_id=base, muster_drill=README_DRILL)
    assert again.code == 0 and f"Run {base}-drill-1 resumed" in again.output, again.output
    late = play(world, torch_python, "drill", muster_drill={"target": "worker", "at_step": 5000}, **given)
    assert late.code != 0 and "nothing was killed, the run ended before step 5000" in late.errors[0], late.output
    assert "Drill an earlier step" in late.errors[0] and "object of type" not in late.output


def test_a_drill_that_could_prove_nothing_is_refused_before_anything_starts(world: World, torch_python: str) -> None:
    result = play(world, torch_python, "drill", job=job(world, None), muster_drill=README_DRILL)
    assert result.code != 0 and "nothing could be proven" in result.errors[0], result.output
    assert world.left_behind() == [] and not world.processes()


def test_a_cut_of_a_local_node_is_refused_by_name(world: World) -> None:
    drill = {"target": "cut", "node": "node-2", "at_step": 5}
    result = world.play("drill", job=world.rank_job(), muster_drill=drill)
    assert result.code != 0, result.output
    assert "drill.target: cut would cut off this controller: node-2 has ansible_connection: local" in result.output
    assert not world.processes()
