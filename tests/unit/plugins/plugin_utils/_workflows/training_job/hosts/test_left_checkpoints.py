# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What all nodes have of the newest checkpoint: said before a run continues, and recorded at its end."""

from __future__ import annotations

import json
import os
import pathlib
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.job import parse_job
from ansible_collections.muster.training.plugins.module_utils._model.job_checkpoints import find_left
from ansible_collections.muster.training.plugins.module_utils._model.node_report import SeenCheckpoint
from ansible_collections.muster.training.plugins.module_utils._node import host_preflight
from ansible_collections.muster.training.plugins.plugin_utils._hosts.node_client import NodeClient
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.hosts.follower import (
    HostsFollower,
)
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.hosts.left_checkpoints import (
    agree,
    note_partial,
)
from ansible_collections.muster.training.tests.support.run_world import Said

T0 = 1_700_000_000.0


def seen(folder: pathlib.Path, *names: str) -> dict[str, t.Any]:
    """Return what a node says of a folder with files of these names, the newest last."""
    folder.mkdir()
    for name in names:
        (folder / name).write_bytes(b"x" * 100)
        os.utime(folder / name, (T0, T0 + int(name[5:7])))
    return host_preflight.find_checkpoint({"folder": str(folder), "format": "auto", "apart": True}, folder)


class Node(NodeClient):
    """A node that answers with what it has."""

    def __init__(self, name: str, has: dict[str, t.Any]) -> None:
        super().__init__(name, lambda command, data: (0, "", ""))
        self.has = has

    def call(self, op: str, **values: t.Any) -> dict[str, t.Any]:
        assert op == "info" and values["checkpoints"]["apart"]
        return {"checkpoint": self.has}


def test_a_run_continues_from_the_step_that_all_nodes_have(tmp_path: pathlib.Path) -> None:
    a = seen(tmp_path / "a", "step-20.rank0.ckpt", "step-30.rank0.ckpt")
    b = seen(tmp_path / "b", "step-20.rank1.ckpt")
    found = agree({"a": SeenCheckpoint(**a), "b": SeenCheckpoint(**b)})
    assert [item.name for item in found.values()] == ["step-20.rank0.ckpt", "step-20.rank1.ckpt"]
    left = find_left(30, found)
    assert left is not None and (left.kind, left.place) == ("other", "step-20.rank0.ckpt on a")
    alone = {"a": SeenCheckpoint(**a), "b": SeenCheckpoint("/c")}
    assert agree(alone) == alone, "one rank saves, and nothing is newer than what is whole"


@pytest.mark.parametrize(
    ("second", "step"), [(("step-20.rank1.ckpt",), 20), (("step-20.rank1.ckpt", "step-30.rank1.ckpt"), 30)]
)
def test_the_record_names_the_newest_step_of_which_every_part_is_there(
    tmp_path: pathlib.Path, second: tuple[str, ...], step: int
) -> None:
    nodes = [
        Node("a", seen(tmp_path / "a", "step-20.rank0.ckpt", "step-30.rank0.ckpt")),
        Node("b", seen(tmp_path / "b", *second)),
    ]
    folder = tmp_path / "run"
    folder.mkdir()
    common = {"attempt": 1, "world_size": 2, "kind": "worker_started", "at": T0}
    lines = [{**common, "node": name, "rank": rank} for rank, name in enumerate("ab")]
    (folder / "events.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / "metrics.jsonl").write_text(json.dumps({"at": T0 + 5, "checkpoint_step": 30, "path": "step-30"}) + "\n")
    job = parse_job({"name": "x", "nodes": 2, "script": "/t.py"})
    said: t.Any = Said()
    follower = HostsFollower(job, "x-1", folder, nodes, said, lambda _node: None, lambda _follower: None, None)
    note_partial(follower, nodes)
    assert follower.story.checkpoint is not None and follower.story.checkpoint[0] == step
    words = (
        "checkpoint 30 is not whole, the newest that is there has step 20 (other nodes lack their part of step-30.rank0"
    )
    assert follower.story.describe_missing().startswith(words) is (step == 20)
