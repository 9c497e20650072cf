# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ranks do not begin again on the disk below a file system that was lost; mounts are real where root may make them."""

from __future__ import annotations

import os
import pathlib
import subprocess
import threading
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._node import checkpoint_mount


@pytest.fixture
def mounted(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Where something is mounted, besides the root."""
    found: set[str] = set()
    monkeypatch.setattr(os.path, "ismount", lambda place: str(place) in {*found, "/"})
    return found


def test_the_place_of_a_folder_that_may_not_exist_yet(tmp_path: pathlib.Path, mounted: set[str]) -> None:
    assert checkpoint_mount.find_mount(str(tmp_path / "a" / "b")) == "/"
    mounted.add(str(tmp_path / "a"))
    (tmp_path / "link").symlink_to(tmp_path / "a")
    for folder in ("a", "a/b/c", "link/b"):
        assert checkpoint_mount.find_mount(str(tmp_path / folder)) == str(tmp_path / "a")


def test_a_later_start_waits_for_the_mount_and_ends_without_it(
    tmp_path: pathlib.Path, mounted: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    place, run = str(tmp_path / "shared"), tmp_path / "run"
    run.mkdir()
    mounted.add(place)
    assert checkpoint_mount.pass_gate(run, f"{place}/checkpoints", True) == ""
    assert checkpoint_mount.pass_gate(run, f"{place}/checkpoints", False) == ""
    mounted.clear()
    timer = threading.Timer(0.5, mounted.add, [place])
    timer.start()
    assert checkpoint_mount.pass_gate(run, f"{place}/checkpoints", False) == "" and place in mounted
    timer.join()
    mounted.clear()
    monkeypatch.setattr(checkpoint_mount, "_WAIT_S", 0.3)
    said = checkpoint_mount.pass_gate(run, f"{place}/checkpoints", False)
    assert said.startswith(f"{place}, where the checkpoints") and "run `train` again" in said
    # The next start by a controller has proven anew what is there.
    assert checkpoint_mount.pass_gate(run, f"{place}/checkpoints", True) == ""
    assert checkpoint_mount.pass_gate(run, f"{place}/checkpoints", False) == ""
    assert [path.name for path in run.iterdir()] == ["checkpoint-mount"]


def test_a_node_that_was_not_there_before_and_a_folder_that_takes_nothing_begin(
    tmp_path: pathlib.Path, mounted: set[str]
) -> None:
    assert checkpoint_mount.pass_gate(tmp_path, "/anywhere", False) == ""
    assert checkpoint_mount.pass_gate(tmp_path / "none", "/anywhere", True) == ""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount a file system")
def test_a_real_file_system_that_is_unmounted(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place: t.Final = tmp_path / "shared"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "of-a-test", place], check=True)
    try:
        assert checkpoint_mount.pass_gate(tmp_path, str(place / "c"), True) == ""
        assert checkpoint_mount.pass_gate(tmp_path, str(place / "c"), False) == ""
    finally:
        subprocess.run(["umount", place], check=True)
    monkeypatch.setattr(checkpoint_mount, "_WAIT_S", 0.0)
    assert "is not mounted after" in checkpoint_mount.pass_gate(tmp_path, str(place / "c"), False)
