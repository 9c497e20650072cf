# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A run's account against what an injector did: it writes the truth down by itself, and the events as nodes would."""

from __future__ import annotations

import collections
import random
import time
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model import account
from ansible_collections.muster.training.plugins.module_utils._model.run_history import RunHistory, fold

Line = dict[str, t.Any]
STEP_S = 0.8
KINDS = ("queue", "hang", "unseen", "slow", "crash", "lost", "saves")


class Injector:
    """A run of two ranks on two nodes that is played in no time; ``truth`` are seconds by what they went to."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.begun = self.now = time.time() - 86400.0
        self.truth: collections.Counter[str] = collections.Counter()
        self.events: list[Line] = []
        self.metrics: list[Line] = []
        self.attempt, self.step, self.saved, self.furthest = 0, 0, 0, 0
        self.admitted: float | None = None

    def spend(self, what: str, seconds: float) -> None:
        self.truth[what] += seconds
        self.now += seconds

    def tell(self, kind: str, **values: t.Any) -> None:
        self.events.append({"at": self.now, "kind": kind, **values})

    def submit(self) -> None:
        self.tell("submitted", attempt=self.attempt + 1, nodes=[{"id": "a"}, {"id": "b"}])
        self.spend("stage", self.random.uniform(5, 60))

    def begin(self, what: str = "start") -> None:
        """Start the ranks and make the first step."""
        self.attempt += 1
        self.step = self.saved
        for rank, node in enumerate("ab"):
            self.tell(
                "worker_started", rank=rank, node=node, attempt=self.attempt, gang=f"g{self.attempt}", world_size=2
            )
        self.spend(what, self.random.uniform(5, 40))

    def train(self, steps: int, save_every: int = 0, save_s: float = 0.0) -> None:
        for _ in range(steps):
            self.one_step()
            if save_every and self.step % save_every == 0:
                self.save(save_s)

    def one_step(self, more_s: float = 0.0, what: str = "slow") -> None:
        self.spend(what, more_s)
        self.step += 1
        self.spend("redone" if self.step <= self.furthest else "useful", STEP_S * self.random.uniform(0.95, 1.05))
        self.furthest = max(self.furthest, self.step)
        self.metrics.append({"at": self.now, "step": self.step, "loss": 1.0})

    def save(self, seconds: float) -> None:
        self.spend("checkpoint", seconds)
        self.saved = self.step
        self.metrics.append({"at": self.now, "checkpoint_step": self.step, "path": "/c"})

    def hang(self, seconds: float, *, is_seen: bool) -> None:
        since = self.now
        self.spend("hang", seconds)
        if is_seen:
            self.events.append(
                {"at": since + 9.0, "kind": "hang", "attempt": self.attempt, "since": since, "detail": "rank 1"}
            )
            self.tell("hang_over", attempt=self.attempt)

    def crash(self, detect_s: float = 0.0, *, is_lost: bool = False) -> None:
        self.spend("detect", detect_s)
        if is_lost:
            self.tell("node_lost", node="b")
        else:
            self.tell("worker_exit", rank=1, node="b", exit_code=1, attempt=self.attempt, gang=f"g{self.attempt}")
        self.spend("restart", self.random.uniform(2, 30))
        self.begin("restart")

    def finish(self) -> None:
        for rank, node in enumerate("ab"):
            self.tell("worker_exit", rank=rank, node=node, exit_code=0, attempt=self.attempt, gang=f"g{self.attempt}")
        self.spend("stop", self.random.uniform(1, 20))
        self.tell("ended", detail="succeeded")

    def history(self) -> RunHistory:
        return fold(self.events, self.metrics)

    def spans(self) -> list[account.Span]:
        return account.build_spans(self.history(), account.AccountTimes(self.begun, self.admitted, self.now))


def play(seed: int) -> Injector:
    """Return a run with a schedule of its own: every seed has other faults."""
    run = Injector(seed)
    kinds = [name for bit, name in enumerate(KINDS) if seed >> bit & 1]
    if "queue" in kinds:
        run.spend("queue", 200.0)
        run.admitted = run.now
    run.submit()
    run.begin()
    run.train(200, 40, 4.0 if "saves" in kinds else 0.0)
    for kind in kinds:
        if kind == "hang":
            run.hang(60.0, is_seen=True)
        elif kind == "unseen":
            run.hang(90.0, is_seen=False)
        elif kind == "slow":
            for _ in range(40):
                run.one_step(STEP_S)
        elif kind == "crash":
            run.crash(0.3)
        elif kind == "lost":
            run.crash(45.0, is_lost=True)
        run.train(120, 40, 4.0 if "saves" in kinds else 0.0)
    run.finish()
    if seed % 3 == 0:
        run.spend("idle", 500.0)
        run.submit()
        run.begin()
        run.train(150)
        run.finish()
    return run


@pytest.mark.parametrize("seed", range(1, 127, 6))
def test_each_bucket_is_what_was_done(seed: int) -> None:
    run = play(seed)
    spans, wall = run.spans(), run.now - run.begun
    found = account.sum_seconds(spans)
    assert sum(found.values()) == pytest.approx(wall, abs=1e-3) == sum(run.truth.values())
    assert [span.start for span in spans[1:]] == [span.end for span in spans[:-1]]
    points = {name: 100 * (found.get(name, 0.0) - run.truth.get(name, 0.0)) / wall for name in account.BUCKETS}
    assert all(abs(value) <= 2 for value in points.values()), (points, dict(run.truth))
    assert found.get("unknown", 0.0) <= 0.02 * wall


def test_lines_in_any_order_and_a_follower_that_came_late_give_the_same_account() -> None:
    run = play(31)
    expected = run.spans()
    assert len({span.bucket for span in expected}) >= 7
    # The second node is read first, and all of the metrics before the starts that they belong to.
    run.events.sort(key=lambda line: (line["attempt"] if "rank" in line else 0, str(line.get("node"))), reverse=True)
    run.events.sort(key=lambda line: round(line["at"]))
    history = RunHistory()
    for line in run.metrics[:300]:
        history.metric(line)
    for line in run.events:
        history.event(line)
    for line in run.metrics[300:]:
        history.metric(line)
    again = account.build_spans(history, account.AccountTimes(run.begun, run.admitted, run.now))
    assert account.sum_seconds(again) == pytest.approx(account.sum_seconds(expected))


def test_a_program_whose_steps_are_not_read_is_not_known() -> None:
    run = Injector(1)
    run.submit()
    run.begin()
    run.spend("unknown", 100.0)
    run.finish()
    found = account.sum_seconds(run.spans())
    assert found["unknown"] > 100.0 and set(found) == {"stage", "unknown"}


def test_no_share_is_said_of_a_run_of_which_no_step_is_known() -> None:
    """Half of a minute's time is known, and it would be read as a run of which nothing was useful."""
    unread = {"stage": 40.0, "unknown": 20.0}
    assert account.useful_share(unread) is None and account.useful_share_of_machines(unread) is None
    assert account.describe(unread, None) == ""
    assert account.useful_share({"stage": 40.0, "unknown": 20.0, "useful": 60.0}) == 0.5
    assert account.useful_share({"stage": 40.0}) == 0.0, "it ended before its ranks began"


