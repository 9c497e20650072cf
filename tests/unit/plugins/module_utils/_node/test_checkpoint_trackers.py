# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What names the newest checkpoint: followed, told where it names a missing one, and mended."""

from __future__ import annotations

import os
import pathlib

import pytest

from ansible_collections.muster.training.plugins.module_utils._node import checkpoint_layouts, checkpoints
from ansible_collections.muster.training.tests.support.layout_parts import (
    ARCHIVE,
    CASES,
    TABLE,
    Tree,
    build,
    save_step,
    zero,
)

# What programs without a layout here leave: their files, the newest whole one, what comes along, and what is said of one
# that was saved after it.
TRACKED: dict[str, tuple[Tree, str, list[str], str]] = {
    "nanotron": (
        {"10/model/a.bin": b"x", "latest.txt": b"10\n", "20/model/a.bin": b"x"},
        "10",
        ["latest.txt"],
        "20 is not whole: latest.txt names 10",
    ),
    "detectron2": (
        {
            "model_0000999.pth": ARCHIVE,
            "model_0001999.pth": ARCHIVE,
            "last_checkpoint": b"model_0001999.pth",
            "log.txt": b"x",
            "metrics.json": b'{"loss": 2}\n{"loss": 1}\n',
        },
        "model_0001999.pth",
        ["last_checkpoint"],
        "",
    ),
    "another kind is saved after it": (
        {"step-10.pt": ARCHIVE, "latest.txt": b"/runs/a/step-10.pt", "final.pt": ARCHIVE},
        "step-10.pt",
        ["latest.txt"],
        "",
    ),
    "a half-saved one is named": (
        {"step-10.pt": ARCHIVE, "step-20.pt": ARCHIVE[:20], "latest": b"step-20.pt"},
        "step-10.pt",
        [],
        "step-20.pt is half saved: step-20.pt lacks its end",
    ),
    "one is named that is not there": (
        {"step-10.pt": ARCHIVE, "latest": b"step-20.pt", "step-30.pt": ARCHIVE},
        "step-30.pt",
        [],
        "",
    ),
    "weights are called like that": ({"step-10.pt": ARCHIVE, "latest": ARCHIVE * 90}, "step-10.pt", [], ""),
}


@pytest.mark.parametrize("case", TRACKED)
def test_what_names_the_newest_counts_without_a_known_layout(tmp_path: pathlib.Path, case: str) -> None:
    tree, newest, beside, later = TRACKED[case]
    build(tmp_path, tree)
    for place in tmp_path.iterdir():
        # A folder has the time of what was saved in it.
        times = [path.stat().st_mtime for path in place.rglob("*") if path.is_file()]
        os.utime(place, (times[0], times[0])) if times else None
    found = checkpoints.list_saved(tmp_path, "auto")
    whole = next(saved for saved in found if not saved.problem)
    assert (whole.name, checkpoint_layouts.list_beside(tmp_path, whole)) == (newest, beside)
    assert [f"{saved.name} {saved.problem}" for saved in found if saved.problem] == ([later] if later else [])
    said = checkpoint_layouts.find_tracker_problem(tmp_path)
    assert not said or case.startswith("one is named"), said
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
    checkpoint_layouts.mend_trackers(tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()} == before


@pytest.mark.parametrize(
    ("tree", "problem"),
    [
        ({**zero(10), "latest": b"global_step99"}, "latest names global_step99, which is not there or not whole"),
        ({**zero(10), "latest": b"global_step10"}, ""),
        ({"iter_0000010/a.pt": ARCHIVE, "latest_checkpointed_iteration.txt": b"release"}, ""),
        # Of no known layout.
        (
            {"step-10.pt": ARCHIVE, "latest.txt": b"/c/run-1/step-20.pt"},
            "latest.txt names /c/run-1/step-20.pt, which is not there",
        ),
        ({"step-10.pt": ARCHIVE, "latest.txt": b"/c/run-1/step-10.pt"}, ""),
        ({"sub/step-10.pt": ARCHIVE, "latest.txt": b"sub/step-10.pt"}, ""),
        ({"step-10-loss2.pt": ARCHIVE, "latest.txt": b"10"}, ""),
        ({"step-10.pt": ARCHIVE, "latest.txt": b"20"}, "latest.txt names 20, which is not there"),
        ({"latest.txt": b"20"}, ""),
        ({"latest.txt": b"step-20.pt"}, "latest.txt names step-20.pt, which is not there"),
        ({"step-10.pt": ARCHIVE, "latest_loss.txt": b"0.53"}, ""),
        ({"step-10.pt": ARCHIVE, "latest.txt": b"saved at 12:30"}, ""),
        ({"step-10.pt": ARCHIVE, "latest.txt": b"1\x002a"}, ""),
    ],
)
def test_a_tracker_that_names_a_missing_one_is_told(tmp_path: pathlib.Path, tree: Tree, problem: str) -> None:
    assert checkpoint_layouts.find_tracker_problem(build(tmp_path, tree)) == problem


