# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The search for a bad node, on simulated fleets: by halving, and by the rates of pairs."""

from __future__ import annotations

import itertools
import math
import typing as t

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.plugin_utils._fabric.bench import plan, suspects


def search(names: list[str], broken: t.Callable[[plan.Group], bool]) -> tuple[suspects.Suspects, int]:
    """Run the search against a simulated fleet; return what it found and the steps it took."""
    machine = suspects.bisect_nodes(names)
    steps = 0
    try:
        rounds = next(machine)
        while True:
            steps += 1
            for groups in rounds:
                flat = [name for group in groups for name in group]
                assert len(flat) == len(set(flat)) and all(len(group) > 1 for group in groups)
            rounds = machine.send({group: not broken(group) for groups in rounds for group in groups})
    except StopIteration as end:
        return end.value, steps


@given(st.integers(3, 64), st.integers(0, 63))
def test_bisection_names_the_bad_node_in_log2_steps(count: int, bad: int) -> None:
    names = [f"n{i:02}" for i in range(count)]
    culprit = names[bad % count]
    found, steps = search(names, lambda group: culprit in group)
    assert found == suspects.Suspects((culprit,))
    assert steps <= math.ceil(math.log2(count))


@given(st.integers(3, 64), st.sets(st.integers(0, 63), min_size=2, max_size=6))
def test_bisection_never_blames_a_healthy_node(count: int, bad: set[int]) -> None:
    names = [f"n{i:02}" for i in range(count)]
    culprits = {names[index % count] for index in bad}
    found, _ = search(names, lambda group: bool(culprits & set(group)))
    assert set(found.bad) <= culprits
    assert found.bad or found.undecided
    assert all(culprits & set(group) for group in found.undecided)


@given(st.integers(4, 64))
def test_a_bad_path_between_halves_is_no_bad_node(count: int) -> None:
    names = [f"n{i:02}" for i in range(count)]
    left = set(names[: math.ceil(count / 2)])
    found, steps = search(names, lambda group: bool(left & set(group)) and bool(set(group) - left))
    assert found.bad == () and steps == 1
    assert set(found.between[0][0]) == left


def test_three_nodes_with_one_bad_path_have_no_bad_node() -> None:
    found, _ = search(["a", "b", "c"], lambda group: {"a", "c"} <= set(group))
    assert found.bad == () and found.between


def test_missing_answers_count_as_failures_and_two_nodes_are_undecided() -> None:
    machine = suspects.bisect_nodes([f"n{i}" for i in range(8)])
    next(machine)
    with pytest.raises(StopIteration) as end:
        while True:
            machine.send({})
    assert end.value.value.bad == () and end.value.value.undecided
    with pytest.raises(StopIteration) as end:
        next(suspects.bisect_nodes(["b", "a"]))
    assert end.value.value == suspects.Suspects(undecided=(("a", "b"),))


@given(st.integers(3, 8), st.integers(0, 7), st.floats(0.01, 400), st.booleans())
def test_pairs_name_the_bad_node(count: int, bad: int, speed: float, expected: bool) -> None:
    names = [f"n{i}" for i in range(count)]
    culprit = names[bad % count]
    busbw = {pair: speed * (0.5 if culprit in pair else 1.0) for pair in itertools.combinations(names, 2)}
    if not expected and count == 3:
        return
    assert suspects.find_suspects_of_pairs(busbw, speed if expected else None).bad == (culprit,)


def test_one_slow_pair_is_a_path_and_a_dead_node_is_bad() -> None:
    pairs = dict.fromkeys(itertools.combinations("abcd", 2), 10.0)
    assert suspects.find_suspects_of_pairs(pairs) == suspects.Suspects()
    assert suspects.find_suspects_of_pairs({**pairs, ("a", "c"): 2.0}) == suspects.Suspects(between=((("a",), ("c",)),))
    dead = {pair: None if "b" in pair else value for pair, value in pairs.items()}
    assert suspects.find_suspects_of_pairs(dead).bad == ("b",)
    assert suspects.find_suspects_of_pairs({}) == suspects.Suspects()
    # With three bad nodes of four, the last pair cannot tell which of its two is bad.
    most = {pair: 10.0 if "d" not in pair else 1.0 for pair in pairs}
    assert suspects.find_suspects_of_pairs(dict.fromkeys(most, 1.0), 10.0).between == ((("c",), ("d",)),)
