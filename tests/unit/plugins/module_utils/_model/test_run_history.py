# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What happened in a run, folded from events and metrics in any order that several nodes can deliver them."""

from __future__ import annotations

import time
import typing as t

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.module_utils._model import run_history
from ansible_collections.muster.training.plugins.module_utils._model.run_attempt import RankExit, describe_sharing
from ansible_collections.muster.training.plugins.module_utils._model.run_history import (
    RunHistory,
    fold,
)

Line = dict[str, t.Any]
TIMES = st.floats(0, 2e9)
EVENTS = st.one_of(
    st.fixed_dictionaries(
        {
            "kind": st.just("worker_started"),
            "at": TIMES,
            "attempt": st.integers(1, 4),
            "rank": st.none() | st.integers(0, 3),
        },
        optional={
            "node": st.sampled_from("ab"),
            "world_size": st.none() | st.integers(0, 8),
            "gang": st.sampled_from("gh"),
        },
    ),
    st.fixed_dictionaries(
        {
            "kind": st.just("worker_exit"),
            "at": TIMES,
            "attempt": st.integers(1, 4),
            "rank": st.none() | st.integers(0, 3),
        },
        optional={"node": st.sampled_from("ab"), "gang": st.sampled_from("gh")},
    ).flatmap(lambda line: st.sampled_from([0, 1, 137, 143]).map(lambda code: {**line, "exit_code": code})),
    st.fixed_dictionaries(
        {
            "kind": st.sampled_from(["drill", "node_lost", "agent_restart", "node_back", "submitted", "ended"]),
            "at": TIMES,
        },
        optional={"node": st.sampled_from("ab"), "detail": st.sampled_from(["node_lost", "crash"])},
    ),
)
VALUES = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4) | st.lists(st.integers(), max_size=2)
)
METRICS = st.dictionaries(
    st.sampled_from(["step", "loss", "tokens_per_s", "checkpoint_step", "path", "resumed_from_step", "x"]), VALUES
).flatmap(lambda line: st.one_of(st.just(line), TIMES.map(lambda at: {**line, "at": at})))


@given(lines=st.lists(EVENTS.map(lambda e: ("event", e)) | METRICS.map(lambda m: ("metric", m)), max_size=25))
def test_any_order_of_lines_makes_a_history(lines: list[tuple[str, Line]]) -> None:
    history = RunHistory()
    for kind, line in lines:
        getattr(history, kind)(line)
    steps, seconds = history.losses()
    assert (
        (steps is None or steps >= 0) and (seconds is None or seconds >= 0) and history.crashes <= len(history.attempts)
    )
    numbers = [attempt.n for attempt in history.attempts]
    assert numbers == sorted(set(numbers)) and history.ranks_seen() == (
        len(history.attempts[-1].ranks) if numbers else 0
    )
    for attempt in history.attempts:
        assert (attempt.first_step is None) == (attempt.last_step is None)
    assert set(history.judge_resumes(10, anew=True)) == set(numbers)
    _ = history.first_step_at, history.last, history.checkpoint


def started(n: int, rank: int, at: float) -> tuple[str, Line]:
    node = "ab"[rank]
    return "event", {
        "kind": "worker_started",
        "attempt": n,
        "rank": rank,
        "node": node,
        "at": at,
        "world_size": 2,
        "pid": 9,
    }


def ended(n: int, rank: int, at: float, code: int) -> tuple[str, Line]:
    return "event", {"kind": "worker_exit", "attempt": n, "rank": rank, "node": "ab"[rank], "at": at, "exit_code": code}


def metric(at: float, **values: t.Any) -> tuple[str, Line]:
    return "metric", {"at": at, **values}


# Two ranks train, rank 1 crashes at 15 s after a checkpoint of step 10, both come back and continue.
NODE_A = [
    started(1, 0, 1.0),
    *(metric(2.0 + step, step=step, loss=1.0) for step in range(1, 13)),
    metric(12.5, checkpoint_step=10, path="/c/10"),
    ended(1, 0, 15.4, 143),
    started(2, 0, 20.0),
    metric(21.0, resumed_from_step=10),
    metric(22.0, step=11, loss=0.5, tokens_per_s=7.0),
    ended(2, 0, 30.0, 0),
]
NODE_B = [started(1, 1, 1.5), ended(1, 1, 15.0, 9), started(2, 1, 20.5), ended(2, 1, 30.1, 0)]


def fold_lines(lines: t.Iterable[tuple[str, Line]]) -> RunHistory:
    history = RunHistory()
    for kind, line in lines:
        getattr(history, kind)(line)
    return history


