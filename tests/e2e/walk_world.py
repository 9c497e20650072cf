# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Machines for whole walks: loopback addresses behind one real sshd, listed by a provider's fake API.

Nothing tells a playbook how to reach them but the inventory plugin that asks the fake, from a sample of the collection.
"""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import signal
import sys
import typing as t

import yaml

from ansible_collections.muster.training.plugins.plugin_utils._workflows import local_nodes
from ansible_collections.muster.training.tests.e2e.playbook_world import ROOT, Play, World, everything
from ansible_collections.muster.training.tests.fakes.wire import TOKEN

LIMIT_S = 200.0
# Ranks that count until the file "finish" is there; rank 0 saves each step and notes where it began.
COUNT = """
import json, os, pathlib, sys, time
here, mine = pathlib.Path(sys.argv[1]), pathlib.Path(os.environ["MUSTER_CHECKPOINT_DIR"])
mine.mkdir(parents=True, exist_ok=True)
saved = mine / "step"
step = int(saved.read_text()) if saved.exists() else 0
def say(**values):
    place = pathlib.Path(os.environ["MUSTER_METRICS_FILE"])
    place.parent.mkdir(parents=True, exist_ok=True)
    with place.open("a") as handle:
        handle.write(json.dumps({"at": time.time(), **values}) + "\\n")
first = os.environ["RANK"] == "0"
if first:
    say(resumed_from_step=step, world_size=int(os.environ["WORLD_SIZE"]))
while not (here / "finish").exists():
    step += 1
    if first:
        saved.with_suffix(".new").write_text(str(step))
        saved.with_suffix(".new").replace(saved)
        say(step=step)
    time.sleep(0.05)
"""


class Machines:
    """Addresses of this machine behind one sshd; what runs on each has a folder of its own."""

    def __init__(self, root: pathlib.Path, count: int) -> None:
        self.root = root
        started = local_nodes.start_local_nodes(str(root), count, check=False)
        assert started["connection"] == "ssh", started
        self.variables = local_nodes.connection_variables(str(root), "auto")
        self.key = str(self.variables["ansible_ssh_private_key_file"])
        user, port = str(self.variables["ansible_user"]), t.cast(int, self.variables["ansible_port"])
        self.endpoints = [(local_nodes.node_address(index), port, user) for index in range(count)]

    def close(self) -> None:
        local_nodes.stop_local_nodes(str(self.root), check=False)


class Walk:
    """A controller whose inventory is a sample of the collection, with the address of the fake API added."""

    def __init__(self, root: pathlib.Path, machines: Machines, train: World) -> None:
        self.root, self.machines, self.train = root, machines, train

    def inventory(self, sample: str, sources: t.Sequence[str], **changes: t.Any) -> str:
        """Copy sources of a sample, with ``changes`` of their options, and its variables; return the folder."""
        folder = self.root / "inventory"
        folder.mkdir()
        for name in sources:
            source = yaml.safe_load((ROOT / "inventories" / sample / name).read_text())
            (folder / name).write_text(yaml.safe_dump({**source, **changes}))
        variables = ROOT / "inventories" / sample / "group_vars"
        if variables.is_dir():
            shutil.copytree(variables, folder / "group_vars")
        return os.fspath(folder)

    @property
    def variables(self) -> dict[str, str]:
        """Return variables of the environment: credentials."""
        return dict.fromkeys(("RUNPOD_API_KEY", "TAILSCALE_API_KEY"), TOKEN)

    @property
    def values(self) -> dict[str, t.Any]:
        """Extra variables: nothing of where a machine is."""
        return {
            "ansible_ssh_private_key_file": self.machines.key,
            "ansible_python_interpreter": sys.executable,
            "muster_node_state": f"{self.train.nodes}/{{{{ inventory_hostname }}}}",
            "muster_training_python": sys.executable,
            "muster_training_packages": [],
            "muster_training_requirements": [],
            "muster_run_id": self.train.run_id,
        }

    def job(self, **values: t.Any) -> dict[str, t.Any]:
        """Return a job on two machines that share the folder of its checkpoints."""
        argv = [sys.executable, "-I", "-S", "-c", COUNT, str(self.train.root)]
        checkpoints = {"path": str(self.train.root / "shared"), "grace_s": 1}
        return self.train.job(command=argv, checkpoints=checkpoints, **values)

    def start(self, playbook: str, inventory: str, **extra: t.Any) -> Play:
        """Start a playbook of the collection in real time."""
        place = self.root / f"values-{len(self.train.plays)}.json"
        values = {**self.values, **extra}
        assert "muster_address" not in json.dumps(values)
        place.write_text(json.dumps(values))
        argv = [os.fspath(pathlib.Path(sys.executable).parent / "ansible-playbook"), "-i", inventory]
        argv += [f"muster.training.{playbook}", "-e", f"@{place}"]
        log = self.root / f"{playbook}-{len(self.train.plays)}.log"
        play = Play(argv, self.train.environment(self.variables), log, self.root, 0o022)
        self.train.plays.append(play)
        return play

    def kill_machine(self, name: str) -> None:
        """Kill everything that runs on a machine."""
        place = os.fsencode(self.train.nodes / name)
        for pid, command, environment in everything():
            if place in command or place in environment:
                os.kill(pid, signal.SIGKILL)


def read_steps(folder: pathlib.Path) -> list[dict[str, t.Any]]:
    """Return the metrics of a run's folder on the controller."""
    place = folder / "metrics.jsonl"
    return [json.loads(line) for line in place.read_text().splitlines()] if place.exists() else []


def last_step(folder: pathlib.Path) -> int:
    return max((line.get("step", 0) for line in read_steps(folder)), default=0)
