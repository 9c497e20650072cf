# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The faults of a run: resumes proven, unproven or contradicted."""

from __future__ import annotations

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._report.data.load import (
    load_run,
)
from ansible_collections.muster.training.plugins.plugin_utils._report.data.run_model import build_run_model
from ansible_collections.muster.training.plugins.plugin_utils._report.rules.advice import advise
from ansible_collections.muster.training.tests.unit.plugins.plugin_utils._report.runs import (
    FIXTURES,
    ZERO,
    Line,
    case,
    start,
    steps,
    worker_started,
)


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
        (
            [start(9, 0), *steps(10, 1, 40)],
            "contradicted",
            "did not resume: it began at step 1, although a checkpoint of step 20",
        ),
        ([start(9, 30), *steps(10, 31, 40)], "contradicted", "only step 27 had been reached"),
        ([start(9, 20, 1), *steps(10, 21, 40)], "contradicted", "world size changed from 2 to 1"),
        ([start(9, 20), *steps(10, 21, 40, level=9.0)], "contradicted", "the loss went back to"),
        ([start(9, 17), *steps(10, 18, 40)], "unproven", "no checkpoint of step 17 was recorded"),
        ([start(9, 10), *steps(10, 11, 40)], "contradicted", "17 steps were lost, the checkpoint interval is 10"),
        ([start(9, 20), *steps(10, 24, 40)], "unproven", "the first step afterwards is 24"),
        ([start(9, 20)], "unproven", "no step followed"),
        (
            [start(9, None), *steps(10, 40, 45)],
            "unproven",
            "no step from 27 to 40 was read, so that none says where it resumed",
        ),
        ([start(9, None), *steps(10, 12, 40)], "unproven", "16 steps were repeated, the checkpoint interval is 10"),
        ([start(9, None), *steps(10, 1, 40)], "contradicted", "although a checkpoint of step 20 had been saved"),
        ([start(9, 20, None), *steps(10, 21, 40)], "unproven", "world size after the restart was not reported"),
        (steps(10, 21, 40), "unproven", "world size after the restart was not reported"),
    ],
)
def test_what_a_resume_lacks(second: list[Line], proof: str, reason: str) -> None:
    found = case([start(0, 0), *steps(1, 1, 27), *second])
    assert [item.proof for item in found.faults] == [proof]
    assert reason in "; ".join(found.faults[0].reasons)


def test_a_program_that_ended_before_it_said_what_it_had_saved_resumes_from_its_last_step() -> None:
    first = [line for line in steps(1, 1, 30) if line.get("checkpoint_step") != 30]
    assert any("checkpoint_step" in line for line in first) and len(first) == len(steps(1, 1, 30)) - 1
    (fault,) = case([start(0, 0), *first, start(9, 30), *steps(10, 31, 40)]).faults
    assert (fault.proof, fault.resumed_from, fault.steps_lost, fault.reasons) == ("proven", 30, 0, ())


def test_a_job_that_may_change_its_size_may_do_so() -> None:
    metrics = [start(0, 0), *steps(1, 1, 27), start(9, 20, 1), *steps(10, 21, 40)]
    found = case(metrics, job={"elastic": {"min": 1, "max": 2}})
    assert found.faults[0].proof == "proven"


def test_a_restart_with_nothing_saved_proves_nothing_and_fails_nothing() -> None:
    found = case([start(0, 0), *steps(1, 1, 7), start(5, 0), *steps(6, 1, 9)])
    assert [(item.proof, item.steps_lost) for item in found.faults] == [("fresh", 7)]


@pytest.mark.parametrize("mark", [None, 0])
def test_a_fault_before_the_first_checkpoint_left_nothing_to_resume(mark: int | None) -> None:
    """The program shows its checkpoints later: at the fault there was none."""
    late = [{"at": ZERO + 40, "checkpoint_step": 20}, {"at": ZERO + 50, "checkpoint_step": 30}]
    found = case([start(0, None), *steps(1, 1, 7), start(9, mark), *steps(10, 1, 30), *late])
    assert [(item.proof, item.reasons, item.steps_lost) for item in found.faults] == [("fresh", (), 7)]
    assert not found.faults[0].had_checkpoint
    (told,) = [item.text for item in advise(found) if "resume" in item.text]
    assert told == (
        "Fault 1 came before any checkpoint: there was nothing to resume, and the job started from the beginning with "
        "7 steps made again."
    )


def test_a_run_that_never_saved_is_not_told_to_prove_a_resume() -> None:
    lines = [start(0, None), *({"at": ZERO + n, "step": n} for n in range(1, 8)), start(9, None)]
    found = case(lines)
    assert [(item.proof, item.had_checkpoint) for item in found.faults] == [("unproven", False)]
    texts = [item.text for item in advise(found)]
    assert not [text for text in texts if "A resume is not proven" in text], texts
    assert "Fault 1 came before any checkpoint" in " ".join(texts)


