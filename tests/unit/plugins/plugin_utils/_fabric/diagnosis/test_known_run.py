# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the record and the events of a run know of it."""

from __future__ import annotations

import typing as t

from ansible_collections.muster.training.plugins.plugin_utils._fabric.diagnosis.known_run import KnownRun

Dict = dict[str, t.Any]
STARTS: list[Dict] = [
    {"at": 100.0 + rank, "kind": "worker_started", "rank": rank, "node": f"n{rank}", "attempt": 1, "world_size": 2}
    for rank in (0, 1)
]
STEPS: list[Dict] = [{"at": 110.0 + step, "step": step} for step in (1, 2)] + [{"at": 113.0, "checkpoint_step": 2}]


def known(*more: Dict, **record: t.Any) -> KnownRun:
    return KnownRun.build({"state": "running", **record}, [*STARTS, *more], STEPS, 150.0)


def test_steps_and_ranks_are_those_of_its_events() -> None:
    found = known(hosts=["n0", "n1"])
    assert found.over is None and found.steps == ((111.0, 1), (112.0, 2)) and found.nodes == ("n0", "n1")
    assert found.attempt is not None and found.attempt.ranks == {0: "n0", 1: "n1"}
    assert known({"at": 111.5, "kind": "step_went_back", "step": 9, "back_to": 1}).steps == (), "they are not known"


def test_what_is_no_count_of_steps_is_none_here_as_in_the_record() -> None:
    """An evaluation before the first step counts as -1; a program may write any time."""
    odd = [{"at": 109.0, "step": -1}, {"at": 110.5, "step": True}, {"at": 2e12, "step": 9}, {"at": True, "step": 8}]
    found = KnownRun.build({"state": "running"}, STARTS, [*odd, *STEPS], 150.0)
    assert found.steps == ((111.0, 1), (112.0, 2))


def test_a_node_that_is_not_ready_is_said_before_its_ranks_have_ended() -> None:
    quiet = {"at": 120.0, "kind": "node_not_ready", "node": "n0", "pod": "p"}
    assert known().losing_node is None and known(quiet).lost_node is None
    assert known(quiet).losing_node == ("n0", "the cluster says that it is not ready, since attempt 1 began")
    failed = {"at": 119.0, "kind": "worker_exit", "rank": 1, "node": "n1", "attempt": 1, "exit_code": 1}
    said = "attempt 1 lost this node: the cluster says that it is not ready; the gang had reached step 2"
    assert known(quiet, failed).lost_node == ("n0", said)
    lost = {"at": 121.0, "kind": "node_lost", "node": "n0"}
    assert known(lost).lost_node == (
        "n0",
        said.replace("the cluster says that it is not ready", "its ranks were lost with it"),
    )


def test_how_it_ended() -> None:
    assert known().describe_end() == "" and known(state="ended", outcome="succeeded").describe_end() == ""
    failed = known(state="ended", outcome="failed", cause="timeout", detail="timeout_s (9 s) has passed")
    assert failed.over and failed.has_failed and failed.describe_end() == "failed: timeout: timeout_s (9 s) has passed"
    cancelled = known(state="ended", outcome="cancelled", cause="cancelled", detail="by a user")
    assert not cancelled.has_failed and cancelled.describe_end() == "cancelled: by a user"
