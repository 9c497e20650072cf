# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ranks that begin at different steps after a restart: named with the first step that shows it, and never by mistake."""

from __future__ import annotations

import typing as t

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.module_utils._model import begun_steps
from ansible_collections.muster.training.plugins.module_utils._model.begun_steps import BegunSteps, find_uneven

TOGETHER = {"a": 1, "b": 1}


@pytest.mark.parametrize(
    ("now", "before", "spacing", "behind"),
    [
        ({"a": 101, "b": 1}, [TOGETHER], 1, ["b"]),
        ({"a": 110, "b": 10}, [{"a": 10, "b": 10}], 10, ["b"]),
        ({"a": 101, "b": 51, "c": 101}, [{"a": 1, "b": 1, "c": 1}], 1, ["b"]),
        # They count the same, nearly: a line that is printed now and then.
        ({"a": 101, "b": 101}, [TOGETHER], 1, None),
        ({"a": 110, "b": 103}, [{"a": 10, "b": 3}], 7, None),
        # Not known: one node says nothing, or each has always counted its own steps.
        ({"a": 101}, [TOGETHER], 1, None),
        ({"a": 101, "b": 1}, [], 1, None),
        ({"a": 101, "b": 1}, [{"a": 50, "b": 1}], 1, None),
        ({"a": 101, "b": 1}, [{"a": 1}], 1, None),
        ({}, [], 1, None),
    ],
)
def test_nodes_behind(
    now: dict[str, int], before: list[dict[str, int]], spacing: int, behind: list[str] | None
) -> None:
    found = find_uneven(now, before, spacing)
    assert (list(found.behind) if found else None) == behind


@given(st.dictionaries(st.sampled_from("abcd"), st.integers(0, 1000)), st.integers(0, 50))
def test_nodes_of_one_step_are_never_uneven(steps: dict[str, int], spacing: int) -> None:
    same = dict.fromkeys(steps, 7)
    assert find_uneven(same, [same], spacing) is None
    found = find_uneven(steps, [same], spacing)
    assert found is None or max(found.behind.values()) < min(found.ahead.values())


class Run:
    """Two nodes, the clock of ``b`` half an hour ahead."""

    def __init__(self) -> None:
        self.begun, self.clock = BegunSteps(), {"a": 1000.0, "b": 2800.0}

    def start(self, gang: str, *nodes: str) -> None:
        for node in nodes or ("a", "b"):
            self.clock[node] += 1
            self.begun.event({"at": self.clock[node], "kind": "worker_started", "node": node, "gang": gang})

    def step(self, node: str, step: int) -> list[t.Mapping[str, t.Any]]:
        self.clock[node] += 1
        self.begun.step(node, {"at": self.clock[node], "step": step})
        return self.begun.take_news()

    def resumed(self, node: str, step: int, **more: t.Any) -> None:
        self.clock[node] += 1
        self.begun.step(node, {"at": self.clock[node], "resumed_from_step": step, **more})

    def seen(self, gang: str, **names: str | None) -> None:
        for node, name in names.items():
            line = {"kind": "checkpoints_seen", "gang": gang, "node": node, "detail": name, "folder": "/ckpt"}
            self.begun.event(line)


def restarted(run: Run) -> None:
    run.start("1/x")
    for step in range(1, 105):
        assert len(run.step("a", step)) == (step == 1)
        run.step("b", step)
    assert run.begun.find_problem("1/x") is None
    run.start("1/y")


@pytest.mark.parametrize(
    ("a", "b", "words"),
    [
        ("c_100.pt", None, "b has no checkpoint in /ckpt, a has c_100.pt"),
        ("c_100.pt", "c_50.pt", "b has c_50.pt, a has c_100.pt"),
        (None, None, "neither has a checkpoint in /ckpt, the program saves elsewhere"),
    ],
)
def test_the_first_step_of_the_second_node_says_it(a: str | None, b: str | None, words: str) -> None:
    run = Run()
    restarted(run)
    run.seen("1/y", a=a, b=b)
    run.step("a", 101)
    assert run.begun.find_problem("1/y") is None
    run.step("b", 1)
    assert run.begun.find_problem("1/y") == (f"a began at step 101, b at step 1: {words}", "b")


