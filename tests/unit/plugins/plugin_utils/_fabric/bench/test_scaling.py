# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How training scales: efficiency, the split of the loss, negative scaling, stragglers, and documents of any kind."""

from __future__ import annotations

import typing as t

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError
from ansible_collections.muster.training.plugins.plugin_utils._fabric.bench import scaling as subject

SECONDS = st.floats(0, 10)


def document(nodes: int, step_s: float, per_node: int = 1, batch: int = 100, **parts: t.Any) -> dict[str, t.Any]:
    """Return what the bench would write; ``slow`` is a rank that computes twice as long."""
    slow = parts.pop("slow", None)
    times = {"input_s": 0.0, "compute_s": 0.1, "straggler_s": 0.0, "communication_s": 0.0, **parts}
    ranks = nodes * per_node
    rows = []
    for rank in range(ranks):
        compute = times["compute_s"] * (2 if rank == slow else 1)
        own = {**times, "compute_s": compute}
        rows.append({"rank": rank, "node": f"node-{rank // per_node}", "uid": 1000, "step_s": step_s, **own})
    rate = ranks * batch / step_s
    whole = {"schema": 1, "device": "cpu", "step_s": step_s, "samples_per_s": rate, "per_rank": rows}
    return {**whole, "batch_per_rank": batch, "steps": 10, "ranks": ranks, "nodes": nodes, **times}


def points(*items: dict[str, t.Any]) -> list[subject.ScalingPoint]:
    return [subject.read_point(item) for item in items]


@given(st.lists(SECONDS, min_size=8, max_size=8), st.floats(0.001, 10), st.floats(0.001, 10))
def test_the_parts_add_up_to_the_loss(values: list[float], before: float, after: float) -> None:
    keys = ("input_s", "compute_s", "straggler_s", "communication_s")
    first: dict[str, t.Any] = dict(zip(keys, values[:4], strict=True))
    second: dict[str, t.Any] = dict(zip(keys, values[4:], strict=True))
    base, now = points(document(1, before, **first), document(2, after, **second))
    assert sum(subject.step_loss(base, now).values()) == pytest.approx(after - before, abs=1e-5)


def test_nodes_are_counted_from_what_ranks_told() -> None:
    told = document(4, 0.1)
    told["per_rank"] = told["per_rank"][:3]
    assert (subject.read_point(told).nodes, subject.read_point(told).ranks) == (3, 3)


@pytest.mark.parametrize(
    ("most", "sizes"), [(1, [1]), (2, [1, 2]), (3, [1, 2, 3]), (8, [1, 2, 4, 8]), (12, [1, 2, 4, 8, 12])]
)
def test_sizes(most: int, sizes: list[int]) -> None:
    assert subject.node_counts(most) == sizes


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*document(1, 1.0), "x"]), inner),
    max_leaves=8,
)


@given(JSON)
def test_a_document_of_any_kind_is_a_point_or_an_error_of_one_line(value: t.Any) -> None:
    try:
        found = subject.read_point(value)
    except InputError as error:
        assert "\n" not in str(error)
    else:
        assert found.step_s > 0
