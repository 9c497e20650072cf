# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The shell blocks of the README and the guides are run as they are written, on two loopback nodes.

The reader's own files are there: an inventory with the job, and what a block names. A run's id in a text stands for the
reader's own. What cannot be run here is listed with the reason and the tests that call the same playbooks; a command
that is in no list fails.
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
from ansible_collections.muster.training.tests.support.shell_blocks import ROOT, read_blocks

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
# In their order on one controller. The first block trains; those behind it are about its run, and the last one starts
# an sshd of the nodes' own.
RUNS_HERE = (
    "guide_inventory-0",
    "guide_program-0",
    "README-1",
    "guide_hosts-0",
    "guide_hosts-1",
    "guide_fabric-3",
    "guide_fabric-5",
    "guide_heal-0",
    "guide_heal-1",
    "guide_files-0",
    "guide_ssh-0",
    "guide_python-0",
)
# Blocks, and single commands of a block (BLOCK.NUMBER), that this machine cannot run: why, and the tests that call the
# same playbooks.
CLUSTER = "needs a Kubernetes cluster"
MACHINES = "makes a cluster of bare machines"
RENTS = "rents machines"
TORCH = "needs torch on the nodes, and takes a minute"
PROVIDERS = "tests/e2e/test_walk_rented.py runs it on a fake of the provider"
NOT_HERE = {
    "README-0": "are the checks themselves, and the demo: tests/e2e/test_demo.py",
    "README-1.0": f"{TORCH}: tests/e2e/test_demo.py, tests/e2e/test_site.py",
    "README-1.2": f"{TORCH}: tests/e2e/test_walk_tailnet.py",
    "README-1.3": f"{TORCH}: tests/e2e/test_drills.py",
    "README-1.5": f"{TORCH}: tests/e2e/test_accept.py",
    "README-2": f"{CLUSTER}: tests/lab/test_kube_training.py",
    "README-3": "downloads the collection: tests/unit/tools/test_tool_artifact.py installs its archive",
    "guide_acceptance-0": f"{TORCH}: tests/e2e/test_accept.py; {CLUSTER}: tests/lab/test_kube_accept.py",
    "guide_cluster-0": f"{MACHINES}: tests/lab/test_k3s_cluster.py",
    "guide_cluster-1": f"{MACHINES}: tests/lab/test_k3s_site.py",
    "guide_cluster-2": f"{MACHINES}: tests/lab/test_k3s_cluster.py",
    "guide_cluster-3": f"{MACHINES}: tests/e2e/test_bundle.py makes a bundle, tests/lab/test_k3s_site.py uses one",
    "guide_fabric-0": f"{TORCH}: tests/e2e/test_walk_tailnet.py",
    "guide_fabric-1": f"{TORCH}: tests/e2e/test_walk_tailnet.py",
    "guide_fabric-2": f"{CLUSTER}: tests/lab/test_fabric_cluster.py",
    "guide_fabric-4": f"{CLUSTER}: tests/lab/test_fabric_cluster.py",
    "guide_fabric-6": "measures this machine for minutes",
    "guide_heal-0.2": f"{RENTS}: tests/e2e/test_heal.py",
    "guide_heal-0.3": f"{CLUSTER}: tests/lab/test_kube_heal.py",
    "guide_hosts-0.4": f"{TORCH}: tests/e2e/test_drills.py",
    "guide_hosts-2": "cuts a network, as root: tests/e2e/test_cut_links.py",
    "guide_renting-0": f"{RENTS}: {PROVIDERS}; tests/e2e/test_renting_secrets.py reaps",
    "guide_renting-1": f"{RENTS}: tests/e2e/test_renting_reaper.py",
    "guide_secrets-0": "asks a deployed OpenBao: tests/lab/test_openbao.py deploys one",
    "guide_services-0": "needs an object store: tests/e2e/test_services.py",
    "guide_ssh-0.1": "logs in to a machine with a password",
    "guide_ssh-0.2": "asks addresses of documentation",
    "guide_ssh-1": "changes the known hosts of whoever runs the tests: ssh-keygen does not take another home",
    "guide_team-0": f"{CLUSTER}: tests/lab/test_team.py",
    "guide_team-1": f"{CLUSTER}: tests/lab/test_team.py",
}


def read_commands() -> dict[str, str]:
    """Return each command of each block by its name, ``BLOCK.NUMBER``; continued lines are joined."""
    return {
        f"{name}.{number}": line
        for name, block in read_blocks().items()
        for number, line in enumerate(filter(str.strip, block.replace("\\\n", " ").splitlines()))
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
            "muster_training_requirements": [],
            "muster_state": {"path": os.fspath(world.state)},
        }
        (folder / "group_vars" / "all.yml").write_text(yaml.safe_dump(values))
        (world.root / "pool.yml").write_text(yaml.safe_dump({"muster_watch_s": 1}))
        (world.home / ".ssh").mkdir(mode=0o700)

    @property
    def run_id(self) -> str:
        """The id of the newest run."""
        folders = sorted(self.world.state.glob("*/runs/*/"), key=lambda place: place.stat().st_mtime)
        return folders[-1].name if folders else "none"

    def run(self, line: str) -> None:
        """Run a command as bash reads it; it must succeed."""
        logs = self.world.root / "logs"
        logs.mkdir(exist_ok=True)
        environment = self.world.environment({"PATH": f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"})
        # What one command began, the next one is about.
        text = RUN.sub(self.run_id, line).replace("diagnose_logs=DIR", f"diagnose_logs={logs}")
        text = text.replace("muster_watch_s=600", "muster_watch_s=1")
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


def left_out(command: str) -> str | None:
    """Return why a command is not run here, None for one that is."""
    return NOT_HERE.get(command) or NOT_HERE.get(command.rpartition(".")[0])


def test_each_command_is_run_or_has_a_reason_why_not() -> None:
    found = read_commands()
    blocks = {command.rpartition(".")[0] for command in found}
    assert sorted({name for name in blocks if name not in NOT_HERE}) == sorted(RUNS_HERE)
    assert not set(NOT_HERE) - blocks - set(found)


@pytest.mark.parametrize("name", NOT_HERE)
def test_what_is_not_run_here_is_called_by_the_tests_that_are_named(name: str) -> None:
    texts = [(ROOT / place).read_text() for place in re.findall(r"tests/[\w/]+\.py", NOT_HERE[name])]
    lines = [line for command, line in read_commands().items() if name in (command, command.rpartition(".")[0])]
    called = {playbook for line in lines for playbook in re.findall(r"\smuster\.training\.(\w+)(?:\s|$)", line)}
    missing = [playbook for playbook in called if not any(f'"{playbook}"' in text for text in texts)]
    assert lines and not missing, missing


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> t.Iterator[Reader]:
    world = World(tmp_path_factory.mktemp("reader"))
    yield Reader(world)
    world.close()


@pytest.mark.parametrize("name", RUNS_HERE)
def test_a_block_does_what_the_page_says(reader: Reader, name: str) -> None:
    for command, line in read_commands().items():
        if command.rpartition(".")[0] == name and left_out(command) is None:
            reader.run(line)