def test_a_program_that_logs_every_tenth_step_resumes_within_ten() -> None:
    lines = [start(0, 0), *({"at": ZERO + n, "step": n, "loss": 3.0} for n in range(10, 60, 10))]
    lines += [start(70, 45), *({"at": ZERO + 70 + n, "step": n, "loss": 3.0} for n in range(50, 90, 10))]
    assert case(lines).faults[0].proof == "proven"


def test_the_step_counter_proves_a_resume_within_the_interval() -> None:
    """A program that says nothing of its resume: step 21 comes after step 27, and checkpoints every ten steps."""
    (fault,) = case([start(0, 0), *steps(1, 1, 27), start(9, None), *steps(10, 21, 40)]).faults
    assert (fault.proof, fault.resumed_from, fault.steps_lost, fault.world_size) == ("proven", None, 7, 2)


def test_ranks_that_started_are_the_world_size_where_the_program_reports_none() -> None:
    attempts: list[Line] = [{"n": n, "started_at": ZERO + 8 * n, "ranks": 2} for n in range(2)]
    attempts[0] |= {"first_step": 1, "last_step": 27}
    attempts[1] |= {"first_step": 21, "last_step": 40, "resumed_from_step": 20}
    (fault,) = case([*steps(1, 1, 27), start(9, 20, None), *steps(10, 21, 40)], attempts=attempts).faults
    assert (fault.proof, fault.world_size) == ("proven", 2)


def test_a_program_that_marks_nothing_and_begins_again_did_not_resume() -> None:
    lines = [{"at": ZERO + step * 0.1, "step": step} for step in range(1, 42)]
    again = [{"at": ZERO + 20 + step * 0.1, "step": step} for step in range(1, 60)]
    found = case([*lines, *again])
    (fault,) = found.faults
    assert (fault.proof, fault.steps_lost, found.steps_lost) == ("contradicted", 41, 41)
    assert "began at step 1 again after step 41" in fault.reasons[0]


@pytest.mark.parametrize(("interval", "proof"), [(41, "unproven"), (20, "contradicted")])
def test_the_declared_interval_says_whether_there_was_anything_to_resume(interval: int, proof: str) -> None:
    lines = [{"at": ZERO + step * 0.1, "step": step} for step in range(1, 42)]
    again = [{"at": ZERO + 20 + step * 0.1, "step": step} for step in range(1, 60)]
    found = case([*lines, *again], job={"checkpoints": {"interval_steps": interval}})
    assert [fault.proof for fault in found.faults] == [proof]


def test_a_start_that_was_asked_to_begin_anew_is_not_blamed() -> None:
    events = [worker_started(0, "a", 0, 1), worker_started(9, "a", 0, 2)]
    events += [{"at": ZERO + at, "kind": "submitted", "attempt": n} for at, n in ((0, 1), (8.5, 2))]
    metrics = [start(0.1, 0), *steps(1, 1, 27), start(9.5, 0), *steps(10, 1, 40)]
    for resume, proof in (("never", "fresh"), ("auto", "contradicted")):
        found = case(metrics, events, job={"checkpoints": {"resume": resume}})
        assert [fault.proof for fault in found.faults] == [proof], resume


@pytest.mark.parametrize(("resumed", "proof"), [(25, "proven"), (23, "unproven"), (36, "contradicted")])
def test_a_checkpoint_of_a_step_that_was_not_printed_was_reached(resumed: int, proof: str) -> None:
    """A program prints every tenth step, and says at which one it saved when it got SIGTERM."""
    saved: Line = {"at": ZERO + 6, "checkpoint_step": 25, "path": "/c/25"}
    printed = [*steps(1, 10, 10), *steps(2, 20, 20), saved, start(9, resumed)]
    again = [*steps(10, resumed // 10 * 10 + 10, resumed // 10 * 10 + 10), *steps(11, 50, 50)]
    (fault,) = case([start(0, 0), *printed, *again]).faults
    assert fault.proof == proof and (proof != "proven" or (fault.step, fault.steps_lost) == (25, 0))


def test_steps_that_were_read_late_do_not_end_an_attempt() -> None:
    late = [{**line, "at": float(str(line["at"])) + 0.01} for line in steps(1, 2, 2)]
    found = case([start(0, 0), *steps(1, 1, 27), *late], events=[worker_started(0, "n1", 0, 1)])
    assert (len(found.attempts), found.last_step, len(found.lost[0])) == (1, 27, 0)
    assert found.final_loss == found.curve[-1].loss and found.curve[-1].step == 27
