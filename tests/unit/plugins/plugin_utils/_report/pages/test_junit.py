# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The JUnit suite made of a run's checks."""

from __future__ import annotations

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._report.data.load import (
    RunFolder,
)
from ansible_collections.muster.training.tests.unit.plugins.plugin_utils._report.runs import run, suite


@pytest.mark.parametrize(
    ("name", "tests", "failures", "skipped"),
    [("resumed", 5, 0, 0), ("crash_loop", 9, 1, 4), ("cancelled", 3, 1, 0), ("running", 3, 0, 2), ("nulls", 3, 2, 1)],
)
def test_junit_counts(name: str, tests: int, failures: int, skipped: int) -> None:
    root = suite(run(name))
    assert {key: root.get(key) for key in ("tests", "failures", "skipped", "errors")} == {
        "tests": str(tests),
        "failures": str(failures),
        "skipped": str(skipped),
        "errors": "0",
    }
    assert len(root.findall("testcase")) == tests
    assert len(root.findall("testcase/failure")) == failures
    assert len(root.findall("testcase/skipped")) == skipped


def test_junit_survives_hostile_names() -> None:
    hostile = "</testsuite><script>\x00\ud800]]>&\u202e"
    found = RunFolder("r", {"run_id": hostile, "job": {"name": hostile}, "outcome": hostile})
    assert "script" in (suite(found).get("name") or "")
