# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The marker of a shared file system, and a child that hangs in place of the one who asks."""

from __future__ import annotations

import os
import pathlib
import time
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._node import mount_marker


def test_a_child_that_hangs_costs_its_own_time_only() -> None:
    began = time.monotonic()
    child = mount_marker.Child(lambda: time.sleep(60) or {})  # type: ignore[func-returns-value]
    assert child.answer(began + 0.3) == {"failed": "time"} and time.monotonic() - began < 10
    with pytest.raises(ProcessLookupError):
        os.kill(child._pid, 0)


def test_a_child_that_fails_says_so_and_one_that_is_killed_too() -> None:
    def fail() -> dict[str, t.Any]:
        raise ValueError("x")

    def die() -> dict[str, t.Any]:
        os._exit(3)

    until = time.monotonic() + 30
    assert mount_marker.Child(fail).answer(until) == {"failed": "crash", "error": "ValueError"}
    assert mount_marker.Child(die).answer(until) == {"failed": "crash", "error": "no output"}


def test_a_child_keeps_no_connection_open() -> None:
    """A connection over SSH stays open as long as a process has its output."""
    seen = mount_marker.Child(lambda: {"fds": [os.readlink(f"/proc/self/fd/{number}") for number in range(3)]})
    assert seen.answer(time.monotonic() + 30) == {"fds": ["/dev/null"] * 3}


def test_the_marker_says_which_file_system_it_is(tmp_path: pathlib.Path) -> None:
    assert mount_marker.find_problem(str(tmp_path), None) == ""
    assert "is not the shared file system, which is not mounted there" in mount_marker.find_problem(str(tmp_path), "m")
    (tmp_path / mount_marker.FILE).write_text("m\n")
    assert mount_marker.find_problem(str(tmp_path), "m") == ""
    assert "is another shared file system" in mount_marker.find_problem(str(tmp_path), "n")
    assert "cannot be read (No such file or directory)" in mount_marker.find_problem(f"{tmp_path}/no", "m")
