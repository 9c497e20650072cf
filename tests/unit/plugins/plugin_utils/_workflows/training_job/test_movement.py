# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a run moves, by the files that a controller keeps of it, and what is done of a gang that hangs."""

from __future__ import annotations

import pathlib
import time
import types
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.job import parse_job
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job import movement
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.follower import Follower

Dict = dict[str, t.Any]


def test_a_run_without_attempts_is_not_judged(tmp_path: pathlib.Path) -> None:
    assert movement.read_movement(tmp_path, 100.0) == ("moving", "")


def test_only_the_end_of_a_long_file_is_read(tmp_path: pathlib.Path) -> None:
    place = tmp_path / "metrics.jsonl"
    place.write_text("x" * (1 << 17) + "\nlast\n")
    end = movement.read_end(place)
    assert end.endswith("\nlast\n") and len(end) == 1 << 16
    assert movement.read_end(tmp_path / "absent") == ""


def test_a_line_for_people_leaves_out_what_is_unknown() -> None:
    bare: Dict = {"nodes": 0, "nodes_asked": 2, "ranks": 0, "ranks_asked": 2, "restarts": 0}
    assert movement.describe_state(bare) == "ranks 0/2"
    full = {
        "nodes": 2,
        "ranks": 2,
        "step": 7,
        "loss": 0.25,
        "tokens_per_s": 12345.6,
        "samples_per_s": 3.21,
        "checkpoint_step": 5,
    }
    text = "nodes 2/2 · ranks 2/2 · step 7 · loss 0.2500 · 12,346 tokens/s · 3.2 samples/s · checkpoint 5"
    assert movement.describe_state({**bare, **full, "restarts": 1, "cost_usd": 2.5}) == f"{text} · restarts 1 · $2.50"
    assert movement.describe_state({**bare, **full, "step_age_s": 20.0}) == f"{text} · 20 s ago"
    estimated = movement.describe_state({**bare, **full, "checkpoint_step_by": "the last that was printed before it"})
    assert estimated.endswith(" · checkpoint about 5")
    assert (
        movement.describe_state({**bare, **full, "step_age_s": 540.0, "stalled_s": 540.0})
        == f"{text} · no step for 9 min"
    )


def test_the_end_of_a_log(tmp_path: pathlib.Path) -> None:
    assert movement.read_end(tmp_path / "none.log") == ""
    (tmp_path / "a.log").write_bytes(b"x" * 70_000 + b"\xffend\n")
    text = movement.read_end(tmp_path / "a.log")
    assert text.endswith("end\n") and len(text) <= 64 * 1024


class Following(Follower):
    """A follower of two nodes whose ranks can be killed, or cannot."""

    def __init__(self, folder: pathlib.Path, **restart: t.Any) -> None:
        self.said: list[str] = []
        self.told: list[str] = []
        self.killed: list[tuple[int, str]] = []
        self.dies = True
        progress: t.Any = types.SimpleNamespace(say=self.said.append, show=lambda _values: None)
        job = parse_job({"name": "x", "nodes": 2, "script": "/t.py", "restart": restart})
        super().__init__(job, "x-1", folder, progress, lambda _follower: None, None)
        self.notify = self.told.append

    def kill_rank(self, rank: int, node: str) -> float | None:
        self.killed.append((rank, node))
        return time.time() if self.dies else None

    def begin(self, attempt: int = 1) -> None:
        for rank, node in enumerate("ab"):
            self.record_event("worker_started", rank=rank, node=node, attempt=attempt, world_size=2)
        for step in range(1, 11):
            self.story.metric({"at": time.time() + step / 1000, "step": step})

    def hang(self, seconds: float, attempt: int = 1) -> None:
        """Rank 0 waits in a collective for rank 1, which stands elsewhere."""
        for rank, node, operation in ((0, "a", "all_reduce"), (1, "b", None)):
            since = time.time() - seconds
            self.record_event(
                "rank_stands", rank=rank, node=node, since=since, operation=operation, attempt=attempt, frames=[]
            )

    def fail(self, attempt: int, rank: int, code: int) -> None:
        self.record_event("worker_exit", rank=rank, node="ab"[rank], exit_code=code, attempt=attempt)


