# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is said of jobs of others, by what their hosts answer."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import MusterError, RefusedError
from ansible_collections.muster.training.plugins.plugin_utils._workflows.diagnose.attach import attach


def rank(
    number: int, operation: str | None = "all_reduce", *, stands: bool = True, **values: t.Any
) -> dict[str, t.Any]:
    place = {"name": "step", "path": "/x/train.py", "line": 20 if operation else 7}
    frames = [["wait", "/v/site-packages/torch/d.py", 3], ["step", "/x/train.py", place["line"]]]
    seen = {"rank": number, "since": 5.0, "operation": operation, "place": place, "frames": frames, "stands": stands}
    return {**seen, "world_size": 4, "gang": "10.0.0.1:29500", "program": "train.py", "state": "S", **values}


class Host:
    """A host that answers with ranks, or with an error."""

    def __init__(self, name: str, answer: list[dict[str, t.Any]] | MusterError) -> None:
        self.name, self.answer = name, answer

    def ask(self, op: str, **values: t.Any) -> dict[str, t.Any]:
        """Answer the one operation."""
        assert op == "attach" and values["deadline_s"] > values["window_s"] == 6.0
        if isinstance(self.answer, MusterError):
            raise self.answer
        return {"ranks": self.answer}


def look(*hosts: Host) -> dict[str, t.Any]:
    return attach(hosts, 6.0)  # type: ignore[arg-type]


def test_the_rank_that_the_others_wait_for_and_one_line_for_each_place() -> None:
    found = look(Host("a", [rank(0), rank(1, None, waits_in="futex")]), Host("b", [rank(2), rank(3)]))
    assert found["summary"] == [
        "job 10.0.0.1:29500: train.py, 4 of 4 ranks seen on a, b",
        "hangs: rank 1 on a waits for a lock at train.py:7 (step); ranks 0, 2-3 wait in all_reduce at train.py:20 (step)",
        "ranks 0, 2-3: all_reduce, at train.py:20 (step), in d.py:3 (wait)",
        "rank 1: no collective, at train.py:7 (step), in d.py:3 (wait)",
    ]
    (gang,) = found["gangs"]
    assert gang["hang"].startswith("rank 1 on a") and not found["changed"] and found["nodes"] == ["a", "b"]


def test_ranks_that_move_and_hosts_that_do_not_answer() -> None:
    found = look(Host("a", [rank(0, stands=False), rank(1)]), Host("b", MusterError("no route")))
    assert found["summary"][:3] == [
        "no answer from b: no route",
        "job 10.0.0.1:29500: train.py, 2 of 4 ranks seen on a",
        "1 of its ranks move",
    ]
    assert found["gangs"][0]["hang"] is None


def test_two_jobs_on_one_host_are_two() -> None:
    found = look(
        Host("a", [rank(0), rank(0, gang="10.0.0.2:1"), rank(1, place=None, frames=[], problem="not permitted")])
    )
    assert [gang["gang"] for gang in found["gangs"]] == ["10.0.0.1:29500", "10.0.0.2:1"]
    assert "rank 1: all_reduce, not permitted" in found["summary"]


def test_no_rank_and_no_host_are_said_with_the_way_on() -> None:
    with pytest.raises(RefusedError, match="no rank of a job of others is seen on a") as refused:
        look(Host("a", []))
    assert "ansible_user" in refused.value.fix
    with pytest.raises(MusterError, match="no route"):
        look(Host("a", MusterError("no route")))
