# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What happened: attempts joined from record, events and metrics; resumes proven, unproven or contradicted."""

from __future__ import annotations

import pathlib
import typing as t

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._report.data.attempts import effective_steps
from ansible_collections.muster.training.plugins.plugin_utils._report.data.load import (
    RunFolder,
    build_run_folder,
    load_run,
    parse_metrics,
)
from ansible_collections.muster.training.plugins.plugin_utils._report.data.run_model import RunModel, build_run_model

FIXTURES = pathlib.Path(__file__).parents[5] / "fixtures" / "report"
ZERO = 1_000_000.0
Line = dict[str, t.Any]


def start(at: float, step: int | None, world: int | None = 2) -> Line:
    return {"at": ZERO + at, "resumed_from_step": step, "world_size": world}


def steps(at: float, first: int, last: int, every: int = 10, level: float = 4.0) -> list[Line]:
    lines: list[Line] = []
    for index, step in enumerate(range(first, last + 1)):
        moment = ZERO + at + index * 0.1
        lines.append({"at": moment, "step": step, "loss": level - step * 0.02, "tokens_per_s": 100})
        if step % every == 0:
            lines.append({"at": moment, "checkpoint_step": step, "path": f"/ckpt/{step}"})
    return lines


def case(metrics: list[Line], events: list[Line] | None = None, **record: t.Any) -> RunModel:
    return build_run_model(build_run_folder("r", record, events or [], metrics, []))


def test_the_whole_story_of_a_killed_rank() -> None:
    found = build_run_model(load_run(FIXTURES / "resumed"))
    (fault,) = found.faults
    assert (fault.proof, fault.step, fault.resumed_from, fault.steps_lost) == ("proven", 137, 120, 17)
    assert (fault.attempt.node, fault.attempt.rank, fault.attempt.exit_code) == ("node-2", 1, 137)
    assert fault.attempt.is_drilled
    assert fault.seconds_lost == pytest.approx(3.59, abs=0.01)
    assert fault.seconds_to_catch_up == pytest.approx(4.97, abs=0.01)
    assert (found.outcome, found.steps_lost, found.interval, found.last_step) == ("succeeded", 17, 20, 300)


def test_a_resume_is_proven_from_metrics_alone() -> None:
    found = case([start(0, 0), *steps(1, 1, 27), start(9, 20), *steps(10, 21, 40)])
    assert [(item.proof, item.steps_lost, item.reasons) for item in found.faults] == [("proven", 7, ())]
    assert [item.label for item in found.attempts] == ["1", "2"]


@pytest.mark.parametrize(
    ("second", "proof", "reason"),
    [
        ([start(9, 0), *steps(10, 1, 40)], "contradicted", "began at step 0 although a checkpoint of step 20"),
        ([start(9, 30), *steps(10, 31, 40)], "contradicted", "only step 27 had been reached"),
        ([start(9, 20, 1), *steps(10, 21, 40)], "contradicted", "world size changed from 2 to 1"),
        ([start(9, 20), *steps(10, 21, 40, level=9.0)], "contradicted", "the loss went back to"),
        ([start(9, 15), *steps(10, 16, 40)], "unproven", "no checkpoint of step 15 was recorded"),
        ([start(9, 20), *steps(10, 24, 40)], "unproven", "the first step afterwards is 24"),
        ([start(9, 20)], "unproven", "no step followed"),
        ([start(9, None), *steps(10, 21, 40)], "unproven", "did not say from which step"),
        ([start(9, 20, None), *steps(10, 21, 40)], "unproven", "world size after the restart was not reported"),
        (steps(10, 21, 40), "unproven", "did not say from which step"),
    ],
)
def test_what_a_resume_lacks(second: list[Line], proof: str, reason: str) -> None:
    found = case([start(0, 0), *steps(1, 1, 27), *second])
    assert [item.proof for item in found.faults] == [proof]
    assert reason in "; ".join(found.faults[0].reasons)


def test_a_job_that_may_change_its_size_may_do_so() -> None:
    metrics = [start(0, 0), *steps(1, 1, 27), start(9, 20, 1), *steps(10, 21, 40)]
    found = case(metrics, job={"elastic": {"min": 1, "max": 2}})
    assert found.faults[0].proof == "proven"