@given(data=st.data())
def test_the_history_does_not_depend_on_how_the_nodes_answers_are_mixed(data: st.DataObject) -> None:
    a, b, mixed = list(NODE_A), list(NODE_B), list[tuple[str, Line]]()
    while a or b:
        of_a = bool(data.draw(st.booleans()))
        mixed.append((a if a and (of_a or not b) else b).pop(0))
    assert fold_lines(mixed).attempts == fold_lines(NODE_A + NODE_B).attempts


def test_a_crash_and_the_resume_are_told() -> None:
    history = fold_lines(NODE_A + NODE_B)
    first, second = history.attempts
    assert (first.ranks, first.world_size) == ({0: "a", 1: "b"}, 2)
    assert first.first_failure == RankExit(15.0, 9, "b") and first.ended_at == 15.0
    assert (first.first_step, first.last_step, second.first_step, second.resumed_from) == (1, 12, 11, 10)
    assert second.first_failure is None and second.ended_at == 30.1
    assert history.losses()[0] == 2 and history.losses()[1] == pytest.approx(8.0)
    assert (history.crashes, history.restarts, history.checkpoint, history.first_step_at) == (1, 1, (10, "/c/10"), 3.0)
    assert history.last == {"at": 22.0, "step": 11, "loss": 0.5, "tokens_per_s": 7.0}


def in_gang(line: tuple[str, Line], number: int, name: str) -> tuple[str, Line]:
    return "event", {**line[1], "attempt": number, "gang": name}


# Rank 0 fails at once; rank 1 was stopped before it could count its first start, so its second one has number 1.
FIRST_GANG = [in_gang(started(1, 0, 1.0), 1, "g1"), in_gang(ended(1, 0, 2.0, 5), 1, "g1")]
SECOND_OF_A = [in_gang(started(2, 0, 4.0), 2, "g2"), in_gang(ended(2, 0, 9.0, 0), 2, "g2")]
SECOND_OF_B = [in_gang(started(1, 1, 4.1), 1, "g2"), in_gang(ended(1, 1, 9.1, 0), 1, "g2")]


@pytest.mark.parametrize("order", ["aabb", "abab", "baba", "bbaa"])
def test_the_ranks_of_one_gang_are_one_attempt_although_one_counts_behind(order: str) -> None:
    a, b = list(SECOND_OF_A), list(SECOND_OF_B)
    history = fold_lines([*FIRST_GANG, *((a if node == "a" else b).pop(0) for node in order)])
    assert [sorted(attempt.ranks) for attempt in history.attempts] == [[0], [0, 1]]
    assert history.attempts[-1].first_failure is None and history.ranks_seen() == 2


def test_a_gang_that_is_heard_of_late_is_still_the_first_attempt() -> None:
    history = fold_lines([*SECOND_OF_B, *FIRST_GANG, *SECOND_OF_A])
    assert [sorted(attempt.ranks) for attempt in history.attempts] == [[0], [0, 1]]


# The launcher 'command' meets at the same address in every start; rank 1's node was lost, so its end is unknown.
LOST = [
    in_gang(started(1, 0, 1.0), 1, "g"),
    in_gang(started(1, 1, 1.0), 1, "g"),
    in_gang(ended(1, 0, 5.0, 143), 1, "g"),
]
AGAIN = [in_gang(started(2, 0, 9.0), 2, "g"), in_gang(started(2, 1, 9.1), 2, "g")]


def test_a_second_start_under_the_name_of_the_first_is_an_attempt_of_its_own() -> None:
    history = fold_lines([*LOST, *AGAIN])
    assert [(attempt.n, sorted(attempt.ranks)) for attempt in history.attempts] == [(1, [0, 1]), (2, [0, 1])]


def test_a_second_start_may_be_told_by_the_lost_node_first() -> None:
    history = fold_lines([*LOST, *reversed(AGAIN)])
    assert [(attempt.n, sorted(attempt.ranks)) for attempt in history.attempts] == [(1, [0, 1]), (2, [0, 1])]


def test_steps_that_come_before_the_start_is_known_are_not_lost() -> None:
    history = fold_lines([metric(5.0, step=1), metric(6.0, step=2)])
    assert history.attempts == [] and history.first_step_at is None
    history.event(started(1, 0, 4.0)[1])
    assert (history.attempts[0].first_step, history.attempts[0].last_step) == (1, 2)


