# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A reader types the shell blocks of the guide to the catalogue: a shipped template trains, with real torchrun."""

from __future__ import annotations

import json
import pathlib
import sys

import pytest

from ansible_collections.muster.training.tests.e2e.playbook_world import INVENTORY, ONE_THREAD, World
from ansible_collections.muster.training.tests.support.shell_blocks import Reader

pytestmark = pytest.mark.torch
BLOCKS = ("guide_catalogue-0", "guide_catalogue-1", "guide_catalogue-3", "guide_catalogue-4")
CANARY = "hf_c4n4ry0123456789"
PROGRAM = "import os; assert os.environ['HF_TOKEN']; print('step=1 loss=0.5', flush=True)\n"


@pytest.fixture
def reader(tmp_path: pathlib.Path, world: World, torch_python: str) -> Reader:
    newest = lambda: next(world.state.rglob("run.json")).parent.name  # noqa: E731
    reader = Reader(tmp_path, world.environment({"HF_TOKEN": CANARY, **ONE_THREAD}), {"run": newest})
    values = {"muster_state": {"path": str(world.state)}, "muster_node_state": str(world.nodes)}
    reader.write("inventory.yml/nodes.muster_local.yml", INVENTORY.read_text())
    reader.write("inventory.yml/group_vars/all.yml", {**values, "muster_training_python": torch_python})
    reader.write("my_training/train.py", PROGRAM)
    return reader


def test_the_catalogue_is_shown(reader: Reader) -> None:
    listed, fields = reader.run(BLOCKS[0])
    assert "pytorch-ddp 1.0.0" in listed and "deepspeed-zero3 1.0.0" in listed and "accelerate 1.0.0" in listed
    assert "nproc_per_node" in fields and "required" in fields


def test_a_shipped_template_trains(reader: Reader, world: World) -> None:
    (output,) = reader.run(BLOCKS[1])
    (place,) = world.state.rglob("run.json")
    record = json.loads(place.read_text())
    assert (record["outcome"], record["job"]["template"], record["job"]["nodes"]) == ("succeeded", "pytorch_ddp", 2)
    written = [path.read_bytes() for path in world.state.rglob("*") if path.is_file()]
    assert CANARY not in output and not [text for text in written if CANARY.encode() in text]


def test_a_run_is_given_away_and_trained_again(reader: Reader, world: World) -> None:
    reader.write("char_lm/train.py", PROGRAM)
    reader.write("corpus/a.txt", "words")
    job = {
        **world.job(command=[sys.executable, "train.py"], code={"ref": "./char_lm"}),
        "secret_refs": [{"name": "HF_TOKEN", "from": "env", "key": "HF_TOKEN"}],
        "datasets": [{"name": "corpus", "path": "./corpus"}],
    }
    values = {"muster_state": {"path": str(world.state)}, "muster_node_state": str(world.nodes)}
    place = "inventory.yml/group_vars/all.yml"
    reader.write(place, {**values, "muster_job": job, "muster_training_python": sys.executable})
    reader.type("ansible-playbook -i inventory.yml muster.training.train")
    (said,) = reader.run(BLOCKS[2])
    assert "needs muster_launch_code" in said
    # Another person's inventory: without the job, with records of their own.
    theirs = {"muster_state": {"path": str(world.root / "theirs")}, "muster_training_python": sys.executable}
    reader.write(place, {**values, **theirs})
    reader.run(BLOCKS[3])
    (found,) = (world.root / "theirs").rglob("run.json")
    record = json.loads(found.read_text())
    assert (record["outcome"], record["job"]["command"][1]) == ("succeeded", "train.py")
    written = [path.read_bytes() for path in (*world.root.rglob("*"), *reader.folder.rglob("*")) if path.is_file()]
    assert not [text for text in written if CANARY.encode() in text]
