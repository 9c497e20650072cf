# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""When a run whose launcher reports success has succeeded: its ranks are the witnesses."""

from __future__ import annotations

import dataclasses
import pathlib
import time
import types
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import MusterError
from ansible_collections.muster.training.plugins.module_utils._model.job import parse_job, to_yaml_names
from ansible_collections.muster.training.plugins.module_utils._model.run_history import RunHistory
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared import run_record
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared.state_dir import load_record
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job import (
    follower as follower_module,
)
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.follower import (
    Follower,
    RunOutcome,
)
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.movement import describe_state
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.outcome import (
    build_result,
    build_uncancelled_result,
    build_unfollowed_result,
    check_attendance,
    record_cancelled,
    record_end,
)
from ansible_collections.muster.training.tests.support.run_world import Said

DONE = RunOutcome("succeeded", 0, "succeeded", "all ranks exited with code 0")


def judged(exits: dict[int, int], **job: t.Any) -> RunOutcome:
    """Return how a gang of two is judged whose ranks recorded these ends in their last attempt."""
    story = RunHistory()
    for attempt, codes in ((1, {0: 3, 1: 143}), (2, exits)):
        for rank in (0, 1):
            told = {"rank": rank, "attempt": attempt, "gang": str(attempt), "node": "n", "at": 1000.0 + attempt}
            story.event({"kind": "worker_started", **told, "world_size": 2})
            if rank in codes:
                story.event({"kind": "worker_exit", **told, "at": 1000.5 + attempt, "exit_code": codes[rank]})
    follower = t.cast(t.Any, types.SimpleNamespace(story=story))
    return check_attendance(parse_job({"name": "x", "script": "/t.py", "nodes": 2, **job}), follower, DONE)


def test_ranks_that_ended_badly_make_no_success() -> None:
    """mpirun ended with 0 after it had lost a daemon, and the engine believed it."""
    outcome = judged({0: 143})
    assert (outcome.outcome, outcome.cause) == ("failed", "attendance")
    assert outcome.detail == "rank 0 exited with code 143 although the launcher reported success"


@pytest.mark.parametrize("exits", [{0: 0, 1: 0}, {0: 0}, {}])
def test_ends_that_were_not_heard_are_no_proof_against_it(exits: dict[int, int]) -> None:
    assert judged(exits) is DONE


def test_an_elastic_gang_may_lose_ranks() -> None:
    assert judged({0: 0, 1: 143}, elastic={"min": 1, "max": 2}, image="i", placement={"backend": "kubernetes"}) is DONE


CRASH = RunOutcome("failed", 3, "crash", "a rank on n1 exited with code 3", "n1")


