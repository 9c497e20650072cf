# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Another job, or other code, under the run id of an earlier one: what is refused, what is said, and training longer."""

from __future__ import annotations

import json
import sys
import typing as t

from ansible_collections.muster.training.tests.e2e.playbook_world import NODES, ROOT, World, until

# Saves every step and goes on where it stopped, up to the step that is asked for.
PROGRAM = """
import json, os, pathlib, sys, time
place = pathlib.Path(os.environ["MUSTER_CHECKPOINT_DIR"], "rank-" + os.environ["RANK"])
step = int(place.read_text()) if place.exists() else 0
while step < int(sys.argv[1]):
    step += 1
    place.write_text(str(step))
    with open(os.environ["MUSTER_METRICS_FILE"], "a") as metrics:
        metrics.write(json.dumps({"at": time.time(), "step": step}) + "\\n")
        metrics.write(json.dumps({"at": time.time(), "checkpoint_step": step, "path": str(place)}) + "\\n")
    time.sleep(0.1)
"""
# One checkpoint of all ranks: rank 0 saves it, every rank begins at it, and rank 0 says so.
GROWS = """
import json, os, pathlib, sys, time
place, first = pathlib.Path(os.environ["MUSTER_CHECKPOINT_DIR"], "step"), os.environ["RANK"] == "0"
step = int(place.read_text()) if place.exists() else 0
def say(**values):
    if not first:
        return
    with open(os.environ["MUSTER_METRICS_FILE"], "a") as metrics:
        metrics.write(json.dumps({"at": time.time(), **values}) + "\\n")
say(resumed_from_step=step, world_size=int(os.environ["WORLD_SIZE"]))
while step < int(sys.argv[1]):
    step += 1
    if first:
        place.with_suffix(".new").write_text(str(step))
        place.with_suffix(".new").replace(place)
        say(checkpoint_step=step, path=str(place))
    say(step=step)
    time.sleep(0.1)
"""


def job(world: World, steps: int, **values: t.Any) -> dict[str, t.Any]:
    return world.job(
        command=[sys.executable, "-I", "-S", "-c", PROGRAM, str(steps)], **{"checkpoints": {"grace_s": 1}, **values}
    )


def test_another_job_is_refused_while_the_run_is_running(world: World) -> None:
    assert world.play(job=world.rank_job(), training_job_wait=False).code == 0
    until(lambda: len(world.ranks()) == 2, "both ranks")
    alive = world.processes()
    result = world.play(job=world.rank_job(talk=True))
    assert result.code != 0 and f"run {world.run_id} is already running with another job: command" in result.errors[0]
    assert "Cancel it first" in result.errors[0] and world.processes() == alive
    world.finish()
    assert world.play(job=world.rank_job()).code == 0, "the first job is followed to its end"


def test_a_run_that_had_ended_says_where_it_continues_and_what_has_changed(world: World) -> None:
    play = world.start(job=job(world, 1000))
    until(lambda: (world.run_folder() / "metrics.jsonl").exists() or play.process.poll() is not None, "steps")
    until(lambda: len(world.metrics()) >= 6, "steps")
    assert world.play("cancel").code == 0
    play.wait()
    step = world.record()["checkpoint"]["step"]
    result = world.play(job=job(world, 12))
    assert result.code == 0, result.output
    assert (
        f"was cancelled, and continues from the checkpoint of step {step}, with another job: command" in result.output
    )


def test_a_run_grown_from_one_node_to_five_keeps_its_id_and_its_checkpoint(world: World) -> None:
    names = [f"node-{number}" for number in range(1, 6)]
    local = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    world.inventory = world.root / "five.json"

    def use(nodes: list[str]) -> None:
        hosts = {name: {**local, "ansible_host": f"127.0.0.{index + 1}"} for index, name in enumerate(nodes)}
        own = {"muster_cluster": "local"}
        world.inventory.write_text(json.dumps({"muster_nodes": {"hosts": hosts, "vars": own}}))

    def grown(count: int, steps: int) -> dict[str, t.Any]:
        command = [sys.executable, "-I", "-S", "-c", GROWS, str(steps)]
        checkpoints = {"path": str(world.root / "saved"), "grace_s": 1}
        return world.job(nodes=count, command=command, checkpoints=checkpoints)

    use(names[:1])
    play = world.start(job=grown(1, 1000))
    until(lambda: (world.run_folder() / "metrics.jsonl").exists() or play.process.poll() is not None, "steps")
    assert play.process.poll() is None, play.output
    until(lambda: len([line for line in world.metrics() if "step" in line]) >= 6, "steps")
    assert world.play("cancel").code == 0
    play.wait()
    step = world.record()["checkpoint"]["step"]
    use(names)
    result = world.play(job=grown(5, step + 10))
    assert result.code == 0, result.output
    (said,) = [line for line in result.output.splitlines() if "continues from the checkpoint" in line]
    assert f" of step {step}, with another job: " in said and "nodes" in said, said
    record = world.record()
    assert record["run_id"] == world.run_id and record["outcome"] == "succeeded"
    assert record["world_size"] == {"asked": 5, "seen": 5}
    begun = [(line["world_size"], line["resumed_from_step"]) for line in world.metrics() if "world_size" in line]
    assert begun[0] == (1, 0) and begun[-1] == (5, step), begun
    # A step that the first gang had begun behind its checkpoint is not counted as a new one.
    assert record["attempts"][-1]["resumed_from_step"] == step and record["attempts"][-1]["last_step"] == step + 10


def test_training_longer_is_one_option(world: World) -> None:
    assert world.play(job=job(world, 5)).code == 0
    refused = world.play(job=job(world, 9))
    assert refused.code != 0 and "has already succeeded with another job: command" in refused.errors[0], refused.output
    assert "muster_extend" in refused.errors[0] and world.record()["attempts"][-1]["last_step"] == 5
    longer = world.play(job=job(world, 9), muster_extend=True)
    assert longer.code == 0 and "continues from the checkpoint of step 5" in longer.output, longer.output
    assert (world.node_folder(NODES[0]) / "checkpoints" / "rank-0").read_text() == "9"
    last = world.record()["attempts"][-1]
    assert (last["first_step"], last["last_step"], world.record()["outcome"]) == (6, 9, "succeeded")
    again = world.play(job=job(world, 9), muster_extend=True)
    assert again.code == 0 and again.changed == 0


def test_a_changed_job_has_a_folder_of_its_own_below_the_path(world: World) -> None:
    """Without a run id: the longer job begins at 0 beside the checkpoints of the first, as the guide says."""
    kept = world.root / "kept"
    for steps in (5, 9):
        changed = job(world, steps, checkpoints={"grace_s": 1, "path": str(kept)})
        result = world.play(job=changed, muster_run_id=None)
        assert result.code == 0 and "continues from" not in result.output, result.output
    saved = {place.parent.name: place.read_text() for place in kept.glob("e2e-*/rank-0")}
    assert sorted(saved.values()) == ["5", "9"], saved
    records = [json.loads(place.read_text()) for place in world.state.glob("*/runs/e2e-*/run.json")]
    assert [record["attempts"][0]["first_step"] for record in records] == [1, 1]
    assert {record["run_id"] for record in records} == set(saved)
    page = " ".join((ROOT / "docs" / "docsite" / "rst" / "guide_job.rst").read_text().split())
    assert (
        "A run uses the folder ``path/RUN_ID``. Another run id, which also a changed job gets, begins without" in page
    )
