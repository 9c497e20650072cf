# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which checkpoint a gang continues from: the newest that all have, fetched where a copy is missing or torn."""

from __future__ import annotations

import typing as t

from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.module_utils._node.checkpoint_choice import (
    CheckpointChoice,
    NodeCheckpoints,
    choose_checkpoints,
)


def node(local: t.Mapping[int, bool], stored: t.Iterable[int]) -> NodeCheckpoints:
    """Return a node with local copies (step -> whether it is whole) and stored ones."""
    here = tuple({"name": f"s{step}", "saved_at": step, "ok": ok} for step, ok in local.items())
    return NodeCheckpoints(here, tuple({"name": f"s{step}", "saved_at": step, "slot": step} for step in stored))


def choose(excluded: t.Collection[int] = (), **nodes: NodeCheckpoints) -> dict[str, CheckpointChoice]:
    return choose_checkpoints(nodes, {(f"s{step}", step) for step in excluded})


def brief(choice: CheckpointChoice) -> tuple[str | None, bool, tuple[str, ...]]:
    return choice.name, choice.fetch is not None, choice.aside


def test_a_whole_local_copy_is_used_and_a_missing_older_or_torn_one_is_fetched() -> None:
    assert brief(choose(a=node({3: True}, [2, 3]))["a"]) == ("s3", False, ())
    assert brief(choose(a=node({}, [2, 3]))["a"]) == ("s3", True, ())
    assert brief(choose(a=node({2: True}, [3]))["a"]) == ("s3", True, ())
    assert brief(choose(a=node({3: False}, [2, 3]))["a"]) == ("s3", True, ())
    assert brief(choose(a=node({4: True}, [2, 3]))["a"]) == ("s4", False, ())
    assert brief(choose(a=node({}, []))["a"]) == (None, False, ())


def test_a_damaged_stored_copy_is_passed_over_and_its_torn_twin_is_hidden() -> None:
    found = node({3: False}, [2, 3])
    assert brief(choose([3], a=found)["a"]) == ("s2", True, ("s3",))
    assert brief(choose([2, 3], a=found)["a"]) == (None, False, ("s3",))


def test_all_nodes_continue_from_what_every_node_has() -> None:
    found = choose(a=node({}, [3, 4]), b=node({4: True, 5: True}, [3, 4]), c=node({}, []))
    assert {name: brief(choice) for name, choice in found.items()} == {
        "a": ("s4", True, ()),
        "b": ("s4", False, ("s5",)),
        "c": (None, False, ()),
    }
    assert {name: choice.name for name, choice in choose(a=node({}, [3]), b=node({}, [5])).items()} == {
        "a": "s3",
        "b": "s5",
    }


def test_files_of_ranks_belong_together_without_the_number_of_the_rank() -> None:
    """Rank 1 saved step 80, rank 0 was killed at it: both continue from step 60, and what is newer is hidden."""
    a = ({"name": "ckpt-60.rank0.pt", "saved_at": 60, "ok": True},)
    b = tuple({"name": f"ckpt-{step}.rank1.pt", "saved_at": step + 1, "ok": True} for step in (60, 80))
    found = choose_checkpoints({"a": NodeCheckpoints(a), "b": NodeCheckpoints(b)})
    assert brief(found["a"]) == ("ckpt-60.rank0.pt", False, ())
    assert brief(found["b"]) == ("ckpt-60.rank1.pt", False, ("ckpt-80.rank1.pt",))
    stored = tuple({key: value for key, value in row.items() if key != "ok"} for row in b)
    found = choose_checkpoints({"a": NodeCheckpoints(a), "b": NodeCheckpoints((), stored)})
    assert brief(found["b"]) == ("ckpt-60.rank1.pt", True, ())


COPIES = st.builds(node, st.dictionaries(st.integers(1, 5), st.booleans()), st.sets(st.integers(1, 5)))


@given(st.dictionaries(st.sampled_from("abc"), COPIES, min_size=1), st.sets(st.integers(1, 5)))
def test_nothing_torn_or_excluded_is_ever_chosen(nodes: dict[str, NodeCheckpoints], excluded: set[int]) -> None:
    found = choose(excluded, **nodes)
    for name, choice in found.items():
        whole = {row["name"] for row in nodes[name].local if row["ok"]}
        if choice.fetch is not None:
            assert choice.fetch["saved_at"] not in excluded
        elif choice.name:
            assert choice.name in whole
        assert choice.name not in choice.aside
