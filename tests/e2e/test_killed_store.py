# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The rendezvous store of torchrun whose supervisor is killed, or whose node loses all of its state."""

from __future__ import annotations

import os
import shutil
import signal
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._node import processes
from ansible_collections.muster.training.tests.e2e.playbook_world import NODES, World, until

# Trains until a file says that it may end.
PROGRAM = """
import os, pathlib, time
root = pathlib.Path(os.environ["E2E_ROOT"])
(root / f"began-{os.environ['RANK']}").touch()
while not (root / "finish").exists():
    time.sleep(0.05)
"""


def waiting_job(world: World, python: str) -> dict[str, t.Any]:
    code = world.root / "code"
    code.mkdir(exist_ok=True)
    (code / "wait.py").write_text(PROGRAM)
    source = {"from": "path", "ref": str(code)}
    values = {"code": source, "script": "wait.py", "env": {"E2E_ROOT": str(world.root)}}
    return {"name": "e2e", "nodes": 2, "python": python, **values, "checkpoints": {"grace_s": 1}}


def until_both_train(world: World) -> None:
    until(lambda: all((world.root / f"began-{rank}").exists() for rank in range(2)), "both ranks", 90)


def lose_all_but_the_store(world: World) -> list[int]:
    """Kill all of the run but its store, and delete the state of both nodes; return what is left of the store."""
    stores = [pid for pid, line in world.processes().items() if "torch_store.py" in line]
    others = [pid for node in NODES for pid in world.supervisors(node)]
    processes.kill_all([*others, *(pid for pid in world.processes() if pid not in stores)])
    until(lambda: set(world.processes()) <= set(stores), "the end of all else")
    shutil.rmtree(world.nodes)
    return list(world.processes())


def test_a_killed_supervisor_of_the_store_costs_one_lost_node(world: World, torch_python: str) -> None:
    play = world.start(job=waiting_job(world, torch_python))
    until_both_train(world)
    store = next(
        pid for pid in world.supervisors("node-1") if world.processes()[pid].rstrip().endswith("store/spec.json")
    )
    for rank in range(2):
        (world.root / f"began-{rank}").unlink()
    os.kill(store, signal.SIGKILL)
    until(lambda: "not running: store; starting again" in play.output, "the restart")
    place = world.node_folder("node-1") / "units" / "store" / "state.json"
    until(lambda: '"lost": 1' in place.read_text() or '"lost":1' in place.read_text(), "the next store")
    # Its launchers end with their store, and the gang begins anew: a rank that ended before would not come again.
    until_both_train(world)
    world.finish()
    result = play.wait(120)
    assert result.code == 0 and "could not be started again" not in result.output, result.output
    assert world.record()["outcome"] == "succeeded"


@pytest.mark.parametrize("then", ["train", pytest.param("cancel", marks=pytest.mark.long)])
def test_a_store_without_a_folder_is_the_runs_own(world: World, torch_python: str, then: str) -> None:
    job = waiting_job(world, torch_python)
    assert world.play(job=job, training_job_wait=False).code == 0
    until_both_train(world)
    left = lose_all_but_the_store(world)
    assert left, "the store serves"
    world.finish()
    result = world.play("train", job, limit_s=120) if then == "train" else world.play("cancel")
    assert result.code == 0 and not [pid for pid in left if pid in world.processes()], result.output
    assert world.record()["outcome"] == {"train": "succeeded", "cancel": "cancelled"}[then]
    assert "nothing of it runs any more" in world.play("cancel").output


def test_the_store_of_a_run_that_nobody_follows_ends_with_it(world: World, torch_python: str) -> None:
    """Torch's own store is a client of itself."""
    assert world.play(job=waiting_job(world, torch_python), training_job_wait=False).code == 0
    until_both_train(world)
    world.finish()
    until(lambda: not world.processes(), "the end of all processes", 60)
