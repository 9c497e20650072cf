# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checkpoint files: which one counts, and what a failure leaves behind."""

from __future__ import annotations

import errno
import os
import string
import tempfile
import typing as t
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.examples.char_lm import checkpoints


def newest(directory: Path) -> tuple[int | None, list[str]]:
    """Return the step that counts and the names of the files that were skipped."""
    skipped: list[str] = []
    found = checkpoints.newest_complete(directory, lambda path, reason: skipped.append(f"{path.name[:13]}: {reason}"))
    return (found.step if found else None), skipped


def names(directory: Path) -> list[str]:
    """Return the sorted names in a directory."""
    return sorted(path.name for path in directory.iterdir())


def test_no_directory_holds_no_checkpoint(tmp_path: Path) -> None:
    assert newest(tmp_path / "absent") == (None, [])


def test_the_newest_step_counts_whatever_the_order_of_saving(tmp_path: Path) -> None:
    for step in (40, 100_000_000, 60):
        checkpoints.save(tmp_path / "run", step, b"state %d" % step)
    (tmp_path / "run" / "step-99999999999.pt").write_bytes(b"not one of ours")
    found = checkpoints.newest_complete(tmp_path / "run", lambda *_: None)
    assert found is not None
    assert (found.step, found.payload) == (100_000_000, b"state 100000000")


@given(payload=st.binary(min_size=1, max_size=200), data=st.data())
def test_any_cut_or_changed_byte_is_found(payload: bytes, data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        checkpoints.save(directory, 10, b"before")
        path = checkpoints.save(directory, 20, payload)
        assert newest(directory) == (20, [])
        place = data.draw(st.integers(0, len(payload) - 1))
        flipped = payload[:place] + bytes([payload[place] ^ data.draw(st.integers(1, 255))]) + payload[place + 1 :]
        path.write_bytes(data.draw(st.sampled_from([payload[:place], flipped, payload + b"\0"])))
        step, skipped = newest(directory)
        assert step == 10
        assert len(skipped) == 1
        assert skipped[0].startswith("step-00000020: torn or damaged")


@given(name=st.text(string.ascii_letters + string.digits + "-._/\n", max_size=100) | st.text(max_size=20))
def test_a_foreign_name_is_no_checkpoint(name: str) -> None:
    assert checkpoints.step_of(name) is None


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_failed_save_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    checkpoints.save(tmp_path, 10, b"before")
    before = names(tmp_path)

    def fail(*_: object) -> t.NoReturn:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", fail) if call == "fsync" else monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(OSError, match="No space left"):
        checkpoints.save(tmp_path, 20, b"after")
    assert names(tmp_path) == before


def test_a_save_is_on_the_disk_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    fsync, replace = os.fsync, Path.replace

    def noted_fsync(descriptor: int) -> None:
        order.append("fsync")
        fsync(descriptor)

    def noted_replace(path: Path, target: Path) -> Path:
        order.append("rename")
        return replace(path, target)

    monkeypatch.setattr(os, "fsync", noted_fsync)
    monkeypatch.setattr(Path, "replace", noted_replace)
    checkpoints.save(tmp_path, 10, b"state")
    assert order == ["fsync", "rename", "fsync"]


def test_prune_keeps_the_newest_and_drops_damaged_and_doubled(tmp_path: Path) -> None:
    saved = {step: checkpoints.save(tmp_path, step, b"%d" % step) for step in (10, 20, 30, 40)}
    doubled = checkpoints.save(tmp_path, 40, b"written by another attempt")
    later = checkpoints.save(tmp_path, 50, b"of a step not reached yet")
    checkpoints.prune(tmp_path, saved[40], keep=3, damaged={saved[30]})
    assert names(tmp_path) == sorted(path.name for path in (saved[10], saved[20], saved[40], later))
    assert not doubled.exists()
    checkpoints.prune(tmp_path, saved[40], keep=1, damaged=())
    assert names(tmp_path) == sorted(path.name for path in (saved[40], later))


def test_sweep_removes_only_what_killed_processes_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = checkpoints.save(tmp_path, 10, b"state")

    def killed(*_: object) -> t.NoReturn:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", killed)
        with pytest.raises(KeyboardInterrupt):
            checkpoints.save(tmp_path, 20, b"never finished")
    assert len(names(tmp_path)) == 2
    assert newest(tmp_path) == (10, [])
    checkpoints.sweep(tmp_path)
    assert names(tmp_path) == [path.name]
    checkpoints.sweep(tmp_path / "absent")
