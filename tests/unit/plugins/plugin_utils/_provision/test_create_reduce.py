# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How answers, listings and probes change a pool: lost answers, refusals, bad machines, limits."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.lease import (
    OrderAccepted,
    OrderRefused,
    OrderUnsettled,
    ProviderTraits,
)
from ansible_collections.muster.training.plugins.module_utils._model.offer import Candidate, Order
from ansible_collections.muster.training.plugins.plugin_utils._provision.readiness import ProbeReport
from ansible_collections.muster.training.tests.fakes.pool_world import World
from ansible_collections.muster.training.tests.fakes.sim_provider import SimProvider, h100, outage
from ansible_collections.muster.training.tests.fakes.virtual import VirtualClock


@pytest.mark.parametrize("late", [None, 0.0, 30.0, 60.0, 90.0])
def test_a_lost_answer_makes_one_machine_at_most(late: float | None) -> None:
    world = World()
    world.lambda_.answers = [OrderUnsettled("reset by peer") if late is None else late]
    outcome = world.create(1)
    assert outcome.failure == ""
    assert len(world.lambda_.machines) == 1
    assert len(world.lambda_.orders) == (2 if late is None else 1)
    assert ("adopted 1" in world.kinds()) is (late is not None)


def test_an_effect_after_the_settling_time_is_found_and_deleted() -> None:
    world = World(SimProvider(VirtualClock(), offers=[h100()], boot_s=300.0))
    world.lambda_.answers = [170.0]
    outcome = world.create(1)
    assert outcome.failure == ""
    assert "was created after its order was abandoned" in "; ".join(outcome.state.history)
    assert [item.name for item in world.lambda_.machines.values()] == ["lab-h100-0-00000002"]
    assert world.leases[("00000001", "instance")].state in ("deleted", "verified")


def test_a_throttled_order_goes_out_again_after_the_time_asked_for() -> None:
    world = World()
    world.lambda_.answers = [OrderRefused("throttled", "too many requests", 40.0)]
    start = world.clock.time()
    assert world.create(1).failure == ""
    assert world.lambda_.order_times == [start, start + 40.0]


def test_an_absurd_wait_is_cut() -> None:
    world = World()
    world.lambda_.answers = [OrderRefused("throttled", "too many requests", 1e9)]
    assert world.create(1).failure == ""


@pytest.mark.parametrize("why", ["quota", "credentials", "rule"])
def test_a_refusal_that_waiting_does_not_heal_is_not_repeated(why: str) -> None:
    world = World(SimProvider(VirtualClock(), offers=[h100(), h100(price=3.0, region="us-west-1")]))
    world.lambda_.answers = [OrderRefused(why, "no")] * 2  # type: ignore[arg-type]
    outcome = world.create(1, capacity_wait_s=600.0)
    assert outcome.failure
    assert len(world.lambda_.orders) == (2 if why == "rule" else 1)


CAPS = [
    (1, {"max_price_usd_per_hour": 3.0}),
    (1, {"max_total_usd_per_hour": 3.0}),
    (2, {"max_total_usd_per_hour": 5.0}),
    (1, {"candidates": (Candidate(provider="lambda", max_price_usd_per_hour=3.0),)}),
]


@pytest.mark.parametrize(("count", "caps"), CAPS)
def test_what_is_billed_above_a_cap_is_given_back_and_fails(count: int, caps: dict[str, t.Any]) -> None:
    world = World(SimProvider(VirtualClock(), offers=[h100()]))
    real = world.lambda_.make
    world.lambda_.make = lambda name, price=None: real(name, 4.0)  # type: ignore[method-assign]
    outcome = world.create(count, **caps)
    assert "4.00 USD per hour" in outcome.failure or "8.00 USD per hour" in outcome.failure
    assert len(world.lambda_.orders) == count and world.alive() == 0 and outcome.proof.clean


@pytest.mark.parametrize("how", ["no effect", "refused"])
def test_a_machine_that_cannot_be_ended_counts_against_the_cap(how: str) -> None:
    world = World()
    world.lambda_.states = ["failed"]
    if how == "refused":
        world.lambda_.delete_faults = [outage()] * 1000
    else:
        world.lambda_.delete = lambda _instance: True  # type: ignore[method-assign]
    outcome = world.create(1, max_total_usd_per_hour=3.0)
    assert "no offer fits the price caps beside lab-h100-0-00000001, which cannot be deleted" in outcome.failure
    assert len(world.lambda_.orders) == 1 and not outcome.proof.clean