def test_steps_that_were_read_after_the_fact_are_not_known_and_no_others() -> None:
    """Sixty steps have the time of one reading, as after a supervisor was away; what comes before and after counts."""
    run = Injector(5)
    run.submit()
    run.begin()
    run.train(100)
    begun = run.now
    run.train(60)
    for line in run.metrics[-60:]:
        line |= {"at": run.now, "late_s": run.now - begun}
    run.train(100)
    run.finish()
    history, spans = run.history(), run.spans()
    found = account.sum_seconds(spans)
    assert found["unknown"] == pytest.approx(60 * STEP_S, rel=0.05)
    assert found["useful"] == pytest.approx(200 * STEP_S, rel=0.05) and "slow" not in found and "hang" not in found
    assert history.steps_read["problem"] == (
        "when steps 101 to 160 were made is not known: what was printed was read up to 48 s later"
    )
    pace = history.pace_meter.read()
    assert pace is not None and pace.step_s == pytest.approx(STEP_S, rel=0.05) and pace.longest_s < 1.0
    assert "late_s" not in history.last


def test_a_restart_of_which_the_first_step_was_read_late_cost_seconds_that_are_not_known() -> None:
    run = Injector(6)
    run.submit()
    run.begin()
    run.train(40, 20)
    run.crash()
    begun, number = run.now, len(run.metrics)
    run.train(30)
    assert run.history().losses()[1] is not None
    for line in run.metrics[number:]:
        line |= {"at": run.now, "late_s": run.now - begun}
    assert run.history().losses() == (0, None) and run.history().startup_s is not None


