# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Two nodes without a shared folder: what one node alone saved is on the other before ranks begin again."""

from __future__ import annotations

import json
import os
import pathlib
import re
import shutil
import signal
import typing as t

import pytest

from ansible_collections.muster.training.tests.e2e.playbook_world import World, until

# As nanoGPT does it: rank 0 saves, every rank loads the newest. argv: steps, what is saved (rank0, parts, half, or
# elsewhere than the product knows of).
NANO = """
import glob, os, sys, time
import torch, torch.distributed as dist
steps, kind = int(sys.argv[1]), sys.argv[2]
out, rank = "out" if kind == "elsewhere" else os.environ["MUSTER_CHECKPOINT_DIR"], int(os.environ["RANK"])
os.makedirs(out, exist_ok=True)
dist.init_process_group("gloo")
torch.manual_seed(1)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
mine = f"{out}/ckpt_rank{rank}_it*.pt" if kind == "parts" else f"{out}/ckpt_it*.pt"
found, it = sorted(glob.glob(mine)), 0
for place in reversed(found):
    try:
        state = torch.load(place)
    except Exception:
        continue
    model.load_state_dict(state["model"])
    it = state["it"]
    break
print(f"resumed from {it}", flush=True)
while it < steps:
    it += 1
    loss = model(torch.ones(4, 64) * (rank + 1) / it).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"[it {it:6d}] train {loss.item():.4f}", flush=True)
    if it % 10 == 0:
        place = mine.replace("*", f"{it:06d}")
        if kind == "parts" or rank == 0:
            state = {"model": model.state_dict(), "it": it}
            torch.save(state, place + ".tmp")
            os.replace(place + ".tmp", place)
            if kind == "half" and os.environ["MUSTER_ATTEMPT"] == "1" and it > 10:
                whole = open(place, "rb").read()
                open(place, "wb").write(whole[: len(whole) // 2])
        print(f"saved {it}", flush=True)
    time.sleep(0.05)
print("weights", f"{model.module.weight.double().sum().item():.12f}", flush=True)
dist.barrier()
"""
LONG = pytest.mark.long
# Only tells a run from one that stands, on a busy machine too.
LIMIT_S = 200.0
PATTERNS = {
    "step_pattern": r"\[it +(?P<step>[0-9]+)\] train (?P<loss>[0-9.]+)",
    "checkpoint_pattern": "saved (?P<step>[0-9]+)",
    "resume_pattern": "resumed from (?P<step>[0-9]+)",
}


class Nano:
    """The program on two nodes, each of which keeps its checkpoints in the folder of the run."""

    def __init__(self, world: World, python: str) -> None:
        self.world, self.python = world, python
        (world.root / "code").mkdir()
        (world.root / "code" / "nano.py").write_text(NANO)

    def job(self, steps: int, kind: str = "rank0", **values: t.Any) -> dict[str, t.Any]:
        return {
            "name": "nano",
            "nodes": 2,
            "code": {"from": "path", "ref": str(self.world.root / "code")},
            "script": "nano.py",
            "args": [str(steps), kind],
            "metrics": PATTERNS,
            "env": {"OMP_NUM_THREADS": "1"},
            # What is copied is copied for a restart, however long a start takes.
            "checkpoints": {"grace_s": 2, "copy_every_s": 600},
            **values,
        }

    def play(self, playbook: str, **values: t.Any) -> t.Any:
        return self.world.play(playbook, muster_training_python=self.python, limit_s=LIMIT_S, **values)

    def printed(self, node: str, pattern: str) -> list[str]:
        """Return what the ranks of a node printed that matches, in the order of their attempts."""
        return re.findall(pattern, (self.world.run_folder() / "logs" / f"{node}.log").read_text())

    def resumed(self) -> dict[str, list[int]]:
        """Return by node from which step each attempt began."""
        nodes = ("node-1", "node-2")
        return {node: [int(step) for step in self.printed(node, "resumed from ([0-9]+)")] for node in nodes}

    def checkpoints(self, node: str) -> list[str]:
        folder = self.world.node_folder(node) / "checkpoints"
        return sorted(path.name for path in folder.glob("ckpt*"))

    def copied(self) -> list[tuple[str, str, str]]:
        """Return (node, name, source) of each copy."""
        events = [event for event in self.world.events() if event["kind"] == "checkpoint_copied"]
        return [(event["node"], event["detail"], event["source"]) for event in events]

    def reached(self, step: int) -> bool:
        place = self.world.run_folder() / "metrics.jsonl"
        lines = [json.loads(line) for line in place.read_text().splitlines()] if place.exists() else []
        return any(line.get("step", 0) >= step for line in lines)


