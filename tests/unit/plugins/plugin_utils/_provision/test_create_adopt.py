# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A second call finds the machines and open orders of the first one."""

from __future__ import annotations

from ansible_collections.muster.training.plugins.module_utils._model.offer import Candidate
from ansible_collections.muster.training.plugins.plugin_utils._provision.readiness import ProbeReport
from ansible_collections.muster.training.tests.fakes.pool_world import World
from ansible_collections.muster.training.tests.fakes.sim_provider import SimProvider, h100
from ansible_collections.muster.training.tests.fakes.virtual import VirtualClock


def test_a_smaller_count_gives_back_the_last() -> None:
    world = World()
    world.create(3)
    assert world.create(2).failure == ""
    assert sorted(item.name[-1] for item in world.lambda_.machines.values()) == ["1", "2"]


def test_a_second_call_finds_a_machine_dead_and_replaces_it() -> None:
    world = World()
    world.create(2)
    next(iter(world.lambda_.machines.values())).state = "failed"
    assert world.create(2).failure == ""
    assert len(world.lambda_.machines) == 2 and "lambda-1" in world.lambda_.deleted


def test_a_second_call_finds_a_machine_gone_and_replaces_it() -> None:
    world = World()
    world.create(2)
    world.clock.sleep(3600)
    world.lambda_.machines.pop("lambda-1")
    outcome = world.create(2)
    assert (outcome.failure, outcome.order_count, len(world.lambda_.machines)) == ("", 1, 2)
    assert "is no longer listed" in "; ".join(outcome.state.history)


def test_a_second_call_waits_for_what_was_made_a_moment_ago() -> None:
    world = World()
    world.create(1)
    for machine in world.lambda_.machines.values():
        machine.visible_from = world.clock.time() + 40
    outcome = world.create(1)
    assert (outcome.failure, outcome.order_count, len(world.lambda_.machines)) == ("", 0, 1)


def test_a_second_call_settles_the_open_order_of_the_first() -> None:
    world = World()
    world.create(1)
    world.lines.keep("intent")
    (machine,) = world.lambda_.machines.values()
    machine.visible_from = world.clock.time() + 30
    outcome = world.create(1)
    assert (outcome.failure, outcome.order_count, len(world.lambda_.machines)) == ("", 0, 1)


def test_an_order_that_never_came_to_be_is_placed_again_by_the_second_call() -> None:
    world = World()
    world.create(2)
    world.lines.keep("intent")
    world.lambda_.machines.pop("lambda-2")
    outcome = world.create(2)
    assert (outcome.failure, outcome.order_count, len(world.lambda_.machines)) == ("", 1, 2)
    assert "was never created" in "; ".join(outcome.state.history)


def test_a_machine_begun_by_another_call_is_replaced_when_it_turns_out_bad() -> None:
    world = World(SimProvider(VirtualClock(), offers=[h100()], boot_s=300.0))
    world.create(1, is_abandoned=lambda: len(world.lambda_.machines) > 0)
    world.lines.keep("intent", "created")
    world.lambda_.machines.clear()
    world.lambda_.make("lab-h100-0-00000001")
    world.prober.reports = [ProbeReport("bad", True, ("no GPU",))]
    outcome = world.create(1)
    assert (outcome.failure, outcome.order_count, len(world.lambda_.machines)) == ("", 1, 1)


def test_a_gang_that_was_begun_at_a_later_candidate_stays_there() -> None:
    clock = VirtualClock()
    first, second = (SimProvider(clock, name, offers=[h100(name)]) for name in ("lambda", "shadeform"))
    world = World(first, second, clock=clock)
    wishes = tuple(Candidate(provider, gpu_model="H100") for provider in ("lambda", "shadeform"))
    first.stock = []
    world.create(2, candidates=wishes)
    world.lines.keep("intent")
    first.stock = [h100()]
    second.machines.pop("shadeform-2")
    assert world.create(2, candidates=wishes).failure == ""
    assert len(first.machines) == 0 and len(second.machines) == 2


def test_a_machine_that_had_been_given_up_is_not_taken_back() -> None:
    world = World()
    world.create(1)
    world.delete()
    world.lambda_.make("lab-h100-0-00000001")
    assert world.create(1).failure == ""
    assert [item.name for item in world.lambda_.machines.values()] == ["lab-h100-0-00000002"]


def test_two_machines_of_one_order_become_one() -> None:
    world = World()
    world.create(1)
    world.lambda_.make("lab-h100-0-00000001")
    assert world.create(1).failure == ""
    assert list(world.lambda_.machines) == ["lambda-1"]


def test_a_machine_with_our_form_of_name_but_no_line_is_not_adopted() -> None:
    world = World()
    world.lambda_.make("lab-h100-0-deadbeef")
    assert world.create(1).failure == ""
    assert sorted(item.name for item in world.lambda_.machines.values()) == [
        "lab-h100-0-00000001",
        "lab-h100-0-deadbeef",
    ]
