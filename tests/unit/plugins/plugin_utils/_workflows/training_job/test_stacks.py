# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where ranks stand is kept in the run's logs before they are stopped."""

from __future__ import annotations

import pathlib
import typing as t

from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job import stacks


class Node:
    name = "gpu-1"

    def call(self, op: str, **values: t.Any) -> dict[str, t.Any]:
        assert (op, values) == ("stacks", {"run_id": "r", "signals": True})
        text = 'Thread 0x1 (most recent call first):\n  File "/x/train.py", line 20 in main\n'
        return {"ranks": [{"rank": 3, "pid": 7, "how": "faulthandler", "text": text, "kernel": [], "problem": ""}]}


def test_stacks_are_kept_and_told_in_one_line_a_rank(tmp_path: pathlib.Path) -> None:
    node: t.Any = Node()
    assert stacks.keep_stacks([node], "r", tmp_path) == ["rank 3 on gpu-1: main (train.py:20)"]
    place = stacks.stack_file(tmp_path, "gpu-1")
    assert place.suffix == ".stacks" and "line 20 in main" in place.read_text()


def test_what_pods_told_is_kept_of_the_newest_start(tmp_path: pathlib.Path) -> None:
    def told(rank: int, at: float, **values: t.Any) -> dict[str, t.Any]:
        about = {"kind": "rank_stack", "at": at, "rank": rank, "node": f"node-{rank % 2}", "pid": 7, "how": None}
        return {**about, "text": "", "kernel": [f"process 7: python3, S (sleeping) {at}"], "problem": "", **values}

    events = [
        told(0, 1.0),
        told(1, 1.0),
        {"kind": "worker_started", "rank": 0},
        told(0, 5.0),
        told(2, 5.0),
        told(0, 6.0),
    ]
    assert stacks.keep_recorded_stacks(events, 2.0, tmp_path) == [
        "rank 0 on node-0: process 7: python3, S (sleeping) 6.0",
        "rank 2 on node-0: process 7: python3, S (sleeping) 5.0",
    ]
    assert [place.name for place in (tmp_path / "logs").iterdir()] == ["node-0.stacks"]
    assert stacks.keep_recorded_stacks(events, 9.0, tmp_path) == []


def test_many_ranks_are_counted() -> None:
    said = stacks.describe_stacks([f"rank {number}" for number in range(10)])
    assert said.endswith("rank 7; and 2 more") and stacks.describe_stacks([]) == ""
