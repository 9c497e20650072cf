# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A pool is complete or deleted again: intents first, accounts, failures, killed controllers."""

from __future__ import annotations

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import MusterError, ProviderError
from ansible_collections.muster.training.plugins.module_utils._model.ledger import LedgerEvent
from ansible_collections.muster.training.plugins.module_utils._model.offer import Candidate
from ansible_collections.muster.training.plugins.module_utils._model.state_store import StateConflictError
from ansible_collections.muster.training.tests.fakes.pool_world import World
from ansible_collections.muster.training.tests.fakes.sim_provider import SimProvider, h100, outage
from ansible_collections.muster.training.tests.fakes.virtual import VirtualClock
from ansible_collections.muster.training.tests.unit.plugins.plugin_utils._provision.refusals import FULL


def test_a_pool_is_complete_and_every_create_had_its_intent() -> None:
    world = World()
    outcome = world.create(3)
    assert (outcome.failure, outcome.order_count) == ("", 3)
    assert world.kinds() == [
        *(f"intent {number}" for number in (1, 2, 3)),
        *(f"created {number}" for number in (1, 2, 3)),
        *(f"joined {number}" for number in (1, 2, 3)),
    ]
    names = [order.name for order in world.lambda_.orders]
    assert names == ["lab-h100-0-00000001", "lab-h100-1-00000002", "lab-h100-2-00000003"]


def test_the_same_again_changes_nothing() -> None:
    world = World()
    world.create(2)
    lines = len(world.lines.events)
    again = world.create(2)
    assert (again.failure, again.order_count, len(world.lines.events)) == ("", 0, lines)
    assert len(world.lambda_.machines) == 2


def test_the_wall_is_the_slowest_boot() -> None:
    world = World(SimProvider(VirtualClock(), offers=[h100()], boot_s=300.0))
    start = world.clock.time()
    world.create(8)
    assert world.clock.time() - start <= 1.15 * 300


def test_a_gang_that_cannot_be_completed_is_given_back_and_says_why() -> None:
    world = World()
    world.lambda_.answers = [None, None, FULL]
    outcome = world.create(3)
    assert "every offer was refused" in outcome.failure
    assert "insufficient capacity" in "; ".join(outcome.state.history)
    assert outcome.proof.clean
    assert world.alive() == 0
    assert {lease.state for lease in world.leases.values()} == {"verified"}


def test_an_outage_during_the_wait_is_waited_out() -> None:
    world = World()
    world.lambda_.list_faults = [None, *[outage()] * 20]
    assert world.create(1).failure == ""
    assert len(world.lambda_.orders) == 1


def test_nothing_is_rented_where_nothing_can_be_listed() -> None:
    world = World()
    world.lambda_.list_faults = [outage()]
    with pytest.raises(ProviderError, match="cannot be listed"):
        world.create(1)
    assert world.lambda_.orders == [] and world.lines.events == []


def test_a_provider_without_credentials_is_an_error_before_anything() -> None:
    world = World()
    with pytest.raises(ProviderError, match="no credentials for runpod"):
        world.create(1, candidates=(Candidate(provider="lambda"), Candidate(provider="runpod")))
    assert world.lambda_.orders == []


def test_machines_of_another_account_are_not_taken_for_gone() -> None:
    world = World()
    world.create(1)
    world.lambda_.account = world.lambda_.fingerprint = "acc2"
    world.lambda_.machines = {}
    with pytest.raises(ProviderError, match="account acc1"):
        world.create(1)
    assert len(world.lambda_.orders) == 1 and world.lambda_.deleted == []


def test_growing_a_pool_that_fails_keeps_what_ran_before() -> None:
    world = World()
    world.create(2)
    world.lambda_.answers = [None, FULL]
    outcome = world.create(4)
    assert outcome.failure
    assert sorted(item.name[-1] for item in world.lambda_.machines.values()) == ["1", "2"]


def test_a_crash_between_create_and_its_line_is_healed_by_the_next_run() -> None:
    world = World()
    world.create(1)
    world.lines.keep("intent")
    outcome = world.create(1)
    assert (outcome.failure, outcome.order_count) == ("", 0)
    assert world.kinds() == ["intent 1", "intent 1", "adopted 1", "joined 1"]
    assert world.leases[("00000001", "instance")].id == "lambda-1"
    assert world.delete().clean and world.alive() == 0


@pytest.mark.parametrize("looks", [1, 3, 6])
def test_a_gang_for_nobody_is_given_back(looks: int) -> None:
    world = World()
    left = [looks]

    def gone() -> bool:
        left[0] -= 1
        return left[0] < 0

    outcome = world.create(2, is_abandoned=gone)
    assert outcome.failure == "the ansible-playbook that asked for it has ended"
    assert world.alive() == 0 and not any(lease.open for lease in world.leases.values())


def test_machines_that_ran_before_stay_when_nobody_waits_for_more() -> None:
    world = World()
    world.create(1)
    outcome = world.create(2, is_abandoned=lambda: True)
    assert outcome.failure and world.alive() == 1


def test_what_is_under_way_is_finished_though_offers_cannot_be_read() -> None:
    world = World()
    world.create(1)
    world.lines.keep("intent")
    world.lambda_.offer_faults = [outage()]
    outcome = world.create(1)
    assert (outcome.failure, outcome.order_count) == ("", 0)


def test_a_machine_that_cannot_be_deleted_is_told_and_does_not_hold_up_the_pool() -> None:
    world = World()
    world.lambda_.states = ["failed"]
    world.lambda_.delete_faults = [outage()] * 100
    outcome = world.create(1)
    assert outcome.failure == ""
    assert "cannot be deleted" in "; ".join(outcome.state.history)
    assert [item["delete_failed"] for item in outcome.proof.billing] == [True]


class _DiskFull:
    """Takes so many lines and then none."""

    def __init__(self, room: int) -> None:
        self.room = room

    def append(self, event: LedgerEvent) -> None:
        self.room -= 1
        if self.room < 0:
            raise MusterError("the disk is full")


@pytest.mark.parametrize("room", range(8))
def test_a_ledger_that_cannot_be_written_ends_the_renting_with_nothing_left(room: int) -> None:
    world = World()
    disk = _DiskFull(room)
    world.lines.append = disk.append  # type: ignore[method-assign]
    outcome = world.create(2)
    assert len(world.lambda_.orders) <= room
    if room < 6:
        assert "disk is full" in outcome.failure
        assert world.alive() == 0
    else:
        assert outcome.failure == ""


class _Overtaken(_DiskFull):
    def append(self, event: LedgerEvent) -> None:
        self.room -= 1
        if self.room < 0:
            raise StateConflictError("written by another controller")


@pytest.mark.parametrize("room", [1, 2, 3, 4])
def test_a_ledger_that_another_controller_has_taken_leaves_the_machines_to_it(room: int) -> None:
    world = World()
    disk = _Overtaken(room)
    world.lines.append = disk.append  # type: ignore[method-assign]
    outcome = world.create(2)
    assert "another controller; it has lab-h100-0-00000001" in outcome.failure
    assert world.lambda_.deleted == [] and len(world.lambda_.orders) <= room
