# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Machines that were of no use are not rented again: by their id in offers, by their GPUs once they answer."""

from __future__ import annotations

import random
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.lease import Instance
from ansible_collections.muster.training.plugins.module_utils._model.machine_memory import MachineNote, recall
from ansible_collections.muster.training.plugins.module_utils._model.offer import Hardware, Offer, Order
from ansible_collections.muster.training.plugins.plugin_utils._provision.readiness import ProbeReport
from ansible_collections.muster.training.tests.fakes.pool_world import World
from ansible_collections.muster.training.tests.fakes.sim_provider import SimProvider, h100
from ansible_collections.muster.training.tests.fakes.virtual import VirtualClock

BAD = ProbeReport("bad", True, ("the GPU is another one",), fault="sold_otherwise")
HOUR = 3600.0


class Market(SimProvider):
    """Machines of an id each, as at Vast.ai: one offer a machine that is free, and the machine of an order is on it."""

    def create(self, order: Order) -> t.Any:
        self.hosts = [str(order.offer.host)] if order.offer.host else self.hosts
        return super().create(order)


def market(*hosts: str | None, **more: t.Any) -> World:
    offers = [
        h100(price=1.0 + number, product=f"offer-{number}", host=host, stock=1) for number, host in enumerate(hosts)
    ]
    return World(Market(VirtualClock(), offers=offers, **more))


def hosts_of(world: World) -> list[str | None]:
    return [order.offer.host for order in world.lambda_.orders]


def test_a_machine_that_was_sold_otherwise_is_left_out_by_the_next_call() -> None:
    world = market("m-1", "m-2", "m-3")
    world.prober.reports = [BAD]
    assert world.create(1).failure == "" and hosts_of(world) == ["m-1", "m-2"]
    assert [(item.fault, item.host) for item in world.notes] == [("sold_otherwise", "m-1")]
    world.delete()
    world.lambda_.orders.clear()
    again = world.create(1)
    assert again.failure == "" and hosts_of(world) == ["m-2"]
    assert any("1 of 3 offers are left out" in line for line in again.state.history)


def test_what_another_call_may_need_is_no_fault_of_the_machine() -> None:
    world = market("m-1", "m-2")
    world.prober.reports = [ProbeReport("bad", True, ("has 2.0 GiB of free disk, 5 are required",))]
    assert world.create(1).failure == "" and world.notes == []


def test_a_machine_that_never_answers_is_avoided_for_hours_and_one_of_a_blind_api_is_not() -> None:
    world = market("m-1", "m-2")
    world.prober.reports = [ProbeReport("not_yet", problems=("Connection refused",))] * 10_000
    assert "unusable" in world.create(1, max_replacements=0).failure or world.notes
    assert [(item.fault, item.host) for item in world.notes] == [("unusable", "m-1")]
    memory = recall(world.notes)
    at = world.notes[0].at
    assert memory.find_host("lambda", "m-1", at + 6 * HOUR - 1) and not memory.find_host("lambda", "m-1", at + 6 * HOUR)


def test_a_memory_of_all_machines_ranks_them_and_says_so() -> None:
    world = market("m-1", "m-2")
    now = world.clock.time()
    world.notes = [
        MachineNote(now, "lambda", "gpu_fault", "Xid 79", "m-1"),
        MachineNote(now, "lambda", "disk", "", "m-2"),
    ]
    outcome = world.create(1)
    assert outcome.failure == "" and hosts_of(world) == ["m-2"], "the one that is avoided for the shorter time"
    assert any("all 2 offers are of machines that are avoided" in line for line in outcome.state.history)
    assert world.notes[-1].fault == "passed" and world.notes[-1].host == "m-2"


