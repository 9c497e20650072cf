# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Attempts that nobody followed take their place in the story; reading them on a cluster is in tests/lab."""

from __future__ import annotations

import json
import pathlib
import types
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.run_history import RunHistory
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.kubernetes import log_recovery

Dict = dict[str, t.Any]


def started(at: float, rank: int, attempt: int) -> Dict:
    gang = f"{attempt}/a"
    return {"at": at, "kind": "worker_started", "rank": rank, "node": "n", "attempt": attempt, "gang": gang}


def test_what_was_not_heard_of_is_missing() -> None:
    lines = [{"kind": "submitted", "attempt": 2}, {"kind": "pod_ready", "attempt": 3}, started(1.0, 0, 5)]
    assert log_recovery.missing_attempts(lines, 2) == {2, 4}
    assert log_recovery.missing_attempts(lines[:1], 2) == set()
    assert log_recovery.missing_attempts([{"kind": "x", "attempt": None}, started(1.0, 0, 1)], 1) == set()


def test_lines_of_an_attempt_come_before_those_of_the_next(tmp_path: pathlib.Path) -> None:
    (tmp_path / "events.jsonl").write_text(json.dumps(started(100.0, 0, 2)) + "\n")
    (tmp_path / "metrics.jsonl").write_text('{"at": 101.0, "resumed_from_step": 20}\n{"at": 102.0, "step": 21}\ntorn')
    follower = types.SimpleNamespace(folder=tmp_path, story=RunHistory(), offsets={})
    lines: list[Dict] = [
        {"stream": "metrics", "attempt": 1, "data": {"at": 12.0, "step": 25}},
        {"stream": "events", "attempt": 1, "data": started(10.0, 0, 1)},
        {"stream": "kept", "attempt": 1, "node": "../n 1", "data": "ValueError: x"},
        {"stream": "kept", "attempt": 1, "node": "../n 1", "data": "end"},
        {"stream": "other", "attempt": 1, "data": {}},
        # As a program may write them.
        {"stream": "kept", "attempt": 1, "data": "no node"},
        {"stream": "kept", "attempt": [1], "node": "x", "data": "y"},
        {"stream": "kept", "attempt": 2, "node": "x", "data": "another attempt"},
    ]
    log_recovery.merge_lines(t.cast(t.Any, follower), log_recovery.select_lines(lines, {1}))
    assert [item.name for item in (tmp_path / "logs").iterdir()] == ["_n_1.attempt-1.log"]
    assert [(item.n, item.last_step) for item in follower.story.attempts] == [(1, 25), (2, 21)]
    assert follower.story.last["step"] == 21 and follower.story.losses()[0] == 5
    assert (tmp_path / "logs" / "_n_1.attempt-1.log").read_text() == "ValueError: x\nend\n"
    times = [json.loads(line)["at"] for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert times == [12.0, 101.0, 102.0]


@pytest.mark.parametrize(("done", "asked"), [(True, range(3, 1 << 31)), (False, None)])
def test_a_job_that_was_done_unheard_is_read_from_what_it_kept(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, done: bool, asked: range | None
) -> None:
    """An operator removes pods that have ended, and their logs with them; attempts of an earlier start are no proof."""
    (tmp_path / "events.jsonl").write_text(json.dumps(started(1.0, 0, 2)) + "\n")
    story = RunHistory()
    story.event(started(1.0, 0, 2))
    said: list[str] = []
    progress = types.SimpleNamespace(say=said.append)
    noted: list[tuple[str, Dict]] = []
    record = lambda kind, **values: noted.append((kind, values))  # noqa: E731
    follower = types.SimpleNamespace(folder=tmp_path, story=story, progress=progress, offsets={}, record_event=record)
    plan = types.SimpleNamespace(pods={"launcher": types.SimpleNamespace(attempt=3)})
    lines: list[Dict] = [{"stream": "events", "attempt": 3, "data": started(10.0, 0, 3)}]
    monkeypatch.setattr(log_recovery.log_reader_job, "build", lambda _plan: [{}])
    monkeypatch.setattr(log_recovery, "_read_volume", lambda _client, _made: lines)
    monkeypatch.setattr(log_recovery, "delete_objects", lambda _client, _made: None)
    log_recovery.recover_logs(t.cast(t.Any, None), t.cast(t.Any, plan), t.cast(t.Any, follower), done)
    assert [item.n for item in follower.story.attempts] == ([2, 3] if asked else [2])
    assert bool(said) is done
    assert noted == ([("log_recovered", {"attempt": 3})] if done else [])


def test_an_attempt_that_ended_unfollowed_is_read_to_its_end(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its follower was killed after the start had been read; another attempt had begun when the next one came."""
    read = [started(100.0, 0, 1), {"at": 160.0, "kind": "followed"}, started(150.0, 0, 2)]
    (tmp_path / "events.jsonl").write_text("".join(json.dumps(line) + "\n" for line in read))
    (tmp_path / "metrics.jsonl").write_text(
        '{"at": 101.0, "step": 2, "rank": 0}\n{"at": 155.0, "step": 21, "rank": 0}\n'
    )
    story = log_recovery._rebuild_history(tmp_path)
    assert story.following.unread_attempts(story.attempts) == [1] and story.losses()[0] is None

    def note(kind: str, **values: t.Any) -> None:
        with (tmp_path / "events.jsonl").open("a") as events:
            events.write(json.dumps({"at": 200.0, "kind": kind, **values}) + "\n")

    said: list[str] = []
    progress = types.SimpleNamespace(say=said.append)
    follower = types.SimpleNamespace(folder=tmp_path, story=story, progress=progress, offsets={}, record_event=note)
    plan = types.SimpleNamespace(pods={"node": types.SimpleNamespace(attempt=1)})
    end = {"at": 130.0, "kind": "worker_exit", "rank": 0, "node": "n", "attempt": 1, "gang": "1/a", "exit_code": 1}
    lines: list[Dict] = [
        {"stream": "events", "attempt": 1, "data": started(100.0, 0, 1)},
        {"stream": "metrics", "attempt": 1, "data": {"at": 101.0, "step": 2, "rank": 0}},
        {"stream": "metrics", "attempt": 1, "data": {"at": 129.0, "step": 24, "rank": 0}},
        {"stream": "events", "attempt": 1, "data": end},
        {"stream": "kept", "attempt": 1, "node": "n", "data": "ValueError: x"},
    ]
    monkeypatch.setattr(log_recovery.log_reader_job, "build", lambda _plan: [{}])
    monkeypatch.setattr(log_recovery, "_read_volume", lambda _client, _made: lines)
    monkeypatch.setattr(log_recovery, "delete_objects", lambda _client, _made: None)
    log_recovery.recover_logs(t.cast(t.Any, None), t.cast(t.Any, plan), t.cast(t.Any, follower), False)
    found = follower.story
    assert [(item.n, item.last_step, item.cause) for item in found.attempts] == [(1, 24, "crash"), (2, 21, None)]
    assert found.losses()[0] == 4 and found.following.unread_attempts(found.attempts) == []
    assert said == ["The logs of attempt 1 were not read to their end; recovering them from the checkpoint volume"]
    # What had been read is there once.
    assert len((tmp_path / "metrics.jsonl").read_text().splitlines()) == 3


def test_steps_of_a_recovered_attempt_that_were_printed_are_not_known(tmp_path: pathlib.Path) -> None:
    lines = [started(100.0, 0, 1), {"at": 130.0, "kind": "worker_exit", "rank": 0, "attempt": 1, "gang": "1/a", "exit_code": 1},
             started(150.0, 0, 2), {"at": 200.0, "kind": "log_recovered", "attempt": 1}]  # fmt: skip
    (tmp_path / "events.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (tmp_path / "metrics.jsonl").write_text('{"at": 155.0, "step": 11, "rank": 0}\n')
    assert log_recovery._rebuild_history(tmp_path).losses()[0] is None
