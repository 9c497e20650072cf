# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The line that says how a real program went on, and where its source comes from."""

from __future__ import annotations

import pathlib
import subprocess

import pytest

from ansible_collections.muster.training.tests.programs import sources
from ansible_collections.muster.training.tools import programs


def test_a_program_is_described_by_its_record() -> None:
    attempts = [{"first_step": 1, "last_step": 16}, {"first_step": 11, "last_step": 80, "resumed": True}]
    note = {"name": "a", "seconds": 9, "attempts": attempts, "checkpoint": {"layout": "orbax"}, "steps_read": None}
    said = programs.describe(note)
    assert said == "a: steps of nothing, layout orbax, went on at step 11 to 80, resumed: True, 9 s"


def test_a_folder_of_a_commit_is_taken_from_a_snapshot(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once: afterwards the snapshot is not asked."""
    place = tmp_path / "owner+name"
    (place / "examples").mkdir(parents=True)
    (place / "examples" / "train.py").write_text("print(1)")
    git = ["git", "-C", str(place), "-c", "user.name=a", "-c", "user.email=a@example.org"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "one"]):
        subprocess.run([*git, *words], check=True)
    commit = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()
    (place / ".git").rename(place / "repo")
    monkeypatch.setenv("MUSTER_PROGRAMS_SOURCES", str(tmp_path))
    monkeypatch.setattr(sources, "BUILD", tmp_path / "build")
    source = sources.Source("owner/name", commit, "examples")
    assert (sources.obtain(source) / "train.py").read_text() == "print(1)"
    (place / "repo").rename(tmp_path / "gone")
    assert (sources.obtain(source) / "train.py").exists()
