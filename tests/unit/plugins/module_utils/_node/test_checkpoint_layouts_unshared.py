# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Each layout on two nodes without a shared folder: a part on each, or all of it on one.

Of a new layout it has to be said here what each node has.
"""

from __future__ import annotations

import pathlib
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._node import (
    checkpoint_copies,
    checkpoint_sets,
    checkpoint_table,
    checkpoints,
    host_results,
)
from ansible_collections.muster.training.tests.support.layout_parts import CASES, Case, save_step

NODES = ("a", "b")


def test_every_layout_is_tried_without_a_shared_folder() -> None:
    assert set(CASES) == set(checkpoint_table.LAYOUTS)


def save_parts(root: pathlib.Path, case: Case, first: t.Sequence[int], second: t.Sequence[int]) -> None:
    """Write parts of steps: of a rank each. A tracker is written by the first."""
    for step in first:
        save_step(root / "a", case, step, case.first, tracks=True)
    for step in second:
        save_step(root / "b", case, step, case.second, tracks=False)


def choose(root: pathlib.Path) -> checkpoint_sets.CheckpointSet:
    """Choose by what each node would answer."""
    return checkpoint_sets.choose_set({node: checkpoint_sets.list_held(root / node, "auto") for node in NODES})


def list_entries(root: pathlib.Path) -> dict[str, list[checkpoint_copies.Entry]]:
    (root / "b").mkdir(exist_ok=True)
    return {node: checkpoint_copies.list_entries(root / node, "auto") for node in NODES}


def prune(folder: pathlib.Path, keep: int) -> list[str]:
    """Remove what is beyond ``keep``, as a node of several with a folder each; return the names."""
    metrics = folder.with_name("metrics.jsonl")
    return checkpoints.Pruner(folder, "auto", keep, leads=True, metrics=metrics, apart=True).step()


def fetch(root: pathlib.Path, node: str, names: t.Sequence[str]) -> set[str]:
    """Return the paths that a node lists for a fetch of checkpoints."""
    (root / "runs" / "r").mkdir(parents=True, exist_ok=True)
    place = {"run_id": "r", "folder": str(root / node), "format": "auto"}
    answer = host_results.answer(root, {"step": "list", "patterns": [], "names": names, **place})
    return {item["path"] for item in answer["files"]}


@pytest.mark.parametrize("layout", CASES)
def test_the_newest_step_of_which_each_node_has_a_part_is_chosen(tmp_path: pathlib.Path, layout: str) -> None:
    case = CASES[layout]
    save_parts(tmp_path, case, (10, 20), (10, 20))
    name = case.name.format(20)
    assert choose(tmp_path) == checkpoint_sets.CheckpointSet({"a": (name,), "b": (name,)})
    save_step(tmp_path / "a", case, 30, case.first, tracks=False)
    found = choose(tmp_path)
    assert (dict(found.names), found.problem) == ({"a": (name,), "b": (name,)}, "")


@pytest.mark.parametrize("layout", CASES)
def test_parts_stay_on_their_nodes_and_each_is_fetched(tmp_path: pathlib.Path, layout: str) -> None:
    case = CASES[layout]
    save_parts(tmp_path, case, (10, 20), (10, 20))
    plan = checkpoint_copies.plan_copies(list_entries(tmp_path))
    assert (plan.in_parts, plan.copies, plan.stale) == (True, {}, {})
    name = case.name.format(20)
    for node, tree in (("a", case.first), ("b", case.second)):
        beside = {str(pathlib.PurePath(name).with_name(case.tracker[0]))} if node == "a" and case.tracker[0] else set()
        assert fetch(tmp_path, node, [name]) == {case.path(20, path) for path in tree} | beside


@pytest.mark.parametrize("layout", CASES)
def test_keep_leaves_the_newest_two_on_each_node(tmp_path: pathlib.Path, layout: str) -> None:
    case = CASES[layout]
    save_parts(tmp_path, case, (10, 20, 30), (10, 20, 30))
    for node in NODES:
        assert prune(tmp_path / node, 2) == [case.name.format(10)]
        left = {held.name for held in checkpoint_sets.list_held(tmp_path / node, "auto")}
        assert left == {case.name.format(20), case.name.format(30)}


@pytest.mark.parametrize("layout", CASES)
def test_one_part_of_the_newest_does_not_take_the_last_common_one(tmp_path: pathlib.Path, layout: str) -> None:
    """With ``keep: 1`` the first node is a step ahead when the second one ends."""
    case = CASES[layout]
    save_parts(tmp_path, case, (10, 20), (10,))
    assert [prune(tmp_path / node, 1) for node in NODES] == [[], []]
    name = case.name.format(10)
    assert dict(choose(tmp_path).names) == {"a": (name,), "b": (name,)}


@pytest.mark.parametrize("layout", CASES)
def test_what_one_node_alone_saved_is_copied_with_its_tracker(tmp_path: pathlib.Path, layout: str) -> None:
    case = CASES[layout]
    for step in (10, 20):
        save_step(tmp_path / "a", case, step, case.alone or case.first, tracks=True)
    assert dict(choose(tmp_path).names) == {"a": (case.name.format(20),)}
    plan = checkpoint_copies.plan_copies(list_entries(tmp_path))
    assert not plan.in_parts and list(plan.copies) == ["b"]
    copied = {f"{copy.entry.name}/{path}".rstrip("/") for copy in plan.copies["b"] for path in copy.missing}
    name = case.name.format(20)
    wanted = {case.path(20, path) for path in case.alone or case.first}
    wanted |= {str(pathlib.PurePath(name).with_name(case.tracker[0]))} if case.tracker[0] else set()
    assert wanted <= copied, plan.copies
