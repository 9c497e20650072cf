# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which sharded checkpoint counts: manifests, damaged and missing shards."""

from __future__ import annotations

import errno
import json
import os
import shutil
import tempfile
import typing as t
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.examples.fsdp import shards

CONTENTS = {".metadata": b"plan", "__0_0.distcp": b"first half", "__1_0.distcp": b"second half"}
SHA256 = st.text("0123456789abcdef", min_size=64, max_size=64)
COUNTS = st.integers(0, 1 << 40)
SHARDS = st.builds(shards.Shard, st.sampled_from(list(CONTENTS)), COUNTS, SHA256)
MANIFESTS = st.builds(
    shards.Manifest,
    COUNTS,
    COUNTS,
    COUNTS,
    st.dictionaries(st.text(max_size=5), COUNTS, max_size=3),
    st.lists(SHARDS, min_size=1, max_size=3).map(tuple),
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


def finish(root: Path, step: int) -> Path:
    """Make a complete checkpoint of three files."""
    directory = shards.directory_of(root, step)
    directory.mkdir(parents=True)
    for name, content in CONTENTS.items():
        (directory / name).write_bytes(content)
    listed = tuple(shards.describe_file(directory / name) for name in CONTENTS)
    shards.write_manifest(directory, shards.Manifest(step, step * 32, 2, {"width": 16}, listed))
    return directory


def problem(directory: Path) -> str:
    """Return why a checkpoint does not count, empty if it does."""
    try:
        return shards.check(directory, shards.read_manifest(directory).shards)
    except shards.TornError as error:
        return str(error)


@given(manifest=MANIFESTS)
def test_a_manifest_survives_the_disk(manifest: shards.Manifest) -> None:
    assert shards.Manifest.from_dict(json.loads(json.dumps(manifest.to_dict()))) == manifest


@given(
    manifest=MANIFESTS, key=st.sampled_from(["schema", "step", "position", "world_size", "shape", "shards"]), raw=JSON
)
def test_a_manifest_with_any_other_value_is_read_or_refused(manifest: shards.Manifest, key: str, raw: object) -> None:
    changed = {**manifest.to_dict(), key: raw}
    try:
        read = shards.Manifest.from_dict(changed)
    except shards.TornError as error:
        assert "\n" not in str(error)
    else:
        assert read.to_dict() == changed


@given(raw=JSON)
def test_a_foreign_value_is_no_manifest(raw: object) -> None:
    with pytest.raises(shards.TornError):
        shards.Manifest.from_dict(raw)


@pytest.mark.parametrize("name", ["", ".", "..", "../other", "/etc/passwd", "a\\b", "a\0b", "manifest.json", 5, None])
def test_a_shard_stays_inside_its_checkpoint(name: object) -> None:
    shard = {"name": name, "size_bytes": 1, "sha256": "0" * 64}
    raw = {"schema": 1, "step": 1, "position": 1, "world_size": 1, "shape": {}, "shards": [shard]}
    with pytest.raises(shards.TornError, match="is not a file name"):
        shards.Manifest.from_dict(raw)


@given(data=st.data())
def test_any_damage_to_any_file_is_found(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as root:
        directory = finish(Path(root), 40)
        assert problem(directory) == ""
        path = directory / data.draw(st.sampled_from(sorted(CONTENTS)))
        content = path.read_bytes()
        place = data.draw(st.integers(0, len(content) - 1))
        flipped = content[:place] + bytes([content[place] ^ data.draw(st.integers(1, 255))]) + content[place + 1 :]
        damaged = data.draw(st.sampled_from([content[:place], flipped, content + b"\0", None]))
        path.unlink() if damaged is None else path.write_bytes(damaged)
        assert problem(directory).startswith(path.name)


def test_a_shard_of_another_size_is_told_apart_without_reading_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = finish(tmp_path, 40)
    os.truncate(directory / "__0_0.distcp", 5)
    monkeypatch.setattr(shards, "describe_file", lambda path: pytest.fail("read"))
    cut = shards.Shard("__0_0.distcp", len(CONTENTS["__0_0.distcp"]), "0" * 64)
    assert shards.check(directory, [cut]) == "__0_0.distcp has 5 bytes instead of 10"


@pytest.mark.parametrize("key", ["step", "position", "world_size"])
def test_true_is_no_count(key: str) -> None:
    raw = shards.Manifest(1, 1, 1, {}, (shards.Shard("a", 1, "0" * 64),)).to_dict()
    with pytest.raises(shards.TornError, match=f"'{key}' is not a whole number"):
        shards.Manifest.from_dict({**raw, key: True})


@given(length=st.integers(0, 10_000))
def test_a_cut_manifest_does_not_count(length: int) -> None:
    with tempfile.TemporaryDirectory() as root:
        directory = finish(Path(root), 40)
        content = (directory / shards.MANIFEST).read_bytes()
        (directory / shards.MANIFEST).write_bytes(content[: length % len(content)])
        assert problem(directory) == "manifest.json is not JSON"


def test_a_checkpoint_without_or_with_a_foreign_manifest_does_not_count(tmp_path: Path) -> None:
    directory = finish(tmp_path, 40)
    other = tmp_path / "step-00000060"
    shutil.copytree(directory, other)
    assert problem(other) == "manifest.json is of step 40"
    (directory / shards.MANIFEST).unlink()
    assert problem(directory) == "it was never finished, there is no manifest"
    (directory / shards.MANIFEST).mkdir()
    assert problem(directory) == "manifest.json cannot be read: Is a directory"


def test_a_manifest_that_cannot_be_written_leaves_the_checkpoint_unfinished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> t.NoReturn:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(OSError, match="No space left"):
        finish(tmp_path, 40)
    assert problem(shards.directory_of(tmp_path, 40)) == "it was never finished, there is no manifest"


def test_the_newest_candidate_comes_first(tmp_path: Path) -> None:
    for step in (40, 100_000_000, 60):
        finish(tmp_path, step)
    (tmp_path / "step-1").mkdir()
    assert [path.name for path in shards.candidates(tmp_path)] == ["step-100000000", "step-00000060", "step-00000040"]
    assert shards.candidates(tmp_path / "absent") == []


@given(names=st.sets(st.text(min_size=1, max_size=5)), world_size=st.integers(1, 5))
def test_all_ranks_together_check_each_file_once(names: set[str], world_size: int) -> None:
    parts = [shards.part_of(names, rank, world_size) for rank in range(world_size)]
    assert sorted(name for part in parts for name in part) == sorted(names)


def test_prune_keeps_the_newest_complete_ones(tmp_path: Path) -> None:
    made = {step: finish(tmp_path, step) for step in (10, 20, 30, 40, 50, 60)}
    (made[40] / shards.MANIFEST).unlink()
    shards.prune(tmp_path, 50, keep=3, damaged={made[30]})
    assert shards.candidates(tmp_path) == [made[60], made[50], made[20], made[10]]
    shards.prune(tmp_path, 50, keep=1, damaged=())
    assert shards.candidates(tmp_path) == [made[60], made[50]]


def test_discard_takes_the_manifest_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = finish(tmp_path, 40)
    monkeypatch.setattr(shutil, "rmtree", lambda path: None)
    shards.discard(directory)
    assert problem(directory) == "it was never finished, there is no manifest"
    monkeypatch.undo()
    shards.discard(directory)
    shards.discard(directory)
    assert not directory.exists()
