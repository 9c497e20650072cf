# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is said while files are on their way: nothing of small ones, and a line every five seconds of large ones."""

from __future__ import annotations

import pathlib

from ansible_collections.muster.training.plugins.plugin_utils._hosts.file_sync import FileTree, SourceFile
from ansible_collections.muster.training.plugins.plugin_utils._hosts.send_progress import SendProgress


def tree(**sizes: int) -> FileTree:
    return FileTree(tuple(SourceFile(sha, sha, 0o600, size, pathlib.Path(sha)) for sha, size in sizes.items()), "x")


def test_large_files_are_announced_and_counted() -> None:
    said: list[str] = []
    clock = [0.0]
    # One node has half of the file already, and one has all.
    missing = [{"a": 0}, {"a": 50_000_000}, {}]
    progress = SendProgress([tree(a=100_000_000, b=7)], missing, said.append, lambda: clock[0])
    assert said == ["sending 150 MB of code and data to 2 nodes"]
    for at in (1.0, 2.0, 6.0, 7.0, 11.5):
        clock[0] = at
        progress.count(20_000_000)
    assert said[1:] == ["sent 60 MB of 150 MB", "sent 100 MB of 150 MB"]


def test_small_files_are_not_worth_a_line() -> None:
    said: list[str] = []
    clock = [0.0]
    progress = SendProgress([tree(a=10_000)], [{"a": 0}], said.append, lambda: clock[0])
    clock[0] = 60.0
    progress.count(10_000)
    assert said == []
