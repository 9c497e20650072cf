# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A reader of the guides for plain hosts types their shell blocks, in one session: two hosts behind a real sshd.

The inventory is the one of ``guide_hosts``, the job the one of ``guide_program``, with the program that it describes.
"""

from __future__ import annotations

import json
import os
import pathlib
import re
import subprocess
import typing as t

import pytest
import yaml

from ansible_collections.muster.training.tests.e2e.conftest import lacking
from ansible_collections.muster.training.tests.e2e.playbook_world import World
from ansible_collections.muster.training.tests.e2e.walk_world import Machines
from ansible_collections.muster.training.tests.support import debian, sshd
from ansible_collections.muster.training.tests.support.shell_blocks import (
    ROOT,
    Reader,
    newest_run,
    read_example,
    require_said,
)

# In the order in which they are typed.
BLOCKS = (
    "guide_inventory-0",
    "guide_python-0",
    "guide_program-0",
    "guide_fabric-3",
    "guide_fabric-5",
    "guide_hosts-0",
    "guide_hosts-1",
    "guide_files-0",
    "homelab-0",
    "README-3",
)
# It prints what the patterns of the guide match, saves each tenth iteration and goes on from the last one saved. Ranks wait
# for each other in each iteration, as those of a training do.
PROGRAM = """
import argparse, os, pathlib, time
words = argparse.ArgumentParser(); words.add_argument("--epochs", type=int); epochs = words.parse_args().epochs
mine = pathlib.Path(os.environ["MUSTER_CHECKPOINT_DIR"]); mine.mkdir(parents=True, exist_ok=True)
first = os.environ["RANK"] == "0"
met = mine.parent / "met" / os.environ["MUSTER_RUN_ID"] / os.environ["MASTER_PORT"]; met.mkdir(parents=True, exist_ok=True)
def meet(step):
    (met / f"{os.environ['RANK']}-{step}").touch()
    while len(list(met.glob(f"*-{step}"))) < int(os.environ["WORLD_SIZE"]):
        time.sleep(0.01)
saved = mine / "step"; step = int(saved.read_text()) if saved.exists() else 0
if first and step:
    print("resumed from step", step, flush=True)
while step < 12 * epochs:
    step += 1
    meet(step)
    if first:
        print(f"iter {step} of {12 * epochs}, loss {1 / step:.4f}, 640.5 samples/s", flush=True)
        if step % 10 == 0:
            saved.with_suffix(".new").write_text(str(step)); saved.with_suffix(".new").replace(saved)
            print("saved step", step, flush=True)
    time.sleep(0.05)
