# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What to do next after a run."""

from __future__ import annotations

import dataclasses
import datetime
import types

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._report.data.load import (
    Log,
    RunFolder,
    build_run_folder,
    parse_metrics,
)
from ansible_collections.muster.training.plugins.plugin_utils._report.data.run_model import build_run_model
from ansible_collections.muster.training.plugins.plugin_utils._report.rules import advice
from ansible_collections.muster.training.tests.unit.plugins.plugin_utils._report.runs import (
    Line,
    advised,
    case,
    run,
    statuses,
)


def test_advice_after_a_crash_loop() -> None:
    texts = advised(run("crash_loop"))
    assert texts[0][1] == "logs/4/node-2.log"
    assert "RuntimeError: mat1 and mat2 shapes cannot be multiplied" in texts[0][0]
    assert "All 4 attempts ended at step 12" in texts[1][0]
    command = "ansible-playbook -i INVENTORY muster.training.train -e muster_run_id=shape-bug-20261120-0930"
    assert texts[2][1] == command
    assert any("muster.training.verify_fabric" in (command or "") for _text, command in texts)


@pytest.mark.parametrize(
    ("record", "words", "has_command"),
    [
        ({}, "was not measured: verify it.", True),
        ({"backend": "kubernetes"}, "verify it, with the kubeconfig of an administrator of the cluster.", True),
        (
            {"backend": "kubernetes", "derived": {"reads_nodes": False}},
            "verify it: an administrator of the cluster has to, with the playbook verify_fabric.",
            False,
        ),
    ],
)
def test_advice_to_verify_fits_the_rights(record: dict[str, object], words: str, has_command: bool) -> None:
    failed = run("crash_loop")
    texts = advised(dataclasses.replace(failed, record={**failed.record, **record}))
    (found,) = [(text, command) for text, command in texts if "not measured" in text]
    assert found[0].endswith(words) and bool(found[1]) == has_command


def test_a_checkpoint_without_a_step_is_no_missing_one() -> None:
    lines: list[Line] = [{"at": 100.0 + n, "step": n} for n in range(1, 5)]
    found = case(lines)
    assert any("No checkpoint was saved" in item.text for item in advice.advise(found))
    about = {"kind": "checkpoint_unreported", "node": "a", "folder": "/ck/r", "name": "ckpt.pt", "at": 110.0}
    found.run.history.event(about)
    texts = [item.text for item in advice.advise(found)]
    assert not any("No checkpoint was saved" in text for text in texts), texts
    assert any(text.startswith("/ck/r/ckpt.pt on a is a checkpoint of a step that is not known") for text in texts)


def test_variables_that_a_command_lacks_are_named_beside_it() -> None:
    """As cancel and the follower name them: their values are not kept."""
    failed = run("crash_loop")
    given = dataclasses.replace(failed, record={**failed.record, "unrepeated": ["job_name", "muster_job"]})
    (text,) = [text for text, command in advised(given) if "muster.training.train" in (command or "")]
    assert text.endswith(" (with -e job_name, -e muster_job as at its start).")
    assert not any("at its start" in text for text, _command in advised(failed))
    others = [text for text, command in advised(given) if "muster.training.train" not in (command or "")]
    assert not any("at its start" in text for text in others)


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


def test_no_one_is_told_to_tear_down_what_they_own() -> None:
    """A price alone is one of the user's own inventory; a machine that was rented from here has a token."""

    def advised_for(**tokens: str | None) -> list[str]:
        nodes = [{"id": name, "token": token, "price_usd_per_hour": 3.5} for name, token in tokens.items()]
        record = {
            "run_id": "r", "outcome": "failed", "state": "ended", "submitted_at": "2026-01-01T00:00:00Z",
            "ended_at": "2026-01-01T01:00:00Z", "attempts": [{"n": 1, "nodes": nodes}],
        }  # fmt: skip
        found = advice.advise(build_run_model(RunFolder("r", record)))
        return [item.text for item in found if "until they are deleted" in item.text]

    assert advised_for(a=None, b=None) == []
    assert advised_for(a=None, b="t1") == ["Of these nodes b cost $3.50 an hour until they are deleted."]
    assert advised_for(a="t0", b="t1") == ["These nodes cost $7.00 an hour until they are deleted."]


def test_the_log_to_read_is_what_the_ranks_wrote_themselves() -> None:
    """Beside their launcher's words about its own end, which come last in the whole log."""
    whole = Log("logs/node-2.log", 9, ("SignalException: got signal: 15",), "SignalException: got signal: 15")
    own = Log("logs/node-2.err", 9, ("RuntimeError: boom",), "RuntimeError: boom")
    other = Log("logs/node-1.err", 9, ("x",), "RuntimeError: other")
    model = build_run_model(RunFolder("r", {"run_id": "r", "outcome": "failed"}, logs=(whole, other, own)))
    attempt = types.SimpleNamespace(logs=("node-2.log",), label="1", node="node-2")
    assert advice.pick_log(model, attempt) is own  # type: ignore[arg-type]
    quiet = dataclasses.replace(own, error=None)
    model = build_run_model(RunFolder("r", {"run_id": "r", "outcome": "failed"}, logs=(whole, quiet)))
    assert advice.pick_log(model, attempt) is whole  # type: ignore[arg-type]


