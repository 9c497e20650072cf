# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One node writes into the checkpoint folder, the others must see it: on nodes whose folders are one, and are not."""

from __future__ import annotations

import pathlib
import threading

import pytest

from ansible_collections.muster.training.plugins.module_utils._node import files, shared_folder


def test_a_folder_that_all_see_is_proven_and_left_as_it_was(tmp_path: pathlib.Path) -> None:
    folder, run = tmp_path / "ckpt" / "x-1", files.private_dir(tmp_path / "run")
    proof = {**shared_folder.new_proof(), "folder": str(folder), "writer": "a", "within_s": 5}
    assert shared_folder.take_part(run, {**proof, "writes": True}) == ""
    assert shared_folder.take_part(tmp_path / "other", {**proof, "writes": False}) == ""
    assert [path.name for path in folder.iterdir()] == [proof["name"]]
    shared_folder.forget(run)
    assert list(folder.iterdir()) == [] and list(run.iterdir()) == []
    shared_folder.forget(run)


def test_a_folder_of_the_nodes_own_is_refused(tmp_path: pathlib.Path) -> None:
    """It was made by the preparation and is removed again; one with content stays."""
    proof = {**shared_folder.new_proof(), "writer": "alpha", "within_s": 0}
    run = files.private_dir(tmp_path / "run")
    assert shared_folder.take_part(run, {**proof, "folder": str(tmp_path / "a"), "writes": True}) == ""
    own = tmp_path / "b"
    own.mkdir()
    problem = shared_folder.take_part(run, {**proof, "folder": str(own), "writes": False})
    assert problem.startswith(f"does not see in {own} what alpha wrote there") and not own.exists()
    own.mkdir()
    (own / "step").write_text("7")
    assert shared_folder.take_part(run, {**proof, "folder": str(own), "writes": False}) and (own / "step").exists()


def test_a_file_of_that_name_with_other_content_proves_nothing(tmp_path: pathlib.Path) -> None:
    proof = shared_folder.new_proof()
    (tmp_path / proof["name"]).write_text("guessed")
    assert shared_folder.find_problem(tmp_path, proof, "a", 0)
    assert shared_folder.find_problem(tmp_path, {}, "a", 0)
    assert shared_folder.new_proof() != proof


def test_a_file_that_comes_late_is_waited_for(tmp_path: pathlib.Path) -> None:
    proof, looked = shared_folder.new_proof(), list[float]()

    def pause(seconds: float) -> None:
        looked.append(seconds)
        if len(looked) == 3:
            shared_folder.write_proof(tmp_path, proof)

    assert shared_folder.find_problem(tmp_path, proof, "a", 60, pause) == ""
    assert len(looked) == 3
    stopped = threading.Event()
    stopped.set()
    assert shared_folder.find_problem(tmp_path / "none", proof, "a", 60, lambda _s: not stopped.is_set())


def test_what_a_killed_writer_left_goes_with_the_next_proof(tmp_path: pathlib.Path) -> None:
    shared_folder.write_proof(tmp_path, shared_folder.new_proof())
    (tmp_path / "step").write_text("7")
    proof = shared_folder.new_proof()
    shared_folder.write_proof(tmp_path, proof)
    assert {path.name for path in tmp_path.iterdir()} == {"step", proof["name"]}


def test_a_folder_that_cannot_be_written_is_named(tmp_path: pathlib.Path) -> None:
    (tmp_path / "file").write_text("")
    proof = {**shared_folder.new_proof(), "folder": str(tmp_path / "file" / "x"), "writer": "a", "writes": True}
    assert "cannot be written: Not a directory" in shared_folder.take_part(files.private_dir(tmp_path / "run"), proof)


@pytest.mark.parametrize("note", ["{}", "[]", "torn", '{"folder": 3}'])
def test_a_damaged_note_removes_nothing(tmp_path: pathlib.Path, note: str) -> None:
    (tmp_path / "keep").write_text("")
    (tmp_path / "shared.json").write_text(note)
    shared_folder.forget(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["keep"]
