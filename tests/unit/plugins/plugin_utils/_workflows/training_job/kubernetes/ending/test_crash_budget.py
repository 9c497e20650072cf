# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Crashes of a JobSet's gang: counted by what was seen, whatever its engine took for one."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.run_attempt import Attempt, RankExit
from ansible_collections.muster.training.plugins.module_utils._model.run_history import RunHistory
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.kubernetes.ending import (
    crash_budget,
)

Dict = dict[str, t.Any]


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crash_budget, "_SETTLE_S", 0.0)


def counted(restarts: int) -> Dict:
    return {"kind": "JobSet", "status": {"restarts": restarts, "restartsCountTowardsMax": restarts}}


def story(*causes: str | None) -> RunHistory:
    """Return a run whose attempts ended so; all of them by a rank's error, as far as their ranks know."""
    found, ends = RunHistory(), {0: RankExit(50.0, 1, "node-1")}
    for n, cause in enumerate(causes, 1):
        lost = {"not_ready": (60.0, "node-2")} if cause == "node_lost" else {}
        found.attempts.append(Attempt(n, float(n), exits=ends if cause else {}, **lost))
    return found


@pytest.mark.parametrize(
    ("allowed", "restarts", "causes", "exceeded"),
    [
        (0, 1, ["crash"], True),
        (0, 0, ["crash"], False),
        (0, 1, ["node_lost"], False),
        (1, 2, ["node_lost", "crash"], False),
        (1, 3, ["crash", "node_lost", "crash"], True),
        (1, 2, ["crash", "crash", None], True),
        # What an earlier controller saw of it is unknown: a run that works is not ended by the engine's word alone.
        (0, 3, [None], False),
    ],
)
def test_a_lost_node_takes_no_crash(allowed: int, restarts: int, causes: list[str | None], exceeded: bool) -> None:
    budget = crash_budget.CrashBudget(allowed)
    assert budget.is_exceeded(counted(restarts), story(*causes), hindered=False) is exceeded


def test_a_container_that_was_killed_is_a_crash_of_which_no_rank_speaks() -> None:
    """Each of its attempts counts, and none has an unknown cause."""
    found = RunHistory()
    for n in (1, 2):
        for rank in (0, 1):
            found.event({"at": 10.0 * n, "kind": "worker_started", "attempt": n, "rank": rank, "node": f"n{rank}"})
        found.event({"at": 10.0 * n + 5, "kind": "container_killed", "node": "n1", "exit_code": 137})
        # What the others say of it is no cause.
        found.event({"at": 10.0 * n + 6, "kind": "worker_exit", "attempt": n, "rank": 0, "exit_code": 1, "node": "n0"})
    assert [(item.cause, item.exit_code, item.failed_node) for item in found.attempts] == [("crash", 137, "n1")] * 2
    assert crash_budget.CrashBudget(1).is_exceeded(counted(2), found, hindered=False)
    assert not crash_budget.CrashBudget(2).is_exceeded(counted(2), found, hindered=False)


def test_without_any_attempt_the_engine_counts_once_it_is_known_what_hinders_them() -> None:
    budget = crash_budget.CrashBudget(2)
    assert not budget.is_exceeded(counted(3), story(), hindered=False)
    assert not budget.is_exceeded(counted(2), story(), hindered=True)
    assert budget.is_exceeded(counted(3), story(), hindered=True)
    assert not budget.is_exceeded(counted(3), story(None), hindered=True), "an attempt has begun since"


def test_the_clusters_word_on_a_node_may_come_after_the_restart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crash_budget, "_SETTLE_S", 1.0)
    now = [100.0]
    monkeypatch.setattr(crash_budget.time, "monotonic", lambda: now[0])
    budget = crash_budget.CrashBudget(0)
    assert not budget.is_exceeded(counted(1), story("crash"), hindered=False)
    now[0] += 0.9
    assert not budget.is_exceeded(counted(1), story("node_lost"), hindered=False)
    now[0] += 5.0
    assert not budget.is_exceeded(counted(2), story("node_lost", "crash"), hindered=False), "counted anew"
    now[0] += 1.0
    assert budget.is_exceeded(counted(2), story("node_lost", "crash"), hindered=False)
