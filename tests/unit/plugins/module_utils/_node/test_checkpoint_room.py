# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether the next checkpoint has room: told once for each number that fits, by what one takes."""

from __future__ import annotations

import json
import os
import pathlib
import time
import types
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._node import checkpoint_care, checkpoints
from ansible_collections.muster.training.plugins.module_utils._node.checkpoint_room import (
    InPlaceWatch,
    RoomWatch,
    describe,
)

RULES: dict[str, t.Any] = {"format": "auto", "keep": None, "shared": False, "first": True}


class Disk:
    """A folder on a disk with so many bytes free."""

    def __init__(self, folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.run, self.free = folder / "ck", folder / "run", 10_000
        self.folder.mkdir()
        self.run.mkdir()
        monkeypatch.setattr(os, "statvfs", lambda _place: types.SimpleNamespace(f_bavail=self.free, f_frsize=1))

    def save(self, step: int, size: int = 1000, suffix: str = "") -> None:
        place = self.folder / f"step-{step}{suffix}"
        place.write_bytes(bytes(size))
        os.utime(place, ns=(step * 10**9,) * 2)

    def listed(self) -> list[t.Any]:
        return checkpoints.list_complete(self.folder, "auto")

    def told(self) -> list[dict[str, t.Any]]:
        place = self.run / "events.jsonl"
        return [json.loads(line) for line in place.read_text().splitlines()] if place.exists() else []


@pytest.fixture
def disk(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(tmp_path, monkeypatch)


def test_each_number_that_fits_is_told_once(disk: Disk) -> None:
    watch = RoomWatch(disk.folder, RULES, disk.run, "n1")
    watch.step(disk.listed)
    for step, free in enumerate((5000, 2999, 2999, 2100, 1500, 999, 100, 5000), 1):
        disk.free = free
        disk.save(step)
        watch.step(disk.listed)
        watch.step(disk.listed)
    assert [(line["fits"], line["free_bytes"], line["checkpoint_bytes"]) for line in disk.told()] == [
        (2, 2999, 1000),
        (1, 1500, 1000),
        (0, 999, 1000),
    ]
    first, _second, last = (describe(line) for line in disk.told())
    assert first.startswith(f"warning: n1: room for 2 more: {disk.folder} has 0.00 MB free"), first
    assert "the next checkpoint does not fit" in last and "set job.checkpoints.keep" in last, last
    assert describe({"kind": "checkpoint_copied", "node": "n1"}) == ""


def test_with_keep_one_more_has_to_fit_after_the_old_ones_are_removed(disk: Disk) -> None:
    watch = RoomWatch(disk.folder, {**RULES, "keep": 1}, disk.run, "n1")
    disk.free = 1500
    (disk.folder / ".muster-saved.json").write_text(json.dumps([f"step-{step}" for step in range(9)]))
    disk.save(1)
    watch.step(disk.listed)
    disk.free = 500
    disk.save(2)
    watch.step(disk.listed)
    assert disk.told() == [], "the old one is still there"
    disk.free = 900
    (disk.folder / "step-1").unlink()
    watch.step(disk.listed)
    (line,) = disk.told()
    assert line["fits"] == 0 and "lower job.checkpoints.keep" in describe(line)


def test_parts_of_ranks_and_folders_are_one_checkpoint(disk: Disk) -> None:
    disk.free = 2500
    for rank in range(2):
        disk.save(1, 1000, f"_rank{rank}.pt")
    RoomWatch(disk.folder, {**RULES, "format": "files"}, disk.run, "n1").step(
        lambda: checkpoints.list_complete(disk.folder, "files")
    )
    assert [line["checkpoint_bytes"] for line in disk.told()] == [2000]


@pytest.mark.parametrize(("rules", "looks"), [({}, 1), ({"first": False}, 1), ({"first": False, "shared": True}, 0)])
def test_each_disk_is_looked_at_by_one_node(disk: Disk, rules: dict[str, t.Any], looks: int) -> None:
    disk.free = 100
    disk.save(1)
    care = checkpoint_care.CheckpointCare({**RULES, **rules, "folder": str(disk.folder)}, disk.run, "n1")
    care.start()
    care.close(time.monotonic() + 5, lambda: None)
    # None was reported, which is told, too.
    told = [line["kind"] for line in disk.told()]
    assert [kind for kind in told if kind != "checkpoint_unreported"] == ["checkpoint_room"] * looks


def test_what_keep_does_not_remove_is_told_with_who_removes_it(disk: Disk) -> None:
    """Files of no known layout that the program reports by a printed line, without their paths, stay."""
    watch = RoomWatch(disk.folder, {**RULES, "keep": 1}, disk.run, "n1")
    disk.free = 500
    for step in (1, 2, 3):
        disk.save(step)
    watch.step(disk.listed)
    disk.save(4)
    watch.step(disk.listed)
    unremovable, line = disk.told()
    assert describe(unremovable) == (
        f"warning: n1: {disk.folder} has 3 checkpoints, and checkpoints.keep: 1 removes none of them, as the program does "
        "not report their paths (MUSTER_METRICS_FILE)"
    )
    assert line["fits"] == 0 and "Delete old ones there: job.checkpoints.keep: 1 does not" in describe(line)
    assert "lower" not in describe(line)


@pytest.mark.parametrize(("way", "is_told"), [("overwritten", True), ("renamed", False), ("two", False)])
def test_the_only_checkpoint_that_each_save_overwrites_is_warned_of_once(disk: Disk, way: str, is_told: bool) -> None:
    watch, place = InPlaceWatch(disk.folder, disk.run, "n1"), disk.folder / "model.bin"
    if way == "two":
        disk.save(1)
    for number in range(1, 4):
        target = disk.folder / "model.tmp" if way == "renamed" else place
        target.write_bytes(bytes(100))
        os.utime(target, ns=(number * 10**9,) * 2)
        target.replace(place)
        watch.step(disk.listed)
    assert len(disk.told()) == is_told
    if is_told:
        assert describe(disk.told()[0]).startswith(f"warning: n1: each save overwrites {place}, the only checkpoint")
