# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A reader of ``guide_two_machines`` types its commands: two hosts behind a real sshd, a script of his own, no shared disk."""

from __future__ import annotations

import os
import pathlib
import typing as t

import pytest
import yaml

from ansible_collections.muster.training.tests.e2e.conftest import lacking
from ansible_collections.muster.training.tests.e2e.playbook_world import ONE_THREAD, World
from ansible_collections.muster.training.tests.e2e.test_unshared_checkpoints import NANO, PATTERNS
from ansible_collections.muster.training.tests.e2e.walk_world import Machines
from ansible_collections.muster.training.tests.support import debian, sshd
from ansible_collections.muster.training.tests.support.shell_blocks import Reader, read_example, require_said

pytestmark = [pytest.mark.torch, pytest.mark.long]
BLOCKS = ("guide_two_machines-0",)
SAID = {
    (BLOCKS[0], 0): "report.html",
    (BLOCKS[0], 1): "resumed in",
    (BLOCKS[0], 2): "succeeded",
    (BLOCKS[0], 3): "ckpt_it000160.pt",
}


@pytest.fixture
def reader(tmp_path: pathlib.Path) -> t.Iterator[Reader]:
    """A folder with the page's inventory and a script that saves on rank 0 alone, each 10 steps."""
    python = os.environ.get("MUSTER_TORCH_PYTHON", "")
    if not python or not pathlib.Path(python).exists():
        lacking("MUSTER_TORCH_PYTHON names no interpreter with torch")
    if problem := debian.obtain("sshd", "openssh-server") or debian.obtain("ssh-keygen", "openssh-client"):
        lacking(problem)
    with sshd.folder():
        machines, world = Machines(tmp_path / "machines", 2), World(tmp_path)
        addresses = [address for address, _port, _user in machines.endpoints]
        environment = world.environment({"ANSIBLE_CONFIG": None, "MUSTER_TORCH_PYTHON": python, **ONE_THREAD})
        found = Reader(tmp_path, environment, {"first host": addresses[0], "second host": addresses[1]})
        inventory = read_example("guide_two_machines", 0)
        values = inventory["all"]["children"]["muster_nodes"]["vars"]
        values |= {**machines.variables, "muster_training_python": python, "muster_node_state": str(world.nodes)}
        job = values["muster_job"]
        # The reader's own program, on processors.
        job |= {"gpus_per_node": 0, "args": ["160", "rank0"], "env": ONE_THREAD, "metrics": PATTERNS}
        job["checkpoints"] |= {"interval_steps": 10, "grace_s": 2}
        (tmp_path / "src").mkdir()
        (tmp_path / "src" / "train.py").write_text(NANO)
        found.write("inventory.yml", found.fill(yaml.safe_dump(inventory)))
        yield found
        world.close()
        machines.close()


def test_four_commands_train_and_prove_the_resume(reader: Reader) -> None:
    require_said(SAID, BLOCKS[0], reader.run(BLOCKS[0]))
    assert list(pathlib.Path(reader.folder / "model").rglob("ckpt_it000160.pt"))