"""


class Office:
    """A folder with the reader's files, and the two hosts."""

    def __init__(self, root: pathlib.Path, python: str) -> None:
        self.machines = Machines(root / "machines", 2)
        self.world = World(root)
        folder = root / "work"
        folder.mkdir()
        addresses = [address for address, _port, _user in self.machines.endpoints]
        self.runs = self.world.home / ".local" / "state" / "muster"
        fills: dict[str, t.Any] = {"first host": addresses[0], "second host": addresses[1]}
        self.reader = Reader(folder, self.world.environment(), {**fills, "run": lambda: newest_run(self.runs)})
        (folder / "inventory.yml").symlink_to("inventory")
        hosts = read_example("guide_hosts", 0)
        values = hosts["all"]["children"]["muster_nodes"]["vars"]
        values |= {"muster_training_python": python, "ansible_user": self.machines.endpoints[0][2]}
        self.reader.write("inventory/hosts.yml", self.reader.fill(yaml.safe_dump(hosts)))
        self.reader.write("src/train.py", PROGRAM)
        self.jobs = {"muster_job": read_example("guide_program", 0)["muster_job"]}
        self.jobs["muster_job"]["checkpoints"] = {"path": str(root / "shared"), "interval_steps": 10, "grace_s": 1}
        self.jobs["muster_job"]["restart"] = {"max_lost_nodes": 1}
        # Of the hosts of the test.
        self.jobs |= {name: value for name, value in self.machines.variables.items() if name not in ("ansible_user",)}
        self.jobs |= {"muster_node_state": str(self.world.nodes)}
        self.train_for(10)

    def train_for(self, epochs: int) -> None:
        """Write the job with as many epochs."""
        self.jobs["muster_job"]["args"] = ["--epochs", epochs]
        self.reader.write("inventory/group_vars/all.yml", self.jobs)

    def prepare(self, name: str) -> dict[int, t.Callable[[], t.Any]]:
        """Return what a reader does before single commands of a block, by the number of the command."""
        done: dict[str, dict[int, t.Callable[[], t.Any]]] = {
            "guide_program-0": {3: lambda: self.train_for(11)},
            "guide_hosts-1": {0: lambda: self.train_for(12)},
            "guide_fabric-5": {0: lambda: self.reader.write("DIR/node.log", "")},
            "homelab-0": {0: self.have_a_tailnet},
            "README-3": {0: self.offer_the_repository},
        }
        return done.get(name, {})

    def have_a_tailnet(self) -> None:
        """Put the samples into the folder, and a client of Tailscale that answers as one did."""
        status = (ROOT / "tests" / "fixtures" / "listings" / "tailscale_status.json").read_text()
        client = self.world.root / "bin" / "tailscale"
        client.parent.mkdir()
        client.write_text(f"#!/bin/sh\ncat <<'END'\n{status}\nEND\n")
        client.chmod(0o755)
        self.reader.environment["PATH"] = f"{client.parent}:{self.reader.environment['PATH']}"
        (self.reader.folder / "inventories").symlink_to(ROOT / "inventories")

    def offer_the_repository(self) -> None:
        """Have git take this repository's last commit where the address of the project is asked."""
        clone = self.world.root / "clone"
        subprocess.run(["git", "clone", "-q", "--bare", str(ROOT), str(clone)], check=True)
        settings = f'[url "file://{clone}"]\n\tinsteadOf = https://github.com/muster-training/muster.training.git\n'
        (self.world.home / ".gitconfig").write_text(settings)

    def close(self) -> None:
        self.world.close()
        self.machines.close()


@pytest.fixture(scope="module")
def office(tmp_path_factory: pytest.TempPathFactory) -> t.Iterator[Office]:
    python = os.environ.get("MUSTER_TORCH_PYTHON", "")
    if not pathlib.Path(python).exists() or not python:
        lacking("MUSTER_TORCH_PYTHON names no interpreter with torch")
    if problem := debian.obtain("sshd", "openssh-server") or debian.obtain("ssh-keygen", "openssh-client"):
        lacking(problem)
    with sshd.folder():
        found = Office(tmp_path_factory.mktemp("reader"), python)
        yield found
        found.close()


# By block and number of the command, a part of what is printed.
SAID = {
    ("guide_inventory-0", 0): "gpu-2",
    ("guide_program-0", 0): "succeeded",
    ("guide_program-0", 1): "loss 0.0083",
    ("guide_program-0", 3): "120",
    ("guide_hosts-0", 1): "succeeded",
    ("guide_hosts-0", 2): "iter ",
    ("guide_hosts-0", 4): "resumed in",
    ("guide_hosts-0", 5): "report.html",
    ("guide_files-0", 1): "would be freed",
    ("homelab-0", 0): "@muster_nodes",
    ("README-3", 0): "was installed successfully",
}


@pytest.mark.parametrize("name", BLOCKS)
def test_a_block_does_what_the_page_says(office: Office, name: str) -> None:
    printed = office.reader.run(name, office.prepare(name))
    require_said(SAID, name, printed)


def test_what_the_session_leaves(office: Office) -> None:
    """After all blocks: the model was fetched, the drill proved its resume, and the collection is installed."""
    assert int((office.reader.folder / "model" / "step").read_text()) >= 120
    records = [json.loads(place.read_text()) for place in office.runs.glob("*/runs/*/run.json")]
    (drill,) = [record["drill"] for record in records if record.get("drill")]
    assert drill["resumed"] is True and drill["world_size"] == 2, drill
    diagnosis = json.loads((office.reader.folder / "FILE").read_text())
    assert diagnosis
    installed = office.world.home / ".ansible" / "collections" / "ansible_collections" / "muster" / "training"
    places = [installed, office.world.root / "ansible" / "collections/ansible_collections/muster/training"]
    manifest = next(place / "MANIFEST.json" for place in places if (place / "MANIFEST.json").exists())
    version = re.search(r"^version: (\S+)", (ROOT / "galaxy.yml").read_text(), re.MULTILINE)
    assert version and json.loads(manifest.read_text())["collection_info"]["version"] == version[1]
