# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plain Jinja expressions that are read without Jinja."""

from __future__ import annotations

import pytest
from ansible.template import trust_as_template
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.plugin_utils._inventory.jinja_paths import (
    ASK,
    MISSING,
    parse_path,
    plain,
)


@pytest.mark.parametrize(
    ("text", "steps"),
    [("a", ()), (" a.b ", ("b",)), ("a[0].b", (0, "b")), ("a['x y']", ("x y",)), ('a["k-1"][12]', ("k-1", 12))],
)
def test_paths(text: str, steps: tuple[str | int, ...]) -> None:
    path = parse_path(text)
    assert path is not None and (path.root, path.steps) == ("a", steps)


@pytest.mark.parametrize(
    "text",
    ["", "1", "a b", "a.", "a..b", "a.items", "a['keys']", "a._x", "a[-1]", "a[1:2]", "a|b", "a.b()", "true", "not",
     "loop", "_a", "a['\\x41']", "a['b\"]", "a.0", "{{ a }}", "a[ 0 ]", "a.\u00e9"],
)  # fmt: skip
def test_what_is_no_path(text: str) -> None:
    assert parse_path(text) is None
    assert parse_path(None) is None and parse_path(True) is None


@given(st.text(max_size=20))
def test_any_text_is_a_path_or_not(text: str) -> None:
    path = parse_path(text)
    if path is not None:
        assert path.read({}) is MISSING


def test_plain_copies_and_refuses() -> None:
    assert plain({"a": [1, None]}) == {"a": [1, None]}
    for odd in (trust_as_template("x"), {"a": trust_as_template("x")}, [object()], {1: 2}, (1,)):
        assert plain(odd) is ASK
