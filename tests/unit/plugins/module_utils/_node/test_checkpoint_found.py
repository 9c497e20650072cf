# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A program that reports no checkpoint has them reported by their layout, each once."""

from __future__ import annotations

import json
import os
import pathlib
import pickle
import typing as t
import zipfile

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


def save_state(place: pathlib.Path, state: dict[str, t.Any]) -> None:
    """Save as ``torch.save`` does, by hand."""
    with zipfile.ZipFile(place, "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps(state, protocol=2))


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
    assert json.loads(text)["step_by"] == "the last that was printed before it", "it is an estimate"


def test_one_without_a_step_in_its_name_has_the_one_that_it_holds(tmp_path: pathlib.Path) -> None:
    """The bar is read a frame late, or not at all: Lightning's last.ckpt, after an older one with a step in its name."""
    folder, run = tmp_path / "c", tmp_path / "run"
    run.mkdir()
    folder.mkdir()
    found = checkpoint_found.FoundCheckpoints(folder, "auto", run)
    save_state(folder / "epoch=2-step=42.ckpt", {"global_step": 42})
    os.utime(folder / "epoch=2-step=42.ckpt", (1.0, 1.0))
    save_state(folder / "last.ckpt", {"epoch": 2, "global_step": 48})
    found.step(listed(folder, "auto"))
    assert [step for step, _path, _layout in reported(run)] == [42, 48]
    save_state(folder / "last.ckpt", {"epoch": 3, "global_step": 54, "loops": {}})
    os.utime(folder / "last.ckpt", (9e9, 9e9))
    files.append_json(run / "metrics.jsonl", {"at": 2.0, "step": 53})
    found.step(listed(folder, "auto"))
    text = (run / "metrics.jsonl").read_text().splitlines()[-1]
    assert json.loads(text)["checkpoint_step"] == 54, "it was written over"
    assert "step_by" not in text, "it is no estimate"


def test_a_file_without_a_layout_is_reported_by_the_step_that_it_holds(tmp_path: pathlib.Path) -> None:
    """nanoGPT's ckpt.pt; it is not removed by that, because other files lie beside it."""
    folder, run = tmp_path / "c", tmp_path / "run"
    run.mkdir()
    folder.mkdir()
    found = checkpoint_found.FoundCheckpoints(folder, "auto", run)
    save_state(folder / "weights.pt", {"model": {}})
    os.utime(folder / "weights.pt", (1.0, 1.0))
    save_state(folder / "ckpt.pt", {"model": {}, "iter_num": 30})
    files.append_json(run / "metrics.jsonl", {"at": 2.0, "step": 29})
    found.step(listed(folder, "auto"))
    at = folder / "ckpt.pt"
    line = json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])
    assert (line["checkpoint_step"], line["path"], line["layout"]) == (30, str(at), "files")
    assert line["layout_by"] == "its step, which it holds" and "step_by" not in line
    save_state(folder / "new.pt", {"iter_num": 40})
    os.utime(at, (2.0, 2.0))
    found.step(listed(folder, "auto"))
    pruner = checkpoints.Pruner(folder, "auto", 1, leads=True, metrics=run / "metrics.jsonl")
    assert pruner.step(last=True) == [] and at.exists()


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
    errors: list[str] = []

    def fail(_listed: t.Callable[[], list[checkpoint_found.Saved]]) -> None:
        raise KeyError("odd")

    looks = [fail, checkpoint_found.FoundCheckpoints(folder, "auto", run).step]
    thread = checkpoint_found.LookingThread(folder, "auto", looks, lambda exc: errors.append(repr(exc)))
    save(folder, 10)
    thread.close()
    # An error of one look is noted, and the others go on.
    assert [step for step, _path, _layout in reported(run)] == [10] and set(errors) == {"KeyError('odd')"}
