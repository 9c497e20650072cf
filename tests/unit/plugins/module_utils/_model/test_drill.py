# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Drills: what may be asked, when it is due, and what counts as a proof of the resume."""

from __future__ import annotations

import typing as t

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.module_utils._model import drill as drills
from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError
from ansible_collections.muster.training.plugins.module_utils._model.run_history import RunHistory

NODES = ("a", "b")
FAULT = 100.0


def told(before: range, after: range | None, resumed_from: int | None, ranks: int = 4) -> RunHistory:
    """Return a run of four ranks with a fault at 100 s; a step a second, the new attempt's first step at 110 s."""
    story = RunHistory()
    for rank in range(4):
        story.event({"kind": "worker_started", "attempt": 1, "rank": rank, "node": NODES[rank // 2], "at": 10.0})
    for step in before:
        story.metric({"at": 20.0 + step, "step": step})
    story.event({"kind": "drill", "at": FAULT, "node": "b"})
    if after is None:
        return story
    for rank in range(ranks):
        story.event({"kind": "worker_started", "attempt": 2, "rank": rank, "node": NODES[rank // 2], "at": 105.0})
    if resumed_from is not None:
        story.metric({"at": 106.0, "resumed_from_step": resumed_from})
    for index, step in enumerate(after):
        story.metric({"at": 110.0 + index, "step": step})
    return story


def test_a_step_counter_that_continues_a_recent_checkpoint_is_the_proof() -> None:
    assert drills.verdict(told(range(1, 58), range(51, 60), 50), FAULT, 10, 4) == {
        "resumed": True,
        "steps_lost": 7,
        "seconds_to_resume": 10.0,
        "world_size": 4,
        "problem": "",
    }


@pytest.mark.parametrize(
    ("after", "resumed_from", "ranks", "interval", "problem"),
    [
        (None, None, 4, 10, "no step was seen after the fault"),
        (range(0), 50, 4, 10, "no step was seen after the fault"),
        (range(51, 60), None, 4, 10, "step 51 does not continue the checkpoint of step None"),
        (range(58, 60), 50, 4, 10, "step 58 does not continue the checkpoint of step 50"),
        (range(49, 60), 50, 4, 10, "step 49 does not continue the checkpoint of step 50"),
        (range(1, 60), 0, 4, 10, "the run began again at step 0"),
        (range(1, 60), 0, 4, None, "the run began again at step 0"),
        (range(41, 60), 40, 4, 10, "17 steps were lost, the checkpoint interval is 10"),
        (range(51, 60), 50, 3, 10, "3 of 4 ranks came back"),
    ],
)
def test_what_is_no_proof(
    after: range | None, resumed_from: int | None, ranks: int, interval: int | None, problem: str
) -> None:
    found = drills.verdict(told(range(1, 58), after, resumed_from, ranks), FAULT, interval, 4)
    assert (found["resumed"], found["problem"]) == (False, problem)


def test_a_fault_before_the_first_checkpoint_may_begin_again() -> None:
    found = drills.verdict(told(range(1, 6), range(1, 9), 0), FAULT, 10, 4)
    assert found["resumed"] and found["steps_lost"] == 5


def test_a_fault_before_the_first_step_proves_nothing() -> None:
    assert drills.verdict(told(range(0), range(1, 9), 0), FAULT, 10, 4)["resumed"] is False


STORIES = st.builds(
    told,
    st.integers(0, 60).map(lambda last: range(1, last + 1)),
    st.none() | st.tuples(st.integers(0, 80), st.integers(0, 5)).map(lambda pair: range(pair[0], sum(pair))),
    st.none() | st.integers(0, 80),
    st.integers(0, 4),
)


@given(story=STORIES, interval=st.none() | st.integers(1, 20))
def test_a_verdict_is_a_pass_only_with_all_of_the_proof(story: RunHistory, interval: int | None) -> None:
    found = drills.verdict(story, FAULT, interval, 4)
    assert found["resumed"] is (not found["problem"])
    if found["resumed"]:
        old, new = story.attempts[0], story.attempts[-1]
        assert new.resumed_from is not None and new.first_step is not None and old.last_step is not None
        assert new.first_step - new.resumed_from in (0, 1) and len(new.ranks) == 4
        assert interval is None or old.last_step - new.resumed_from <= interval


@pytest.mark.parametrize(
    ("value", "node", "rank"),
    [
        ({"at_step": 5}, "b", 3),
        ({"at_step": 5, "rank": 1}, "a", 1),
        ({"after_s": 0.5, "target": "host", "node": "a"}, "a", None),
    ],
)
def test_node_and_rank_are_resolved(value: dict[str, t.Any], node: str, rank: int | None) -> None:
    drill = drills.parse(value, 4, NODES, 2)
    assert (drill.node, drill.rank) == (node, rank)


@pytest.mark.parametrize(
    ("value", "option"),
    [
        ({}, "drill.at_step"),
        ({"at_step": 1, "after_s": 1}, "drill.at_step"),
        ({"at_step": 1, "rank": 4}, "drill.rank"),
        ({"at_step": 1, "node": "c"}, "drill.node"),
        ({"at_step": 1, "target": "disk"}, "drill.target"),
        ("worker", "drill"),
    ],
)
def test_a_drill_that_cannot_be_is_refused(value: t.Any, option: str) -> None:
    with pytest.raises(InputError) as caught:
        drills.parse(value, 4, NODES, 2)
    assert caught.value.option == option


def test_a_drill_is_due_at_its_step_or_after_its_time() -> None:
    story = told(range(1, 6), None, None)
    by_step = drills.Drill(at_step=5)
    assert not drills.due(drills.Drill(at_step=6), story, 0.0) and drills.due(by_step, story, 0.0)
    assert not drills.due(by_step, RunHistory(), 1e9)
    by_time = drills.Drill(after_s=3.0)
    assert not drills.due(by_time, RunHistory(), 1e9)
    assert not drills.due(by_time, story, 23.9) and drills.due(by_time, story, 24.0)


def test_a_worker_drill_with_only_a_node_kills_a_rank_of_that_node() -> None:
    drill = drills.parse({"at_step": 1, "target": "worker", "node": "a"}, 4, NODES, 2)
    assert drill.rank in (None, 0, 1)
