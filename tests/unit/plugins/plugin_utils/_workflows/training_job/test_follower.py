# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What all followers share: the line for people, the end of a log, the run's folder."""

from __future__ import annotations

import json
import pathlib
import time
import types
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.job import parse_job
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.follower import (
    Follower,
)

Dict = dict[str, t.Any]


def follower(folder: pathlib.Path, reason: str = "", said: list[str] | None = None, **values: t.Any) -> Follower:
    lines = [] if said is None else said
    progress: t.Any = types.SimpleNamespace(say=lines.append, show=lambda _values: None)
    job = parse_job({"name": "x", "nodes": 2, "script": "/t.py", **values})
    return Follower(job, "x-1", folder, progress, lambda _follower: None, None, lambda: reason)


def test_an_event_of_the_controller_is_kept_and_counts(tmp_path: pathlib.Path) -> None:
    follower(tmp_path).record_event("worker_started", rank=0, node="a", attempt=1)
    (line,) = (tmp_path / "events.jsonl").read_text().splitlines()
    assert json.loads(line)["kind"] == "worker_started"
    again = follower(tmp_path)
    assert [attempt.ranks for attempt in again.story.attempts] == [{0: "a"}], "read from the run's folder"
    assert (again.state()["ranks"], again.state()["ranks_asked"]) == (1, 2)


def test_a_run_that_has_to_end_is_cancelled_for_its_cost(tmp_path: pathlib.Path) -> None:
    assert follower(tmp_path)._rule_outcome() is None
    outcome = follower(tmp_path, "it has cost 5 USD")._rule_outcome()
    assert outcome is not None and (outcome.outcome, outcome.cause) == ("cancelled", "cost")
    assert (outcome.exit_code, outcome.detail) == (143, "it has cost 5 USD")


PATTERN: Dict = {"metrics": {"step_pattern": r"iter (?P<step>[0-9]+)"}}


def print_steps(followed: Follower, first: int, last: int) -> None:
    followed.take_text("a", "log", "".join(f"iter {step}\n" for step in range(first, last + 1)))


def start_attempt(followed: Follower, n: int) -> None:
    at = time.time()
    followed.record_event("worker_started", at, rank=0, node="a", attempt=n)


