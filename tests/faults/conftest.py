# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The shop, and what the fault tests counted, from all worker processes, at the end of the run."""

from __future__ import annotations

import collections
import pathlib
from collections.abc import Callable, Iterator

import pytest

from ansible_collections.muster.training.tests.fakes.cycle import Server
from ansible_collections.muster.training.tests.fakes.lambda_cloud import FakeLambda
from ansible_collections.muster.training.tests.fakes.runpod import FakeRunpod
from ansible_collections.muster.training.tests.fakes.virtual import VirtualClock
from ansible_collections.muster.training.tests.faults.shop import Shop

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


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[Server, str]]:
    server = Server()
    with server.running() as url:
        yield server, url


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def api(clock: VirtualClock) -> FakeRunpod:
    return FakeRunpod(clock, boot_s=10.0)


@pytest.fixture
def other(clock: VirtualClock) -> FakeRunpod:
    return FakeRunpod(clock, boot_s=10.0)


@pytest.fixture
def cloud(clock: VirtualClock) -> FakeLambda:
    return FakeLambda(clock, boot_s=10.0)


@pytest.fixture
def shop(
    tmp_path: pathlib.Path, clock: VirtualClock, api: FakeRunpod, other: FakeRunpod, cloud: FakeLambda
) -> Iterator[Shop]:
    with api.loopback() as first, other.loopback() as second, cloud.loopback() as third:
        yield Shop(tmp_path, {"runpod": first, "b": second, "lambda": third}, clock)
