# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The page of all runs."""

from __future__ import annotations

import pathlib
import re
import shutil

from ansible_collections.muster.training.plugins.plugin_utils._report.pages.files import write_report
from ansible_collections.muster.training.plugins.plugin_utils._report.pages.overview import HEADINGS, render_overview
from ansible_collections.muster.training.tests.unit.plugins.plugin_utils._report.runs import FIXTURES, NAMES


def test_each_run_has_a_line_and_a_link_where_its_page_is(tmp_path: pathlib.Path) -> None:
    folders = []
    for name in NAMES:
        shutil.copytree(FIXTURES / name, tmp_path / "runs" / name)
        folders.append(tmp_path / "runs" / name)
    write_report(folders[0], folders[0] / "report")
    page = render_overview(folders, tmp_path, 3)
    assert f"{len(NAMES)} runs" in page and "3 older runs left out" in page
    assert page.count("<tr") == len(NAMES) + 1
    (link,) = re.findall(r'href="([^"]+)">', page)
    assert (tmp_path / link).is_file() and link == f"runs/{NAMES[0]}/report/report.html"
    assert "Cost of these runs" in page or "The cost of no run is known" in page


def test_a_run_that_cannot_be_read_is_named(tmp_path: pathlib.Path) -> None:
    broken = tmp_path / "runs" / "broken-1"
    broken.mkdir(parents=True)
    page = render_overview([broken], tmp_path, 0)
    assert "broken-1" in page and "cannot be read" in page and "left out" not in page


def test_without_runs_the_page_says_so(tmp_path: pathlib.Path) -> None:
    page = render_overview([], tmp_path, 0)
    assert "0 runs" in page and "The cost of no run is known" in page
    assert len(HEADINGS) == 10
