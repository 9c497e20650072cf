# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files of a run: private whatever the umask says, whole or not there, and lines that never mix."""

from __future__ import annotations

import errno
import json
import os
import pathlib
import pwd
import subprocess
import sys
import threading
import typing as t

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.module_utils._node import files


@pytest.fixture(params=[0o000, 0o022, 0o077], ids=oct)
def umask(request: pytest.FixtureRequest) -> t.Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def mode(path: pathlib.Path) -> int:
    return path.stat().st_mode & 0o777


def test_what_is_written_is_private_under_any_umask(tmp_path: pathlib.Path, umask: int) -> None:
    folder = files.private_dir(tmp_path / "run")
    files.write_json(folder / "state.json", {"a": 1})
    files.append_json(folder / "events.jsonl", {"a": 1})
    files.write_atomic(folder / "tool", b"#!/bin/sh\n", 0o700)
    files.write_atomic(folder / "shared", b"", 0o644)
    assert mode(folder / "shared") == 0o644
    assert mode(folder) == 0o700 and mode(folder / "tool") == 0o700
    assert mode(folder / "state.json") == mode(folder / "events.jsonl") == 0o600
    assert files.private_dir(folder) == folder


def test_parents_are_left_to_the_umask_that_agents_set(tmp_path: pathlib.Path) -> None:
    before = os.umask(0o077)
    try:
        files.private_dir(tmp_path / "a" / "b" / "c")
    finally:
        os.umask(before)
    assert mode(tmp_path / "a") == mode(tmp_path / "a" / "b") == 0o700


# A writer that is killed in the middle: what it says is that it has begun.
_KILLED = """
import os, pathlib, sys
from ansible_collections.muster.training.plugins.module_utils._node import files
def stand(*_): print("begun", flush=True); sys.stdin.read()
os.replace = stand
files.write_atomic(pathlib.Path(sys.argv[1]), b"x" * 1000)
"""