def test_a_lost_node_is_no_crash_and_a_drill_stays_a_drill() -> None:
    history = fold_lines([*NODE_A[:3], NODE_B[0]])
    history.event({"kind": "drill", "at": 14.0, "node": "b"})
    history.event({"kind": "agent_restart", "detail": "node_lost", "at": 14.5, "node": "b"})
    history.event(ended(1, 1, 15.0, 137)[1])
    assert history.attempts[0].fault == ("drill", "b") and history.crashes == 0
    assert [cause for _, cause, _ in history.faults] == ["drill", "node_lost"]
    history.event(started(2, 0, 20.0)[1])
    history.event({"kind": "node_lost", "at": 25.0, "node": "a"})
    assert history.attempts[1].fault == ("node_lost", "a")
    assert history.attempts[0].fault == ("drill", "b")


@pytest.mark.parametrize(
    ("more", "node"),
    [
        ([], None),
        ([{"kind": "node_silent", "at": 3.0, "node": "b"}], "b"),
        ([{"kind": "node_lost", "at": 1.5, "node": "b"}], "b"),
        ([{"kind": "node_lost", "at": 3.0, "node": "b"}], "b"),
    ],
)
def test_a_launcher_that_lost_the_others_is_not_the_lost_node(more: list[dict[str, t.Any]], node: str | None) -> None:
    """It ended by itself, with an exit code that is no signal: which node it lost, others say."""
    history = fold_lines([started(1, 0, 1.0)])
    closed = {"kind": "agent_restart", "detail": "node_lost", "at": 2.0, "node": "a", "exit_code": 1}
    for line in sorted([closed, *more], key=lambda item: item["at"]):
        history.event(line)
    assert (history.attempts[0].cause, history.attempts[0].failed_node) == ("node_lost", node)


def test_a_restarted_agent_without_a_lost_node_is_no_fault() -> None:
    history = fold_lines([started(1, 0, 1.0)])
    history.event({"kind": "agent_restart", "detail": "crash", "at": 2.0, "node": "a"})
    assert history.faults == [] and history.attempts[0].fault is None


def test_a_rank_that_its_launcher_stopped_did_not_fail_first() -> None:
    history = fold_lines([started(1, 0, 1.0), started(1, 1, 1.0), ended(1, 0, 4.0, 143), ended(1, 1, 5.0, 3)])
    assert history.attempts[0].first_failure == RankExit(5.0, 3, "b")


@pytest.mark.parametrize("at", [None, "now", [1]])
def test_a_metric_with_a_time_that_is_no_number_is_passed_over(at: t.Any) -> None:
    history = fold_lines([started(1, 0, 1.0)])
    history.metric({"at": at, "step": 1})
    assert history.attempts[0].last_step in (None, 1)


@pytest.mark.parametrize("at", [1.7e12, -1.0, "1e300", 10**400])
def test_a_line_with_a_time_that_is_none_is_passed_over(at: t.Any) -> None:
    """Programs write milliseconds; no record of a run could be written with them."""
    history = RunHistory()
    history.event({"kind": "worker_started", "at": 1.7e9, "attempt": 1, "rank": 0, "node": "a"})
    history.metric({"at": 1.7e9 + 1, "step": 1})
    history.metric({"at": at, "step": 2})
    history.event({"kind": "worker_exit", "at": at, "attempt": 1, "rank": 0, "node": "a", "exit_code": 3})
    assert history.last["step"] == 1 and history.attempts[0].ended_at is None
    history.metric({"at": time.time() + 3600, "step": 3})
    assert history.last["step"] == 3


def test_a_number_without_end_is_no_figure() -> None:
    history = RunHistory()
    history.event({"kind": "worker_started", "at": 1.7e9, "attempt": 1, "rank": 0, "node": "a"})
    history.metric({"at": 1.7e9 + 1, "step": 1, "loss": 10**400, "tokens_per_s": 5})
    assert "loss" not in history.last and history.last["tokens_per_s"] == 5


def test_an_attempt_of_which_no_rank_started_counts_as_a_restart() -> None:
    history = fold_lines([("event", {"kind": "node_lost", "at": 3.0, "node": "b"})])
    assert history.restarts == 0
    history.event(started(2, 0, 9.0)[1])
    assert (len(history.attempts), history.attempts[0].n, history.restarts) == (1, 2, 1)


def test_a_cancelled_attempt_did_not_crash() -> None:
    """Ranks that do not stop in time are killed."""
    history = fold_lines([started(1, 0, 1.0), ("event", {"kind": "cancelled", "at": 4.0}), ended(1, 0, 9.0, 137)])
    assert (history.attempts[0].cause, history.attempts[0].failed_node, history.crashes) == ("cancelled", None, 0)
    late = fold_lines([started(1, 0, 1.0), ended(1, 0, 3.0, 1), ("event", {"kind": "cancelled", "at": 4.0})])
    assert (late.attempts[0].cause, late.attempts[0].failed_node, late.crashes) == ("crash", "a", 1)


