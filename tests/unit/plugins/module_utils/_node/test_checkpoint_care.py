# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Storing and removing beside a program: what is being stored stays, and an end waits as long as it may."""

from __future__ import annotations

import io
import json
import os
import pathlib
import typing as t
import zipfile

import pytest

from ansible_collections.muster.training.plugins.module_utils._node import checkpoint_care, checkpoint_sync, checkpoints


class SlowSync:
    """A sync that needs some calls to end."""

    holds = "step-1"

    def __init__(self, calls: int) -> None:
        self.left = calls

    def close(self, _wait_s: float) -> bool:
        self.left -= 1
        return self.left <= 0


def care(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, calls: int) -> checkpoint_care.CheckpointCare:
    monkeypatch.setattr(checkpoint_sync, "start_sync", lambda *_a: SlowSync(calls))
    rules = {"folder": str(tmp_path), "format": "files", "keep": 1, "shared": False, "first": True, "store": "s"}
    found = checkpoint_care.CheckpointCare(rules, tmp_path, "n")
    found.start()
    found.start()
    return found


def test_what_is_being_stored_is_not_removed(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[t.Any] = []
    monkeypatch.setattr(checkpoints, "start_pruning", lambda *_a, held, **_k: begun.append(held))
    care(tmp_path, monkeypatch, 1)
    assert begun[0]() == "step-1"


@pytest.mark.parametrize(("within_s", "beats"), [(None, 4), (-1.0, 1)])
def test_an_end_waits_for_the_store_and_a_cancel_only_so_long(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, within_s: float | None, beats: int
) -> None:
    found: list[int] = []
    care(tmp_path, monkeypatch, 5).close(within_s, lambda: found.append(1))
    assert len(found) == beats


def test_without_rules_nothing_runs(tmp_path: pathlib.Path) -> None:
    found = checkpoint_care.CheckpointCare({}, tmp_path, "n")
    found.start()
    found.close(None, lambda: None)


@pytest.mark.parametrize("saved", [[], [".muster-copied.json"], ["step-20"]])
def test_an_empty_folder_is_told_of_at_the_end(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, saved: list[str]
) -> None:
    run, folder = tmp_path / "run", tmp_path / "ck"
    run.mkdir()
    folder.mkdir()
    for name in saved:
        (folder / name).touch()
    rules = {"folder": str(folder), "format": "files", "keep": 1, "shared": False, "first": True}
    checkpoint_care.CheckpointCare(rules, run, "n").close(None, lambda: None)
    place = run / "events.jsonl"
    told = json.loads(place.read_text()) if place.exists() else {}
    assert told.get("kind") == (None if "step-20" in saved else "no_checkpoint")


@pytest.mark.parametrize("form", ["auto", "files"])
def test_a_file_that_is_written_over_is_told_of_unless_its_step_was_reported(tmp_path: pathlib.Path, form: str) -> None:
    """nanoGPT's ckpt.pt: there is a checkpoint, and no step of it is known."""
    run, folder = tmp_path / "run", tmp_path / "ck"
    run.mkdir()
    folder.mkdir()
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("ckpt/data.pkl", b"x" * 100)
    (folder / "ckpt.pt").write_bytes(buffer.getvalue())
    rules = {"folder": str(folder), "format": form, "keep": None, "shared": False, "first": False}
    checkpoint_care.CheckpointCare(rules, run, "n").close(None, lambda: None)
    told = json.loads((run / "events.jsonl").read_text())
    assert (told["kind"], told["folder"], told["name"]) == ("checkpoint_unreported", str(folder), "ckpt.pt")
    (run / "events.jsonl").unlink()
    (run / "metrics.jsonl").write_text('{"at": 1, "checkpoint_step": 250}\n')
    checkpoint_care.CheckpointCare(rules, run, "n").close(None, lambda: None)
    assert not (run / "events.jsonl").exists()


@pytest.mark.parametrize("older", [False, True])
def test_a_torn_file_is_told_of_where_no_whole_one_is(tmp_path: pathlib.Path, older: bool) -> None:
    """It stays as it is: whether to begin anew is for its user to decide."""
    run, folder = tmp_path / "run", tmp_path / "ck"
    run.mkdir()
    folder.mkdir()
    (folder / "ckpt.pt").write_bytes(ARCHIVE[:20])
    if older:
        (folder / "older.pt").write_bytes(ARCHIVE)
        os.utime(folder / "older.pt", (1, 1))
    rules = {"folder": str(folder), "format": "auto", "keep": None, "shared": False, "first": True}
    checkpoint_care.CheckpointCare(rules, run, "n").close(None, lambda: None)
    told = json.loads((run / "events.jsonl").read_text())
    if older:
        assert told["kind"] == "checkpoint_unreported"
    else:
        assert (told["kind"], told["detail"]) == (
            "checkpoint_half_saved",
            "ckpt.pt is half saved: ckpt.pt lacks its end",
        )
    assert (folder / "ckpt.pt").exists()


def test_a_tracker_that_names_a_missing_checkpoint_is_said_before_the_program_begins(tmp_path: pathlib.Path) -> None:
    (tmp_path / "latest").write_text("global_step20")
    rules = {"format": "auto", "resume": "auto"}
    (told,) = checkpoint_care.pass_over(tmp_path, rules, first=True)
    assert (
        told.startswith("warning: latest names global_step20, which is not there or not whole: ") and "delete" in told
    )
    assert checkpoint_care.pass_over(tmp_path / "absent", rules, first=True) == []
    assert checkpoint_care.pass_over(tmp_path, {**rules, "resume": "never"}, first=True) == []


ARCHIVE = b"PK\x03\x04" + bytes(40) + b"PK\x05\x06" + bytes(18)
# An empty header of safetensors, with its length before it.
SHARD = (2).to_bytes(8, "little") + b"{}"
RULES = {"format": "auto", "resume": "auto"}


@pytest.mark.parametrize(
    ("files", "left"),
    [
        # The newest one lacks its end, and an older one of its kind is whole.
        ({"ckpt-40.pt": ARCHIVE, "ckpt-60.pt": ARCHIVE[:20]}, {"ckpt-40.pt"}),
        # Without another one the program would begin anew: it is left, and the program says what it finds.
        ({"latest.pt": ARCHIVE[:20]}, {"latest.pt"}),
        ({"log.json": b"{}", "latest.pt": ARCHIVE[:20]}, {"log.json", "latest.pt"}),
        # An older half one is not taken by a program that looks for the newest.
        ({"ckpt-20.pt": ARCHIVE[:20], "ckpt-40.pt": ARCHIVE}, {"ckpt-20.pt", "ckpt-40.pt"}),
        # What names the newest one does not name it yet: its program takes the other.
        ({"m-10.pt": ARCHIVE, "latest": b"m-10.pt", "m-20.pt": ARCHIVE}, {"m-10.pt", "latest", "m-20.pt"}),
    ],
)
def test_a_file_that_lacks_its_end_is_passed_over(
    tmp_path: pathlib.Path, files: dict[str, bytes], left: set[str]
) -> None:
    for at, (name, data) in enumerate(files.items(), 1_700_000_000):
        (tmp_path / name).write_bytes(data)
        os.utime(tmp_path / name, (at, at))
    told = checkpoint_care.pass_over(tmp_path, RULES, first=True)
    assert {path.name for path in tmp_path.iterdir() if not path.name.startswith(".")} == left
    gone = sorted(set(files) - left)
    assert told == [f"checkpoint {name} is half saved: {name} lacks its end; it is passed over" for name in gone]
    # What was hidden is there for whoever wants to look at it.
    assert all((tmp_path / f".{name}.half-saved").read_bytes() == files[name] for name in gone)


def test_a_folder_that_lacks_a_shard_is_named_and_stays(tmp_path: pathlib.Path) -> None:
    for at, (name, shards) in enumerate({"epoch-1": (1, 2), "epoch-2": (1,)}.items(), 1_700_000_000):
        place = tmp_path / name
        place.mkdir()
        index = {"weight_map": {f"layer{number}": f"model-0000{number}-of-00002.safetensors" for number in (1, 2)}}
        (place / "model.safetensors.index.json").write_text(json.dumps(index))
        for number in shards:
            (place / f"model-0000{number}-of-00002.safetensors").write_bytes(SHARD)
        os.utime(place, (at, at))
    (told,) = checkpoint_care.pass_over(tmp_path, RULES, first=True)
    assert told.startswith(
        "warning: checkpoint epoch-2 is half saved: model-00002-of-00002.safetensors, which "
        "model.safetensors.index.json names, is not there: it does not count"
    )
    assert (tmp_path / "epoch-2").is_dir()