def test_a_machine_is_known_by_its_gpus_where_the_offer_does_not_say_which_it_is() -> None:
    world = World(SimProvider(VirtualClock(), offers=[h100(), h100(price=3.0, region="us-west-1")]))
    world.notes = [MachineNote(world.clock.time(), "elsewhere", "gpu_fault", "Xid 79", None, ("GPU-a",))]
    world.prober.reports = [
        ProbeReport("ready", True, gpus=("GPU-a", "GPU-b")),
        ProbeReport("ready", True, gpus=("GPU-c",)),
    ]
    outcome = world.create(1)
    assert outcome.failure == "" and len(world.lambda_.orders) == 2
    assert "has GPUs of a machine that is avoided until" in outcome.state.last_problem
    assert world.lambda_.orders[1].offer.region == "us-west-1", "no more of an offer that sells it"


def test_a_machine_that_ended_by_itself_is_noted_once_another_one_of_the_order_works() -> None:
    """All of them end where the order's own image does."""
    world = market("m-1", "m-2", "m-3")
    world.lambda_.states = ["failed", "failed"]
    assert world.create(1).failure == "" and hosts_of(world) == ["m-1", "m-2", "m-3"]
    assert [(item.fault, item.host, item.detail) for item in world.notes] == [
        ("unusable", "m-1", "lambda reports failed"),
        ("unusable", "m-2", "lambda reports failed"),
    ]
    world = market("m-1", "m-2", "m-3")
    world.lambda_.states = ["failed"] * 3
    assert world.create(1).failure and world.notes == []


def test_a_machine_of_a_complete_gang_is_kept_whatever_is_remembered_of_it() -> None:
    world = market("m-1")
    assert world.create(1).failure == ""
    world.notes = [MachineNote(world.clock.time(), "lambda", "hung", "rank 3", "m-1")]
    assert world.create(1).failure == "" and len(world.lambda_.machines) == 1 and len(world.lambda_.orders) == 1


class LyingProber:
    """What a machine is, by its id: half of the duds never get a GPU, the others show less than was sold."""

    def __init__(self, duds: frozenset[str]) -> None:
        self.duds = duds

    def probe(self, machine: Instance, ordered: Hardware) -> ProbeReport:
        if machine.host not in self.duds:
            return ProbeReport("ready", True)
        return (
            BAD
            if int(str(machine.host).partition("-")[2]) % 2
            else ProbeReport("not_yet", True, ("nvidia-smi is missing",))
        )


@pytest.mark.parametrize("seed", range(2))
def test_fifty_rents_on_a_market_of_duds_meet_none_twice_within_its_time(seed: int) -> None:
    """A machine that is good is never left out; each rent is of two machines, an hour after the one before."""
    draw = random.Random(seed)
    names = [f"m-{number}" for number in range(40)]
    duds = frozenset(draw.sample(names, 12))
    world = World(Market(VirtualClock()))
    world.prober = t.cast("t.Any", LyingProber(duds))
    met: dict[str, float] = {}
    repeats, refused_good = [], 0
    for _number in range(50):
        shown = draw.sample(names, 20)
        offers: list[Offer] = [h100(price=1 + draw.random(), product=f"o-{name}", host=name, stock=1) for name in shown]
        world.lambda_.stock = offers
        world.lambda_.orders.clear()
        left_out = {
            item.host for item in offers if recall(world.notes).find_host("lambda", item.host, world.clock.time())
        }
        refused_good += len(left_out - duds)
        outcome = world.create(2, max_replacements=20, timeout_at=world.clock.time() + 10 * HOUR)
        assert outcome.failure == "", outcome.failure
        for order, at in zip(
            world.lambda_.orders, world.lambda_.order_times[-len(world.lambda_.orders) :], strict=True
        ):
            name = str(order.offer.host)
            ttl = 30 * 24 * HOUR if int(name.partition("-")[2]) % 2 else 6 * HOUR
            if name in duds:
                if name in met and at - met[name] < ttl:
                    repeats.append(name)
                met[name] = at
        world.delete()
        world.clock.sleep(HOUR)
    assert repeats == [] and refused_good == 0 and met
