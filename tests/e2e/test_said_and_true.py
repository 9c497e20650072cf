# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is said of a run is true: runs with injected faults, judged by what the programs and injectors noted themselves."""

from __future__ import annotations

import pathlib
import typing as t

import pytest

from ansible_collections.muster.training.tests.e2e import said_runs
from ansible_collections.muster.training.tests.e2e.playbook_world import World
from ansible_collections.muster.training.tests.e2e.said_world import Scene
from ansible_collections.muster.training.tests.e2e.service_world import ServiceWorld
from ansible_collections.muster.training.tests.support import judge

_CLAIMS = 10


@pytest.fixture
def scene(case: said_runs.Case, request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> t.Iterator[Scene]:
    """Two nodes, and a bucket where the case has one."""
    store = request.getfixturevalue("store") if case.bucket else None
    world = ServiceWorld(tmp_path) if store else World(tmp_path)
    found = Scene(world, store)
    yield found
    found.close()
    world.close()


def parameter(case: said_runs.Case) -> t.Any:
    """Return a case with its marks."""
    marks = [] if case.short else [pytest.mark.long]
    marks += [pytest.mark.xfail(reason=case.untrue, strict=True)] if case.untrue else []
    return pytest.param(case, id=case.name, marks=marks)


@pytest.mark.parametrize("case", [parameter(case) for case in said_runs.CASES])
def test_what_is_said_is_true(case: said_runs.Case, scene: Scene) -> None:
    truth = case.run(scene)
    if scene.heard is None:
        scene.look()
    assert scene.heard is not None
    untrue = judge.untrue(scene.heard, truth)
    assert not untrue, "\n".join([f"{len(untrue)} untrue words:", *untrue])
    assert judge.judged(scene.heard) >= (_CLAIMS if scene.heard.record else 0)


def test_the_table_is_wide() -> None:
    names = [case.name for case in said_runs.CASES]
    assert len(set(names)) == len(names) >= 40
    assert sum(case.short for case in said_runs.CASES) >= 7
