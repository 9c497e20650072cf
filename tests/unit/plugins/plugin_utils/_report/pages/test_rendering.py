# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The parts of which the pages are made."""

from __future__ import annotations

from markupsafe import Markup

from ansible_collections.muster.training.plugins.plugin_utils._report.pages import rendering


def test_text_is_escaped_and_markup_is_not() -> None:
    assert rendering.build_mark("ok", "<b>") == (
        '<span class="mark t-ok"><span aria-hidden="true">✓</span> &lt;b&gt;</span>'
    )
    assert rendering.add_note("<i>", Markup("<b>1</b>")) == "&lt;i&gt; <small><b>1</b></small>"
    assert rendering.add_note("–", "note") == "–"


def test_a_table_leaves_out_a_column_without_a_value() -> None:
    table = rendering.Table(("Name", "A", "B"), [["x", "–", "1"], ["y", "–", "–"]], "c", " nn")
    assert [(column.position, column.heading, column.numeric) for column in table.columns] == [
        (0, "Name", False),
        (2, "B", True),
    ]
