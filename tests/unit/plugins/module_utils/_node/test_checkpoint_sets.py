# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The newest checkpoint that is whole over all nodes: parts of ranks and nodes, copies, and ranks that moved."""

from __future__ import annotations

import os
import pathlib
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._node import checkpoint_copies, checkpoint_sets, files
from ansible_collections.muster.training.plugins.module_utils._node.checkpoint_sets import Held, choose_set


def held(name: str, at: int, kind: str = "own") -> Held:
    """Return a whole own checkpoint, a ``copy``, a ``half`` one, or an ``unmarked`` part."""
    return Held(name, at, 1, kind != "copy", kind in ("own", "copy"), kind == "unmarked")


def names(**nodes: t.Sequence[Held]) -> dict[str, tuple[str, ...]]:
    found = choose_set(nodes)
    assert found.problem == ""
    return dict(found.names)


# What each node holds, the newest first -> what is chosen of each.
CASES: dict[str, tuple[dict[str, list[Held]], dict[str, tuple[str, ...]]]] = {
    "rank 0 saves": ({"a": [held("c-80", 80), held("c-60", 60)], "b": []}, {"a": ("c-80",)}),
    "rank 0 saves, an older copy": ({"a": [held("c-80", 80)], "b": [held("c-60", 60, "copy")]}, {"a": ("c-80",)}),
    "the copy alone": ({"a": [], "b": [held("c-60", 60, "copy")]}, {"b": ("c-60",)}),
    "a copy of what was lost": ({"a": [held("c-60", 60)], "b": [held("c-80", 80, "copy")]}, {"b": ("c-80",)}),
    "a whole copy of a half one": (
        {"a": [held("latest.pt", 80, "half")], "b": [held("latest.pt", 60, "copy")]},
        {"b": ("latest.pt",)},
    ),
    "one name, an older copy": (
        {"a": [held("latest.pt", 80)], "b": [held("latest.pt", 60, "copy")]},
        {"a": ("latest.pt",)},
    ),
    "what every rank writes beside it": (
        {"a": [held("checkpoint-48", 48)], "b": [Held("checkpoint-48", 48, 1, False, False, False)]},
        {"a": ("checkpoint-48",), "b": ("checkpoint-48",)},
    ),
    "what every rank wrote beside one of before": (
        {"a": [held("checkpoint-48", 48)], "b": [Held("checkpoint-32", 32, 1, False, False, False)]},
        {"a": ("checkpoint-48",)},
    ),
    "rank 0 moved": (
        {"a": [held("c-40", 40), held("c-20", 20)], "b": [held("c-80", 80), held("c-40", 40, "copy")]},
        {"b": ("c-80",)},
    ),
    "a part per node of one name": (
        {"a": [held("c-60", 60)], "b": [held("c-80", 81), held("c-60", 61)]},
        {"a": ("c-60",), "b": ("c-60",)},
    ),
    "ranks in the names": (
        {
            "a": [held("c-80.rank1", 80), held("c-60.rank0", 60), held("c-60.rank1", 60)],
            "b": [held("c-80.rank3", 81), held("c-80.rank2", 80), held("c-60.rank3", 61), held("c-60.rank2", 61)],
        },
        {"a": ("c-60.rank0", "c-60.rank1"), "b": ("c-60.rank3", "c-60.rank2")},
    ),
    "two ranks of one node": (
        {"a": [held("c-60.rank0", 61), held("c-60.rank1", 60)]},
        {"a": ("c-60.rank0", "c-60.rank1")},
    ),
    "numbers of ranks without the word": (
        {"a": [held("c_60_0", 60), held("c_40_0", 40)], "b": [held("c_80_1", 80), held("c_60_1", 61)]},
        {"a": ("c_60_0",), "b": ("c_60_1",)},
    ),
    "a mark on one node": (
        {
            "a": [held("s-80", 80, "unmarked"), held("s-60", 60)],
            "b": [held("s-80", 80, "unmarked"), held("s-60", 60, "unmarked")],
        },
        {"a": ("s-60",), "b": ("s-60",)},
    ),
    "a tracker names an older one": (
        {"a": [held("g-60", 60)._replace(is_current=True), held("g-80", 80)]},
        {"a": ("g-60",)},
    ),
    "files of other kinds": (
        {"a": [held("model-80", 80)], "b": [held("state.bin", 10)]},
        {"a": ("model-80",), "b": ("state.bin",)},
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_the_newest_whole_checkpoint_is_chosen(case: str) -> None:
    nodes, wanted = CASES[case]
    assert names(**nodes) == wanted


def test_a_later_step_that_is_not_whole_is_named() -> None:
    found = choose_set({"a": [held("c-60.rank0", 60)], "b": [held("c-80.rank1", 80), held("c-60.rank1", 61)]})
    assert found.newer == ("c-80.rank1",)


@pytest.mark.parametrize("names_of", [("c-80.rank0", "c-60.rank1"), ("c-80", "c-60"), ("c_80_0", "c_60_1")])
def test_parts_without_a_common_step_are_a_problem_and_each_newest_is_named(names_of: tuple[str, str]) -> None:
    found = choose_set({"a": [held(names_of[0], 80)], "b": [held(names_of[1], 60)]})
    assert found.problem.endswith(f"the newest are a: {names_of[0]}, b: {names_of[1]}")
    assert found.names == {"a": (names_of[0],), "b": (names_of[1],)}


def test_what_a_node_holds_says_what_was_copied_and_when_it_was_saved(tmp_path: pathlib.Path) -> None:
    for name, at in (("c-80.pt", 80), ("c-60.pt", 60)):
        (tmp_path / name).write_bytes(b"weights")
        os.utime(tmp_path / name, ns=(at, at))
    about = {"whole": True, "files": {"": [7, 50, 60]}}
    files.write_json(tmp_path / checkpoint_copies.LEDGER, {"c-60.pt": about, "c-80.pt": {**about, "files": {}}})
    (tmp_path / "c-90.pt").write_bytes(b"PK\x03\x04 torn")
    half, *others = checkpoint_sets.list_held(tmp_path, "auto")
    assert (half.name, half.whole, half.unmarked) == ("c-90.pt", False, False)
    assert others == [Held("c-80.pt", 80, 7), Held("c-60.pt", 50, 7, own=False)]
