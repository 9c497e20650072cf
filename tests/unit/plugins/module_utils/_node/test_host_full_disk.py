# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node ends a run whose disk stays full by itself, where it knows that no attempt comes further."""

from __future__ import annotations

import json
import pathlib
import time

import pytest

from ansible_collections.muster.training.plugins.module_utils._node import host_full_disk
from ansible_collections.muster.training.tests.unit.plugins.module_utils._node.test_host_supervisor import Unit, unit

__all__ = ["unit"]

FULL = "OSError: [Errno 28] No space left on device: '/data/c-7.pt'\n"


class Node:
    """What a node's ranks and launcher write of a run that began a while ago."""

    def __init__(self, folder: pathlib.Path, rank: int = 0) -> None:
        self.folder, self.rank, self.at = folder, rank, time.time() - 1000
        (folder / "log").touch()
        self.watch = host_full_disk.FullDiskWatch(folder, folder / "log", "a", 0)

    def attempt(self, n: int, *steps: int, said: str = FULL, code: int = 1, saved: int | None = None) -> str | None:
        """Have an attempt make steps and fail; return how the node ends the run."""
        self.at += 10
        self.event("worker_started", n)
        assert self.watch.find_end() is None or n > 2
        for step in steps:
            self.metric({"at": self.at + 1, "step": step})
        if saved is not None:
            self.metric({"at": self.at + 1, "checkpoint_step": saved})
        output = self.folder / f"ranks/attempt_1.{n}/{self.rank}"
        output.mkdir(parents=True)
        (output / "stdout.log").write_text(f"step 7\n{said}")
        self.at += 2
        self.event("worker_exit", n, exit_code=code)
        end = self.watch.find_end()
        return end.detail if end else None

    def event(self, kind: str, n: int, **values: object) -> None:
        line = {"at": self.at, "kind": kind, "node": "a", "rank": self.rank, "attempt": n, **values}
        self.append("events", line)

    def metric(self, line: dict[str, object]) -> None:
        self.append("metrics", line)

    def append(self, name: str, line: dict[str, object]) -> None:
        with open(self.folder / f"{name}.jsonl", "a", encoding="utf-8") as handle:
            handle.write(json.dumps(line) + "\n")


def test_the_second_attempt_without_progress_ends_it(tmp_path: pathlib.Path) -> None:
    node = Node(tmp_path)
    assert node.attempt(1, 1, 2, 3) is None
    assert node.attempt(2, 3, 4) is None, "it came further"
    assert node.attempt(3, 4) == (
        "no space left on a for /data/c-7.pt, in attempt 3 at step 4 as in attempt 2 before it: no restart frees any"
    )


@pytest.mark.parametrize(
    ("said", "code", "saved"),
    [("ValueError: x\n", 1, None), (FULL, 143, None), (FULL, 1, 7)],
    ids=["it failed otherwise", "its launcher stopped it", "it saved"],
)
def test_another_end_or_a_checkpoint_keeps_it_going(
    tmp_path: pathlib.Path, said: str, code: int, saved: int | None
) -> None:
    node = Node(tmp_path)
    assert node.attempt(1, 3) is None
    assert node.attempt(2, 3, said=said, code=code, saved=saved) is None


def test_a_node_that_sees_no_steps_leaves_it_to_the_controller(tmp_path: pathlib.Path) -> None:
    """Rank 0 prints them elsewhere; with steps, or the checkpoints, of its own ranks it knows."""
    blind = Node(tmp_path, rank=1)
    assert [blind.attempt(number) for number in (1, 2, 3)] == [None] * 3
    blind.metric({"at": blind.at, "checkpoint_step": 7})
    assert blind.attempt(4) is not None


def test_steps_without_a_time_are_of_no_attempt_that_is_known(tmp_path: pathlib.Path) -> None:
    node = Node(tmp_path)
    node.metric({"step": 3})
    assert [node.attempt(number) for number in (1, 2)] == [None] * 2


def test_what_was_saved_last_may_not_be_known_yet(tmp_path: pathlib.Path) -> None:
    node = Node(tmp_path)
    node.at = time.time() - 25
    assert node.attempt(1, 3) is None
    node.at = time.time() - 12
    assert node.attempt(2, 3) is None


def test_a_launcher_restarts_ranks_on_a_full_disk_no_more(unit: Unit) -> None:
    """Nothing but the supervisor is there: the launcher would restart them a hundred times."""
    program = f"sleep 2; echo {FULL.strip()!r} >&2; exit 3"
    unit.ranks(1, 100, "sh", "-c", program)
    ending = unit.end()
    assert (ending["exit_code"], ending["cause"]) == (3, "disk_full")
    assert " as in attempt" in ending["detail"] and "no restart frees any" in ending["detail"]
    assert len(unit.events("worker_started")) < 10
