# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The checkpoints of the presets' programs: a folder counts when all ranks have written, and only then."""

from __future__ import annotations

import importlib.util
import json
import types
from pathlib import Path

import pytest

PROGRAM = Path(__file__).resolve().parents[3] / "examples" / "presets" / "progress.py"


@pytest.fixture
def progress(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """The module, as a job of the run sees it."""
    monkeypatch.setenv("MUSTER_CHECKPOINT_DIR", str(tmp_path / "kept"))
    monkeypatch.setenv("MUSTER_METRICS_FILE", str(tmp_path / "metrics"))
    monkeypatch.setenv("MUSTER_CHECKPOINT_KEEP", "2")
    spec = importlib.util.spec_from_file_location("presets_progress", PROGRAM)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_folder_that_was_not_finished_does_not_count(progress: types.ModuleType) -> None:
    assert progress.newest() == 0
    for step in (5, 100_000_005):
        progress.of_step(step).mkdir(parents=True)
        progress.completed(step)
    progress.of_step(200_000_000).mkdir()
    (progress.folder() / "step-of-somebody-else").mkdir()
    (progress.folder() / "step-of-somebody-else" / "complete").touch()
    assert progress.newest() == 100_000_005


def test_as_many_stay_as_the_job_keeps_and_each_is_noted(progress: types.ModuleType, tmp_path: Path) -> None:
    for step in (5, 10, 15):
        progress.of_step(step).mkdir(parents=True)
        progress.completed(step)
    assert sorted(path.name for path in progress.folder().iterdir()) == ["step-00000010", "step-00000015"]
    noted = [json.loads(line) for line in (tmp_path / "metrics").read_text().splitlines()]
    assert [line["checkpoint_step"] for line in noted] == [5, 10, 15] and all(line["at"] for line in noted)


def test_without_a_run_nothing_is_noted(progress: types.ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MUSTER_METRICS_FILE")
    progress.note(step=1)
