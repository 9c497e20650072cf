# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files of runs on their node: listing and reading them, and removing runs with the disk that this frees."""

from __future__ import annotations

import base64
import json
import os
import pathlib
import typing as t
import zlib

from ansible_collections.muster.training.plugins.module_utils._node import host_results


def ask(state: pathlib.Path, step: str, **values: t.Any) -> dict[str, t.Any]:
    return host_results.answer(state, {"step": step, **values})


def place(state: pathlib.Path, run_id: str, **sizes: int) -> pathlib.Path:
    run = state / "runs" / run_id
    for name, size in sizes.items():
        path = run / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(os.urandom(size))
    (run / "claim.json").write_text(json.dumps({"owner": "me"}))
    return run


def test_files_are_listed_and_read_in_pieces(tmp_path: pathlib.Path) -> None:
    run = place(tmp_path, "net-1", checkpoints__step_1=10, checkpoints__step_2=300, out__a=5)
    os.utime(run / "checkpoints" / "step_1", (1, 1))
    about = {"run_id": "net-1", "folder": "checkpoints", "format": "files"}
    held = ask(tmp_path, "saved", **about)["checkpoints"]
    assert [(item["name"], item["bytes"], item["own"], item["whole"]) for item in held] == [
        ("step_2", 300, True, True),
        ("step_1", 10, True, True),
    ]
    listed = ask(tmp_path, "list", names=["step_2"], patterns=[], **about)
    assert [item["path"] for item in listed["files"]] == ["step_2"]
    listed = ask(tmp_path, "list", run_id="net-1", folder=None, patterns=["out", "checkpoints/*1"], format="files")
    assert [item["path"] for item in listed["files"]] == ["checkpoints/step_1", "out/a"]
    assert listed["there"] == []
    listed = ask(tmp_path, "list", run_id="net-1", folder=None, patterns=["*.pt"], format="files")
    assert listed["files"] == [] and listed["there"] == [
        "checkpoints/step_1",
        "checkpoints/step_2",
        "claim.json",
        "out/a",
    ]
    values = {"run_id": "net-1", "folder": "checkpoints", "path": "step_2"}
    piece = ask(tmp_path, "read", offset=100, **values)
    assert zlib.decompress(base64.b64decode(piece["data"])) == (run / "checkpoints" / "step_2").read_bytes()[100:]
    assert zlib.decompress(base64.b64decode(ask(tmp_path, "read", offset=300, **values)["data"])) == b""


def test_nothing_outside_of_the_folder_is_read(tmp_path: pathlib.Path) -> None:
    place(tmp_path, "net-1", checkpoints__a=1)
    (tmp_path / "secret").write_text("x")
    found = ask(tmp_path, "read", run_id="net-1", folder="checkpoints", path="../../../secret", offset=0)
    assert "is not in" in found["problem"]


def test_runs_are_measured_and_removed(tmp_path: pathlib.Path) -> None:
    state = tmp_path / "node"
    place(state, "old-1", big=3 << 20)
    place(state, "new-1", small=1 << 20)
    blob = state / "blobs" / "ab"
    blob.parent.mkdir()
    blob.write_bytes(b"x" * (1 << 20))
    os.utime(blob, (1, 1))
    disk = ask(state, "disk")
    assert [(run["run_id"], run["alive"], run["owner"]) for run in disk["runs"]] == [
        ("new-1", False, "me"),
        ("old-1", False, "me"),
    ]
    assert disk["runs"][1]["bytes"] >= 3 << 20 and disk["blobs"] >= 1 << 20
    answer = ask(state, "clean", runs=["old-1", "never-1"])
    assert answer["removed"] == ["old-1"] and answer["freed"] >= 4 << 20
    assert not (state / "runs" / "old-1").exists() and (state / "runs" / "new-1").exists() and not blob.exists()


def test_the_checkpoint_that_would_go_with_a_run_is_named(tmp_path: pathlib.Path) -> None:
    state, shared = tmp_path / "node", tmp_path / "shared"
    place(state, "own-1", checkpoints__a=10, checkpoints__b=300)
    os.utime(state / "runs" / "own-1" / "checkpoints" / "a", (1, 1))
    place(state, "said-1", out__m=7)
    place(state, "far-1", small=1)
    shared.mkdir()
    (shared / "c").write_bytes(b"x")
    places = {
        "own-1": {"folder": "checkpoints", "format": "files", "reported": None},
        "said-1": {"folder": "checkpoints", "format": "files", "reported": "../out/m"},
        "far-1": {"folder": str(shared), "format": "files", "reported": str(shared / "c")},
    }
    found = {run["run_id"]: run["checkpoints"] for run in ask(state, "disk", places=places)["runs"]}
    assert found["far-1"] == [], "it stays where it is"
    assert [(item["name"], item["bytes"]) for item in found["own-1"]] == [("b", 300), ("a", 10)]
    assert [(item["name"], item["bytes"]) for item in found["said-1"]] == [("m", 7)]
    assert {run["run_id"]: run["checkpoints"] for run in ask(state, "disk")["runs"]}["own-1"][0]["name"] == "b"
