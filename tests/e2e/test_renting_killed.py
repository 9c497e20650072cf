# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``ansible-playbook`` is interrupted, terminated or killed at each step of renting and giving back.

Whatever is left then, the next ``reap`` (with no deadline to help it), ``teardown`` or ``rent`` puts right: nothing
bills, every lease is proved gone, and no machine is there twice.
"""

from __future__ import annotations

import itertools
import os
import pathlib
import signal
import typing as t
from collections.abc import Iterator

import pytest

from ansible_collections.muster.training.tests.e2e.rent_world import SHORT, SIGNALS, Point, RentWorld, interrupt
from ansible_collections.muster.training.tests.fakes.lambda_cloud import FakeLambda
from ansible_collections.muster.training.tests.fakes.runpod import FakeRunpod

# (operation, its how-manieth call): what rent and teardown do, in their order.
RENT = (("list", 1), ("offers", 1), ("create", 1), ("create", 2), ("list", 2))
TEARDOWN = (("list", 1), ("delete", 1), ("delete", 2), ("list", 2), ("leftovers", 1))


def cases() -> Iterator[t.Any]:
    steps = [("rent", *step) for step in RENT] + [("teardown", *step) for step in TEARDOWN]
    for (playbook, operation, nth), side, name in itertools.product(steps, ("before", "after"), SIGNALS):
        case = (playbook, operation, nth, side, name)
        marks = [] if case in SHORT else [pytest.mark.long]
        yield pytest.param(*case, marks=marks, id="-".join(map(str, case)))


@pytest.fixture
def world(tmp_path: pathlib.Path) -> Iterator[RentWorld]:
    found = RentWorld(tmp_path, lambda clock: FakeRunpod(clock, boot_s=60.0), "runpod")
    with found.running():
        yield found
    assert found.api.violations == []


@pytest.mark.parametrize(("playbook", "operation", "nth", "side", "name"), list(cases()))
def test_nothing_is_left_whenever_it_is_killed(
    world: RentWorld, playbook: str, operation: str, nth: int, side: str, name: str
) -> None:
    if playbook == "teardown":
        assert world.play("rent").code == 0
    point = Point(operation, nth, side == "after")
    interrupt(world, playbook, point, SIGNALS[name], rented_nodes_lease_s=None)
    if playbook == "rent":
        # No deadline was given: the reaper knows until when somebody would have waited for the gang.
        world.pass_time(3 * 3600)
        done = world.play("reap")
    else:
        done = world.play("teardown")
    assert done.code == 0, done.output
    assert world.alive == 0
    assert set(world.states) <= {"verified"}
    again = world.play("teardown")
    assert again.code == 0 and again.changed == 0, again.output


def test_what_a_killed_rent_began_the_next_one_finishes(world: RentWorld) -> None:
    interrupt(world, "rent", Point("create", 1, True), signal.SIGINT)
    done = world.play("rent")
    assert done.code == 0, done.output
    assert world.alive == 2
    assert world.states.count("joined") == 2 and set(world.states) <= {"joined", "verified"}
    assert world.play("teardown").code == 0
    assert world.alive == 0


def test_a_worker_that_outlives_its_playbook_gives_the_gang_back(world: RentWorld) -> None:
    interrupt(world, "rent", Point("create", 2, True), signal.SIGKILL)
    # Nobody has run anything since.
    assert world.alive == 0
    assert set(world.states) == {"verified"}


def test_an_api_with_a_pace_is_no_other(tmp_path: pathlib.Path) -> None:
    world = RentWorld(tmp_path, lambda clock: FakeLambda(clock, boot_s=60.0), "lambda")
    with world.running():
        interrupt(world, "rent", Point("create", 2, True), signal.SIGTERM)
        assert world.play("teardown").code == 0
        assert world.alive == 0 and set(world.states) == {"verified"}
    assert world.api.violations == []


def test_the_ledger_is_not_readable_by_others(world: RentWorld) -> None:
    assert world.play("rent").code == 0
    for path in (world.root / "state").rglob("*"):
        assert path.stat().st_mode & 0o077 == 0, path
    assert os.environ.get("HOME") != str(world.home)
    assert not list(world.home.rglob("*ledger*"))
    world.play("teardown")
