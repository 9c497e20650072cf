# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A program that reports no checkpoint has them reported by their layout, each once."""

from __future__ import annotations

import json
import pathlib
import typing as t

from ansible_collections.muster.training.plugins.module_utils._node import checkpoint_found, checkpoints, files


def save(folder: pathlib.Path, step: int) -> None:
    place = folder / f"checkpoint-{step}"
    place.mkdir(parents=True)
    (place / "model.bin").write_bytes(b"x")
    (place / "trainer_state.json").write_text("{}")


def listed(folder: pathlib.Path, form: str) -> t.Callable[[], list[t.Any]]:
    return lambda: checkpoints.list_complete(folder, form)


def reported(run: pathlib.Path) -> list[t.Any]:
    place = run / "metrics.jsonl"
    lines = [json.loads(line) for line in place.read_text().splitlines()] if place.exists() else []
    return [(line["checkpoint_step"], line["path"], line.get("layout")) for line in lines]


def test_each_is_reported_once_and_what_was_there_before_is_not(tmp_path: pathlib.Path) -> None:
    folder, run = tmp_path / "c", tmp_path / "run"
    run.mkdir()
    save(folder, 5)
    found = checkpoint_found.FoundCheckpoints(folder, "auto", run)
    found.step(listed(folder, "auto"))
    assert reported(run) == []
    save(folder, 10)
    (folder / "checkpoint-20").mkdir()
    (folder / "checkpoint-20" / "model.bin").write_bytes(b"x")
    found.step(listed(folder, "auto"))
    found.step(listed(folder, "auto"))
    assert reported(run) == [(10, str(folder / "checkpoint-10"), "transformers")]
    # The agent was killed, and the program saved meanwhile.
    (folder / "checkpoint-20" / "trainer_state.json").write_text("{}")
    checkpoint_found.FoundCheckpoints(folder, "auto", run).step(listed(folder, "auto"))
    assert [step for step, _path, _layout in reported(run)] == [10, 20]
    assert '"layout_by":"its name, checkpoint-N"' in (run / "metrics.jsonl").read_text().replace('": "', '":"')


def test_one_without_a_step_in_its_name_has_the_last_step_printed_before_it(tmp_path: pathlib.Path) -> None:
    """An epoch is no step; what was printed while it was looked for came later."""
    folder, run = tmp_path / "c", tmp_path / "run"
    run.mkdir()
    folder.mkdir()
    found, form = checkpoint_found.FoundCheckpoints(folder, "mmengine", run), "mmengine"
    (folder / "epoch_1.pth").write_bytes(b"x")
    (folder / "last_checkpoint").write_text(str(folder / "epoch_1.pth"))
    saved_at = (folder / "epoch_1.pth").stat().st_mtime
    found.step(listed(folder, form))
    assert reported(run) == []
    for step, after_s in ((7, -2.0), (8, -1.0), (9, 1.0)):
        files.append_json(run / "metrics.jsonl", {"at": saved_at + after_s, "step": step, "printed": True})
    found.step(listed(folder, form))
    text = (run / "metrics.jsonl").read_text().splitlines()[-1]
    assert json.loads(text)["checkpoint_step"] == 8 and json.loads(text)["layout"] == "mmengine"
    assert json.loads(text)["layout_by"] == "checkpoints.format", "it was named"


def test_a_program_that_reports_is_left_to_it(tmp_path: pathlib.Path) -> None:
    folder, run = tmp_path / "c", tmp_path / "run"
    run.mkdir()
    found = checkpoint_found.FoundCheckpoints(folder, "auto", run)
    files.append_json(run / "metrics.jsonl", {"at": 1.0, "checkpoint_step": 3, "path": "elsewhere"})
    save(folder, 10)
    found.step(listed(folder, "auto"))
    assert reported(run) == [(3, "elsewhere", None)]


def test_the_thread_looks_a_last_time(tmp_path: pathlib.Path) -> None:
    folder, run = tmp_path / "c", tmp_path / "run"
    run.mkdir()
    thread = checkpoint_found.LookingThread(
        folder, "auto", [checkpoint_found.FoundCheckpoints(folder, "auto", run).step]
    )
    save(folder, 10)
    thread.close()
    assert [step for step, _path, _layout in reported(run)] == [10]
