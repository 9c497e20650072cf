# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lab for a session of tests: up once, down at the end, with the proof that nothing of it is left."""

from __future__ import annotations

import os
import pathlib
import tempfile
import time
import typing as t

import pytest

from ansible_collections.muster.training.tests.lab import host, image, interpreter, nodes, podman, traces
from ansible_collections.muster.training.tests.lab.plays import Controller
from ansible_collections.muster.training.tests.support.kube_lab import NOTES, kube_lab, not_run, team

__all__ = ["kube_lab", "team"]


def pytest_terminal_summary(terminalreporter: t.Any) -> None:
    """Say what the lab did."""
    for note in NOTES:
        terminalreporter.write_line(f"lab: {note}")


@pytest.fixture(scope="session")
def torch_wanted() -> interpreter.Interpreter:
    """The interpreter that MUSTER_TORCH_PYTHON names, as far as this machine can tell about it."""
    return interpreter.find(os.environ.get("MUSTER_TORCH_PYTHON", ""))


@pytest.fixture(scope="session")
def lab(torch_wanted: interpreter.Interpreter) -> t.Iterator[nodes.Lab]:
    """Two nodes, booted; the session fails when anything of them is left at its end."""
    reason = host.unmet()
    if reason:
        not_run(reason)
    try:
        installed = host.ensure_programs()
        tool = podman.Podman(podman.cache_home())
        swept = traces.sweep(tool)
        root_image = image.ensure(tool)
    except host.LabError as error:
        not_run(str(error))
    for what, names in (("installed", installed), ("removed what was left of", swept)):
        if names:
            NOTES.append(f"{what} {', '.join(names)}")
    made = nodes.Lab(tool, pathlib.Path(tempfile.mkdtemp(prefix="muster-lab-")))
    began = time.monotonic()
    try:
        made.up(root_image, torch_wanted.mounts)
        NOTES.append(f"{len(made.nodes)} nodes ready after {time.monotonic() - began:.1f} s")
        yield made
    finally:
        left = made.down()
    assert left == [], "the lab left something behind"
    NOTES.append(f"nothing is left: {len(made.made)} things in the kernel and podman's objects are gone")


@pytest.fixture(scope="session")
def torch_python(lab: nodes.Lab, torch_wanted: interpreter.Interpreter) -> str:
    """The path of an interpreter with torch that works on the nodes."""
    reason = torch_wanted.problem or interpreter.try_on(lab, torch_wanted)
    if reason:
        not_run(reason)
    return torch_wanted.path


@pytest.fixture
def controller(lab: nodes.Lab) -> t.Iterator[Controller]:
    """A controller that logs in as root."""
    made = Controller(lab)
    yield made
    made.close()


@pytest.fixture
def as_user(lab: nodes.Lab) -> t.Iterator[t.Callable[..., Controller]]:
    """Make controllers that log in as the user muster."""
    made: list[Controller] = []

    def make(**variables: t.Any) -> Controller:
        made.append(Controller(lab, image.USER, **variables))
        return made[-1]

    yield make
    for item in made:
        item.close()