def test_a_machine_that_is_ending_is_awaited_before_the_cap_is_used_again() -> None:
    world = World()
    world.lambda_.states = ["failed"]
    outcome = world.create(1, max_total_usd_per_hour=3.0)
    assert outcome.failure == "" and len(world.lambda_.orders) == 2
    assert world.lambda_.order_times[1] - world.lambda_.order_times[0] >= 5.0


def test_a_joined_machine_whose_price_rose_is_kept_and_told() -> None:
    world = World()
    world.create(1)
    world.lambda_.machines["lambda-1"].price = 9.0
    outcome = world.create(1, max_price_usd_per_hour=3.0)
    assert "9.00 USD per hour" in outcome.failure and "is kept" in outcome.failure
    assert list(world.lambda_.machines) == ["lambda-1"]


def test_a_429_that_made_the_machine_is_found_and_makes_one() -> None:
    world = World()

    def lie(order: Order) -> OrderRefused:
        world.lambda_.orders.append(order)
        world.lambda_.make(order.name)
        return OrderRefused("throttled", "slow down", 1.0)

    world.lambda_.create = lie  # type: ignore[method-assign]
    assert world.create(2).failure == ""
    assert len(world.lambda_.orders) == 2 == len(world.lambda_.machines)


@pytest.mark.parametrize("count", [1, 2])
def test_429s_that_make_machines_which_are_listed_late_are_bounded(count: int) -> None:
    world = World()
    world.lambda_.lag_s = 59.0

    def lie(order: Order) -> OrderRefused:
        world.lambda_.orders.append(order)
        world.lambda_.make(order.name)
        return OrderRefused("throttled", "slow down", 1.0)

    world.lambda_.create = lie  # type: ignore[method-assign]
    world.create(count)
    assert len(world.lambda_.orders) <= count * 4
    assert world.delete().clean and world.alive() == 0


def test_an_answer_with_the_id_of_another_machine_touches_only_ours() -> None:
    world = World()
    bob = world.lambda_.make("bobs-box")

    def confuse(order: Order) -> OrderAccepted:
        world.lambda_.orders.append(order)
        world.lambda_.make(order.name)
        return OrderAccepted(bob)

    world.lambda_.create = confuse  # type: ignore[method-assign]
    outcome = world.create(1)
    assert outcome.failure == "" and outcome.state.slots[0].lease is not None
    assert outcome.state.slots[0].lease.id == "lambda-2" and world.lambda_.deleted == []
    assert world.delete().clean and list(world.lambda_.machines) == [bob]


def test_an_id_of_another_machine_without_one_of_ours_is_reported() -> None:
    world = World()
    bob = world.lambda_.make("bobs-box")
    world.lambda_.create = lambda _order: OrderAccepted(bob)  # type: ignore[method-assign]
    outcome = world.create(1)
    assert outcome.failure and list(world.lambda_.machines) == [bob] and world.lambda_.deleted == []
    assert any("bobs-box" in item["problem"] for item in outcome.proof.billing)


@pytest.mark.parametrize(
    ("record", "problem"),
    [
        ({"gpu": {"model": "A40", "count": 8}}, "A40"),
        ({"gpu": {"model": "NVIDIA H100 80GB HBM3", "count": 1}}, "has 1 GPUs, 8 were ordered"),
        ({"gpu": {"model": "H100", "count": 8, "memory_gib": 40.0}}, "40 GiB"),
    ],
)
def test_a_machine_that_is_listed_as_something_else_is_replaced_by_another_offer(
    record: dict[str, t.Any], problem: str
) -> None:
    right, wrong = {"gpu": {"model": "H100 SXM", "count": 8, "memory_gib": 79.6}}, record
    offers = [h100(price=price, gpu_count=8, gpu_memory_gib=80.0, product=f"p{price}") for price in (2.0, 3.0)]
    world = World(SimProvider(VirtualClock(), offers=offers))
    world.lambda_.records = [wrong, right]
    outcome = world.create(1, gate=False)
    assert outcome.failure == "" and problem in "; ".join(outcome.state.history)
    assert [order.offer.product for order in world.lambda_.orders] == ["p2.0", "p3.0"]
    assert len(world.lambda_.machines) == 1


def test_the_gate_asks_for_what_was_ordered_though_the_listing_says_nothing() -> None:
    world = World(SimProvider(VirtualClock(), offers=[h100(gpu_count=8)]))
    assert world.create(1).failure == ""
    assert {item.gpu_count for item in world.prober.ordered} == {8}