def test_the_exit_code_of_an_attempt() -> None:
    first, second = fold_lines(NODE_A + NODE_B).attempts
    assert (first.exit_code, first.failed_rank, second.exit_code, second.failed_rank) == (9, 1, 0, None)
    stopped = fold_lines([started(1, 0, 1.0), ended(1, 0, 3.0, 143)]).attempts[0]
    assert (stopped.exit_code, stopped.failed_rank) == (143, None)
    assert fold_lines([started(1, 0, 1.0)]).attempts[0].exit_code is None


def test_a_continuation_changes_nothing_of_how_the_attempt_before_ended() -> None:
    """A cancelled run and one that has succeeded; an attempt whose gang began anew has no code of its own."""
    lines = [started(1, 0, 1.0), started(1, 1, 1.0), ended(1, 0, 3.0, 143), ended(1, 1, 3.0, 143)]
    assert fold_lines(lines).attempts[0].exit_code == 143
    again = ("event", {"at": 5.0, "kind": "submitted", "attempt": 2})
    assert fold_lines([*lines, again, started(2, 0, 9.0)]).attempts[0].exit_code == 143
    assert fold_lines([*lines, started(2, 0, 9.0)]).attempts[0].exit_code is None


def test_an_attempt_without_exits_ended_with_its_last_step_once_another_followed() -> None:
    lines = [started(1, 0, 1.0), metric(5.0, step=3)]
    assert fold_lines(lines).attempts[0].ended_at is None
    assert fold_lines([*lines, started(2, 0, 9.0)]).attempts[0].ended_at == 5.0


def test_the_history_of_files_is_that_of_their_lines() -> None:
    lines = NODE_A + NODE_B
    history = run_history.fold(
        [line for kind, line in lines if kind == "event"], [line for kind, line in lines if kind == "metric"]
    )
    assert history.attempts == fold_lines(lines).attempts and history.losses() == fold_lines(lines).losses()


# A program that is read by its printed steps: it marks neither checkpoints nor where it resumed.
SILENT = [started(1, 0, 1.0), *(metric(2.0 + step, step=step) for step in range(1, 42)), ended(1, 0, 50.0, 9)]


@pytest.mark.parametrize(("first", "lost"), [(41, 1), (42, 0), (1, 41)])
def test_steps_lost_are_counted_without_any_mark(first: int, lost: int) -> None:
    history = fold_lines([*SILENT, started(2, 0, 60.0), metric(61.0, step=first)])
    assert history.losses()[0] == lost
    assert (history.judge_resumes(None)[2].resumed is False) == (first == 1)


def test_steps_lost_are_unknown_while_the_next_attempt_made_no_step() -> None:
    assert fold_lines(SILENT).losses()[0] == 0
    assert fold_lines([*SILENT, started(2, 0, 60.0)]).losses()[0] is None


def test_an_attempt_that_was_reported_is_not_reported_again() -> None:
    history = fold_lines([*SILENT, ("event", {"kind": "not_resumed", "attempt": 2, "at": 62.0})])
    assert history.not_resumed == {2}


def test_a_start_without_checkpoints_is_no_failed_resume() -> None:
    lines = [*SILENT, ("event", {"kind": "submitted", "attempt": 2, "at": 59.0}), started(2, 0, 60.0)]
    history = fold_lines([*lines, metric(61.0, step=1)])
    assert history.judge_resumes(None, anew=True)[2].resumed is None
    assert history.judge_resumes(None)[2].resumed is False


@pytest.mark.parametrize(
    ("failed_at", "cause"), [(None, "node_lost"), (1450.0, "node_lost"), (1700.0, "node_lost"), (1200.0, "crash")]
)
def test_a_node_that_was_not_ready_is_the_cause_of_the_attempt_that_ended_around_it(
    failed_at: float | None, cause: str
) -> None:
    """Ranks elsewhere fail before it is noticed, or give up long after it; what failed well before it has crashed."""
    story = RunHistory()
    for n, at in ((1, 1000.0), (2, 2000.0)):
        rank = {"rank": 0, "attempt": n, "gang": str(n), "node": "a"}
        story.event({"kind": "worker_started", "at": at, **rank})
        if n == 1 and failed_at is not None:
            story.event({"kind": "worker_exit", "at": failed_at, "exit_code": 1, **rank})
    story.event({"kind": "node_not_ready", "at": 1500.0, "node": "b", "pod": "p"})
    first, second = story.attempts
    assert (first.cause, first.failed_node) == (cause, "b" if cause == "node_lost" else "a")
    assert (second.cause, story.lost_nodes, story.crashes) == (None, int(cause == "node_lost"), int(cause == "crash"))