def test_a_hang_is_said_once_and_that_it_is_over(tmp_path: pathlib.Path) -> None:
    follower = Following(tmp_path)
    follower.begin()
    assert follower.hangs.describe() is None
    follower.hang(90)
    follower.hangs.update()
    follower.hangs.update()
    (said,) = follower.said
    assert said.startswith("warning: the run hangs for 2 min: rank 1 on b stands"), said
    assert follower.told == [said.removeprefix("warning: ")] and follower.hangs.describe() in said
    for rank in (0, 1):
        follower.record_event("rank_moves", rank=rank)
    follower.hangs.update()
    assert follower.said[1:] == ["the run hangs no longer"] and follower.killed == []


def test_the_rank_that_is_waited_for_is_killed_once_an_attempt(tmp_path: pathlib.Path) -> None:
    follower = Following(tmp_path, on_hang="restart")
    for attempt in (1, 2):
        follower.begin(attempt)
        follower.hang(30, attempt)
        follower.hangs.update()
        assert len(follower.killed) == attempt - 1, "not before its time"
        follower.hang(90, attempt)
        follower.hangs.update()
        follower.hangs.update()
        follower.fail(attempt, 1, 137)
        follower.stop_rules.stood_s = 1e5
        follower.hangs.update()
        follower.fail(attempt, 0, 143)
        follower.hangs.update()
    assert follower.killed == [(1, "b")] * 2
    assert "the run hangs no longer" not in follower.said, "it hung until it was killed"
    assert not any("has ended" in line for line in follower.said), "the others wait for it until they are stopped"
    killed = [line for line in follower.said if line.startswith("killed")]
    again = "killed rank 1 on b, so that the gang starts again"
    assert killed == [again, f"{again}; b hung 2 times in this run"]
    assert [attempt.cause for attempt in follower.story.attempts] == ["hang", "hang"] and follower.story.crashes == 2


@pytest.mark.parametrize(
    ("restart", "limit"),
    [({"on_hang": "stop"}, "on_hang: stop"), ({"on_hang": "restart", "max_crashes": 0}, "max_crashes (0) is used up")],
)
def test_a_hang_ends_the_run(tmp_path: pathlib.Path, restart: Dict, limit: str) -> None:
    follower = Following(tmp_path, **restart)
    follower.begin()
    follower.hang(90)
    assert follower._rule_outcome() is None, "it was not judged yet"
    follower.hangs.update()
    found = follower._rule_outcome()
    assert found is not None and limit in found.detail and follower.killed == []
    assert (found.outcome, found.cause, found.node) == ("failed", "hang", "b")


def test_a_rank_that_cannot_be_reached_is_killed_later(tmp_path: pathlib.Path) -> None:
    follower = Following(tmp_path, on_hang="restart")
    follower.begin()
    follower.hang(90)
    follower.dies = False
    follower.hangs.update()
    assert follower.story.attempts[0].cause is None
    follower.dies = True
    follower.hangs.update()
    assert len(follower.killed) == 2 and follower.story.attempts[0].cause == "hang"


@pytest.mark.parametrize(
    ("width", "text"),
    [
        (60, "nodes 2/2 · ranks 2/2 · step 50 · loss 1.3351"),
        (45, "nodes 2/2 · ranks 2/2 · step 50 · loss 1.3351"),
        (44, "nodes 2/2 · ranks 2/2 · step 50 · …"),
        (34, "nodes 2/2 · ranks 2/2 · …"),
        (12, "nodes 2/2 …"),
        (10, "nodes …"),
        (4, "nod…"),
        (1, "…"),
    ],
)
def test_a_line_is_cut_between_its_parts(width: int, text: str) -> None:
    line = "nodes 2/2 · ranks 2/2 · step 50 · loss 1.3351"
    assert movement.fit_line(line, width) == text and len(text) <= max(width, 1)