def test_a_bad_state_is_destroyed_and_replaced_on_another_host() -> None:
    world = World()
    world.lambda_.states = ["failed"]
    world.lambda_.hosts = ["m1", "m1", "m2"]
    outcome = world.create(1)
    assert outcome.failure == ""
    assert [item.host for item in world.lambda_.machines.values()] == ["m2"]
    assert len(world.lambda_.orders) == 3


def test_a_machine_that_fails_the_gate_is_replaced() -> None:
    world = World()
    world.prober.reports = [ProbeReport("bad", True, ("cannot run K3s",))]
    assert world.create(1).failure == ""
    assert len(world.lambda_.orders) == 2


def test_patience_with_a_machine_that_answers_ends() -> None:
    world = World()
    world.prober.reports = [ProbeReport("not_yet", True, ("CUDA does not initialise (error 802)",))] * 40
    start = world.clock.time()
    outcome = world.create(1, patience_s=100.0)
    assert outcome.failure == ""
    assert "error 802" in "; ".join(outcome.state.history)
    assert 160 <= world.clock.time() - start <= 400


@pytest.mark.parametrize("joined", [False, True])
def test_nothing_is_ordered_in_place_of_a_machine_that_cannot_be_recognised(joined: bool) -> None:
    """Its id is listed under another name: it may be ours and bill, and nothing is deleted by an id alone."""
    world = World()

    def rename() -> None:
        for machine in world.lambda_.machines.values():
            machine.name = "alice-dev"

    if joined:
        assert world.create(1).failure == ""
        world.clock.sleep(300)
        rename()
    else:
        world.clock.later(0.5, rename)
    outcome = world.create(1)
    assert outcome.failure.startswith(
        "nothing is ordered in place of lab-h100-0-00000001: lambda-1 is listed as alice-dev"
    )
    assert len(world.lambda_.orders) == 1 and world.lambda_.deleted == []


def test_a_machine_that_never_boots_is_replaced_at_its_limit() -> None:
    world = World(SimProvider(VirtualClock(), offers=[h100()], traits=ProviderTraits(boot_limit_s=600.0)))
    world.lambda_.states = ["creating"]
    outcome = world.create(1)
    assert outcome.failure == ""
    assert len(world.lambda_.orders) == 2
    assert " s after it was ordered, listed as creating" in outcome.state.last_problem


def test_what_is_awaited_where_nothing_can_be_listed_says_so() -> None:
    world = World()
    world.lambda_.list_faults = [None, *[outage()] * 1000]
    outcome = world.create(1)
    assert "; lambda cannot be listed: " in outcome.failure and "503" in outcome.failure
    said = [line for line in outcome.state.history if line.startswith("lambda cannot be listed: ")]
    assert len(said) == 1, "once, not at every listing"


def test_a_create_with_an_error_and_an_id_is_destroyed() -> None:
    world = World()
    world.lambda_.answers = [OrderAccepted("x", usable=False, reason="bid too low")]
    assert world.create(1).failure == ""
    assert len(world.lambda_.machines) == 1
    assert "lambda-1" in world.lambda_.deleted


def test_a_listing_that_misses_a_machine_does_not_replace_it() -> None:
    world = World()
    world.lambda_.list_faults = [None, None, "empty", "empty", None]
    assert world.create(1).failure == ""
    assert len(world.lambda_.orders) == 1


def test_a_new_machine_may_be_missing_from_the_listing_for_a_minute() -> None:
    world = World()
    world.lambda_.lag_s = 55.0
    assert world.create(2).failure == ""
    assert len(world.lambda_.orders) == 2


def test_a_machine_that_is_gone_is_replaced() -> None:
    world = World(SimProvider(VirtualClock(), offers=[h100()], boot_s=600.0))
    world.clock.later(30.0, lambda: world.lambda_.machines.clear())
    assert world.create(1).failure == ""
    assert len(world.lambda_.orders) == 2
    assert "lost 1" in world.kinds()


@pytest.mark.parametrize("answer", [None, "404"])
def test_what_is_deleted_bills_until_it_is_absent_for_long(answer: str | None) -> None:
    """Whatever the delete's answer, the machine counts against the caps: another one is not ordered beside it."""
    world = World(SimProvider(VirtualClock(), offers=[h100()], traits=ProviderTraits(list_lag_s=60.0)))
    world.lambda_.states = ["failed"]
    world.lambda_.delete_faults = [answer]
    world.clock.later(1.0, lambda: world.lambda_.machines.clear())
    assert world.create(1, max_total_usd_per_hour=3.0).failure == ""
    first, second = world.lambda_.order_times
    assert 60.0 <= second - first <= 90.0
