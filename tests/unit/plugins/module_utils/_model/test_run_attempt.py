# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One attempt of a run: which rank failed first, when it ended, and of what."""

from __future__ import annotations

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.run_attempt import Attempt, RankExit

FIRST = RankExit(5.0, 3, "b")


def test_the_rank_that_failed_first_explains_the_others() -> None:
    exits = {0: RankExit(4.0, 143, "a"), 1: FIRST, 2: RankExit(9.0, 7, "a"), 3: RankExit(1.0, 0, "a")}
    attempt = Attempt(1, 1.0, ranks={0: "a", 1: "b", 2: "a", 3: "a"}, exits=exits)
    assert (attempt.failed_rank, attempt.first_failure, attempt.exit_code) == (1, FIRST, 3)
    assert (attempt.ended_at, attempt.cause, attempt.failed_node) == (5.0, "crash", "b")
    assert attempt.node_names == ["a", "b"]


@pytest.mark.parametrize(
    ("followed", "exits", "ended_at", "code"),
    [(False, {}, None, None), (True, {}, 6.0, None), (False, {0: RankExit(8.0, 143, "a")}, 8.0, 143)],
)
def test_an_attempt_without_a_failure_ends_with_its_ranks_or_its_last_step(
    followed: bool, exits: dict[int, RankExit], ended_at: float | None, code: int | None
) -> None:
    attempt = Attempt(1, 1.0, exits=exits, last_step_at=6.0, followed=followed)
    assert (attempt.ended_at, attempt.exit_code, attempt.cause) == (ended_at, code, None)


def test_a_rank_that_was_asked_to_end_and_killed_as_it_did_not_is_no_crash() -> None:
    """A cancel gives it its time to save."""
    killed = RankExit(8.0, 137, "a", stopped=True)
    attempt = Attempt(1, 1.0, ranks={0: "a", 1: "b"}, exits={0: killed, 1: RankExit(7.0, 143, "b", stopped=True)})
    assert (attempt.cause, attempt.failed_rank, attempt.describe_crash()) == (None, None, "")
    attempt.exits[1] = RankExit(7.0, 3, "b")
    assert (attempt.cause, attempt.failed_rank) == ("crash", 1)
    attempt.exits = {0: RankExit(8.0, 137, "a")}
    assert attempt.cause == "crash", "nobody asked it to end"


@pytest.mark.parametrize(
    ("changes", "cause", "node"),
    [
        ({"fault": ("drill", "a")}, "drill", "a"),
        ({"cancelled_at": 4.0}, "cancelled", None),
        ({"cancelled_at": 6.0}, "crash", "b"),
        ({"not_ready": (100.0, "c")}, "node_lost", "c"),
        ({"not_ready": (400.0, "c")}, "crash", "b"),
    ],
)
def test_the_cause_is_what_came_first(changes: dict[str, object], cause: str, node: str | None) -> None:
    attempt = Attempt(1, 1.0, exits={1: FIRST}, **changes)  # type: ignore[arg-type]
    assert (attempt.cause, attempt.failed_node) == (cause, node)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, ""),
        ({"followed": True}, "attempt 1: rank 1 on b exited with code 3; the gang had reached step 7"),
        (
            {"exits": {0: RankExit(6.0, 143, "a"), 1: FIRST}},
            "attempt 1: rank 1 on b exited with code 3; the gang had reached step 7",
        ),
        (
            {"exits": {0: RankExit(4.0, 137, "a"), 1: FIRST}},
            "attempt 1: rank 0 on a exited with code 137 (128 + signal 9)",
        ),
        ({"followed": True, "killed": RankExit(4.0, 137, "c")}, "attempt 1: a container on c exited with code 137"),
        ({"followed": True, "fault": ("drill", "a")}, ""),
        ({"followed": True, "exits": {}}, ""),
    ],
    ids=["others may have failed first", "followed", "all ended", "killed", "container", "drill", "no failure"],
)
def test_a_crash_is_described_once_all_of_it_is_known(changes: dict[str, object], said: str) -> None:
    ranks = {0: "a", 1: "b"}
    attempt = Attempt(1, 1.0, **{"ranks": ranks, "exits": {1: FIRST}, "last_step": 7, **changes})  # type: ignore[arg-type]
    found = attempt.describe_crash()
    assert found.startswith(said) and bool(found) is bool(said)


@pytest.mark.parametrize(
    ("changes", "culprit"),
    [
        # Its pod was deleted on b: rank 0 failed elsewhere because of that.
        ({"fault": ("pod_deleted", "b"), "fault_pod": "r-1"}, ("b", 1, 143)),
        # Two of its pods share the node.
        ({"fault": ("pod_deleted", "a"), "fault_pod": "r-2"}, ("a", 2, None)),
        ({"fault": ("drill", "a")}, ("a", 0, 1)),
        ({"fault": ("node_lost", "c")}, ("c", None, None)),
        ({"fault": ("suspended", None)}, (None, None, None)),
        ({"killed": RankExit(4.0, 137, "b")}, ("b", 1, 137)),
        ({}, ("a", 0, 1)),
    ],
    ids=["pod deleted", "pods of one node", "drill", "node lost", "suspended", "killed", "crash"],
)
def test_node_rank_and_exit_code_are_of_one_event(
    changes: dict[str, object], culprit: tuple[str | None, int | None, int | None]
) -> None:
    ranks, pods = {0: "a", 1: "b", 2: "a"}, {0: "r-0", 1: "r-1", 2: "r-2"}
    exits = {0: RankExit(5.0, 1, "a"), 1: RankExit(4.0, 143, "b")}
    attempt = Attempt(1, 1.0, ranks=ranks, pods=pods, exits=exits, followed=True, **changes)  # type: ignore[arg-type]
    assert (attempt.failed_node, attempt.culprit[0], attempt.exit_code) == culprit


def test_nodes_whose_ranks_are_done_are_told_from_those_that_were_stopped() -> None:
    ranks = {0: "a", 1: "a", 2: "b", 3: "c", 4: "d"}
    done, stopped = RankExit(4.0, 0, ""), RankExit(4.0, 0, "", stopped=True)
    attempt = Attempt(1, 1.0, ranks=ranks, exits={0: done, 1: done, 2: stopped, 3: FIRST})
    assert attempt.left_nodes == ["a"]
    attempt.exits[1] = FIRST
    assert attempt.left_nodes == [] == Attempt(1, 1.0).left_nodes