def test_a_node_that_is_not_ready_for_a_moment_ends_no_attempt() -> None:
    story = RunHistory()
    story.event({"kind": "worker_started", "at": 1000.0, "rank": 0, "attempt": 1, "gang": "1", "node": "a"})
    story.event({"kind": "node_not_ready", "at": 1500.0, "node": "a", "pod": "p"})
    assert story.attempts[0].cause is None and story.lost_nodes == 0


def test_a_pod_that_was_deleted_is_the_cause_unless_another_one_was_known() -> None:
    for exits, cause in (((), "pod_deleted"), ((3,), "crash")):
        story = RunHistory()
        rank = {"rank": 0, "attempt": 1, "gang": "1", "node": "a"}
        story.event({"kind": "worker_started", "at": 1000.0, **rank})
        for code in exits:
            story.event({"kind": "worker_exit", "at": 1100.0, "exit_code": code, **rank})
        story.event({"kind": "pod_deleted", "at": 1200.0, "node": "b"})
        assert story.attempts[0].cause == cause


def test_a_deletion_that_names_its_attempt_came_before_what_failed_of_it() -> None:
    """Clocks of nodes and of the controller differ; ranks elsewhere fail because of the deleted pod."""
    history = RunHistory()
    for n, at in ((1, 1000.0), (2, 2000.0)):
        history.event({"kind": "worker_started", "at": at, "rank": 0, "node": "a", "attempt": n, "gang": f"{n}/x"})
        history.event({"kind": "worker_exit", "at": at + 5, "rank": 0, "node": "a", "attempt": n, "gang": f"{n}/x",
                       "exit_code": 1})  # fmt: skip
    history.event({"kind": "pod_deleted", "at": 9000.0, "node": "b", "attempt": 1})
    assert [(item.cause, item.failed_node) for item in history.attempts] == [("pod_deleted", "b"), ("crash", "a")]
    # What was done to it before stays its cause.
    history.event({"kind": "drill", "at": 2001.0, "node": "a"})
    history.event({"kind": "pod_deleted", "at": 2001.0, "node": "b", "attempt": 2})
    assert history.attempts[1].cause == "drill"


def test_a_step_that_is_read_before_its_rank_has_started_is_its_attempts() -> None:
    story = RunHistory()
    story.event({"kind": "worker_started", "at": 10.0, "attempt": 1, "rank": 0, "node": "a", "gang": "g"})
    for step in (1, 2, 3):
        story.metric({"at": 10.0 + step, "step": step, "loss": 1.0})
    story.event(
        {"kind": "worker_exit", "at": 14.0, "attempt": 1, "rank": 0, "exit_code": 137, "node": "a", "gang": "g"}
    )
    # The second gang began at 20; its lines are read first.
    story.metric({"at": 20.5, "resumed_from_step": 1})
    story.metric({"at": 21.0, "step": 2, "loss": 1.0})
    assert story.attempts[0].last_step == 2
    story.event({"kind": "worker_started", "at": 20.0, "attempt": 2, "rank": 0, "node": "a", "gang": "h"})
    first, second = story.attempts
    assert (first.first_step, first.last_step, first.resumed_from) == (1, 3, None)
    assert (second.first_step, second.last_step, second.resumed_from) == (2, 2, 1)


def test_an_attempt_that_made_no_step_keeps_none_of_the_next_ones() -> None:
    story = RunHistory()
    story.event({"kind": "worker_started", "at": 10.0, "attempt": 1, "rank": 0, "node": "a", "gang": "g"})
    story.metric({"at": 21.0, "step": 5, "loss": 1.0})
    story.event({"kind": "worker_started", "at": 20.0, "attempt": 2, "rank": 0, "node": "a", "gang": "h"})
    assert story.attempts[0].first_step is None and story.attempts[0].last_step is None
    assert (story.attempts[1].first_step, story.attempts[1].last_step_at) == (5, 21.0)


def test_while_not_all_ranks_were_heard_of_an_attempt_has_the_nodes_of_its_start() -> None:
    begun = [{"id": "a", "token": "1"}, {"id": "b", "token": "2"}, "b", {"id": 7}]
    history = fold_lines(
        [("event", {"kind": "submitted", "attempt": 1, "at": 0.5, "nodes": begun}), started(1, 0, 1.0)]
    )
    (attempt,) = history.attempts
    assert history.nodes_of(attempt) == {"a": begun[0], "b": begun[1]}
    # Whole: it has those that it ran on, which may be fewer.
    history.event({**started(1, 1, 1.5)[1], "node": "a"})
    assert history.nodes_of(attempt) == {"a": begun[0]}
    # The next start may have others; one whose event names none has those that were heard of.
    history.event({"kind": "submitted", "attempt": 2, "at": 9.0})
    history.event(started(2, 0, 10.0)[1])
    assert history.nodes_of(history.attempts[1]) == {"a": {}}


