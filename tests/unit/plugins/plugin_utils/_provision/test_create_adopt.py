# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A second call finds the machines and open orders of the first one."""

from __future__ import annotations

import dataclasses

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import ProviderError, RefusedError
from ansible_collections.muster.training.plugins.module_utils._model.offer import Candidate
from ansible_collections.muster.training.plugins.plugin_utils._provision.readiness import ProbeReport
from ansible_collections.muster.training.tests.fakes.pool_world import World
from ansible_collections.muster.training.tests.fakes.sim_provider import SimProvider, h100
from ansible_collections.muster.training.tests.fakes.virtual import VirtualClock
from ansible_collections.muster.training.tests.unit.plugins.plugin_utils._provision.refusals import FULL


def test_a_smaller_count_deletes_the_last_where_it_is_asked_for() -> None:
    world = World()
    world.create(3)
    assert world.create(2, shrink=True).failure == ""
    assert sorted(item.name[-1] for item in world.lambda_.machines.values()) == ["1", "2"]


def test_a_smaller_count_alone_deletes_nothing() -> None:
    """A key that was forgotten counts as 1: a machine of a complete gang may have the only copy of a checkpoint."""
    world = World()
    world.create(3)
    lines = len(world.kinds())
    words = r"rented_nodes_count is 1, and lab-h100-1-\S+ \(2.00 .*run none\), lab-h100-2-.* would be .*count: 3, or .*shrink"
    with pytest.raises(RefusedError, match=words):
        world.create(1)
    assert len(world.lambda_.machines) == 3 and world.lambda_.deleted == [] and len(world.kinds()) == lines
    world.lambda_.machines["lambda-3"].state = "failed"
    assert world.create(2).failure == "", "one that has failed works no more"


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


def test_nothing_is_ordered_beside_a_machine_of_ours_that_the_ledger_lacks() -> None:
    world = World()
    world.create(2)
    world.lines.events.clear()
    with pytest.raises(ProviderError, match="lab-h100-0-00000001.*reap"):
        world.create(2)
    assert len(world.lambda_.orders) == 2 and len(world.lambda_.machines) == 2


def test_the_same_form_of_name_of_another_cluster_is_nobodys_business() -> None:
    world = World()
    world.lambda_.make("lab2-h100-0-deadbeef")
    assert world.create(1).failure == "" and len(world.lambda_.machines) == 2


def test_one_listing_that_lacks_a_machine_changes_nothing() -> None:
    world = World()
    world.create(2)
    world.clock.sleep(3600)
    world.lambda_.list_faults = ["empty", "empty", "empty"]
    outcome = world.create(2)
    assert (outcome.failure, outcome.order_count, world.lambda_.deleted) == ("", 0, [])


def test_a_joined_machine_that_is_not_listed_yet_survives_an_extension_that_fails() -> None:
    world = World()
    world.create(1)
    world.clock.sleep(3600)
    world.lambda_.list_faults = ["empty"]
    world.lambda_.answers = [FULL]
    assert world.create(2).failure
    assert list(world.lambda_.machines) == ["lambda-1"] and world.lambda_.deleted == []


def test_a_joined_machine_survives_one_bad_state() -> None:
    world = World()
    world.create(1)
    machine = world.lambda_.machines["lambda-1"]
    machine.state = "failed"
    world.clock.later(20.0, lambda: setattr(machine, "state", None))
    outcome = world.create(1)
    assert (outcome.failure, outcome.order_count, world.lambda_.deleted) == ("", 0, [])


def test_an_id_of_the_ledger_under_a_foreign_name_is_not_touched() -> None:
    world = World()
    world.create(1)
    world.lambda_.machines["lambda-1"].name = "bobs-precious-box"
    world.create(1)
    assert "lambda-1" in world.lambda_.machines and world.lambda_.deleted == []


def test_a_new_credential_that_shows_nothing_of_ours_orders_nothing() -> None:
    world = World()
    world.lambda_.account = "acme"
    world.create(1)
    world.lambda_.fingerprint = "another"
    assert world.create(1).failure == ""
    world.lambda_.fingerprint = "a-third"
    world.lambda_.machines.clear()
    with pytest.raises(ProviderError, match="a-third"):
        world.create(1)
    assert len(world.lambda_.orders) == 1


def test_what_returned_in_another_pool_is_deleted_too() -> None:
    world = World()
    world.create(1)
    world.delete()
    world.lambda_.make("lab-h100-0-00000001")
    world.lines.events = [dataclasses.replace(event, pool="other") for event in world.lines.events]
    assert world.create(1).failure == ""
    assert [item.name for item in world.lambda_.machines.values()] == ["lab-h100-0-00000002"]
