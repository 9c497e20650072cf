# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How answers, listings and probes change a pool: lost answers, refusals, bad machines, limits."""

from __future__ import annotations

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.lease import (
    OrderAccepted,
    OrderRefused,
    OrderUnsettled,
    ProviderTraits,
)
from ansible_collections.muster.training.plugins.plugin_utils._provision.readiness import ProbeReport
from ansible_collections.muster.training.tests.fakes.pool_world import World
from ansible_collections.muster.training.tests.fakes.sim_provider import SimProvider, h100
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


def test_a_machine_that_costs_more_than_the_cap_is_given_back() -> None:
    world = World(SimProvider(VirtualClock(), offers=[h100()]))
    real = world.lambda_.make
    prices = [9.0, 2.0]
    world.lambda_.make = lambda name, price=None: real(name, prices.pop(0))  # type: ignore[method-assign]
    assert world.create(1, max_price_usd_per_hour=2.0).failure == ""
    assert [item.price for item in world.lambda_.machines.values()] == [2.0]


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


def test_a_machine_that_never_boots_is_replaced_at_its_limit() -> None:
    world = World(SimProvider(VirtualClock(), offers=[h100()], traits=ProviderTraits(boot_limit_s=600.0)))
    world.lambda_.states = ["creating"]
    assert world.create(1).failure == ""
    assert len(world.lambda_.orders) == 2


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