def test_steps_that_were_read_together_share_their_time() -> None:
    """A program of 20 steps a second, of which ten are read at a time: none of them is slow."""
    run = Injector(7)
    run.submit()
    run.begin()
    begun = run.now
    for step in range(1, 401):
        run.spend("useful", 0.05)
        at = begun + (step + 9) // 10 * 0.5
        run.metrics.append({"at": at, "step": step})
    run.finish()
    found = account.sum_seconds(run.spans())
    assert "slow" not in found and found["useful"] == pytest.approx(20.0, abs=1.5)


def test_a_program_that_validates_again_and_again_does_not_hang() -> None:
    run = Injector(2)
    run.submit()
    run.begin()
    for _ in range(4):
        run.train(100)
        run.one_step(60.0)
    run.finish()
    assert "hang" not in account.sum_seconds(run.spans())


def test_a_run_that_is_running_is_accounted_for_until_now() -> None:
    run = Injector(3)
    run.submit()
    run.begin()
    run.train(100)

    def read(after_s: float, history: RunHistory | None = None) -> list[account.Span]:
        clock = account.AccountTimes(run.begun, None, run.now + after_s, is_over=False)
        return account.build_spans(history or run.history(), clock)

    spans = read(STEP_S)
    assert spans[-1].bucket == "useful" and spans[-1].end == run.now + STEP_S
    # A step that takes longer may be a save, or the first seconds of a hang.
    spans = read(10.0)
    assert spans[-1].bucket == "unknown" and spans[-1].end - spans[-1].start == pytest.approx(
        10 - 1.25 * STEP_S, abs=0.1
    )
    assert read(600.0)[-1].bucket == "hang"
    hanging = run.history()
    hanging.event({"kind": "hang", "at": run.now + 9.0, "since": run.now + 0.5, "detail": "rank 1"})
    spans = read(10.0, hanging)
    assert spans[-1].bucket == "hang" and spans[-1].start == pytest.approx(run.now, abs=STEP_S)


def test_a_run_that_is_continued_waits_in_its_queue_after_it_had_ended() -> None:
    """The record has when the last start was admitted: what was before it is not all queue."""
    run = Injector(4)
    run.submit()
    run.begin()
    run.train(100)
    run.finish()
    run.spend("idle", 300.0)
    run.tell("submitted", attempt=2, nodes=[{"id": "a"}, {"id": "b"}])
    run.spend("queue", 120.0)
    run.admitted = run.now
    run.spend("stage", 20.0)
    run.begin()
    run.train(100)
    run.finish()
    found = account.sum_seconds(run.spans())
    assert found["queue"] == pytest.approx(120.0) and found["idle"] == pytest.approx(300.0)
    assert found["useful"] == pytest.approx(run.truth["useful"], rel=0.05)


def test_dollars_go_where_the_seconds_of_held_nodes_go() -> None:
    spans = [
        account.Span(0.0, 3600.0, "stage"),
        account.Span(3600.0, 10800.0, "useful"),
        account.Span(10800.0, 12600.0, "stop"),
    ]
    # The second node came after half an hour and left at three hours.
    held = [(2.0, [(0.0, 12600.0)]), (4.0, [(1800.0, 10800.0)])]
    found = account.sum_usd(spans, held)
    assert found == pytest.approx({"stage": 2.0 + 2.0, "useful": 4.0 + 8.0, "stop": 1.0})
    assert sum(found.values()) == pytest.approx(
        sum(price * sum(b - a for a, b in stays) / 3600 for price, stays in held)
    )


def test_the_line_says_shares_and_money_and_leaves_out_what_is_nothing() -> None:
    seconds = {"useful": 830.0, "restart": 100.0, "start": 65.0, "stop": 5.0}
    line = account.describe(seconds, {"useful": 8.3, "restart": 1.0, "start": 0.65, "stop": 0.05})
    assert line == "useful 83 % of 17 min and $8.30 of $10.00, restart 10 %, start 6 %"
    assert account.describe(seconds, None) == "useful 83 % of 17 min, restart 10 %, start 6 %"
    assert account.describe({}, None) == "" == account.describe({"stage": 2.0, "unknown": 90.0}, None)
