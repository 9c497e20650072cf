# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which checkpoints of a run are stored, by the events of its nodes; what is said of those that are not."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.run_history import fold
from ansible_collections.muster.training.plugins.module_utils._model.stored_checkpoints import (
    StoredCheckpoint,
    StoreProblem,
    describe_unstored,
)

Line = dict[str, t.Any]
STARTED = [
    {"at": 1.0, "kind": "worker_started", "rank": rank, "node": node, "attempt": 1, "gang": "g", "world_size": 2}
    for rank, node in enumerate("ab")
]


def stored(at: float, step: int | None, node: str = "a") -> Line:
    return {"at": at, "kind": "checkpoint_stored", "node": node, "checkpoint_step": step, "detail": f"w-{step}.pt"}


def failed(at: float, step: int, node: str = "a", **more: t.Any) -> Line:
    detail = f"w-{step}.pt: the object store answered 500."
    return {"at": at, "kind": "checkpoint_not_stored", "node": node, "checkpoint_step": step, "detail": detail, **more}


def said(*events: Line, saved: int | None = 250, ended: bool = True) -> str:
    metrics = [{"at": 2.0, "checkpoint_step": saved, "path": "/c"}] if saved is not None else []
    return fold([*STARTED, *events], metrics).describe_unstored("small", ended)


FULL = "checkpoint 250 is not stored in small, the newest that is has step 30"
WHY = " (w-40.pt: the object store answered 500)"


@pytest.mark.parametrize(
    ("events", "live", "ended"),
    [
        ([stored(3, 250)], "", ""),
        # It is on its way while the run is running.
        ([stored(3, 30)], "", FULL),
        ([stored(3, 30), failed(4, 40)], FULL + WHY, FULL + WHY),
        ([failed(3, 40), stored(4, 250)], "", ""),
        ([], "", "checkpoint 250 is not stored in small, none of the run is"),
        ([failed(3, 40)], f"checkpoint 250 is not stored in small, none of the run is{WHY}", ...),
        # Each node stores its part: what all have counts.
        ([stored(3, 250), stored(3, 30, "b")], "", FULL),
        ([stored(3, 250), stored(3, 250, "b")], "", ""),
        # A rank that prints what another one saves has nothing to store.
        ([stored(3, 250), failed(4, 250, "b", missing=True)], "", ""),
        ([failed(4, 250, "b", missing=True), stored(5, 240)], ..., ...),
        # A node of an attempt before says nothing of this one.
        ([stored(3, 30, "gone"), stored(4, 250)], "", ""),
        # Without a step it cannot be compared.
        ([stored(3, None)], "", ""),
    ],
)
def test_what_is_said_of_a_run(events: list[Line], live: t.Any, ended: t.Any) -> None:
    for expected, is_over in ((live, False), (ended, True)):
        if expected is ...:
            assert said(*events, ended=is_over)
        else:
            assert said(*events, ended=is_over) == expected


def test_a_rank_whose_next_pod_is_on_another_node_stores_on() -> None:
    first = {**stored(3, 10, "a"), "rank": 0}
    assert said(first, {**stored(9, 250, "b"), "rank": 0}) == ""
    # By nodes alone, both have to have it.
    assert said(stored(3, 10, "a"), stored(9, 250, "b")).endswith("the newest that is has step 10")
    assert said({**stored(9, 250), "rank": 0}, {**stored(9, 30), "rank": 1}) == FULL


def test_a_run_that_saved_nothing_has_nothing_to_store() -> None:
    assert said(saved=None) == ""
    lost = said({**failed(3, 1), "checkpoint_step": None}, saved=None)
    assert lost.startswith("checkpoints are not stored in small, none of the run is (")


def test_a_name_stands_for_a_step_that_is_not_known() -> None:
    problem = StoreProblem(1.0, None, "no answer")
    found = describe_unstored("s", 9, StoredCheckpoint(1.0, None, "last.pt"), problem)
    assert found == "checkpoints are not stored in s, the newest that is has the name last.pt (no answer)"


@pytest.mark.parametrize(
    ("names", "step"),
    [
        (("step-250.pt", "step-250.pt"), 250),
        (("step-250.pt", "step-200.pt"), 200),
        (("step-250-rank0.pt", "step-240-rank1.pt"), 240),
        # Its name tells nothing.
        (("step-250.pt", "part.pt"), 250),
    ],
)
def test_the_part_of_a_node_that_reports_nothing_has_the_step_of_its_name(names: tuple[str, str], step: int) -> None:
    own = {"at": 3.0, "kind": "checkpoint_stored", "node": "a", "checkpoint_step": 250, "detail": names[0]}
    other = {"at": 4.0, "kind": "checkpoint_stored", "node": "b", "checkpoint_step": None, "detail": names[1]}
    for events in ([own, other], [other, own]):
        newest = fold([*STARTED, *events], []).newest_stored()
        assert newest is not None and newest.step == step
