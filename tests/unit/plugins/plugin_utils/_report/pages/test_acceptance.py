# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The page of an acceptance: whole, escaped, and readable whatever accept.json holds."""

from __future__ import annotations

import re
import typing as t

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.module_utils._model import acceptance
from ansible_collections.muster.training.plugins.module_utils._model.acceptance import Part
from ansible_collections.muster.training.plugins.plugin_utils._fabric.bench import scaling
from ansible_collections.muster.training.plugins.plugin_utils._report.pages.acceptance import render_acceptance
from ansible_collections.muster.training.tests.unit.plugins.plugin_utils._fabric.bench.test_scaling import (
    document,
    points,
)

HOSTILE = "</td><script>alert(1)</script>"


def made(*more: Part, **values: t.Any) -> dict[str, t.Any]:
    judged = scaling.judge(points(document(1, 0.1), document(2, 0.125)))
    rows = {"points": list(judged.rows)}
    parts = [
        Part("fabric", "pass", "island a: PASS"),
        Part("scaling", judged.outcome, judged.summary, judged.reasons, rows),
        Part("queue", "not_applicable", "plain hosts have no queue"),
        Part("resume", "pass", "resumed", (), {"drill": {"seconds_to_resume": 4.25}}),
        *more,
    ]
    about = {"accept_id": "accept-1", "cluster": "lab", "backend": "hosts", "nodes": 2, "duration_s": 65.0}
    return acceptance.document(parts, **{**about, "loopback": False, **values})


def plain(page: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", page.partition("<body>")[2])).replace("\xa0", " ")


def test_what_a_person_reads() -> None:
    words = plain(render_acceptance(made()))
    assert "Accepted, with warnings" in words and "Of the tests 2 passed, 1 warning, 1 does not apply." in words
    assert "80 %" in words and "Kill and resume" in words and "4.2 s" in words
    assert "most of the loss is communication" in words
    assert "loopback" not in words and "loopback" in plain(render_acceptance(made(loopback=True)))


def test_the_word_follows_the_outcome() -> None:
    assert "Not accepted" in plain(render_acceptance(made(Part("user", "fail", "x"))))
    assert "not all proven" in plain(render_acceptance(made(Part("user", "unproven", "x"))))


def test_text_is_never_markup() -> None:
    page = render_acceptance(made(Part(HOSTILE, "fail", HOSTILE, (HOSTILE,)), cluster=HOSTILE, accept_id=HOSTILE))
    assert "<script" not in page and page.count("&lt;script&gt;") >= 4


@pytest.mark.parametrize(
    "value", [{}, {"parts": None}, {"parts": [{}, 3]}, {"parts": [{"name": "scaling", "points": [{}]}]}]
)
def test_what_is_missing(value: dict[str, t.Any]) -> None:
    assert render_acceptance(value).startswith("<!doctype html>")


@given(st.dictionaries(st.sampled_from(sorted(made())), st.none() | st.integers() | st.text() | st.lists(st.text())))
def test_any_values(value: dict[str, t.Any]) -> None:
    assert render_acceptance({**made(), **value}).endswith("</html>\n")
