# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Several runs side by side, as values and as a page."""

from __future__ import annotations

import json

from ansible_collections.muster.training.plugins.plugin_utils._report.data.load import load_run
from ansible_collections.muster.training.plugins.plugin_utils._report.data.run_model import build_run_model
from ansible_collections.muster.training.plugins.plugin_utils._report.pages.compare import (
    compare_runs,
    find_differences,
    render_compare,
)
from ansible_collections.muster.training.tests.unit.plugins.plugin_utils._report.runs import FIXTURES, NAMES


def test_runs_are_compared_as_values() -> None:
    found = compare_runs([load_run(FIXTURES / name) for name in NAMES])
    assert [item["outcome"] for item in found["runs"]] == [
        "succeeded",
        "failed",
        "cancelled",
        "running",
        "succeeded",
        "unknown",
    ]
    assert found["differences"]["nodes"] == ["2", "2", "2", "3", "8", None]
    assert "env" not in json.dumps(found["differences"])
    json.dumps(found, allow_nan=False)


def test_equal_jobs_have_no_differences() -> None:
    case = build_run_model(load_run(FIXTURES / "resumed"))
    assert find_differences([case, case]) == {}


def test_the_page_of_a_comparison() -> None:
    page = render_compare([load_run(FIXTURES / name) for name in NAMES])
    for wanted in (
        "6 runs compared",
        "shape-bug-20261120-0930",
        "derived.world_size",
        "not to be compared with the others",
    ):
        assert wanted in page
    assert "None of these runs wrote a loss" in render_compare([load_run(FIXTURES / "nulls")])
