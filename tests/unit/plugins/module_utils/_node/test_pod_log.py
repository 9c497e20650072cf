# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a pod writes: no program can write a line that counts as recorded."""

from __future__ import annotations

import json
import os
import pathlib

from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.module_utils._node.pod_log import MARK, Output, Tail

_PIECES = st.lists(st.sampled_from([MARK, MARK[:4], MARK[4:], MARK[:-1], MARK[1:], "\n", "x"]), max_size=12)


def written(text: str) -> list[str]:
    reader, writer = os.pipe()
    output = Output({}, writer)
    output.program(text.encode())
    output.flush()
    os.close(writer)
    with open(reader, encoding="utf-8", newline="\n") as handle:
        return handle.read().split("\n")


@given(_PIECES.map("".join))
def test_no_line_of_a_program_holds_the_mark(text: str) -> None:
    assert not any(MARK in line for line in written(text))


def test_a_mark_around_a_mark_is_none() -> None:
    assert written(f"{MARK[:4]}{MARK}{MARK[4:]}{{}}\nhello\n") == ["\x1emus ter\x1e{}", "hello", ""]


def test_a_line_that_is_nested_without_end_is_passed_over(tmp_path: pathlib.Path) -> None:
    place = tmp_path / "metrics.jsonl"
    place.write_text("[" * 100_000 + '\n{"step": 1}\n')
    assert list(Tail(place).lines()) == [{"step": 1}]


def test_marked_lines_count_what_was_written_before_them(tmp_path: pathlib.Path) -> None:
    """By them a reader knows what it has missed, however a program's output was cut into lines."""
    writer = os.open(tmp_path / "stdout", os.O_WRONLY | os.O_CREAT, 0o600)
    output = Output({"pod": "p"}, writer)
    output.keep(tmp_path / "kept.log")
    output.program(b"a\nb")
    output.say("two\nlines")
    output.mark("events", {"kind": "x"})
    output.program(b"y" * (65 << 10))
    output.program(b"c\n\n")
    output.mark("events", {"kind": "y"})
    output.flush()
    os.close(writer)
    lines = (tmp_path / "stdout").read_bytes().decode().split("\n")[:-1]
    seen, found = 0, []
    for line in lines:
        if line.startswith(MARK):
            found.append(json.loads(line[len(MARK) :]))
            assert found[-1]["lines"] == seen
        else:
            seen += 1
    assert [item["seq"] for item in found] == [1, 2] and seen == 7


def both(tmp_path: pathlib.Path, *data: bytes, secret: str = "") -> tuple[str, str]:
    """Return what the container's log and the one beside the checkpoints have of a program's output."""
    writer = os.open(tmp_path / "stdout", os.O_WRONLY | os.O_CREAT, 0o600)
    output = Output({}, writer)
    output.hide([secret] if secret else [])
    output.keep(tmp_path / "kept.log")
    for part in data:
        output.program(part)
    output.flush()
    os.close(writer)
    return (tmp_path / "stdout").read_text(), (tmp_path / "kept.log").read_text()


def test_a_long_line_does_not_push_what_follows_out_of_the_log(tmp_path: pathlib.Path) -> None:
    """A megabyte a step: a kubelet keeps ten of them. Each step's own line is there, and so is what is missing."""
    megabyte = b"y" * 1_000_000
    parts = [piece for step in range(30) for piece in (megabyte[:400_000], megabyte[400_000:], b"\nstep=%d\n" % step)]
    shown, kept = both(tmp_path, *parts)
    assert [line for line in shown.splitlines() if line.startswith("step=")] == [f"step={step}" for step in range(30)]
    assert len(shown) < 600_000 and kept.count("y") == 30_000_000
    notes = [line for line in shown.splitlines() if line.startswith("muster: ")]
    assert len(notes) == 30 and shown.count("y" * 1000) > 30
    said = [int(line.split()[1]) + (16 << 10) for line in notes]
    assert all(1_000_000 <= size <= 1_000_100 for size in said), said
    assert notes[0].endswith("bytes of the line above were left out here, they are in the log beside the checkpoints")


def test_a_long_line_is_cut_between_letters_and_after_its_secrets_are_hidden(tmp_path: pathlib.Path) -> None:
    edge = "x" * ((16 << 10) - 5)
    shown, _kept = both(tmp_path, f"{edge}sesame-open{'z' * 99}\n".encode(), secret="sesame-open")
    assert "sesame" not in shown and shown.startswith(f"{edge}***zz\n")
    other = tmp_path / "other"
    other.mkdir()
    shown, _kept = both(other, f"{edge}ab{'ü' * 99}\n".encode())
    assert shown.startswith(f"{edge}abü\nmuster: ")


def test_a_line_that_never_ends_is_shown_at_once_and_counted_at_its_end(tmp_path: pathlib.Path) -> None:
    shown, kept = both(tmp_path, *[b"#" * 70_000] * 3)
    first, note, rest = shown.split("\n")
    assert first == "#" * (16 << 10) and note.startswith("muster: ") and rest == ""
    assert kept.count("#") == 210_000
