# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The ledger on disk: torn lines, one writer, modes, and what happens when the disk refuses a line."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError, MusterError, RefusedError
from ansible_collections.muster.training.plugins.plugin_utils._provision.ledger.ledger_store import (
    LEDGER,
    LedgerWriter,
    parse_ledger,
    read_ledger,
)
from ansible_collections.muster.training.tests.unit.plugins.plugin_utils._provision.ledger.stored_events import event

LINES = b"".join(event(number).line().encode() for number in range(3))


def test_what_is_appended_is_read(tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "lab"
    assert read_ledger(folder).events == ()
    with LedgerWriter(folder) as writer:
        writer.append(event(1))
        writer.append(event(1, "created"))
    with LedgerWriter(folder) as writer:
        writer.append(event(2))
    assert read_ledger(folder).events == (event(1), event(1, "created"), event(2))
    assert read_ledger(folder).warnings == ()


def test_files_are_for_their_owner_only(tmp_path: pathlib.Path) -> None:
    before = os.umask(0)
    try:
        with LedgerWriter(tmp_path / "state" / "lab") as writer:
            writer.append(event(1))
    finally:
        os.umask(before)
    assert (tmp_path / "state" / "lab").stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "state" / "lab").iterdir()} == {0o600}


@given(st.integers(0, len(LINES)))
def test_a_ledger_cut_anywhere_keeps_every_whole_line(cut: int) -> None:
    data = LINES[:cut]
    whole = data.count(b"\n")
    if cut and not whole:
        # A lone torn line is no empty ledger; a cut in front of the newline alone loses nothing.
        try:
            assert len(parse_ledger(data).events) == 1
        except InputError:
            pass
        return
    text = parse_ledger(data)
    assert len(text.events) >= whole
    assert len(text.events) + len(text.warnings) == len([line for line in data.split(b"\n") if line])


@given(st.binary(max_size=300), st.integers(0, 3))
def test_garbage_between_lines_never_hides_them(garbage: bytes, place: int) -> None:
    lines = [event(number).line().encode() for number in range(3)]
    data = b"".join([*lines[:place], garbage.replace(b"\n", b" ") + b"\n", *lines[place:]])
    assert {item.token for item in parse_ledger(data).events} >= {event(number).token for number in range(3)}


def test_a_torn_tail_is_closed_before_the_next_line(tmp_path: pathlib.Path) -> None:
    (tmp_path / LEDGER).write_bytes(LINES + b'{"at":"2026-11')
    with LedgerWriter(tmp_path) as writer:
        writer.append(event(7))
    text = read_ledger(tmp_path)
    assert [item.token for item in text.events] == [event(number).token for number in (0, 1, 2, 7)]
    assert len(text.warnings) == 1 and ":4" in text.warnings[0]


def test_a_ledger_of_garbage_is_not_empty() -> None:
    with pytest.raises(InputError, match="none can be read"):
        parse_ledger(b"\x00\xff garbage\n")
    assert parse_ledger(b"\n\n").events == ()


def test_a_newer_ledger_is_refused() -> None:
    with pytest.raises(InputError, match="schema"):
        parse_ledger(LINES + b'{"schema":2}\n')


def test_only_one_process_writes(tmp_path: pathlib.Path) -> None:
    script = (
        "import fcntl, os, sys\n"
        "f = open(sys.argv[1], 'w'); f.write('process 77 on head\\n'); f.flush(); fcntl.flock(f, fcntl.LOCK_EX)\n"
        "print('held', flush=True); sys.stdin.read()\n"
    )
    argv = [sys.executable, "-c", script, str(tmp_path / "ledger.lock")]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None and other.stdout.readline() == "held\n"
        with pytest.raises(RefusedError, match="process 77 on head"), LedgerWriter(tmp_path):
            pass
        other.communicate("")
    with LedgerWriter(tmp_path) as writer:
        writer.append(event(1))


def test_a_writer_that_is_refused_leaves_no_descriptor_open(tmp_path: pathlib.Path) -> None:
    with LedgerWriter(tmp_path):
        before = len(os.listdir("/proc/self/fd"))
        for _attempt in range(3):
            with pytest.raises(RefusedError), LedgerWriter(tmp_path):
                pass
        assert len(os.listdir("/proc/self/fd")) == before


def test_a_folder_that_cannot_be_made_is_an_error_of_one_line(tmp_path: pathlib.Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(MusterError, match="cannot be written") as caught, LedgerWriter(tmp_path / "file" / "lab"):
        pass
    assert "\n" not in str(caught.value)


def test_a_full_disk_is_an_error_and_the_next_line_stands_alone(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with LedgerWriter(tmp_path) as writer:
        writer.append(event(1))
        real = os.write
        monkeypatch.setattr(os, "write", lambda descriptor, data: real(descriptor, data[:10]))
        with pytest.raises(MusterError, match="cannot be written"):
            writer.append(event(2))
        monkeypatch.undo()
        writer.append(event(3))
    assert [item.token for item in read_ledger(tmp_path).events] == [event(1).token, event(3).token]


def test_a_folder_that_takes_no_writing_holds_up_no_deletion(tmp_path: pathlib.Path) -> None:
    (tmp_path / "lab").mkdir()
    (tmp_path / "lab" / "ledger.jsonl").mkdir()
    with pytest.raises(MusterError, match="cannot be written"), LedgerWriter(tmp_path / "lab"):
        pass
    with LedgerWriter(tmp_path / "lab", for_deletion=True) as writer:
        with pytest.raises(MusterError, match=r"ledger\.jsonl cannot be written"):
            writer.append(event(1))
        with pytest.raises(RefusedError, match="in use"), LedgerWriter(tmp_path / "lab", for_deletion=True):
            pass
    with LedgerWriter(tmp_path / "file" / "lab", for_deletion=True):
        pass


def test_every_line_is_synced(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    real = os.fsync
    monkeypatch.setattr(os, "fsync", lambda descriptor: (synced.append(descriptor), real(descriptor))[1])
    with LedgerWriter(tmp_path) as writer:
        at_start = len(synced)
        writer.append(event(1))
        writer.append(event(2))
        assert len(synced) == at_start + 2
