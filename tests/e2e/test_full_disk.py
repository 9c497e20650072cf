# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A disk that fills while a run saves is said to be full: its machine is not lost."""

from __future__ import annotations

import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import typing as t

import pytest

from ansible_collections.muster.training.tests.e2e.conftest import lacking
from ansible_collections.muster.training.tests.e2e.playbook_world import World, descendants, until

# Each rank saves thirty megabytes at each step, as programs do: into a file beside, then by a new name.
PROGRAM = """
import json, os, sys, time
folder = os.environ["MUSTER_CHECKPOINT_DIR"]
os.makedirs(folder, exist_ok=True)
# The other rank is there all the time: what has ended well is not begun again.
for step in range(1, 40 if os.environ["RANK"] == "0" else 4000):
    if os.environ["RANK"] == "0":
        with open(os.environ["MUSTER_METRICS_FILE"], "a") as handle:
            handle.write(json.dumps({"at": time.time(), "step": step, "loss": 1 / step}) + "\\n")
        with open(f"{folder}/c.tmp", "wb") as handle:
            handle.write(os.urandom(30 << 20))
        os.rename(f"{folder}/c.tmp", f"{folder}/c-{step}.pt")
        print(f"saved {step}", flush=True)
    time.sleep(0.1)
"""


@pytest.fixture
def full_node(world: World) -> t.Iterator[pathlib.Path]:
    """The first node keeps all it has on a disk of 300 MB."""
    place = world.nodes / "node-1"
    place.mkdir(parents=True)
    if os.geteuid() or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=300m", "tmpfs", place]).returncode:
        lacking("mounting a small file system needs root")
    yield place
    world.close()
    subprocess.run(["umount", "-l", place], check=True)


def test_a_full_disk_is_not_a_lost_machine(world: World, full_node: pathlib.Path, torch_python: str) -> None:
    program = world.root / "program.py"
    program.write_text(PROGRAM)
    job = {"name": "e2e", "nodes": 2, "script": str(program), "restart": {"max_crashes": 2}}
    result = world.play(job=job, muster_training_python=torch_python, limit_s=200)
    record = world.record()
    assert (record["outcome"], record["cause"]) == ("failed", "disk_full"), result.output
    said = "the disk of node-1 that holds the run is full"
    told = result.errors[0].replace(str(world.root), "")
    assert said in told and "Free space on the node" in told and "lost" not in told
    free = re.search(r"has ([0-9.]+) MB free at the end, a checkpoint takes 31.5 MB", told)
    # The half MiB that was held back for the end of the run is given back then.
    assert free is not None and 0 <= shutil.disk_usage(full_node).free / 1e6 - float(free[1]) < 1, told
    assert said in world.play("status").output
    # With room again, the same command goes on from what was saved.
    for place in full_node.rglob("c*.*"):
        place.unlink()
    assert "c-" not in str(list(full_node.rglob("*.pt"))) and world.play("cancel").code == 0


def test_a_machine_that_is_back_with_an_empty_disk_answers(world: World, torch_python: str) -> None:
    program = world.root / "program.py"
    program.write_text(PROGRAM.replace("range(1, 40 ", "range(1, 4000 ").replace("30 << 20", "1 << 10"))
    job = {"name": "e2e", "nodes": 2, "script": str(program)}
    play = world.start(job=job, muster_training_python=torch_python)
    until(lambda: "step" in play.output, "it trains", 90)
    # All that the machine had is gone, and it is there again.
    supervisors = world.supervisors("node-2")
    for pid in [*supervisors, *(child for one in supervisors for child in descendants(one))]:
        os.kill(pid, signal.SIGKILL)
    # At once, as with another disk: a folder of which half is there yet is none.
    os.rename(world.nodes / "node-2", world.root / "former")
    shutil.rmtree(world.root / "former")
    result = play.wait(120)
    assert "node-2 answers, but nothing of the run is left on it" in result.errors[0], result.output
    assert world.record()["outcome"] == "lost"


def test_a_full_disk_of_the_controller_keeps_no_run_from_being_stopped(world: World, small_disk: pathlib.Path) -> None:
    """Its follower ends and says that the run runs on; what only looks says the last that was read; cancel stops it."""
    world.state = small_disk
    # Each second 5 KB, so that what is read of it does not fit any more, and all of it does once there is room.
    argv = [sys.executable, "-u", "-c", "import time\nwhile True: print('x' * 500); time.sleep(0.1)"]
    play = world.start(job=world.job(command=argv, checkpoints={"grace_s": 1}))
    until(lambda: (world.run_folder() / "logs" / "node-1.log").exists(), "output")
    try:
        with (small_disk / "fill").open("wb") as handle:
            while handle.write(b"x" * 512):
                handle.flush()
    except OSError:
        pass
    result = play.wait()
    assert result.code == 2 and "keeps running and is not followed" in result.errors[0], result.output
    assert "No space left on device" in result.errors[0] and "cancel" in result.errors[0]
    seen = world.play("status")
    assert seen.code == 0 and "as it was last read" in seen.output, seen.output
    stopped = world.play("cancel")
    assert stopped.code == 0 and "is stopped, and that cannot be recorded" in stopped.output, stopped.output
    assert world.processes() == {}
    (small_disk / "fill").unlink()
    again = world.play("cancel")
    assert again.code == 0 and world.record()["outcome"] == "cancelled", again.output
