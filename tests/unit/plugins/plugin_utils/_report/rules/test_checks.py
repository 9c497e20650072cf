# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a run has to prove, its verdict, the advice, and the JUnit suite made of the same checks."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import typing as t
from xml.etree import ElementTree as tree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.plugin_utils._report.data.load import (
    RunFolder,
    load_run,
    parse_metrics,
)
from ansible_collections.muster.training.plugins.plugin_utils._report.data.run_model import build_run_model
from ansible_collections.muster.training.plugins.plugin_utils._report.pages.junit import render_junit
from ansible_collections.muster.training.plugins.plugin_utils._report.rules import advice
from ansible_collections.muster.training.plugins.plugin_utils._report.rules.checks import build_checks
from ansible_collections.muster.training.plugins.plugin_utils._report.rules.summary import summarise
from ansible_collections.muster.training.plugins.plugin_utils._report.rules.verdict import describe_cause, judge_run

FIXTURES = pathlib.Path(__file__).parents[5] / "fixtures" / "report"
NAMES = ["resumed", "crash_loop", "cancelled", "running", "gpu64", "nulls"]
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=8,
)


def run(name: str) -> RunFolder:
    return load_run(FIXTURES / name)


def statuses(found: RunFolder) -> dict[str, str]:
    return {check.name: check.status for check in build_checks(build_run_model(found))}


