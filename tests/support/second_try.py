# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A pytest plugin beside pytest-rerunfailures: it prints why a test failed that was then tried again."""

from __future__ import annotations

import typing as t


def pytest_terminal_summary(terminalreporter: t.Any) -> None:
    """Print the failure of every first try; ``tools/check.py`` reads the names."""
    reports = terminalreporter.stats.get("rerun", [])
    if not reports:
        return
    terminalreporter.section("failures of first tries")
    for report in reports:
        terminalreporter.write_line(f"TRIED AGAIN {report.nodeid} ({report.when})", bold=True)
        terminalreporter.write_line(report.longreprtext)
