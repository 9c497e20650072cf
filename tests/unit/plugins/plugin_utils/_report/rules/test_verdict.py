# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The verdict on a run and its sentence."""

from __future__ import annotations

import dataclasses

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._report.data.load import (
    RunFolder,
)
from ansible_collections.muster.training.plugins.plugin_utils._report.data.run_model import build_run_model
from ansible_collections.muster.training.plugins.plugin_utils._report.pages.page_summary import build_figures
from ansible_collections.muster.training.plugins.plugin_utils._report.pages.rendering import add_note
from ansible_collections.muster.training.plugins.plugin_utils._report.rules.advice import advise
from ansible_collections.muster.training.plugins.plugin_utils._report.rules.summary import build_report
from ansible_collections.muster.training.plugins.plugin_utils._report.rules.verdict import describe_cause, judge_run
from ansible_collections.muster.training.tests.unit.plugins.plugin_utils._report.runs import (
    ZERO,
    Line,
    case,
    run,
    statuses,
)


@pytest.mark.parametrize(
    ("name", "word", "sentence"),
    [
        (
            "resumed",
            "Trained \N{MIDDLE DOT} proven 5 of 5",
            "2 ranks on 2 nodes trained to step 300 in 38 s, through 1 drilled fault",
        ),
        (
            "crash_loop",
            "Failed",
            "The job reached step 12 in 4 attempts; the last was ended by a crash on node-2 (exit code 1).",
        ),
        ("cancelled", "Cancelled", "Stopped on request at step 188 after 44 s."),
        ("running", "Running", "3 ranks on 3 nodes are at step 96 after 39 s."),
        (
            "gpu64",
            "Trained \N{MIDDLE DOT} proven 5 of 5",
            "64 ranks on 8 nodes trained to step 6,000 in 2 h 37 min, through 1 fault (resume proven",
        ),
        ("nulls", "Unknown", "The record does not say how the job ended."),
    ],
)
def test_verdicts(name: str, word: str, sentence: str) -> None:
    verdict = judge_run(build_run_model(run(name)))
    assert verdict.word == word
    assert sentence in verdict.sentence.replace("\N{NO-BREAK SPACE}", " ")


def test_a_success_with_open_claims_says_so() -> None:
    found = run("resumed")
    record = {**found.record, "world_size": {"asked": None, "seen": None}, "derived": {}}
    verdict = judge_run(build_run_model(dataclasses.replace(found, record=record)))
    assert (verdict.word, verdict.tone) == ("Trained \N{MIDDLE DOT} proven 4 of 5", "ok")
    assert verdict.sentence.endswith("Not proven: all ranks took part.")


def test_a_loss_that_is_no_number_comes_first() -> None:
    """The program ended with 0 and ten good losses: what counts is that the model is lost since step 11."""
    numbers: list[Line] = [{"at": ZERO + n, "step": n, "loss": 2.0 / n} for n in range(1, 11)]
    broken: list[Line] = [{"at": ZERO + n, "step": n, "loss": "nan"} for n in range(11, 31)]
    model = case(numbers + broken, outcome="succeeded", state="ended")
    verdict = judge_run(model)
    assert (verdict.word, verdict.tone) == ("Loss is NaN", "bad")
    assert verdict.sentence.startswith("The loss is not a number since step 11; ")
    assert dict(build_figures(model))["Final loss"] == add_note("NaN", "since step 11")
    assert model.final_loss is None
    recovered = case([*numbers, *broken, {"at": ZERO + 31, "step": 31, "loss": 1.0}], outcome="succeeded")
    assert recovered.nan_since is None
    assert recovered.final_loss == 1.0


def test_a_run_that_its_job_stopped_says_so() -> None:
    """A stall that job.stop_on names is a cause, and exit code 143 is not for the user to explain."""
    lines: list[Line] = [{"at": ZERO + n, "step": n, "loss": 2.0 / n} for n in range(1, 11)]
    detail = "stalled at step 10: no step for 15 s (job.stop_on.stalled_s)"
    stopped = {"n": 1, "exit_code": 143, "cause": None, "first_step": 1, "last_step": 10}
    end: Line = {"outcome": "failed", "state": "ended", "attempts": [stopped]}
    model = case(lines, cause="stalled", detail=detail, **end)
    verdict = judge_run(model)
    assert (verdict.word, verdict.tone) == ("Stalled", "bad")
    assert verdict.sentence == (
        f"The job reached step 10; it was stopped by job.stop_on.stalled_s. Recorded cause: {detail}."
    )
    assert not any("Exit code" in advice.text for advice in advise(model))
    other = judge_run(case(lines, cause="timeout", **end))
    assert "it was ended by timeout (exit code 143)" in other.sentence


def test_missing_ranks_fail_a_success() -> None:
    found = run("resumed")
    record = {**found.record, "world_size": {"asked": 2, "seen": 1}}
    changed = dataclasses.replace(found, record=record)
    assert judge_run(build_run_model(changed)).sentence.startswith("The program succeeded, but only 1 of 2 ranks")
    assert statuses(changed)["attendance"] == "failed"
    assert any("never joined" in item["text"] for item in build_report(changed)["next"])


@pytest.mark.parametrize(
    ("cause", "node", "expected"),
    [
        ("crash", "node-2", "a crash on node-2"),
        ("node_lost", "node-2", "the loss of node-2"),
        ("node_lost", None, "the loss of a node"),
        ("launcher_killed", "node-2", "a launcher that was killed on node-2"),
        ("preempted", "node-2", "the preemption of node-2"),
        ("preempted", None, "preempted"),
        ("fatal_exit_code", None, "fatal exit code"),
        (None, "x", "an unknown cause"),
    ],
)
def test_causes_as_phrases(cause: str | None, node: str | None, expected: str) -> None:
    assert describe_cause(cause, node) == expected


def test_the_recorded_cause_is_told() -> None:
    record = {"outcome": "lost", "detail": "node-2 was lost, restart.max_lost_nodes is spent"}
    sentence = judge_run(build_run_model(RunFolder("r", record))).sentence
    assert (
        sentence
        == "The job ended before its first step. Recorded cause: node-2 was lost, restart.max_lost_nodes is spent."
    )