def test_a_printed_step_that_the_next_attempt_repeats_counts(tmp_path: pathlib.Path) -> None:
    followed = follower(tmp_path, **PATTERN)
    start_attempt(followed, 1)
    print_steps(followed, 1, 41)
    # Another rank prints the same step: it counts once.
    print_steps(followed, 41, 41)
    start_attempt(followed, 2)
    print_steps(followed, 41, 60)
    first, second = followed.story.attempts
    assert (first.last_step, second.first_step, second.last_step) == (41, 41, 60)
    assert followed.story.losses()[0] == 1
    steps = [json.loads(line)["step"] for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert steps == [*range(1, 42), *range(41, 61)]


def test_what_a_new_gang_prints_on_another_node_is_read_before_its_start(tmp_path: pathlib.Path) -> None:
    followed, now = follower(tmp_path, **PATTERN), time.time()
    followed.record_event("worker_started", now - 60, rank=0, node="a", attempt=1, gang="g")
    followed.take_text("a", "log", "iter 1\niter 2\niter 3\n", [now - 50, now - 40, now - 30])
    followed.record_event("worker_exit", now - 20, rank=0, node="a", attempt=1, gang="g", exit_code=137)
    followed.take_text("b", "log", "iter 2\n", [now - 5])
    followed.record_event("worker_started", now - 10, rank=0, node="b", attempt=2, gang="h")
    followed.take_text("b", "log", "iter 3\n", [now - 2])
    first, second = followed.story.attempts
    assert (first.last_step, second.first_step, second.last_step) == (3, 2, 3)
    steps = [json.loads(line)["step"] for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert steps == [1, 2, 3, 2, 3]


def test_a_bar_that_is_drawn_again_at_its_end_is_none_of_the_next_attempt(tmp_path: pathlib.Path) -> None:
    followed, now = follower(tmp_path, **PATTERN), time.time()
    followed.record_event("worker_started", now - 60, rank=0, node="a", attempt=1)
    followed.take_text("a", "log", "iter 59\niter 60\n", [now - 40, now - 30])
    followed.record_event("worker_exit", now - 29, rank=0, node="a", attempt=1, exit_code=0)
    followed.take_text("a", "log", "iter 60\n", [now - 25])
    followed.record_event("worker_started", now - 10, rank=0, node="a", attempt=2)
    followed.take_text("a", "log", "iter 57\niter 58\n", [now - 6, now - 5])
    first, second = followed.story.attempts
    assert (first.last_step, second.first_step, second.last_step) == (60, 57, 58)
    assert followed.story.are_steps_known


def test_an_attempt_that_begins_again_is_reported_once(tmp_path: pathlib.Path) -> None:
    said: list[str] = []
    followed = follower(tmp_path, said=said, **PATTERN)
    start_attempt(followed, 1)
    print_steps(followed, 1, 41)
    start_attempt(followed, 2)
    print_steps(followed, 1, 3)
    followed.report_resumes()
    followed.report_resumes()
    again = follower(tmp_path, said=said, **PATTERN)
    again.report_resumes()
    assert said == [
        "warning: attempt 2 did not resume: it began at step 1 again after step 41, and reported no checkpoint"
    ]
    events = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    assert [event["attempt"] for event in events if event["kind"] == "not_resumed"] == [2]


def test_a_notice_that_another_process_writes_is_taken_in_once(tmp_path: pathlib.Path) -> None:
    said: list[str] = []
    mine = follower(tmp_path, said=said)
    mine.record_event("worker_started", rank=0, node="a", attempt=1)
    line = json.dumps({"at": time.time(), "kind": "notice", "node": "a", "detail": "it goes"})
    with (tmp_path / "events.jsonl").open("a") as events:
        events.write(f"{line[:9]}")
        events.flush()
        mine._take_notices()
        assert mine.noticed is None
        events.write(f"{line[9:]}\n")
    for _again in range(2):
        mine._take_notices()
    assert said == ["a will be taken away: it goes"] and len(mine.story.notices) == 1
    assert mine.noticed is not None and mine.story.attempts[0].cause == "preempted"
    # Of a run that goes on it says nothing: the machine is gone.
    later = follower(tmp_path, said=said)
    later._take_notices()
    assert later.noticed is None and len(said) == 1 and len(later.story.notices) == 1


def test_a_run_that_stands_is_said_once_until_it_moves(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    followed, clock = follower(tmp_path, said=said), [time.monotonic()]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    start_attempt(followed, 1)
    begun = followed.story.attempts[-1].started_at

    def wait(seconds: float) -> list[str]:
        said.clear()
        clock[0] += seconds
        followed._rule_outcome()
        followed._report()
        return [line for line in said if line.startswith("warning")]

    for step in range(30):
        followed.take_text("a", "metrics", json.dumps({"at": begun + 0.1 * step, "step": step}) + "\n")
    assert wait(0.0) == [] and wait(26.0) == []
    (warning,) = wait(10.0)
    assert warning.startswith(
        "warning: no step for 36 s, a step usually takes 0.1 s. Run diagnose to find out why; nothing"
    )
    assert wait(20.0) == [] and "no step for 56 s" in said[-1]
    followed.take_text("a", "metrics", json.dumps({"at": begun + 99.0, "step": 30}) + "\n")
    assert wait(0.0) == [] and followed.state()["stalled_s"] is None
    assert [line["kind"] for line in followed.kept_events() if line["kind"] == "stalled"] == ["stalled"]


def test_what_is_silent_is_not_said_to_stand(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    followed, clock = follower(tmp_path), [time.monotonic()]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(followed, "_is_seen", lambda: False)
    start_attempt(followed, 1)
    for step in range(30):
        at = followed.story.attempts[-1].started_at + 0.1 * step
        followed.take_text("a", "metrics", json.dumps({"at": at, "step": step}) + "\n")
    for _turn in range(3):
        clock[0] += 100.0
        followed._rule_outcome()
        followed._report()
    assert followed.state()["stalled_s"] is None


def test_figures_of_a_step_that_was_printed_count_once(tmp_path: pathlib.Path) -> None:
    """transformers' Trainer on two nodes: rank 0 prints the bar and the loss, the other node its bar."""
    followed = follower(tmp_path)
    start_attempt(followed, 1)
    at = followed.story.attempts[-1].started_at + 1
    for node, line in (
        ("a", {"step": 10}),
        ("b", {"step": 10}),
        ("a", {"step": 10, "loss": 3.0, "of_last": True}),
        ("b", {"step": 10, "loss": 8.0, "of_last": True}),
        ("a", {"step": 11}),
    ):
        followed.take_text(
            node, "metrics", json.dumps({"at": at, **line, "printed": True}, separators=(",", ":")) + "\n"
        )
    kept = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [(line["step"], line.get("loss")) for line in kept] == [(10, None), (10, 3.0), (11, None)]
    assert (followed.state()["step"], followed.state()["loss"]) == (11, 3.0), "the loss that was printed last"


def test_a_crash_is_said_once_and_not_again_by_the_next_follower(tmp_path: pathlib.Path) -> None:
    said: list[str] = []
    first = follower(tmp_path, said=said)
    for line in (
        {"kind": "worker_started", "rank": 0, "node": "a", "attempt": 1, "at": 1.0},
        {"kind": "worker_exit", "rank": 0, "node": "a", "attempt": 1, "at": 2.0, "exit_code": 3},
    ):
        first.take_text("a", "events", json.dumps(line) + "\n")
        first._report()
        first._report()
    assert [line for line in said if "exited" in line] == ["attempt 1: rank 0 on a exited with code 3"]
    again = {"kind": "worker_started", "rank": 0, "node": "a", "attempt": 2, "at": 3.0}
    first.take_text("a", "events", json.dumps(again) + "\n")
    said.clear()
    follower(tmp_path, said=said)._report()
    assert not [line for line in said if "exited" in line]


def test_what_happened_to_a_launcher_and_a_checkpoint_is_said(tmp_path: pathlib.Path) -> None:
    """Ranks that went with their launcher say nothing themselves."""
    said: list[str] = []
    for line in (
        {"kind": "agent_restart", "node": "b", "at": 1.0, "detail": "node_lost", "exit_code": 137},
        {"kind": "agent_restart", "node": "b", "at": 2.0, "detail": "node_lost", "exit_code": 1},
        {"kind": "agent_restart", "node": "b", "at": 3.0, "detail": "crash", "exit_code": 137},
        {
            "kind": "checkpoint_passed_over",
            "node": "a",
            "at": 4.0,
            "detail": "checkpoint x is half saved; it is passed over",
        },
    ):
        follower(tmp_path, said=said).take_text(line["node"], "events", json.dumps(line) + "\n")
    assert said == [
        "b: the launcher was killed (signal 9) and is started again",
        "a: checkpoint x is half saved; it is passed over",
    ]


def test_the_end_of_an_earlier_start_is_not_said_again(tmp_path: pathlib.Path) -> None:
    """The start before said it; nothing of the new one has begun."""
    rank = {"node": "a", "rank": 0, "gang": "g1", "attempt": 1}
    lines: list[dict[str, t.Any]] = [
        {"at": 1.0, "kind": "submitted", "attempt": 1},
        {"at": 2.0, "kind": "worker_started", "world_size": 1, **rank},
        {"at": 9.0, "kind": "worker_exit", "exit_code": 1, **rank},
    ]
    for again in (False, True):
        events = [*lines, {"at": 20.0, "kind": "submitted", "attempt": 2}] if again else lines
        (tmp_path / "events.jsonl").write_text("".join(json.dumps(line) + "\n" for line in events))
        said: list[str] = []
        follower(tmp_path, said=said)._say_crashes()
        assert len(said) == (0 if again else 1)


def test_a_loss_that_is_no_number_counts_at_a_step_that_was_printed_before(tmp_path: pathlib.Path) -> None:
    """A line of training, then one of the evaluation at the same step."""
    values = {"metrics": {"step_pattern": r"step (?P<step>\d+) loss (?P<loss>\S+)"}}
    watched = follower(tmp_path, **values)
    rank = {"kind": "worker_started", "at": 1.0, "node": "a", "rank": 0, "attempt": 1, "world_size": 1}
    watched.take_text("a", "events", json.dumps(rank) + "\n")
    watched.take_text("a", "log", "step 25 loss 0.6\nstep 25 loss 0.5\n", [2.0, 3.0])
    assert (watched.story.last["loss"], watched.story.nan_since) == (0.6, None)
    watched.take_text("a", "log", "step 25 loss nan\n", [4.0])
    assert watched.story.nan_since == 25


@pytest.mark.parametrize(
    ("at", "words"),
    [
        ({}, "writes lines without a time to MUSTER_METRICS_FILE"),
        ({"at": None}, "writes lines without a time to MUSTER_METRICS_FILE"),
        ({"at": "soon"}, 'with a time that cannot be ("at": soon)'),
        ({"at": time.time() * 1000}, 'with a time that cannot be ("at": 1'),
        ({"at": time.time() + 30 * 86400}, 'with a time that cannot be ("at": 1'),
    ],
)
def test_a_program_that_reports_without_a_time_is_warned_of(tmp_path: pathlib.Path, at: Dict, words: str) -> None:
    said: list[str] = []
    followed = follower(tmp_path, said=said)
    start_attempt(followed, 1)
    followed.take_text("a", "metrics", "".join(json.dumps({**at, "step": step}) + "\n" for step in (1, 2)))
    followed._release_printed()
    assert [line for line in said if words in line] == said and len(said) == 1
    assert "not read" in str(followed.story.steps_read["problem"])
    followed.take_text("a", "metrics", json.dumps({"at": time.time(), "step": 3}) + "\n")
    assert followed.story.attempts[-1].last_step == 3


FULL = "OSError: [Errno 28] No space left on device: '/data/c-7.pt'\n"


def crash_full(followed: Follower, n: int, text: str = FULL) -> None:
    at = time.time()
    followed.record_event("worker_started", at, rank=0, node="a", attempt=n, gang=f"g{n}", world_size=1)
    followed.take_text("a", "log", text)
    followed.record_event("worker_exit", at + 0.1, rank=0, node="a", attempt=n, gang=f"g{n}", exit_code=1)


def test_a_disk_that_stays_full_ends_the_run_after_the_second_attempt(tmp_path: pathlib.Path) -> None:
    """Nothing frees it between two attempts: the others that max_crashes allows would end so, too."""
    said: list[str] = []
    crash_full(follower(tmp_path, said=said), 1)
    assert said == ["warning: attempt 1: no space left on a for /data/c-7.pt. Free space there while the run continues"]
    followed = follower(tmp_path)
    assert followed._rule_outcome() is None
    # What a follower before it has seen counts.
    crash_full(followed, 2)
    outcome = followed._rule_outcome()
    assert outcome is not None and (outcome.cause, outcome.node, outcome.exit_code) == ("disk_full", "a", 1)
    assert outcome.detail.startswith("no space left on a for /data/c-7.pt, in attempt 2 as in attempt 1")


def test_a_fault_before_the_first_step_is_at_none(tmp_path: pathlib.Path) -> None:
    said: list[str] = []
    followed = follower(tmp_path, said=said)
    followed._record_drill(time.time(), "a", "killed rank 1")
    start_attempt(followed, 1)
    followed.take_text("a", "metrics", json.dumps({"at": time.time() + 1, "step": 3}) + "\n")
    followed._record_drill(time.time(), "a", "killed rank 1")
    killed = "drill: killed rank 1 on a"
    assert [line for line in said if killed in line] == [f"{killed} before the first step", f"{killed} at step 3"]


def test_a_run_that_is_started_again_has_what_was_freed_since(tmp_path: pathlib.Path) -> None:
    """What ended the start before would end this one before its first rank."""
    before = follower(tmp_path)
    for number in (1, 2):
        crash_full(before, number)
    assert before._rule_outcome() is not None
    before.record_event("submitted", attempt=3)
    followed = follower(tmp_path)
    assert followed._rule_outcome() is None
    crash_full(followed, 3)
    assert followed._rule_outcome() is None
    crash_full(followed, 4)
    outcome = followed._rule_outcome()
    assert outcome is not None and "in attempt 4 as in attempt 3" in outcome.detail


def test_a_crash_beside_a_full_disk_does_not_end_the_run(tmp_path: pathlib.Path) -> None:
    followed = follower(tmp_path)
    crash_full(followed, 1)
    crash_full(followed, 2, "ValueError: x\n")
    assert followed._rule_outcome() is None


def test_the_last_line_of_a_run_that_stood_names_who_was_waited_for(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The warning before it had rank, node and line; so has the end."""
    said: list[str] = []
    followed, clock = follower(tmp_path, said=said, stop_on={"stalled_s": 60}), [time.monotonic()]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    at = time.time()
    for rank, node in enumerate("ab"):
        followed.record_event("worker_started", at, rank=rank, node=node, attempt=1, gang="g", world_size=2)
    followed.take_text("a", "metrics", json.dumps({"at": at + 0.1, "step": 1}) + "\n")
    assert followed._rule_outcome() is None
    place = ["main", "/job/train.py", 31]
    followed.record_event("rank_stands", at + 1, rank=0, node="a", attempt=1, since=at, operation="all_reduce")
    followed.record_event("rank_stands", at + 1, rank=1, node="b", attempt=1, since=at, place=place, frames=[place])
    followed._report()
    assert any("rank 1 on b stands at train.py:31 (main)" in line for line in said if line.startswith("warning")), said
    clock[0] += 61
    outcome = followed._rule_outcome()
    assert outcome is not None and (outcome.cause, outcome.node) == ("stalled", "b")
    assert "no step for 60 s (job.stop_on.stalled_s); the run hangs for" in outcome.detail
    assert "rank 1 on b stands at train.py:31 (main); rank 0 waits in all_reduce" in outcome.detail