def test_a_run_whose_loss_is_no_number_is_not_sent_back_to_its_own_checkpoint() -> None:
    lines = [{"at": 1.0 + step, "step": step, "loss": 1.0 if step < 20 else float("nan")} for step in range(1, 41)]
    saved = [{"at": 22.0, "checkpoint_step": 20}, {"at": 42.0, "checkpoint_step": 40}]
    segments, unit = parse_metrics([*lines, *saved], [])
    record = {"run_id": "r", "outcome": "failed", "checkpoint": {"step": 40}}
    texts = [text for text, _ in advised(RunFolder("r", record, segments=tuple(segments), unit=unit))]
    assert any("move those checkpoints away first" in text for text in texts), texts
    assert not any("same run id continues from" in text for text in texts), texts


def test_an_estimated_step_is_said_to_be_one() -> None:
    by = "the last that was printed before it"
    for outcome, start in (
        ("succeeded", "The trained model is"),
        ("failed", "Once the cause is fixed, the same run id"),
    ):
        for saved, words in (({"step": 55, "step_by": by}, f"about step 55, {by}"), ({"step": 55}, "step 55")):
            record = {"run_id": "r", "outcome": outcome, "checkpoint": {"path": "/c/checkpoint_7", **saved}}
            (text,) = [text for text, _ in advised(RunFolder("r", record)) if text.startswith(start)]
            assert f"the checkpoint of {words}" in text, text
    told = {"at": 2.0, "checkpoint_step": 5, "path": "/c", "layout": "accelerate", "step_by": by}
    segments, _unit = parse_metrics([{"at": 1.0, "step": 5}, told], [])
    assert segments[0].checkpoints[0].step_by == by


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


@pytest.mark.parametrize("outcome", ["succeeded", "failed"])
def test_a_model_of_nan_is_not_called_trained(outcome: str) -> None:
    """What to do about it comes first, and the checkpoint that is still good is named."""
    points: list[Line] = [{"step": n, "loss": 1.0 if n < 25 else float("nan")} for n in range(1, 31)]
    saved: list[Line] = [{"checkpoint_step": n} for n in (10, 20, 30)]
    lines = sorted([*points, *saved], key=lambda line: line.get("step", line.get("checkpoint_step", 0)))
    model = case(lines, outcome=outcome, checkpoint={"step": 30}, attempts=[{"n": 1, "exit_code": 143}])
    texts = [item.text for item in advice.advise(model) if not item.is_later]
    assert texts[0].endswith("look at the data. The newest checkpoint from before that is of step 20.")
    assert not any("trained model" in text for text in texts)


UNSTORED = "checkpoint 250 is not stored in small, the newest that is has step 30 (w-40.pt: full)"


@pytest.mark.parametrize(
    ("more", "status", "words"),
    [
        ({"stored": {"step": 250, "path": "w-250.pt"}}, "passed", "in the object store small as w-250.pt."),
        (
            {"stored": {"step": 30, "path": "w-30.pt"}, "unstored": UNSTORED},
            "failed",
            f"and it is not in the object store. What can be fetched is w-30.pt: {UNSTORED}.",
        ),
        ({"unstored": "none is"}, "failed", "and it is not in the object store: none is."),
    ],
)
def test_the_model_of_a_run_with_an_object_store_is_the_stored_one(more: Line, status: str, words: str) -> None:
    job = {"name": "net", "nodes": 1, "checkpoints": {"binding": "small"}}
    saved = {"step": 250, "path": "/muster/run/checkpoints/w-250.pt"}
    about = {"run_id": "net-1", "job": job, "state": "ended", "outcome": "succeeded", "checkpoint": saved}
    found = RunFolder("r", {**about, "ended_at": "2026-11-20T10:00:00+00:00", **more})
    texts = [text for text, _command in advised(found) if "trained model" in text]
    assert texts == [f"The trained model is the checkpoint of step 250, {words}"]
    assert statuses(found)["stored"] == status


def saving(every: int, blocked_s: float, price: float | None = None, step_s: float = 1.0) -> RunFolder:
    """A run of two hundred steps that is held up by each save."""
    lines: list[Line] = []
    at = 1010.0
    for step in range(1, 201):
        at += step_s
        lines.append({"at": at, "step": step, "loss": 1.0})
        if step % every == 0:
            at += blocked_s
            lines.append({"at": at, "checkpoint_step": step, "path": "/c"})
    node = {"id": "a", "price_usd_per_hour": price}
    start = {"at": 1010.0, "kind": "worker_started", "rank": 0, "node": "a", "attempt": 1, "gang": "g"}
    events: list[Line] = [{"at": 1000.0, "kind": "submitted", "attempt": 1, "nodes": [node]}, start]
    stamps = {"submitted_at": "1970-01-01T00:16:40+00:00", "ended_at": _stamp(at + 1)}
    attempt = {"n": 1, "started_at": _stamp(1010.0), "ended_at": _stamp(at), "nodes": [node]}
    record: Line = {"state": "ended", "outcome": "succeeded", "attempts": [attempt], **stamps}
    record["derived"] = {"price_usd_per_hour": price}
    return build_run_folder("r", record, events, lines, [])


def _stamp(at: float) -> str:
    return datetime.datetime.fromtimestamp(at, datetime.UTC).isoformat()


def test_how_often_to_save_follows_from_what_saves_and_faults_cost() -> None:
    (said,) = [text for text, _ in advised(saving(20, 8.0, 4.0)) if text.startswith("Save every")]
    assert "Save every 11" in said and "(now every 28" in said and "a save holds the steps up for 8" in said
    assert "0 faults in 4" in said and "saves and faults: 28.6 % → 2.3 %, $1.05 an hour" in said, said
    # One that takes no time, or one that is rare enough, needs no word, and of a short run there is none to say.
    for run_folder in (saving(20, 0.02), saving(100, 0.5), saving(20, 0.8, step_s=0.1)):
        assert not [text for text, _ in advised(run_folder) if text.startswith("Save every")]
