# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What was fetched of a run, and from where prune removed it."""

from __future__ import annotations

import hashlib
import pathlib

from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job_fetch import copies


def test_a_copy_counts_while_it_is_there_and_newer(tmp_path: pathlib.Path) -> None:
    run, dest = tmp_path / "run", tmp_path / "dest"
    (dest / "step-5").mkdir(parents=True)
    (dest / "step-5" / "w.pt").write_text("x")
    copies.note_fetch(run, dest, {"step-5/w.pt": hashlib.sha256(b"x").hexdigest()}, 100.0)
    known = copies.read_copies(run)
    assert copies.has_copy(known, "step-5", 50.0, None)
    assert not copies.has_copy(known, "step-5", 150.0, None) and not copies.has_copy(known, "step-6", 50.0, None)
    assert not copies.has_copy(known, "step-5", 50.0, dest)
    (dest / "step-5" / "w.pt").write_text("y")
    assert not copies.has_copy(known, "step-5", 50.0, None), "of another run, of the same name"
    assert copies.list_whole(known) == []
    (dest / "step-5" / "w.pt").unlink()
    assert not copies.has_copy(known, "step-5", 50.0, None)


def test_a_removal_is_told_with_its_day(tmp_path: pathlib.Path) -> None:
    copies.note_pruned(tmp_path, ["b", "a"], 0.0)
    assert copies.describe_removal(copies.read_copies(tmp_path)) == "removed by prune from a, b on 1970-01-01"


def test_a_damaged_file_counts_as_no_copy(tmp_path: pathlib.Path) -> None:
    (tmp_path / "copies.json").write_text('{"fetched": 3}')
    assert copies.read_copies(tmp_path) == copies.RunCopies()
