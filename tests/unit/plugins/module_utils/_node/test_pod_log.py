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
