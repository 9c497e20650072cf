# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The rules of an acceptance: what each part proves, and the outcome of all."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model import acceptance as subject
from ansible_collections.muster.training.plugins.module_utils._model.acceptance import AcceptancePart


@pytest.mark.parametrize(
    ("outcomes", "whole", "code"),
    [
        (["pass", "pass"], "pass", 0),
        (["pass", "warn", "not_applicable"], "warn", 0),
        (["warn", "unproven"], "unproven", 1),
        (["unproven", "fail"], "fail", 1),
        (["not_applicable"], "unproven", 1),
        ([], "unproven", 1),
    ],
)
def test_the_outcome_of_all(outcomes: list[t.Any], whole: str, code: int) -> None:
    parts = [AcceptancePart(str(index), outcome, "x") for index, outcome in enumerate(outcomes)]
    made = subject.build_document(parts, nodes=2)
    assert (made["schema"], made["outcome"], made["exit_code"], made["nodes"]) == (1, whole, code, 2)
    assert [part["outcome"] for part in made["parts"]] == outcomes


def gang(run_id: str, began: str | None, ended: str | None, seen: int = 2, outcome: str = "succeeded") -> t.Any:
    attempts = [{"started_at": began, "ended_at": ended}]
    size = {"asked": 2, "seen": seen}
    return {"run_id": run_id, "outcome": outcome, "detail": "why", "attempts": attempts, "world_size": size}


@pytest.mark.parametrize(
    ("first", "second", "outcome"),
    [
        (gang("a", "10:00", "10:05"), gang("b", "10:06", "10:11"), "pass"),
        (gang("a", "10:06", "10:11"), gang("b", "10:00", "10:05"), "pass"),
        (gang("a", "10:00", "10:05"), gang("b", "10:04", "10:09"), "unproven"),
        (gang("a", "10:00", "10:05"), gang("b", "10:06", "10:11", seen=1), "fail"),
        (gang("a", "10:00", "10:05"), gang("b", None, None, outcome="failed"), "fail"),
        (gang("a", "10:00", None), gang("b", "10:06", "10:11"), "unproven"),
    ],
)
def test_two_gangs(first: t.Any, second: t.Any, outcome: str) -> None:
    assert subject.judge_queue(first, second).outcome == outcome


def test_users() -> None:
    assert subject.judge_user_ids([("a", 1000), ("b", 1001)]).outcome == "pass"
    root = subject.judge_user_ids([("a", 1000), ("b", 0)])
    assert root.outcome == "unproven" and "as root on b" in root.summary
    assert subject.judge_user_ids([]).outcome == "unproven"


def test_resume() -> None:
    proof = {"resumed": True, "seconds_to_resume": 4.0, "world_size": 2, "steps_lost": 7, "problem": ""}
    done = {"run_id": "r", "outcome": "succeeded", "detail": "x", "drill": proof}
    found = subject.judge_resume(done)
    assert found.outcome == "pass" and "resumed in 4.0 s with all 2 ranks, 7 steps" in found.summary
    assert subject.judge_resume({**done, "drill": None}).outcome == "fail"
    assert subject.judge_resume({**done, "outcome": "failed"}).outcome == "fail"
    again = subject.judge_resume({**done, "drill": {**proof, "resumed": False, "problem": "the run began again"}})
    assert again.outcome == "fail" and again.reasons == ("the run began again",)
