# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The exception tree: one line for a user, with what to do about it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.module_utils._model import errors
from ansible_collections.muster.training.plugins.module_utils._model.errors import (
    ApiError,
    InputError,
    MusterError,
    NodeError,
    ProviderError,
    TransportError,
)


@given(st.text())
def test_a_line_has_no_control_characters(text: str) -> None:
    line = errors.one_line(text)
    assert not any(ord(char) < 32 or 127 <= ord(char) < 160 or char in "\u2028\u2029\u202e\u2066" for char in line)
    assert errors.one_line(line) == line


def test_the_fix_follows_the_message() -> None:
    assert str(MusterError("the disk is full", "Free space")) == "the disk is full. Free space"
    assert str(MusterError("the disk is full")) == "the disk is full"


def test_an_error_names_its_option_or_its_node() -> None:
    option, node = InputError("job.nodes", "must be at least 1"), NodeError("gpu-3", "the disk is full")
    assert (str(option), option.option) == ("job.nodes: must be at least 1", "job.nodes")
    assert (str(node), node.node) == ("gpu-3: the disk is full", "gpu-3")


@pytest.mark.parametrize(("status", "ambiguous"), [(404, False), (429, False), (500, True), (503, True)])
def test_a_server_error_may_have_taken_effect(status: int, ambiguous: bool) -> None:
    error = ApiError("POST", "https://api.example.com/v1", status, "no room", request_id="r-1")
    assert (error.ambiguous, error.status) == (ambiguous, status)
    assert str(error) == f"POST https://api.example.com/v1 answered {status}: no room (request r-1)"


def test_machines_that_may_bill_are_named() -> None:
    error = ProviderError("the order failed", created_ids=("i-1", "i-2"))
    assert error.created_ids == ("i-1", "i-2") and str(error) == "the order failed (may be billing: i-1, i-2)"
    assert not TransportError("timed out").ambiguous and str(ProviderError("the order failed")) == "the order failed"


@given(st.text(alphabet=st.sampled_from("ab \t\n\r\x00\x07\x1b[]0;1mJ\x9b\x9d\x9c\\(P"), max_size=30))
def test_lines_for_people_steer_no_terminal(text: str) -> None:
    found = errors.plain_lines(text)
    assert not set(found) & {chr(code) for code in (*range(32), *range(127, 160)) if chr(code) not in "\t\n"}
    assert errors.plain_lines(found) == found


def test_lines_keep_their_words_and_lose_their_colours() -> None:
    link = "\x1b]8;;http://x\x1b\\name\x1b]8;;\x1b\\"
    text = f"\x1b[1;31mred\x1b[0m {link} \x1b(Bü\x9b2Jz\r\n10%\r20%"
    assert errors.plain_lines(text) == "red name üz\n10%\n20%"


def test_a_fix_follows_after_one_dot() -> None:
    assert (
        str(errors.MusterError("x failed.", "Do y")) == str(errors.MusterError("x failed", "Do y")) == "x failed. Do y"
    )