def test_a_tracker_follows_what_is_set_aside(tmp_path: pathlib.Path) -> None:
    build(tmp_path, {**zero(10), **zero(20), "latest": b"global_step20"})
    (tmp_path / "global_step20").rename(tmp_path / ".global_step20.newer")
    checkpoint_layouts.mend_trackers(tmp_path)
    assert (tmp_path / "latest").read_text() == "global_step10"
    assert checkpoints.list_complete(tmp_path, "auto")[0].is_current
    build(tmp_path / "mm", {"iter_10.pth": ARCHIVE, "last_checkpoint": b"/c/run-1/iter_20.pth"})
    checkpoint_layouts.mend_trackers(tmp_path / "mm")
    assert (tmp_path / "mm" / "last_checkpoint").read_text() == str(tmp_path / "mm" / "iter_10.pth")


def test_a_tracker_of_several_lines_names_another_one(tmp_path: pathlib.Path) -> None:
    """As ``CheckpointManager`` writes it; it takes what this names, and would begin anew without it."""
    said = 'model_checkpoint_path: "ckpt-20"\nall_model_checkpoint_paths: "ckpt-10"\nlast_preserved_timestamp: 1.5\n'
    part, table = "ckpt-{}.data-00000-of-00001", {"ckpt-10.index": TABLE}
    build(tmp_path, {part.format(10): b"x", **table, "checkpoint": said.encode()})
    problem = "checkpoint names ckpt-20, which is not there or not whole"
    assert checkpoint_layouts.find_tracker_problem(tmp_path) == problem
    checkpoint_layouts.mend_trackers(tmp_path)
    assert (tmp_path / "checkpoint").read_text() == said.replace("ckpt-20", "ckpt-10")
    assert checkpoint_layouts.find_tracker_problem(tmp_path) == ""
    (tmp_path / "checkpoint").write_text(said.replace("ckpt-20", "/old/ckpt-20"))
    checkpoint_layouts.mend_trackers(tmp_path)
    assert f'path: "{tmp_path}/ckpt-10"' in (tmp_path / "checkpoint").read_text()


def test_a_tracker_of_a_name_that_two_layouts_have_is_of_the_one_that_it_names(tmp_path: pathlib.Path) -> None:
    """Megatron-LM's and verl's have one name."""
    for step in (10, 20):
        save_step(tmp_path, CASES["verl"], step, CASES["verl"].first, tracks=True)
    assert checkpoint_layouts.find_tracker_problem(tmp_path) == ""
    (tmp_path / "global_step_20").rename(tmp_path / ".global_step_20.newer")
    problem = "latest_checkpointed_iteration.txt names 20, which is not there or not whole"
    assert checkpoint_layouts.find_tracker_problem(tmp_path) == problem
    checkpoint_layouts.mend_trackers(tmp_path)
    assert (tmp_path / "latest_checkpointed_iteration.txt").read_text() == "10"


def test_a_tracker_in_a_folder_of_the_program_is_said_and_mended(tmp_path: pathlib.Path) -> None:
    build(tmp_path / "out" / "a", {**zero(10), "latest": b"global_step20"})
    assert checkpoint_layouts.find_tracker_problem(tmp_path).startswith(
        "out/a/latest names global_step20, which is not"
    )
    checkpoint_layouts.mend_trackers(tmp_path)
    assert (tmp_path / "out" / "a" / "latest").read_text() == "global_step10"
    assert checkpoint_layouts.find_tracker_problem(tmp_path) == ""