def test_a_notice_is_the_cause_of_all_that_came_of_it() -> None:
    history = fold_lines([*NODE_A[:3], NODE_B[0]])
    notice = {"kind": "notice", "at": 14.0, "node": "b", "detail": "EC2 will terminate it"}
    history.event(notice)
    history.event({"kind": "pod_deleted", "at": 14.5, "node": "b", "attempt": 1})
    history.event({"kind": "node_lost", "at": 15.0, "node": "b"})
    first = history.attempts[0]
    assert (first.cause, first.failed_node) == ("preempted", "b") and first.notice == (
        14.0,
        "b",
        "EC2 will terminate it",
    )
    assert history.lost_nodes == 0
    history.event(started(2, 0, 20.0)[1])
    assert history.attempts[1].notice is None and history.attempts[1].cause is None
    # The queue takes back the place of a gang whose node is drained.
    drained = fold_lines([*NODE_A[:3], NODE_B[0]])
    for line in (notice, {"kind": "set_back", "at": 15.0, "cause": "suspended"}):
        drained.event(line)
    assert (drained.attempts[0].cause, drained.attempts[0].failed_node) == ("preempted", "b")
    # One that is followed later has the notice before it hears of the attempt.
    again = RunHistory()
    for line in (notice, started(1, 0, 10.0)[1], started(2, 0, 20.0)[1]):
        again.event(line)
    assert [attempt.cause for attempt in again.attempts] == ["preempted", None]


def test_what_had_nothing_to_do_with_a_notice_stays_the_cause() -> None:
    history = fold_lines([*NODE_A[:3], NODE_B[0]])
    history.event({"kind": "node_lost", "at": 13.0, "node": "a"})
    history.event({"kind": "notice", "at": 14.0, "node": "b", "detail": "it goes"})
    assert (history.attempts[0].cause, history.attempts[0].failed_node) == ("node_lost", "a")
    history.event({"kind": "drill", "at": 14.5, "node": "b"})
    assert history.attempts[0].cause == "drill"


@pytest.mark.parametrize(
    ("places", "each", "sharing"),
    [
        (["a", "b"], 1, None),
        (["a", "a"], 1, (2, 1)),
        (["a", "a"], 2, None),
        (["a", "a", "a", "a"], 2, (2, 1)),
        (["a", "a", "b"], 1, (3, 2)),
        ([], 1, None),
    ],
)
def test_pods_that_share_machines_are_counted(places: list[str], each: int, sharing: tuple[int, int] | None) -> None:
    story = RunHistory()
    for rank, node in enumerate(places):
        story.event({"at": 1.0, "kind": "worker_started", "rank": rank, "node": node, "attempt": 1, "gang": "g"})
    assert story.find_sharing(each) == sharing
    if sharing:
        assert describe_sharing(*sharing) in ("2 pods on 1 machine", "3 pods on 2 machines")


def test_a_run_that_is_extended_was_not_restarted() -> None:
    """A crash, success, an extension in which a node is lost, a failure that is continued: three restarts."""
    history = run_history.RunHistory()
    begun = 0

    def start(n: int, step: int) -> None:
        nonlocal begun
        begun += 100
        gang = f"{n}/x"
        history.event({"at": begun, "kind": "worker_started", "rank": 0, "attempt": n, "gang": gang, "node": "a"})
        history.metric({"at": begun + 1, "step": step})
        history.metric({"at": begun + 2, "step": step + 9})

    def submit(n: int, ended: str = "") -> None:
        if ended:
            history.event({"at": begun + 3, "kind": "ended", "detail": ended})
        history.event({"at": begun + 4, "kind": "submitted", "attempt": n})

    submit(1)
    start(1, 1)
    start(2, 6)
    assert history.restarts == 1
    lost = history.losses()
    submit(3, "succeeded")
    assert history.restarts == 1
    start(3, 15)
    assert (history.restarts, history.extensions, history.losses()) == (1, {3}, lost)
    start(4, 15)
    submit(5, "failed")
    start(5, 24)
    assert history.restarts == 3 and history.losses()[1] == lost[1] * 3


