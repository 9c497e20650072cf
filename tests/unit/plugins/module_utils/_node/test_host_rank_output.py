# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files of a node's ranks in one log: whole lines, each once, with the rank in the whole world."""

from __future__ import annotations

import os
import pathlib

import hypothesis
import pytest
from hypothesis import strategies

from ansible_collections.muster.training.plugins.module_utils._node import host_rank_output


class Node:
    """A run's folder with ranks that print."""

    def __init__(self, run: pathlib.Path) -> None:
        self.run, self.log = run, run / "log"

    def write(self, rank: int, text: str, stream: str = "stdout", attempt: int | str = 1) -> pathlib.Path:
        place = self.run / "ranks" / f"attempt_{attempt}" / str(rank) / f"{stream}.log"
        place.parent.mkdir(parents=True, exist_ok=True)
        with open(place, "a", newline="") as handle:
            handle.write(text)
        return place

    def copier(self, offsets: dict[str, int] | None = None) -> host_rank_output.RankOutput:
        return host_rank_output.RankOutput(self.run, self.log, offsets)

    @property
    def lines(self) -> list[str]:
        return self.log.read_text().splitlines() if self.log.exists() else []


@pytest.fixture
def node(tmp_path: pathlib.Path) -> Node:
    return Node(tmp_path)


def test_lines_carry_the_rank_in_the_whole_world(node: Node) -> None:
    copier = node.copier()
    node.write(6, "one\n")
    node.write(7, "two\n", "stderr")
    copier.copy_new()
    assert node.lines == ["[default6]:one", "[default7]:two"] and copier.copied
    node.write(6, "three\n\n")
    copier.copy_new()
    assert node.lines[2:] == ["[default6]:three", "[default6]:"]
    assert copier.copy_new() is False and not copier.copied and copier.printed_at is None


def test_a_file_that_a_power_cut_shortened_is_not_copied_again(node: Node) -> None:
    place = node.write(0, "one\ntwo\n")
    copier = node.copier({str(place): 100, "gone": 5})
    copier.copy_new()
    assert node.lines == [] and copier.offsets == {str(place): 8}
    node.write(0, "three\n")
    copier.copy_new()
    assert node.lines == ["[default0]:three"]


def test_the_number_of_an_attempt_may_come_again_in_a_later_start(node: Node) -> None:
    """torchrun had come to attempt 3 of the first start; the second start begins with attempt 2."""
    copier = node.copier()
    for attempt in ("1.1", "1.2", "1.3", "2.2"):
        node.write(0, f"of {attempt}\n", attempt=attempt)
    node.write(0, "not yet a li", attempt="2.2")
    while copier.copy_new():
        pass
    assert node.lines == [f"[default0]:of {attempt}" for attempt in ("1.1", "1.2", "1.3", "2.2")]


def test_what_is_read_at_the_end_is_dated_by_when_it_was_printed(node: Node) -> None:
    place = node.write(0, "last words\n")
    os.utime(place, (1000, 1000))
    copier = node.copier({})
    copier.copy_new(ended=True)
    assert node.lines and copier.printed_at == 1000


def test_an_attempt_s_last_lines_come_before_the_first_of_the_next_and_are_dated_by_it(node: Node) -> None:
    copier = node.copier()
    node.write(0, "one\n", attempt=9)
    copier.copy_new()
    assert copier.printed_at is None, "an attempt that runs prints now"
    late = node.write(0, "y\n" * 150_000 + "killed amid a l", attempt=9)
    os.utime(late, (1000, 1000))
    node.write(0, "again\n", attempt=10)
    times: list[float | None] = []
    while copier.copy_new():
        times.append(copier.printed_at)
    assert node.lines[-2:] == ["[default0]:killed amid a l", "[default0]:again"] and len(node.lines) == 150_003
    assert times == [1000, 1000] and copier.printed_at is None


def test_a_line_waits_for_its_end_and_not_for_ever(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    copier = node.copier()
    node.write(0, "step 1\nloading the tok")
    copier.copy_new()
    assert node.lines == ["[default0]:step 1"]
    node.write(0, "enizer\nready? ")
    copier.copy_new()
    assert node.lines[1:] == ["[default0]:loading the tokenizer"]
    monkeypatch.setattr(host_rank_output, "_UNENDED_S", 0.0)
    for _look in range(2):
        copier.copy_new()
    assert node.lines[2:] == ["[default0]:ready? "]
    node.write(0, "the end")
    copier.copy_new(ended=True)
    assert node.lines[3:] == ["[default0]:the end"]


def test_a_progress_bar_is_lines(node: Node) -> None:
    copier = node.copier()
    node.write(0, "10%\r20%\r30%")
    copier.copy_new()
    assert node.lines == ["[default0]:10%", "[default0]:20%"]
    node.write(0, "\r\nend\r\n")
    copier.copy_new()
    assert node.lines[2:] == ["[default0]:30%", "[default0]:end"]


def test_a_supervisor_that_starts_again_copies_each_line_once(node: Node) -> None:
    first = node.copier()
    node.write(0, "one\n")
    first.copy_new()
    node.write(0, "two\n")
    node.copier(first.offsets).copy_new()
    assert node.lines == ["[default0]:one", "[default0]:two"]
    torn = node.copier()
    node.write(0, "three\n")
    torn.copy_new()
    assert node.lines[2:] == ["[default0]:three"]


def test_a_program_that_opens_its_output_anew_empties_it(node: Node) -> None:
    copier = node.copier()
    place = node.write(0, "one\ntwo\n")
    copier.copy_new()
    place.write_text("3\n")
    copier.copy_new()
    assert node.lines[2:] == ["[default0]:3"]


def test_a_rank_that_prints_much_does_not_keep_the_others_waiting(node: Node) -> None:
    copier = node.copier()
    node.write(0, "x" * 99 + "\n" + ("y" * 99 + "\n") * 30_000)
    node.write(1, "here\n")
    assert copier.copy_new() is True
    assert node.lines[-1] == "[default1]:here" and len(node.lines) < 3_000
    while copier.copy_new():
        pass
    assert len(node.lines) == 30_002 and {len(line) for line in node.lines} == {110, 15}


@hypothesis.given(strategies.lists(strategies.text("ab\r\n", max_size=6), max_size=8))
def test_no_letter_is_lost_or_doubled(tmp_path_factory: pytest.TempPathFactory, pieces: list[str]) -> None:
    node = Node(tmp_path_factory.mktemp("run"))
    copier = node.copier()
    for piece in pieces:
        node.write(0, piece)
        copier.copy_new()
    copier.copy_new(ended=True)
    shown = "".join(line.removeprefix("[default0]:") for line in node.lines)
    assert shown == "".join(pieces).replace("\r", "").replace("\n", "")