def test_a_restart_with_nothing_saved_proves_nothing_and_fails_nothing() -> None:
    found = case([start(0, 0), *steps(1, 1, 7), start(5, 0), *steps(6, 1, 9)])
    assert [(item.proof, item.steps_lost) for item in found.faults] == [("fresh", 7)]


def test_a_program_that_logs_every_tenth_step_resumes_within_ten() -> None:
    lines = [start(0, 0), *({"at": ZERO + n, "step": n, "loss": 3.0} for n in range(10, 60, 10))]
    lines += [start(70, 45), *({"at": ZERO + 70 + n, "step": n, "loss": 3.0} for n in range(50, 90, 10))]
    assert case(lines).faults[0].proof == "proven"


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
    assert [item.proof for item in found.faults] == ["unproven", "proven"]


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


def test_fewer_ranks_than_asked_is_failed_whatever_the_record_says() -> None:
    found = case([], outcome="succeeded", world_size={"asked": 4, "seen": 3})
    assert found.outcome == "failed"


def test_the_smallest_world_size_seen_counts() -> None:
    found = case([start(0, 0, 4), *steps(1, 1, 3), start(5, 0, 3)], derived={"world_size": 4}, outcome="succeeded")
    assert (found.ranks_asked, found.ranks_seen, found.outcome) == (4, 3, "failed")


def test_steps_done_again_are_lost_once() -> None:
    segments, _unit = parse_metrics(
        [start(0, 0), *steps(1, 1, 27), start(9, 20), *steps(10, 21, 24), start(15, 20)], []
    )
    kept, lost = effective_steps(segments)
    assert [[item.step for item in part] for part in kept] == [list(range(1, 21)), [], []]
    assert [[item.step for item in part] for part in lost] == [list(range(21, 28)), [21, 22, 23, 24], []]


@pytest.mark.parametrize(
    ("record", "loopback"),
    [({"derived": {"connection": "local"}}, True), ({"derived": {"connection": "ssh"}}, False), ({}, False)],
)
def test_loopback_is_known_from_the_connection(record: Line, loopback: bool) -> None:
    assert case([], **record).loopback is loopback


def test_loopback_is_known_from_the_fabric() -> None:
    run = RunFolder("r", {}, fabric={"islands": [{"island": "x", "link": "loopback"}]})
    assert build_run_model(run).loopback


def worker_started(at: float, node: str, rank: int, attempt: int) -> Line:
    return {"at": ZERO + at, "kind": "worker_started", "node": node, "rank": rank, "attempt": attempt}


def worker(at: float, code: int, node: str, rank: int, attempt: int) -> Line:
    common = {"at": ZERO + at, "kind": "worker_exit", "node": node, "rank": rank, "attempt": attempt}
    return {**common, "exit_code": code, "signal": max(0, code - 128)}


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


def test_an_agent_that_came_back_is_a_lost_node() -> None:
    restart = {"at": ZERO + 4, "kind": "agent_restart", "node": "b", "detail": "node_lost", "exit_code": 137}
    events = [worker_started(0.5, "a", 0, 1), restart, worker(5, 1, "a", 0, 1), worker_started(5.5, "a", 0, 2)]
    found = case([start(1, 0), *steps(2, 1, 12), start(6, 10)], events)
    assert [(item.cause, item.node) for item in found.attempts] == [("node_lost", "b"), (None, None)]


def test_a_cancelled_job_was_not_ended_by_its_last_rank() -> None:
    events = [worker_started(0.5, "a", 0, 1), {"at": ZERO + 4, "kind": "cancelled"}, worker(5, 143, "a", 0, 1)]
    found = case([start(1, 0), *steps(2, 1, 12)], events, outcome="cancelled")
    assert [(item.cause, item.node) for item in found.attempts] == [("cancelled", None)]


def test_a_later_and_deeper_resume_takes_more_steps_with_it() -> None:
    metrics = [start(0, 0), *steps(1, 1, 30), start(9, 20), *steps(10, 21, 24), start(15, 10), *steps(16, 11, 12)]
    segments, _unit = parse_metrics(metrics, [])
    kept, _lost = effective_steps(segments)
    assert [[item.step for item in part] for part in kept] == [list(range(1, 11)), [], [11, 12]]
