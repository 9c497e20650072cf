# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The attempts of a run, from its record, its events or its metrics."""

from __future__ import annotations

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._report.data.attempts import effective_steps
from ansible_collections.muster.training.plugins.plugin_utils._report.data.load import (
    parse_metrics,
)
from ansible_collections.muster.training.tests.unit.plugins.plugin_utils._report.runs import (
    ZERO,
    case,
    start,
    steps,
    worker,
    worker_started,
)


def test_metrics_are_matched_by_time_and_a_second_start_of_the_program_is_no_attempt() -> None:
    """The report shows the attempts of the record, no more and no fewer."""
    record = [
        {"n": 1, "started_at": ZERO, "first_step": 1, "last_step": 25, "resumed_from_step": 0},
        {"n": 2, "started_at": ZERO + 20, "exit_code": 0, "first_step": 21, "last_step": 30, "resumed_from_step": 20},
    ]
    metrics = [start(0.5, 0), *steps(1, 1, 12), start(10, 10), *steps(11, 11, 25), start(21, 20), *steps(22, 21, 30)]
    found = case(metrics, attempts=record)
    assert [item.label for item in found.attempts] == ["1", "2"]
    assert [(item.first_step, item.last_step) for item in found.attempts] == [(1, 25), (21, 30)]
    assert [(len(item.steps), len(item.segment.checkpoints) if item.segment else 0) for item in found.attempts] == [
        (27, 2),
        (10, 1),
    ]
    assert [(item.proof, item.steps_lost) for item in found.faults] == [("proven", 5)]


def test_an_attempt_that_died_before_its_first_line_keeps_its_place() -> None:
    record = [{"n": n, "started_at": ZERO + 20 * n} for n in range(3)]
    record[0] |= {"first_step": 1, "last_step": 27}
    record[2] |= {"first_step": 21, "last_step": 40, "resumed_from_step": 20}
    metrics = [start(1, 0), *steps(2, 1, 27), start(41, 20), *steps(42, 21, 40)]
    found = case(metrics, attempts=record)
    assert [item.segment is not None for item in found.attempts] == [True, False, True]
    assert [item.proof for item in found.faults] == ["proven", "proven"], "one restart, which took two starts"


def test_events_belong_to_the_attempt_they_name() -> None:
    """A rank that was killed is heard of after the next attempt has begun."""
    events = [
        *(worker_started(at, "b", 3, n) for n, at in ((1, 0.5), (2, 5))),
        worker(5.2, 137, "b", 3, 1),
        worker(9, 0, "b", 3, 2),
    ]
    found = case([start(1, 0), *steps(2, 1, 12), start(6, 10), *steps(7, 11, 20)], events)
    assert [(item.node, item.rank, item.exit_code, item.cause) for item in found.attempts] == [
        ("b", 3, 137, "crash"),
        (None, None, 0, None),
    ]


def test_steps_done_again_are_lost_once() -> None:
    segments, _unit = parse_metrics(
        [start(0, 0), *steps(1, 1, 27), start(9, 20), *steps(10, 21, 24), start(15, 20)], []
    )
    kept, lost = effective_steps(segments)
    assert [[item.step for item in part] for part in kept] == [list(range(1, 21)), [], []]
    assert [[item.step for item in part] for part in lost] == [list(range(21, 28)), [21, 22, 23, 24], []]


def test_the_rank_that_failed_is_named_and_not_those_it_took_along() -> None:
    events = [
        *(worker_started(at, node, rank, n) for n, at in ((1, 0.5), (2, 5.5)) for rank, node in enumerate("ab")),
        worker(5.0, 143, "a", 0, 1),
        worker(5.1, 137, "b", 1, 1),
        worker(9, 0, "a", 0, 2),
        worker(9, 0, "b", 1, 2),
    ]
    found = case([start(1, 0), *steps(2, 1, 12), start(6, 10), *steps(7, 11, 20)], events)
    first = found.attempts[0]
    assert (first.node, first.rank, first.exit_code, first.cause) == ("b", 1, 137, "crash")


@pytest.mark.parametrize(("code", "cause"), [(137, "launcher_killed"), (None, "node_lost")])
def test_an_agent_that_came_back_is_a_lost_node_unless_its_launcher_alone_was_killed(
    code: int | None, cause: str
) -> None:
    ended = {} if code is None else {"exit_code": code}
    restart = {"at": ZERO + 4, "kind": "agent_restart", "node": "b", "detail": "node_lost", **ended}
    events = [worker_started(0.5, "a", 0, 1), restart, worker(5, 1, "a", 0, 1), worker_started(5.5, "a", 0, 2)]
    found = case([start(1, 0), *steps(2, 1, 12), start(6, 10)], events)
    assert [(item.cause, item.node) for item in found.attempts] == [(cause, "b"), (None, None)]


def test_a_cancelled_job_was_not_ended_by_its_last_rank() -> None:
    events = [worker_started(0.5, "a", 0, 1), {"at": ZERO + 4, "kind": "cancelled"}, worker(5, 143, "a", 0, 1)]
    found = case([start(1, 0), *steps(2, 1, 12)], events, outcome="cancelled")
    assert [(item.cause, item.node) for item in found.attempts] == [("cancelled", None)]


def test_a_later_and_deeper_resume_takes_more_steps_with_it() -> None:
    metrics = [start(0, 0), *steps(1, 1, 30), start(9, 20), *steps(10, 21, 24), start(15, 10), *steps(16, 11, 12)]
    segments, _unit = parse_metrics(metrics, [])
    kept, _lost = effective_steps(segments)
    assert [[item.step for item in part] for part in kept] == [list(range(1, 11)), [], [11, 12]]


def test_a_late_line_of_the_attempt_before_is_not_the_first_of_the_next() -> None:
    events = [worker_started(0.5, "a", 0, 1), worker(4.9, 9, "b", 1, 1), worker_started(5, "b", 1, 2)]
    late = {"at": ZERO + 5.1, "step": 13, "loss": 3.0}
    found = case([start(1, 0), *steps(2, 1, 12), late, start(6, 10), *steps(7, 11, 20)], events)
    segment = found.attempts[1].segment
    assert segment is not None and (segment.resumed_from, segment.world_size, segment.steps[0].step) == (10, 2, 11)
    assert [fault.proof for fault in found.faults] == ["proven"]
