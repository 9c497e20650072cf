# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""For all tests: none is left out in silence. See ``support/skips.py``."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.muster.training.tests.support import skips


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> t.Generator[None, pytest.TestReport, pytest.TestReport]:
    """Judge the skip of a test."""
    report = yield
    skips.judge(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> t.Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Judge the skip of a whole file."""
    report = yield
    skips.judge(report)
    return report


def pytest_terminal_summary(terminalreporter: t.Any) -> None:
    """Print what was left out, and why."""
    for line in skips.summarise(terminalreporter.stats.get("skipped", [])):
        terminalreporter.write_line(line)