def test_what_a_killed_writer_left_is_removed_by_the_next_one(tmp_path: pathlib.Path) -> None:
    place = tmp_path / "state.json"
    with subprocess.Popen(
        [sys.executable, "-c", _KILLED, str(place)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as writer:
        assert writer.stdout is not None and writer.stdout.readline() == b"begun\n"
        (left,) = tmp_path.iterdir()
        files.write_atomic(place, b"one")
        assert left.exists(), "its writer may live"
        writer.kill()
    os.utime(left, (0, 0))
    (tmp_path / ".state.json.mine").touch()
    files._cleared.clear()
    files.write_atomic(place, b"two")
    assert sorted(item.name for item in tmp_path.iterdir()) == [".state.json.mine", "state.json"]


def test_what_killed_processes_left_is_removed_and_what_grows_is_not(tmp_path: pathlib.Path) -> None:
    for name in ("old.part", "kept.part", "new.part", "tree.part", "growing.part"):
        place = tmp_path / name
        if name in ("tree.part", "growing.part"):
            place.mkdir()
            (place / "inner").touch()
            os.utime(place / "inner", (0, 0) if name == "tree.part" else None)
        else:
            place.touch()
        if name != "new.part":
            os.utime(place, (0, 0))
    files.clear_left(tmp_path, "", ".part", keep={"kept.part"})
    assert sorted(item.name for item in tmp_path.iterdir()) == ["growing.part", "kept.part", "new.part"]
    files.clear_left(tmp_path / "nowhere", "", ".part")


def test_a_file_is_replaced_and_nothing_else_is_left(tmp_path: pathlib.Path) -> None:
    place = tmp_path / "exit.json"
    files.write_atomic(place, b"old")
    with open(place, "rb") as reader:
        files.write_atomic(place, b"new")
        # Whoever had the old file open still reads all of it: it was replaced, not rewritten.
        assert reader.read() == b"old"
    assert place.read_bytes() == b"new" and [item.name for item in tmp_path.iterdir()] == ["exit.json"]


def test_a_write_that_fails_leaves_the_old_content(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "state.json"
    files.write_json(place, {"n": 1})

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        files.write_json(place, {"n": 2})
    assert files.read_json(place) == {"n": 1}


def test_a_write_that_fails_leaves_no_temporary_file(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        files.write_atomic(tmp_path / "state.json", b"x" * 1000)
    assert list(tmp_path.iterdir()) == []


@given(data=st.binary(max_size=40))
def test_any_content_reads_as_json_or_as_nothing(data: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
    place = tmp_path_factory.getbasetemp() / "any.json"
    place.write_bytes(data)
    try:
        wanted = json.loads(data)
    except ValueError:
        wanted = None
    # A NaN is not equal to itself.
    assert repr(files.read_json(place)) == repr(wanted)


def test_a_missing_file_reads_as_nothing(tmp_path: pathlib.Path) -> None:
    assert files.read_json(tmp_path / "none.json") is None and files.read_json(tmp_path) is None


def test_lines_of_many_writers_never_mix(tmp_path: pathlib.Path) -> None:
    place = tmp_path / "events.jsonl"

    def write(name: int) -> None:
        for number in range(40):
            files.append_json(place, {"writer": name, "n": number, "text": "x" * 300})

    threads = [threading.Thread(target=write, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    lines = [json.loads(line) for line in place.read_text().splitlines()]
    for name in range(4):
        assert [line["n"] for line in lines if line["writer"] == name] == list(range(40))


@pytest.mark.parametrize(
    ("node", "folder"), [("gpu-1.lan", "gpu-1.lan"), ("../up", "_up"), ("a/b", "a_b"), ("..", "_"), ("[::1]", "___1_")]
)
def test_a_nodes_name_names_no_other_folder(node: str, folder: str) -> None:
    assert files.state_root(node, "/disk") == pathlib.Path("/disk") / folder


def test_the_state_folder_of_a_node(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/xdg")
    assert files.state_root("n1") == pathlib.Path("/xdg/muster/nodes/n1")
    assert files.state_root("n1", "/disk") == pathlib.Path("/disk/n1")
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv("HOME", "/home/me")
    assert files.state_root("n1") == pathlib.Path("/home/me/.local/state/muster/nodes/n1")
    assert files.state_root("n1", "~/disk") == pathlib.Path("/home/me/disk/n1")
    monkeypatch.delenv("HOME")
    assert files.home_dir() == pathlib.Path(pwd.getpwuid(os.getuid()).pw_dir)


def test_the_digest_of_a_file(tmp_path: pathlib.Path) -> None:
    (tmp_path / "x").write_bytes(b"")
    assert files.sha256_of(tmp_path / "x").startswith("e3b0c44298fc1c14")


@given(text=st.text(max_size=60))
def test_any_text_gives_objects_only(text: str) -> None:
    assert all(isinstance(value, dict) for value in files.parse_json_lines(text))


@given(
    values=st.lists(st.dictionaries(st.text(max_size=5), st.integers() | st.text(max_size=5)), max_size=5),
    torn=st.text(max_size=5),
)
def test_whole_lines_are_kept_and_a_torn_one_is_passed_over(values: list[dict[str, t.Any]], torn: str) -> None:
    text = "".join(json.dumps(value) + "\n" for value in values) + '{"torn": ' + json.dumps(torn)
    assert list(files.parse_json_lines(text)) == values
    assert list(files.parse_json_lines(text.encode())) == values


def test_text_that_cannot_be_read_is_empty_and_foreign_bytes_are_replaced(tmp_path: pathlib.Path) -> None:
    (tmp_path / "a").write_bytes(b"x\xff\n")
    assert (files.read_text(tmp_path / "a"), files.read_text(tmp_path / "none")) == ("x\ufffd\n", "")


def test_the_error_of_a_full_disk_names_the_file(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(OSError, match="No space left") as full:
        files.append_text(pathlib.Path("/dev/full"), "line\n")
    assert (full.value.errno, full.value.filename) == (errno.ENOSPC, "/dev/full")

    def sync(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", sync)
    with pytest.raises(OSError, match="No space left") as full:
        files.write_json(tmp_path / "run.json", {})
    assert full.value.filename == str(tmp_path / "run.json") and not list(tmp_path.iterdir())


def test_a_line_of_which_a_disk_took_a_part_is_written_whole_or_refused(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: write(descriptor, data[:3]))
    files.append_text(tmp_path / "events.jsonl", "0123456789\n")
    assert (tmp_path / "events.jsonl").read_text() == "0123456789\n"
