# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The shell blocks of the README and the guides are run as they are written, on two loopback nodes.

The reader's own files are there: an inventory with the job, and what a block names. A run's id in a text stands for the
reader's own. What cannot be run here is listed with the reason; a block that is in no list fails.
"""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import sys
import typing as t

import pytest
import yaml

from ansible_collections.muster.training.tests.e2e.playbook_world import INVENTORY, World
from ansible_collections.muster.training.tests.support.shell_blocks import read_blocks

LIMIT_S = 120.0
# Counts steps, saves each tenth, and goes on from the last one saved.
PROGRAM = """
import json, os, pathlib, sys, time
mine = pathlib.Path(os.environ["MUSTER_CHECKPOINT_DIR"]); mine.mkdir(parents=True, exist_ok=True)
saved = mine / "step"; step = int(saved.read_text()) if saved.exists() else 0
def say(**values):
    with open(os.environ["MUSTER_METRICS_FILE"], "a") as handle:
        handle.write(json.dumps({"at": time.time(), **values}) + "\\n")
first = os.environ["RANK"] == "0"
if first:
    say(resumed_from_step=step, world_size=int(os.environ["WORLD_SIZE"]))
while step < 60:
    step += 1
    if first:
        print("loss", 1 / step, flush=True)
        if step % 10 == 0:
            saved.with_suffix(".new").write_text(str(step)); saved.with_suffix(".new").replace(saved)
        say(step=step, loss=1 / step)
    time.sleep(0.05)
"""
RUN = re.compile(r"\b(?:char-lm|mlp)-1a2b3c4d\b|(?<==)RUN\b")
# In their order on one controller. The first block trains; those behind it are about its run.
RUNS_HERE = (
    "guide_inventory-0",
    "guide_program-0",
    "guide_hosts-1",
    "guide_fabric-3",
    "guide_fabric-5",
    "guide_files-0",
)
CLUSTER = "needs a Kubernetes cluster, or machines to make one of: tests/lab runs these playbooks"
RENTS = "rents machines: tests/e2e/test_walk_rented.py and test_heal.py run these playbooks on fakes of the providers"
FABRIC = "needs torch on the nodes, and measures their network: tests/lab/test_fabric_links.py runs it"
NOT_HERE = {
    "README-0": f"a list of playbooks, of which accept and services need more than two nodes; heal {RENTS}",
    "README-1": CLUSTER,
    "guide_acceptance-0": "its faults take minutes: tests/e2e/test_accept.py runs it",
    **{f"guide_cluster-{number}": CLUSTER for number in range(4)},
    **{
        f"guide_fabric-{number}": "needs torch on the nodes: tests/lab/test_fabric_live.py runs it" for number in (0, 1)
    },
    **{f"guide_fabric-{number}": CLUSTER for number in (2, 4)},
    "guide_fabric-6": "measures this machine for minutes: make bench",
    **{f"guide_heal-{number}": RENTS for number in range(2)},
    "guide_hosts-0": "kills a host, which needs restart.max_lost_nodes in the job: tests/e2e/test_drills.py drills",
    "guide_hosts-2": "cuts a network, as root: tests/e2e/test_cut_links.py",
    "guide_python-0": "installs torch from the internet: tests/e2e/test_over_ssh.py runs bootstrap without it",
    **{f"guide_renting-{number}": RENTS for number in range(2)},
    "guide_secrets-0": "asks a deployed OpenBao: tests/lab/test_openbao.py deploys one",
    "guide_services-0": "needs an object store: tests/e2e/test_services.py runs it",
    "guide_ssh-1": "changes the known hosts of whoever runs the tests: ssh-keygen does not take another home",
    "guide_ssh-0": "logs in to a machine with a password",
    **{f"guide_team-{number}": CLUSTER for number in range(2)},
}


class Reader:
    """The folder in which a reader of the guides stands: an inventory with a job, and what the blocks name."""

    def __init__(self, world: World) -> None:
        self.world = world
        folder = world.root / "inventory"
        (folder / "group_vars").mkdir(parents=True)
        (folder / INVENTORY.name).write_text(INVENTORY.read_text())
        (world.root / "inventory.yml").symlink_to("inventory")
        job = world.job(name="mlp", command=[sys.executable, "-I", "-S", "-c", PROGRAM])
        checkpoints = {"path": os.fspath(world.root / "shared"), "grace_s": 1, "interval_steps": 10}
        values = {
            "muster_job": {**job, "checkpoints": checkpoints},
            "muster_training_python": sys.executable,
            # The program needs no torch.
            "muster_training_packages": [],
            "muster_state": {"path": os.fspath(world.state)},
        }
        (folder / "group_vars" / "all.yml").write_text(yaml.safe_dump(values))

    @property
    def run_id(self) -> str:
        """The id of the newest run."""
        folders = sorted(self.world.state.glob("*/runs/*/"), key=lambda place: place.stat().st_mtime)
        return folders[-1].name if folders else "none"

    def run(self, block: str) -> None:
        """Run the commands of a block as bash reads them; each must succeed."""
        logs = self.world.root / "logs"
        logs.mkdir(exist_ok=True)
        environment = self.world.environment({"PATH": f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"})
        for line in block.replace("\\\n", " ").splitlines():
            # What one command began, the next one is about.
            text = RUN.sub(self.run_id, line).replace("diagnose_logs=DIR", f"diagnose_logs={logs}")
            done = subprocess.run(
                ["bash", "-c", text],
                cwd=self.world.root,
                env=environment,
                text=True,
                capture_output=True,
                stdin=subprocess.DEVNULL,
                timeout=LIMIT_S,
                check=False,
            )
            assert done.returncode == 0, f"{text}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"


def test_each_block_is_run_or_has_a_reason_why_not() -> None:
    assert sorted([*RUNS_HERE, *NOT_HERE]) == sorted(read_blocks())


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> t.Iterator[Reader]:
    world = World(tmp_path_factory.mktemp("reader"))
    yield Reader(world)
    world.close()


@pytest.mark.parametrize("name", RUNS_HERE)
def test_a_block_does_what_the_page_says(reader: Reader, name: str) -> None:
    reader.run(read_blocks()[name])