@pytest.mark.parametrize(("there", "newest"), [({"step": 5, "path": "/c/5"}, (5, "/c/5")), (None, None)])
def test_a_checkpoint_that_was_reported_and_is_not_there(there: object, newest: tuple[int, str] | None) -> None:
    saved = [{"at": float(step), "checkpoint_step": step, "path": f"/c/{step}"} for step in (5, 10)]
    began = {"at": 1.0, "kind": "worker_started", "rank": 0, "node": "a", "attempt": 1, "world_size": 1}
    gone = {
        "at": 11.0,
        "kind": "checkpoint_missing",
        "node": "a",
        "checkpoint_step": 10,
        "path": "/c/10",
        "there": there,
    }
    history = fold([began, gone], saved)
    assert history.checkpoint == newest
    have = "the newest that is there has step 5" if newest else "none of the run is"
    told = f"checkpoint 10 is not there, {have} (the program reported /c/10 on a, which does not exist)"
    assert history.describe_missing() == told
    # It was reported before it was written.
    history.event({**gone, "kind": "checkpoint_there", "at": 11.5})
    assert history.checkpoint == (10, "/c/10") and history.describe_missing() == ""
    history.event(gone)
    # Another start has saved since.
    history.metric({"at": 12.0, "checkpoint_step": 15, "path": "/c/15"})
    assert history.checkpoint == (15, "/c/15") and history.describe_missing() == ""


def test_ranks_that_run_are_not_those_that_have_started() -> None:
    history = fold_lines([started(1, 0, 1.0), started(1, 1, 2.0)])
    assert (history.ranks_running(), history.ranks_seen()) == (2, 2)
    history.event({"kind": "worker_exit", "rank": 1, "node": "b", "attempt": 1, "at": 3.0, "exit_code": 3})
    assert (history.ranks_running(), history.ranks_seen()) == (1, 2)
    history.event({"kind": "submitted", "attempt": 2, "at": 4.0})
    assert (history.ranks_running(), history.ranks_seen()) == (0, 2), "this start has none yet"


def test_no_rank_runs_on_a_lost_node_or_without_a_placement() -> None:
    lines = [started(1, 0, 1.0), started(1, 1, 2.0)]
    lost = fold_lines(lines)
    lost.event({"kind": "node_lost", "node": lost.attempts[0].ranks[1], "at": 3.0})
    assert lost.ranks_running() == 1
    queued = fold_lines(lines)
    queued.event({"kind": "set_back", "cause": "suspended", "at": 3.0})
    assert queued.ranks_running() == 0


def test_a_checkpoint_that_was_only_printed_is_not_there_where_all_nodes_have_none() -> None:
    lines = [started(1, 0, 1.0), started(1, 1, 2.0), metric(5.0, checkpoint_step=20)]
    history = fold_lines(lines)
    nodes = sorted(set(history.attempts[0].ranks.values()))
    assert history.describe_missing() == ""
    for node in nodes:
        assert history.describe_missing() == "", "the other nodes may have it"
        history.event({"kind": "no_checkpoint", "node": node, "folder": "/ck/r", "at": 9.0})
    assert history.describe_missing() == "checkpoint 20 is not there: the program reported it, and /ck/r is empty"
    history.metric({"at": 6.0, "checkpoint_step": 30, "path": "/data/30"})
    assert history.describe_missing() == "", "it says where it is"


def test_a_half_saved_checkpoint_that_is_the_only_one_is_named_until_another_is_reported() -> None:
    history = fold_lines([started(1, 0, 1.0)])
    history.metric({"at": 2.0, "checkpoint_step": 10})
    half = {"kind": "checkpoint_half_saved", "node": "a", "folder": "/ck", "detail": "ckpt.pt is half saved"}
    history.event({**half, "at": 9.0})
    told = history.left.describe_left(history.checkpoint, history.checkpoint_at)
    assert told.startswith("/ck: checkpoint ckpt.pt is half saved (on a), and no whole one is there. A program that")
    history.metric({"at": 9.5, "checkpoint_step": 30})
    assert history.left.describe_left(history.checkpoint, history.checkpoint_at) == ""


def test_a_checkpoint_without_a_step_is_named_until_one_is_reported() -> None:
    history = fold_lines([started(1, 0, 1.0)])
    assert history.left.describe_left(history.checkpoint, history.checkpoint_at) == ""
    history.event({"kind": "checkpoint_unreported", "node": "a", "folder": "/ck/r", "name": "ckpt.pt", "at": 9.0})
    said = "/ck/r/ckpt.pt on a is a checkpoint of a step that is not known: the program reports none"
    assert history.left.describe_left(history.checkpoint, history.checkpoint_at).startswith(
        f"{said}. Set job.metrics.preset"
    )
    told = {"kind": "checkpoint_unreported", "node": "a", "folder": "/ck/r", "name": "checkpoint-10", "step": 10}
    history.event({**told, "at": 9.2})
    said = "/ck/r/checkpoint-10 on a is the newest checkpoint, of step 10: this run has saved none"
    assert history.left.describe_left(history.checkpoint, history.checkpoint_at) == said
    history.metric({"at": 9.5, "checkpoint_step": 30})
    assert history.left.describe_left(history.checkpoint, history.checkpoint_at) == ""