def test_what_a_pod_saw_before_it_knew_its_gang_is_of_its_newest_start() -> None:
    run = Run()
    restarted(run)
    for name in ("c_50.pt", "c_100.pt"):
        run.begun.event({"kind": "pod_ready", "node": "a", "detail": name, "folder": "/local"})
    run.begun.event({"kind": "pod_ready", "node": "b", "detail": None, "folder": "/local"})
    run.step("a", 101)
    run.step("b", 1)
    words = "a began at step 101, b at step 1: b has no checkpoint in /local, a has c_100.pt"
    assert run.begun.find_problem("1/y") == (words, "b")


def test_steps_are_read_before_the_event_that_their_rank_started() -> None:
    run = Run()
    restarted(run)
    run.begun = BegunSteps()
    run.begun.event({"at": 1.0, "kind": "worker_started", "node": "b", "gang": "1/x"})
    run.begun.step("b", {"at": 3000.0, "step": 5})
    assert [line["step"] for line in run.begun.take_news()] == [5]
    run.begun.step("b", {"at": 4000.5, "step": 1})
    run.begun.step("b", {"at": 4001.0, "step": 2})
    run.begun.event({"at": 4000.0, "kind": "worker_started", "node": "b", "gang": "1/y"})
    assert [(line["gang"], line["step"]) for line in run.begun.take_news()] == [("1/y", 1)]


def test_a_later_controller_knows_it_from_the_events() -> None:
    run = Run()
    restarted(run)
    kept = [{"kind": begun_steps.EVENT, "node": node, "gang": "1/x", "step": 1} for node in "ab"]
    later = Run()
    for line in kept:
        later.begun.event(line)
    later.start("2/z")
    later.step("a", 105)
    later.step("b", 1)
    assert later.begun.find_problem("2/z") == ("a began at step 105, b at step 1", "b")


def test_lines_without_a_step_or_a_time_say_nothing() -> None:
    begun = BegunSteps()
    for line in ({"step": 1}, {"at": 1.0}, {"at": "x", "step": 1}, {"at": 1.0, "step": "1"}):
        begun.step("a", line)
    begun.event({"kind": "worker_started", "node": "a"})
    assert begun.take_news() == [] and begun.find_problem("") is None


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        ([("a", 60, 0), ("b", 80, 1)], ("rank 1 on b resumed from step 80, rank 0 on a from step 60", "a")),
        ([("b", 80, 1), ("a", 60, 0)], ("rank 1 on b resumed from step 80, rank 0 on a from step 60", "a")),
        ([("a", 80, None), ("b", 0, None)], ("a resumed from step 80, b from step 0", "b")),
        ([("a", 80, 0), ("a", 60, 1)], ("rank 0 on a resumed from step 80, rank 1 on a from step 60", "a")),
        # One that loads and sends it to the others; one that says it twice, or goes back later; ranks without a name.
        ([("a", 80, 0)], None),
        ([("a", 80, 0), ("b", 80, 1), ("a", 120, 0), ("b", 60, 1)], None),
        ([("a", 80, None), ("a", 0, None), ("b", 80, None)], None),
    ],
)
def test_what_ranks_say_that_they_loaded_is_compared(
    said: list[tuple[str, int, int | None]], problem: tuple[str, str] | None
) -> None:
    """Only what is printed after each node's own start, by its own clock; also before any step, and with no other one."""
    run = Run()
    run.start("1/x")
    run.resumed("a", 0, rank=0)
    run.start("1/y")
    for node, step, rank in said:
        run.resumed(node, step, printed=True, **({} if rank is None else {"rank": rank}))
    assert run.begun.find_problem("1/y") == problem


def test_a_resume_is_compared_with_its_own_kind_and_says_what_the_nodes_had() -> None:
    """An epoch that is printed is no step that another rank reports."""
    run = Run()
    run.start("1/x")
    run.resumed("a", 80)
    run.resumed("b", 3, printed=True)
    assert run.begun.find_problem("1/x") is None
    run.seen("1/x", a="c_80.pt", b="c_60.pt")
    run.resumed("b", 60)
    words = "a resumed from step 80, b from step 60: b has c_60.pt, a has c_80.pt"
    assert run.begun.find_problem("1/x") == (words, "b")
