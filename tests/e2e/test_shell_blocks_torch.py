# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A reader types the shell blocks of the README and others that train for real, in a clone of the last commit.

The inventory is the README's, with two hosts behind a real sshd, no GPU and fewer steps. What ``make``
would build is there already: this checkout's environments, with what it writes in memory.
"""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import typing as t

import pytest
import yaml

from ansible_collections.muster.training.tests.e2e.conftest import lacking
from ansible_collections.muster.training.tests.e2e.playbook_world import ONE_THREAD, World
from ansible_collections.muster.training.tests.e2e.walk_world import Machines
from ansible_collections.muster.training.tests.lab.fabric import netns
from ansible_collections.muster.training.tests.support import debian, sshd
from ansible_collections.muster.training.tests.support.shell_blocks import (
    ROOT,
    Reader,
    newest_run,
    read_example,
    require_said,
)

pytestmark = [pytest.mark.torch, pytest.mark.long]
BLOCKS = (
    "README-0",
    "README-1",
    "guide_fabric-0",
    "guide_fabric-1",
    "guide_acceptance-0",
    "char_lm-0",
    "fsdp-0",
    "guide_fabric-6",
)
SAID = {
    ("README-0", 0): "report.html",
    ("README-0", 1): "layers",
    ("README-1", 0): "report.html",
    ("README-1", 1): "has already succeeded",
    ("README-1", 2): "UNPROVEN",
    ("README-1", 3): "resumed in",
    ("README-1", 4): "succeeded",
    ("README-1", 5): "accept.html",
    ("guide_fabric-0", 0): "UNPROVEN",
    ("guide_acceptance-0", 0): "accept.html",
    ("char_lm-0", 0): "step=300",
    ("fsdp-0", 0): "step=300",
    ("guide_fabric-6", 0): "PASS",
}

# Blocks that are typed in the folder of an example.
EXAMPLES = {"char_lm-0": "examples/char_lm", "fsdp-0": "examples/fsdp"}


# $0: a folder, $1: the checkout with the environments, then the command.
BUILT = """set -e
mount --make-rprivate /
for name in .venv .venv-torch; do
  layers="$0/layers/$name"
  mkdir -p "$layers" "$PWD/$name"
  mount -t tmpfs none "$layers" && mkdir "$layers/up" "$layers/work"
  mount -t overlay none -o "lowerdir=$1/$name,upperdir=$layers/up,workdir=$layers/work" "$PWD/$name"
  # Else make would build them anew: their stamp names the folder that they were built in.
  sed -i "s# [^ \\"]*\\", \\"content\\"# $PWD\\", \\"content\\"#" "$PWD/$name/muster-stamp.json"
done
shift
exec "$@"
"""


class Office:
    """A clone in which the reader stands, and the two hosts."""

    def __init__(self, root: pathlib.Path, python: str) -> None:
        self.machines = Machines(root / "machines", 2)
        self.world, self.python = World(root), python
        self.clone = root / "muster.training"
        subprocess.run(["git", "clone", "-q", str(ROOT), str(self.clone)], check=True)
        addresses = [address for address, _port, _user in self.machines.endpoints]
        self.state = self.world.home / ".local" / "state" / "muster"
        fills: dict[str, t.Any] = {"first host": addresses[0], "second host": addresses[1]}
        environment = self.world.environment(
            {"ANSIBLE_CONFIG": None, "MUSTER_TORCH_PYTHON": python, **ONE_THREAD, "MUSTER_PYTHON": None}
        )
        self.reader = Reader(self.clone, environment, {**fills, "run": lambda: newest_run(self.state)})
        self.write_inventory()

    def write_inventory(self) -> None:
        """Write the README's inventory."""
        inventory = read_example("README", 0)
        values = inventory["all"]["children"]["muster_nodes"]["vars"]
        values |= self.machines.variables
        values |= {"muster_training_python": self.python, "muster_node_state": str(self.world.nodes)}
        # Of one machine, as the README says below its commands; and short tests.
        values |= {"muster_fabric_allow_unproven": True, "fleet_acceptance_seconds": 0.5}
        values |= {"muster_accept_job": {"env": ONE_THREAD}}
        job = values["muster_job"]
        few = [str(120 if word == 2000 else word) for word in job["args"]]
        job |= {"gpus_per_node": 0, "args": [*few, "--checkpoint-every", "20"], "env": ONE_THREAD}
        job["checkpoints"]["path"] = str(self.world.root / "shared")
        self.reader.write("inventory.yml", self.reader.fill(yaml.safe_dump(inventory)))
        (self.clone / "inventory").symlink_to("inventory.yml")

    def reader_for(self, name: str) -> Reader:
        """Return who types a block: in which folder, and with which programs."""
        environment = self.reader.environment
        if name == "README-0":
            # Of make test one check: all of them would be these tests again. Make reads ARGS from its environment, too.
            found = Reader(self.clone, {**environment, "ARGS": ""})
            found.prefix = ["unshare", "--mount", "sh", "-c", BUILT, str(self.world.root), str(ROOT)]
            return found
        if name in EXAMPLES:
            return Reader(self.clone / EXAMPLES[name], environment, programs=pathlib.Path(self.python).parent)
        return self.reader

    def close(self) -> None:
        self.world.close()
        self.machines.close()


@pytest.fixture(scope="module")
def office(tmp_path_factory: pytest.TempPathFactory) -> t.Iterator[Office]:
    python = os.environ.get("MUSTER_TORCH_PYTHON", "")
    if not python or not pathlib.Path(python).exists():
        lacking("MUSTER_TORCH_PYTHON names no interpreter with torch")
    if problem := debian.obtain("sshd", "openssh-server") or debian.obtain("ssh-keygen", "openssh-client"):
        lacking(problem)
    with sshd.folder():
        found = Office(tmp_path_factory.mktemp("reader"), python)
        yield found
        found.close()


@pytest.mark.parametrize("name", BLOCKS)
def test_a_block_does_what_the_page_says(office: Office, name: str) -> None:
    if name == "guide_fabric-6" and (reason := netns.unmet()):
        lacking(reason)
    if name == "README-0" and (os.geteuid() != 0 or not (ROOT / ".venv-torch").exists()):
        lacking("layers over environments need root, and .venv-torch in this checkout")
    reader = office.reader_for(name)
    before = {1: lambda: reader.environment.update(ARGS="--only layers")} if name == "README-0" else None
    try:
        printed = reader.run(name, before)
    except AssertionError as exc:
        # The gates of time of this bench hold on an idle machine alone; it ends with 1 where one fails.
        failed = [line for line in str(exc).splitlines() if line.endswith("FAIL")]
        if name != "guide_fabric-6" or not failed or not all("verdict in" in line for line in failed):
            raise
        printed = [str(exc)]
    require_said(SAID, name, printed)


def test_what_the_session_leaves(office: Office) -> None:
    """The README's job has succeeded, and its drill proved the resume with both ranks."""
    records = [json.loads(place.read_text()) for place in office.state.glob("default/runs/char-lm-*/run.json")]
    assert {record["outcome"] for record in records} == {"succeeded"} and len(records) == 2
    (drill,) = [record["drill"] for record in records if record.get("drill")]
    assert drill["resumed"] is True and drill["world_size"] == 2 and drill["steps_lost"] <= 21, drill
    verdicts = json.loads((office.state / "default" / "accept.json").read_text())["parts"]
    assert {part["name"]: part["outcome"] for part in verdicts}["resume"] == "pass"