def test_a_success_whose_checkpoint_is_not_stored_fails_and_is_said_at_once_and_hourly(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    progress = t.cast(t.Any, types.SimpleNamespace(say=said.append, show=lambda _values: None))
    job = parse_job({"name": "x", "script": "/t.py", "checkpoints": {"binding": "small"}})
    followed = Follower(job, "x-1", tmp_path, progress, lambda _follower: None, None)
    followed.record_event("worker_started", 1000.0, rank=0, node="n", attempt=1)
    followed.story.metric({"at": 1001.0, "checkpoint_step": 30})
    followed.record_event("checkpoint_stored", 1002.0, node="n", detail="w-30.pt", checkpoint_step=30)
    followed._report()
    assert not any("not stored" in line for line in said) and followed.state()["stored"] is None
    followed.story.metric({"at": 1003.0, "checkpoint_step": 40})
    failure = {"node": "n", "detail": "w-40.pt: the object store answered 500", "checkpoint_step": 40}
    followed.record_event("checkpoint_not_stored", 1004.0, **failure)
    followed._report()
    followed._report()
    text = (
        "checkpoint 40 is not stored in small, the newest that is has step 30 (w-40.pt: the object store answered 500)"
    )
    assert said.count(f"warning: {text}. The run continues") == 1
    assert "checkpoint 40 · stored 30" in describe_state(followed.state())
    now = time.monotonic()
    monkeypatch.setattr(follower_module.time, "monotonic", lambda: now + 3700)
    followed._report()
    assert said.count(f"warning: {text}. The run continues") == 2
    ended = record_end(followed, DONE, run_record.new_record("x-1", to_yaml_names(job), 900.0), {}, 3000.0)
    assert (ended.problems, ended.unstored) == ((text,), text) and ended.stored and ended.stored.step == 30
    assert said[-1].startswith("run x-1 succeeded, not clean: all ranks exited with code 0") and text in said[-1]
    result = build_result(ended, tmp_path, True)
    assert result["failed"] and str(result["msg"]).startswith(f"run x-1 succeeded, but {text}. Fetch it from its nodes")
    assert load_record_dict(tmp_path)["stored"] == {"step": 30, "path": "w-30.pt"}


def load_record_dict(folder: pathlib.Path) -> dict[str, t.Any]:
    found = load_record(folder)
    assert found is not None
    return found.to_dict()


@pytest.mark.parametrize(("second", "clean"), [(21, True), (1, False)])
def test_a_success_that_did_not_resume_is_not_clean(tmp_path: pathlib.Path, second: int, clean: bool) -> None:
    """The last line of the play and the record say it; the exit code does not."""
    said: list[str] = []
    progress = t.cast(t.Any, types.SimpleNamespace(say=said.append, show=lambda _values: None))
    job = parse_job({"name": "x", "script": "/t.py"})
    follower = Follower(job, "x-1", tmp_path, progress, lambda _follower: None, None)
    for n, first, last in ((1, 1, 27), (2, second, 40)):
        follower.record_event("worker_started", 1000.0 * n, rank=0, node="n", attempt=n)
        for step in range(first, last + 1):
            follower.story.metric({"at": 1000.0 * n + step, "step": step})
        follower.story.metric({"at": 1000.0 * n + 41, "checkpoint_step": 20 * n})
    begun = run_record.new_record("x-1", to_yaml_names(job), 900.0)
    ended = record_end(follower, DONE, begun, {}, 3000.0)
    text = "attempt 2 did not resume: it began at step 1, although a checkpoint of step 20 had been saved"
    assert ended.outcome == "succeeded" and ended.problems == (() if clean else (text,))
    assert [item.resumed for item in ended.attempts] == [None, clean]
    assert ended.steps_lost == (7 if clean else 27)
    assert said[-1].startswith(f"run x-1 succeeded{'' if clean else ', not clean'}: all ranks exited with code 0")
    assert (text in said[-1]) is not clean


def test_a_cancelled_run_keeps_the_end_that_its_follower_recorded(tmp_path: pathlib.Path) -> None:
    """It has what the ranks said last; the controller that cancels has read the record before."""
    running = run_record.new_record("r", {"nodes": 2}, 1.0)
    run_record.write_record(tmp_path, running)
    said = Said()
    ended, new = record_cancelled(tmp_path, running, said)
    assert new and (ended.outcome, load_record(tmp_path)) == ("cancelled", ended)
    assert (tmp_path / "events.jsonl").read_text().count("cancelled") == 1
    followed = dataclasses.replace(ended, detail="the run was cancelled: JobSet n/r was deleted", steps_lost=3)
    run_record.write_record(tmp_path, followed)
    assert record_cancelled(tmp_path, running, said) == (followed, True)
    assert record_cancelled(tmp_path, followed, said)[1] is False
    assert (tmp_path / "events.jsonl").read_text().count("cancelled") == 1


def test_what_was_not_cancelled_or_is_not_followed_is_named(tmp_path: pathlib.Path) -> None:
    running = run_record.new_record("r", {"nodes": 2}, 1.0)
    problem = MusterError("watching Pod in n: the credential was rejected (401)", "Log in again")
    for found, said, end in (
        (
            build_uncancelled_result(running, tmp_path, "there still are 2 pods", problem, "ansible-playbook x"),
            "was not cancelled, there still",
            "Log in again. Then cancel it again: ansible-playbook x",
        ),
        (
            build_unfollowed_result(running, tmp_path, True, problem),
            "it keeps running, and the same command follows it: ",
            "rejected (401). Log in again",
        ),
    ):
        assert found["failed"] and found["run"] == {"state": "starting", "outcome": None}
        assert (found["run_id"], found["folder"]) == ("r", str(tmp_path))
        assert said in str(found["msg"]) and str(found["msg"]).endswith(end)
