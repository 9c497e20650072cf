# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The second witness: what a provider says of an id that its listings lack."""

from __future__ import annotations

import pytest

from ansible_collections.muster.training.tests.fakes.pool_world import World
from ansible_collections.muster.training.tests.fakes.sim_provider import outage


def joined(count: int = 2) -> World:
    world = World()
    assert world.create(count).failure == ""
    world.clock.sleep(7200)
    return world


def test_machines_that_are_known_by_their_ids_are_not_replaced() -> None:
    world = joined()
    world.lambda_.list_faults = ["empty"] * 1000
    outcome = world.create(2)
    assert "lambda does not list it and knows its id (lambda-" in outcome.failure
    assert len(world.lambda_.orders) == 2 and len(world.lambda_.machines) == 2 and world.lambda_.deleted == []


def test_machines_that_are_not_known_are_replaced() -> None:
    world = joined()
    world.lambda_.machines.clear()
    outcome = world.create(2)
    assert outcome.failure == "" and len(world.lambda_.orders) == 4
    assert "is no longer listed by lambda, which does not know its id" in "; ".join(outcome.state.history)


@pytest.mark.parametrize("count", [3, 1000])
def test_a_provider_that_does_not_answer_for_an_id_is_asked_again(count: int) -> None:
    world = joined(1)
    world.lambda_.machines.clear()
    world.lambda_.look_faults = [outage()] * count
    outcome = world.create(1)
    assert len(world.lambda_.orders) == (2 if count == 3 else 1)
    assert ("asked for by its id: " in outcome.failure) is (count == 1000)


def test_a_machine_that_is_listed_again_is_not_asked_for_any_more() -> None:
    world = joined(1)
    world.lambda_.look_faults = [outage()] * 1000
    world.lambda_.list_faults = ["empty"] * 20
    outcome = world.create(1)
    assert outcome.failure == "" and len(world.lambda_.orders) == 1


def test_listings_that_fail_for_long_replace_no_machine_either() -> None:
    world = joined(1)
    world.lambda_.list_faults = ["empty", *[outage()] * 100000]
    outcome = world.create(1, timeout_at=world.clock.time() + 7200)
    assert "knows its id" in outcome.failure and len(world.lambda_.orders) == 1 and world.lambda_.machines