def test_an_empty_folder_of_an_earlier_attempt_says_nothing() -> None:
    history = fold_lines([started(1, 0, 1.0), metric(5.0, checkpoint_step=20)])
    node = history.attempts[0].ranks[0]
    history.event({"kind": "no_checkpoint", "node": node, "folder": "/ck/r", "at": 9.0})
    history.event({"kind": "worker_started", "rank": 0, "node": node, "attempt": 2, "at": 20.0})
    assert history.describe_missing() == ""


def test_no_rank_runs_in_a_pod_that_is_not_running() -> None:
    begun = [started(1, rank, rank + 1.0) for rank in (0, 1)]
    history = fold_lines([(stream, {**line, "pod": f"r-{line['rank']}"}) for stream, line in begun])
    running = [history.ranks_running(pods) for pods in (None, {"r-0", "r-1"}, {"r-1"}, set[str]())]
    assert running == [2, 2, 1, 0]
    assert fold_lines([started(1, 0, 1.0)]).ranks_running(set()) == 1, "a host's rank is in no pod"


def test_lines_that_are_read_late_stand_at_their_own_time() -> None:
    """A node that was not heard of for a while tells older steps after the newer ones of another node."""
    alone = [
        started(1, 0, 1.0),
        started(1, 1, 1.0),
        *(metric(2.0 + step, step=step, loss=1.0) for step in range(3, 31)),
    ]
    late = [metric(2.0 + step + 0.1, step=step, loss=float("nan")) for step in (1, 2, 22)]
    saved = [metric(32.5, checkpoint_step=30, path="/c/30"), metric(22.5, checkpoint_step=20, path="/c/20")]
    history = fold_lines([*alone, *saved, *late])
    attempt = history.attempts[0]
    assert (attempt.first_step, attempt.last_step, attempt.last_step_at) == (1, 30, 32.0)
    assert (history.last["step"], history.nan_since, history.checkpoint) == (30, None, (30, "/c/30"))
    assert attempt.saved_steps == (20, 30)
    again = fold_lines([*alone, *saved, *late, started(2, 0, 40.0), metric(41.0, resumed_from_step=30)])
    assert again.judge_resumes(10)[2].resumed is None and again.last["step"] == 30
    # Of the attempt before, read after the newest one has made a step.
    again.metric({"at": 42.0, "step": 31})
    again.metric({"at": 33.0, "step": 31, "loss": 9.0})
    assert again.last == {"at": 42.0, "step": 31} and again.attempts[0].last_step == 31


def test_a_step_that_was_saved_was_reached_although_it_was_not_printed() -> None:
    """A program prints every tenth step, and saves where it gets SIGTERM."""
    printed = [
        started(1, 0, 1.0),
        *(metric(2.0 + step, step=step) for step in (10, 20)),
        metric(27.5, checkpoint_step=25),
    ]
    history = fold_lines([*printed, ended(1, 0, 28.0, 9), started(2, 0, 30.0), metric(31.0, resumed_from_step=25)])
    history.metric({"at": 35.0, "step": 30})
    assert history.losses()[0] == 0 and history.judge_resumes(None)[2].resumed
    fresh = fold_lines([*printed, ended(1, 0, 28.0, 9), started(2, 0, 30.0), metric(31.0, resumed_from_step=20)])
    fresh.metric({"at": 35.0, "step": 30})
    assert fresh.losses()[0] == 5


def test_a_start_that_waits_in_its_queue_has_no_place_by_the_ranks_of_the_one_before() -> None:
    """Its object is made suspended; the run was cancelled, and is continued: nothing suspended it."""
    history, placed = RunHistory(), list[bool]()
    lines: list[dict[str, t.Any]] = [
        {"kind": "submitted", "at": 1.0, "attempt": 1},
        {"kind": "worker_started", "at": 2.0, "rank": 0, "node": "a", "attempt": 1, "gang": "1/g"},
        {"kind": "ended", "at": 3.0, "detail": "cancelled"},
        {"kind": "submitted", "at": 4.0, "attempt": 2},
        {"kind": "worker_started", "at": 5.0, "rank": 0, "node": "a", "attempt": 2, "gang": "2/g"},
        {"kind": "set_back", "at": 6.0, "cause": "preempted"},
    ]
    for line in lines:
        history.event(line)
        placed.append(history.is_placed)
    assert placed == [False, True, True, False, True, False]
