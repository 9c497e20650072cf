# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reading values that programs, nodes and users wrote."""

from __future__ import annotations

import json
import math
import typing as t

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.plugin_utils._report.data import parsing

ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=40),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=12,
)


@given(ANYTHING)
def test_no_reader_raises_and_each_keeps_its_promise(value: t.Any) -> None:
    text, number, whole, at = (
        parsing.read_text(value),
        parsing.read_number(value),
        parsing.read_integer(value),
        parsing.read_time(value),
    )
    assert text is None or (0 < len(text) <= parsing.LIMIT and "\n" not in text and "\x00" not in text)
    assert number is None or math.isfinite(number)
    assert whole is None or abs(whole) < 2**53
    assert at is None or 0 < at < 7.26e9
    assert all(isinstance(row, dict) for row in parsing.read_rows(value))
    assert isinstance(parsing.read_mapping(value), dict)
    json.dumps(parsing.to_json(value), allow_nan=False).encode("utf-8")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("a\nb\tc", "a b c"),
        ("x\x00\x1by", "x\ufffd\ufffdy"),
        ("evil\u202egnp.exe", "evil\ufffdgnp.exe"),
        ("\ud800", "\ufffd"),
        ("  ", None),
        ([], None),
        (True, "true"),
    ],
)
def test_text_is_one_printable_line(value: t.Any, expected: str | None) -> None:
    assert parsing.read_text(value) == expected


def test_long_text_is_cut() -> None:
    assert parsing.read_text(10**5000) == "(a very long number)"
    assert parsing.read_text("x" * 1000, 10) == "x" * 9 + "…"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("2026-11-20T09:30:00+00:00", 1795167000.0),
        ("2026-11-20T09:30:00Z", 1795167000.0),
        ("2026-11-20T10:30:00+01:00", 1795167000.0),
        ("2026-11-20T09:30:00", 1795167000.0),
        (1795167000, 1795167000.0),
        ("yesterday", None),
        ("9999-99-99T00:00:00", None),
        (0, None),
        (1e300, None),
        (None, None),
    ],
)
def test_instants(value: t.Any, expected: float | None) -> None:
    assert parsing.read_time(value) == expected


@pytest.mark.parametrize(
    ("items", "expected"),
    [
        (["--token", "abc", "--steps", "3"], "--token (hidden) --steps 3"),
        (["--hub-token=abc"], "--hub-token=(hidden)"),
        (["API_KEY=abc"], "API_KEY=(hidden)"),
        (["--tokenizer=bpe", "--max-tokens", "9"], "--tokenizer=bpe --max-tokens 9"),
        (["--data", "https://me:pw@host/x"], "--data https://(hidden)@host/x"),
        ([], None),
    ],
)
def test_values_of_options_named_like_secrets_are_left_out(items: list[str], expected: str | None) -> None:
    assert parsing.hide_secrets(items) == expected


def test_names_sort_by_their_numbers() -> None:
    assert sorted(["node-10", "node-2", "node-1"], key=parsing.natural_key) == ["node-1", "node-2", "node-10"]


@given(st.lists(st.text(max_size=20)))
def test_any_names_can_be_sorted(names: list[str]) -> None:
    assert len(sorted(names, key=parsing.natural_key)) == len(names)
