# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Metrics out of printed lines."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.module_utils._node import metric_lines

PATTERNS = metric_lines.compile_patterns(
    {
        "step": r"step (?P<step>[0-9,]+)(?: loss (?P<loss>\S+))?",
        "checkpoint_step": r"saved (?P<step>[0-9]+)",
        "resumed_from_step": r"^\[rank0\]:resumed at (?P<step>\S+)",
    }
)


def test_each_kind_of_line_becomes_its_metric() -> None:
    text = "[rank0]:step 1,200 loss 0.5\nnoise\n[rank0]:saved 1200\r\n[rank0]:resumed at 1200\nstep 1201 loss none\n"
    assert metric_lines.parse_lines(PATTERNS, text, 9.0) == [
        {"at": 9.0, "loss": 0.5, "step": 1200},
        {"at": 9.0, "checkpoint_step": 1200},
        {"at": 9.0, "resumed_from_step": 1200},
        {"at": 9.0, "step": 1201},
    ]


@pytest.mark.parametrize("word", ["nan", "NaN", "-inf", "Infinity"])
def test_a_loss_that_is_not_a_number_is_kept(word: str) -> None:
    (line,) = metric_lines.parse_lines(PATTERNS, f"step 7 loss {word}\n", 9.0)
    assert math.isnan(line["loss"]) and line["step"] == 7


def test_a_step_that_is_no_number_is_none() -> None:
    assert metric_lines.parse_lines(PATTERNS, "[rank0]:resumed at start\n", 9.0) == []


@pytest.mark.parametrize(
    ("text", "number"), [("1,024.5", 1024.5), ("inf", None), ("", None), (None, None), ("x", None)]
)
def test_numbers_with_commas(text: str | None, number: float | None) -> None:
    assert metric_lines.parse_number(text) == number


def test_white_space_of_a_pattern_does_not_join_lines() -> None:
    patterns = metric_lines.compile_patterns({"step": r"step\s+(?P<step>[0-9]+)$"})
    assert [line["step"] for line in metric_lines.parse_lines(patterns, "step\n7\nstep 8\nstep 9 x\n", 1.0)] == [8]


@given(text=st.text(st.sampled_from("step saved0123456789\n"), max_size=200))
def test_a_piece_gives_what_its_lines_give(text: str) -> None:
    whole = metric_lines.parse_lines(PATTERNS, text, 1.0)
    by_line = [line for raw in text.split("\n") for line in metric_lines.parse_lines(PATTERNS, raw, 1.0)]
    assert [sorted(line.items()) for line in whole] == [sorted(line.items()) for line in by_line]


@given(text=st.text(max_size=80))
def test_any_text_is_parsed(text: str) -> None:
    for line in metric_lines.parse_lines(PATTERNS, text, 1.0):
        assert all(math.isfinite(value) for value in line.values())