@pytest.fixture
def nano(world: World, torch_python: str) -> Nano:
    return Nano(world, torch_python)


# The next test kills a rank, and a host with its disk.
@pytest.mark.parametrize("target", [pytest.param("worker", marks=LONG), "agent", pytest.param("host", marks=LONG)])
def test_what_rank_0_saved_is_on_all_nodes_before_a_restart(nano: Nano, target: str) -> None:
    """Killed: a rank by which torchrun starts the gang again, an agent, all of the run on a node."""
    drill = {"target": target, "at_step": 25}
    result = nano.play("drill", job=nano.job(60), muster_drill=drill)
    assert result.code == 0, result.output
    assert "what one node alone saved is copied to the others before a restart" in result.output
    began = nano.resumed()
    assert began["node-1"] == began["node-2"] and len(began["node-1"]) == 2 and began["node-1"][1] >= 20, began
    ((node, name, source),) = nano.copied()
    assert (node, name, source) == ("node-2", f"ckpt_it{began['node-1'][1]:06d}.pt", "node-1")
    assert f"node-2: copied checkpoint {name} from node-1" in result.output
    (one,), (two,) = (nano.printed(node, "weights (.*)") for node in ("node-1", "node-2"))
    assert one == two


def test_a_node_whose_disk_was_lost_gets_what_another_one_has(nano: Nano) -> None:
    """After a first restart both have a checkpoint; then the first machine is gone with all that it had."""
    world = nano.world
    play = world.start("train", nano.job(90), muster_training_python=nano.python)
    until(lambda: nano.reached(25), "step 25", LIMIT_S)
    os.kill(find_rank(world, 1), signal.SIGKILL)
    until(lambda: nano.reached(35) and nano.copied(), "the resume", LIMIT_S)
    had = [name for _node, name, _source in nano.copied()]
    kill_node(world, "node-1")
    result = play.wait(LIMIT_S)
    assert result.code == 0, result.output
    began = nano.resumed()
    assert began["node-1"][-1] == began["node-2"][-1] >= 20, began
    assert ("node-1", had[0], "node-2") in nano.copied()


def test_the_machine_that_saves_is_lost_before_any_restart(nano: Nano) -> None:
    """The next node has a copy of what it saved; the run continues from there on an empty disk."""
    world = nano.world
    job = nano.job(120, checkpoints={"grace_s": 2, "copy_every_s": 1})
    play = world.start("train", job, muster_training_python=nano.python)
    until(lambda: nano.reached(25) and nano.checkpoints("node-2"), "the copy", LIMIT_S)
    kill_node(world, "node-1")
    result = play.wait(LIMIT_S)
    assert result.code == 0, result.output
    began = nano.resumed()
    assert began["node-1"][-1] == began["node-2"][-1] >= 10, began
    assert "node-2 has a copy of what node-1 saved, of ckpt_it" in result.output