@pytest.mark.parametrize(
    ("name", "word", "sentence"),
    [
        ("resumed", "Succeeded", "2 ranks on 2 nodes trained to step 300 in 38 s, through 1 drilled fault"),
        (
            "crash_loop",
            "Failed",
            "The job reached step 12 in 4 attempts; the last was ended by a crash on node-2 (exit code 1).",
        ),
        ("cancelled", "Cancelled", "Stopped on request at step 188 after 44 s."),
        ("running", "Running", "3 ranks on 3 nodes are at step 96 after 39 s."),
        (
            "gpu64",
            "Succeeded",
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
    assert (verdict.word, verdict.tone) == ("Succeeded, not all proven", "warn")
    assert verdict.sentence.endswith("Not proven: all ranks took part.")


def test_missing_ranks_fail_a_success() -> None:
    found = run("resumed")
    record = {**found.record, "world_size": {"asked": 2, "seen": 1}}
    changed = dataclasses.replace(found, record=record)
    assert judge_run(build_run_model(changed)).sentence.startswith("The program succeeded, but only 1 of 2 ranks")
    assert statuses(changed)["attendance"] == "failed"
    assert any("never joined" in item["text"] for item in summarise(changed)["next"])


def test_the_checks_of_a_resumed_run() -> None:
    assert statuses(run("resumed")) == {
        "outcome": "passed",
        "attendance": "passed",
        "resume-1": "passed",
        "steps-lost-1": "passed",
        "fabric-local": "passed",
    }


def test_the_checks_of_a_record_of_nothing() -> None:
    assert statuses(run("nulls")) == {"outcome": "unproven", "attendance": "unproven", "fabric": "skipped"}


def test_more_steps_lost_than_an_interval_fails() -> None:
    found = run("resumed")
    job = {**found.record["job"], "checkpoints": {"interval_steps": 10}}
    changed = dataclasses.replace(found, record={**found.record, "job": job})
    assert statuses(changed)["steps-lost-1"] == "failed"
    assert any("more than the 10 between checkpoints" in item["text"] for item in summarise(changed)["next"])


@pytest.mark.parametrize(
    ("outcome", "status"),
    [("pass", "passed"), ("warn", "passed"), ("fail", "failed"), ("unproven", "unproven"), (None, "unproven")],
)
def test_the_fabric_verdict_is_a_check(outcome: str | None, status: str) -> None:
    found = RunFolder("r", {}, fabric={"islands": [{"island": "a", "outcome": outcome}]})
    assert statuses(found)["fabric-a"] == status


def test_a_fabric_file_with_one_bare_verdict_is_understood() -> None:
    assert statuses(RunFolder("r", {}, fabric={"island": "a", "outcome": "pass"}))["fabric-a"] == "passed"


def advised(found: RunFolder) -> list[tuple[str, str | None]]:
    return [(item["text"], item["command"] or item["path"]) for item in summarise(found)["next"]]


def test_advice_after_a_crash_loop() -> None:
    texts = advised(run("crash_loop"))
    assert texts[0][1] == "logs/4/node-2.log"
    assert "RuntimeError: mat1 and mat2 shapes cannot be multiplied" in texts[0][0]
    assert "All 4 attempts ended at step 12" in texts[1][0]
    command = "ansible-playbook -i INVENTORY muster.training.train -e muster_run_id=shape-bug-20261120-0930"
    assert texts[2][1] == command
    assert any("muster.training.verify_fabric" in (command or "") for _text, command in texts)


@pytest.mark.parametrize(
    ("expected", "advice"), [(None, "declare it in muster_expectations"), (2.5, "verify it again")]
)
def test_advice_on_an_unproven_fabric_says_what_is_lacking(expected: float | None, advice: str) -> None:
    bandwidth = {"busbw_gb_s": 1.2, "expected_gb_s": expected}
    island = {"island": "machine", "outcome": "unproven", "bandwidth": bandwidth}
    texts = [
        text for text, _ in advised(RunFolder("r", {}, fabric={"islands": [island]})) if "fabric of machine" in text
    ]
    assert len(texts) == 1 and advice in texts[0]


def test_advice_after_other_ends() -> None:
    assert advised(run("resumed"))[0][1] == "/var/tmp/muster/ckpt/step-00000300"
    assert "continues from the checkpoint of step 188" in advised(run("cancelled"))[0][0]
    assert "muster.training.status" in (advised(run("running"))[0][1] or "")
    assert any("Reseat the adapter" in text for text, _command in advised(run("gpu64")))
    assert any("until they are deleted" in text for text, _command in advised(run("gpu64")))


def test_a_hostile_run_id_is_quoted_for_the_shell() -> None:
    found = RunFolder("r", {"run_id": "x; rm -rf ~", "outcome": "cancelled"})
    assert advised(found)[0][1] == "ansible-playbook -i INVENTORY muster.training.train -e 'muster_run_id=x; rm -rf ~'"


@pytest.mark.parametrize(
    ("code", "word"),
    [(137, "SIGKILL"), (-9, "SIGKILL"), (-11, "SIGSEGV"), (74, "full or read-only"), (135, "/dev/shm")],
)
def test_exit_codes_are_explained(code: int, word: str) -> None:
    assert word in (advice.explain_exit(code) or "")


def test_other_exit_codes_are_not() -> None:
    assert advice.explain_exit(1) is None
    assert advice.explain_exit(0) is None
    assert advice.explain_exit(None) is None


def test_a_loss_that_is_no_number_is_advised_on() -> None:
    notes: list[str] = []
    segments, unit = parse_metrics([{"step": 1, "loss": float("nan")}], notes)
    texts = advised(RunFolder("r", {}, segments=segments, unit=unit, notes=tuple(notes)))
    assert any("stopped being a number" in text for text, _command in texts)
    assert any("No checkpoint was saved" in text for text, _command in texts)


def suite(found: RunFolder) -> tree.Element:
    return tree.fromstring(render_junit(found).encode())


@pytest.mark.parametrize(
    ("name", "tests", "failures", "skipped"),
    [("resumed", 5, 0, 0), ("crash_loop", 9, 1, 4), ("cancelled", 3, 1, 0), ("running", 3, 0, 2), ("nulls", 3, 2, 1)],
)
def test_junit_counts(name: str, tests: int, failures: int, skipped: int) -> None:
    root = suite(run(name))
    assert {key: root.get(key) for key in ("tests", "failures", "skipped", "errors")} == {
        "tests": str(tests),
        "failures": str(failures),
        "skipped": str(skipped),
        "errors": "0",
    }
    assert len(root.findall("testcase")) == tests
    assert len(root.findall("testcase/failure")) == failures
    assert len(root.findall("testcase/skipped")) == skipped


def test_junit_survives_hostile_names() -> None:
    hostile = "</testsuite><script>\x00\ud800]]>&\u202e"
    found = RunFolder("r", {"run_id": hostile, "job": {"name": hostile}, "outcome": hostile})
    assert "script" in (suite(found).get("name") or "")


@given(st.dictionaries(st.sampled_from(list(json.loads((FIXTURES / "nulls" / "run.json").read_text()))), ANYTHING))
def test_any_record_can_be_summarised(record: dict[str, t.Any]) -> None:
    found = RunFolder("r", record, fabric=record)
    json.dumps(summarise(found), allow_nan=False).encode()
    suite(found)


@given(st.data())
def test_any_damage_to_a_real_record_can_be_summarised(data: st.DataObject) -> None:
    found = run("gpu64")
    record, fabric = json.loads(json.dumps(found.record)), json.loads(json.dumps(found.fabric))
    for root in (record, fabric):
        damage(root, data)
    json.dumps(summarise(dataclasses.replace(found, record=record, fabric=fabric, usage=())), allow_nan=False).encode()


def damage(value: t.Any, data: st.DataObject) -> None:
    """Replace one value somewhere below ``value`` by anything."""
    while True:
        keys = list(value) if isinstance(value, dict) else list(range(len(value)))
        if not keys:
            return
        key = data.draw(st.sampled_from(keys))
        if not isinstance(value[key], (dict, list)) or not value[key] or data.draw(st.booleans()):
            value[key] = data.draw(ANYTHING)
            return
        value = value[key]


@pytest.mark.parametrize("name", NAMES)
def test_the_summary_holds_its_keys(name: str) -> None:
    found = summarise(run(name))
    assert set(found) == {
        *("schema", "run_id", "name", "outcome", "verdict", "measured_on_loopback", "cpu_only", "job", "figures"),
        *("attempts", "faults", "checks", "fabric", "cost", "next", "notes"),
    }
    assert found["schema"] == 1


def test_the_figures_of_a_resumed_run() -> None:
    figures = summarise(run("resumed"))["figures"]
    expected = {
        "last_step": 300,
        "steps_lost": 17,
        "restarts": 1,
        "faults_proven": 1,
        "ranks_seen": 2,
        "checkpoint_step": 300,
        "checkpoint_interval_steps": 20,
        "throughput_unit": "tokens_per_s",
        "start_to_first_step_s": 4.9,
    }
    assert {key: figures[key] for key in expected} == expected
    assert figures["final_loss"] < figures["first_loss"]


def test_no_environment_value_reaches_the_summary() -> None:
    found = run("resumed")
    job = {**found.record["job"], "env": {"WANDB_API_KEY": "do-not-show"}}
    assert "do-not-show" not in json.dumps(summarise(dataclasses.replace(found, record={**found.record, "job": job})))


@pytest.mark.parametrize(
    ("cause", "node", "expected"),
    [
        ("crash", "node-2", "a crash on node-2"),
        ("node_lost", "node-2", "the loss of node-2"),
        ("node_lost", None, "the loss of a node"),
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


def test_a_start_of_which_no_rank_was_seen_counts_as_a_restart() -> None:
    """A node can be lost before its pod's program starts; the next attempt's number tells of it."""
    second = RunFolder("r", {"submitted_at": 1795167000, "attempts": [{"n": 2, "started_at": 1795167001}]}, ())
    assert summarise(second)["figures"]["restarts"] == 1
