# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Prints what the fault tests counted, from all worker processes, at the end of the run."""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterator

import pytest

# By file; a test's figures travel with its report, because workers share nothing.
TOTALS: dict[str, collections.Counter[str]] = {}
FIGURES = ("cases", "machines alive", "touched", "orders beyond", "untrue outputs")


@pytest.fixture(autouse=True)
def figures(request: pytest.FixtureRequest, record_property: Callable[[str, object], None]) -> Iterator[None]:
    """Send what a test has added to its module's FIGURES."""
    counted: collections.Counter[str] = getattr(request.module, "FIGURES", collections.Counter())
    before = counted.copy()
    yield
    record_property("faults", {name: counted[name] - before[name] for name in counted})


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "teardown":
        part = TOTALS.setdefault(report.fspath.rpartition("/")[2], collections.Counter())
        for name, value in report.user_properties:
            if name == "faults" and isinstance(value, dict):
                part.update(value)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    total: collections.Counter[str] = collections.Counter()
    for part in TOTALS.values():
        total.update(part)
    rows = {name: part for name, part in sorted(TOTALS.items()) if part["cases"]}
    if not rows:
        return
    terminalreporter.section("faults")
    for name, part in {**rows, "all": total}.items():
        words = [*FIGURES, *sorted(part.keys() - set(FIGURES))]
        terminalreporter.write_line(f"{name}: " + ", ".join(f"{word} {part[word]}" for word in words))