def test_the_same_command_after_a_cancel_and_an_extended_run(nano: Nano) -> None:
    world = nano.world
    play = world.start("train", nano.job(60), muster_training_python=nano.python)
    until(lambda: nano.reached(25), "step 25", LIMIT_S)
    assert nano.play("cancel").code == 0
    play.wait(LIMIT_S)
    again = nano.play("train", job=nano.job(60))
    assert again.code == 0, again.output
    longer = nano.play("train", job=nano.job(70), muster_extend=True)
    assert longer.code == 0, longer.output
    began = nano.resumed()
    assert began["node-1"] == began["node-2"] and began["node-1"][0] == 0 and began["node-1"][2] == 60, began
    # Of former copies the newest stays: a node's disk does not fill with restarts.
    assert nano.checkpoints("node-2") == ["ckpt_it000060.pt"]
    assert "restarts 1" in again.output and "restarts 2" not in longer.output, "to extend a run is no restart"


def test_a_part_per_node_stays_where_it_is(nano: Nano) -> None:
    result = nano.play("drill", job=nano.job(60, "parts"), muster_drill={"target": "worker", "at_step": 25})
    assert result.code == 0, result.output
    began = nano.resumed()
    assert began["node-1"] == began["node-2"] and began["node-1"][1] >= 20, began
    assert nano.copied() == []
    for rank, node in enumerate(("node-1", "node-2")):
        assert all(f"rank{rank}" in name for name in nano.checkpoints(node))


@pytest.mark.long
def test_a_half_saved_checkpoint_is_not_copied(nano: Nano) -> None:
    """Those from step 20 on lack their end; all ranks begin with the one before."""
    play = nano.world.start("train", nano.job(50, "half"), muster_training_python=nano.python)
    until(lambda: nano.reached(25), "step 25", LIMIT_S)
    os.kill(find_rank(nano.world, 1), signal.SIGKILL)
    result = play.wait(LIMIT_S)
    assert result.code == 0, result.output
    assert nano.resumed() == {"node-1": [0, 10], "node-2": [0, 10]}
    assert [name for _node, name, _source in nano.copied()] == ["ckpt_it000010.pt"]


def test_ranks_that_begin_at_different_steps_are_stopped_at_once(nano: Nano) -> None:
    """The program saves where the product does not look: without an end the first node would wait for the other."""
    job = nano.job(20000, "elsewhere")
    result = nano.play("drill", job=job, muster_drill={"target": "worker", "at_step": 25})
    assert result.code != 0, result.output
    resumed = nano.printed("node-1", "resumed from ([0-9]+)")[1]
    folder = nano.world.node_folder("node-2") / "checkpoints"
    words = f"rank 0 on node-1 resumed from step {resumed}, rank 1 on node-2 from step 0: neither has a checkpoint in {folder}"
    assert f"{words}, the program saves elsewhere" in result.errors[0], result.errors
    assert "MUSTER_CHECKPOINT_DIR" in result.errors[0]
    record = nano.world.record()
    assert (record["cause"], record["outcome"]) == ("uneven_resume", "failed")
    # Its nodes tell the same to one that knows of nothing else.
    found = nano.world.play("diagnose", muster_run_id=nano.world.run_id)
    lines = [line.partition("  ")[2] for line in found.output.splitlines() if "  uneven_resume" in line]
    assert lines[0].startswith(f"uneven_resume on node-2: {words}, the program saves elsewhere"), found.output
    behind = [int(step) for step in nano.printed("node-2", r"\[it +([0-9]+)\]")]
    # A batch of the follower, and the time that it takes to stop ranks.
    assert behind[-1] < 2000, "it was stopped long before the gang could have stood"


def find_rank(world: World, rank: int) -> int:
    """Return the process of a rank of the newest attempt."""
    started = [event for event in world.events() if event["kind"] == "worker_started" and event["rank"] == rank]
    return int(started[-1]["pid"])


def kill_node(world: World, node: str) -> None:
    """Kill everything of a run on a node, and delete what it had on its disk."""
    folder = world.node_folder(node)
    for _ in range(3):
        for pid in world.supervisors(node):
            os.kill(pid, signal.SIGKILL)
        for pid, command in world.processes().items():
            if os.fspath(folder) in command:
                os.kill(pid, signal.SIGKILL)
    shutil.rmtree(folder, ignore_errors=True)
    assert not pathlib.Path(folder, "checkpoints").exists()
