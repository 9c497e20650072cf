# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is ordered next: candidates in turn, price caps, stock, pace, waiting for capacity."""

from __future__ import annotations

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.lease import Instance, ProviderTraits
from ansible_collections.muster.training.plugins.module_utils._model.offer import Candidate
from ansible_collections.muster.training.plugins.plugin_utils._provision.create_plan import failure_reason
from ansible_collections.muster.training.plugins.plugin_utils._provision.create_reduce import reduce
from ansible_collections.muster.training.plugins.plugin_utils._provision.create_state import (
    AccountListed,
    MachineSlot,
    PoolRequest,
    PoolState,
    SlotLease,
)
from ansible_collections.muster.training.tests.fakes.pool_world import World
from ansible_collections.muster.training.tests.fakes.sim_provider import SimProvider, h100
from ansible_collections.muster.training.tests.fakes.virtual import VirtualClock
from ansible_collections.muster.training.tests.unit.plugins.plugin_utils._provision.refusals import FULL


def test_creates_are_issued_at_once_unless_the_api_has_a_pace() -> None:
    world = World()
    world.create(8)
    assert max(world.lambda_.order_times) - min(world.lambda_.order_times) == 0
    paced = World(SimProvider(VirtualClock(), traits=ProviderTraits(create_interval_s=12.0), offers=[h100()]))
    paced.create(4)
    gaps = [b - a for a, b in zip(paced.lambda_.order_times, paced.lambda_.order_times[1:], strict=False)]
    assert all(12.0 <= gap < 13.0 for gap in gaps)


def test_an_offer_without_capacity_gives_way_to_the_next() -> None:
    cheap, dear = h100(price=1.0, region="us-west-1"), h100(price=2.0)
    world = World(SimProvider(VirtualClock(), offers=[dear, cheap]))
    world.lambda_.answers = [FULL]
    outcome = world.create(1)
    assert outcome.failure == ""
    assert [order.offer.region for order in world.lambda_.orders] == ["us-west-1", "us-east-1"]
    assert world.kinds()[:2] == ["intent 1", "failed 1"]


def test_the_next_candidate_is_taken_for_the_whole_gang() -> None:
    clock = VirtualClock()
    world = World(SimProvider(clock, offers=[h100()]), SimProvider(clock, "runpod", offers=[h100("runpod")]))
    world.lambda_.answers = [None, FULL]
    outcome = world.create(2)
    assert outcome.failure == ""
    assert (len(world.lambda_.machines), len(world.providers["runpod"].machines)) == (0, 2)


def test_a_mixed_pool_fills_up_from_the_next_candidate() -> None:
    clock = VirtualClock()
    world = World(SimProvider(clock, offers=[h100()]), SimProvider(clock, "runpod", offers=[h100("runpod")]))
    world.lambda_.answers = [None, FULL]
    assert world.create(2, mixed=True).failure == ""
    assert (len(world.lambda_.machines), len(world.providers["runpod"].machines)) == (1, 1)


def test_waiting_for_capacity_is_the_users_choice() -> None:
    world = World()
    world.lambda_.answers = [FULL, FULL]
    start = world.clock.time()
    assert world.create(1, capacity_wait_s=600.0).failure == ""
    assert [moment - start for moment in world.lambda_.order_times] == [0.0, 30.0, 60.0]


@pytest.mark.parametrize(
    ("caps", "orders"),
    [
        ({"max_price_usd_per_hour": 1.99}, 0),
        ({"max_price_usd_per_hour": 2.0}, 2),
        ({"max_total_usd_per_hour": 3.99}, 0),
        ({"max_total_usd_per_hour": 4.0}, 2),
    ],
)
def test_nothing_is_ordered_above_a_cap(caps: dict[str, float], orders: int) -> None:
    world = World()
    outcome = world.create(2, **caps)
    assert len(world.lambda_.orders) == orders
    assert bool(outcome.failure) is (orders == 0)
    if outcome.failure:
        assert "2.00 USD" in outcome.failure


def test_the_sum_of_different_offers_stays_below_the_cap() -> None:
    stock = [h100("vastai", price, product=f"ask{price}", stock=1, region=None) for price in (1.0, 2.0, 3.0)]
    world = World(SimProvider(VirtualClock(), "vastai", offers=stock))
    assert world.create(3, max_total_usd_per_hour=5.9).failure
    assert world.alive() == 0
    assert sum(order.offer.price_usd_per_hour for order in world.providers["vastai"].orders) <= 5.9
    assert world.create(3, max_total_usd_per_hour=6.0).failure == ""


def test_a_bill_that_leaves_no_room_for_the_next_offer_is_said() -> None:
    paced = ProviderTraits(create_interval_s=30.0)
    world = World(SimProvider(VirtualClock(), offers=[h100()], traits=paced))
    real = world.lambda_.make
    world.lambda_.make = lambda name, price=None: real(name, 4.9)  # type: ignore[method-assign]
    failure = world.create(2, max_total_usd_per_hour=6.0).failure
    assert "no offer fits the price caps beside lab-h100-" in failure and "at 4.90 USD per hour" in failure


def test_an_offer_with_a_stock_of_one_is_ordered_once() -> None:
    stock = [h100("vastai", price, product=f"ask{price}", stock=1, region=None) for price in (1.0, 2.0)]
    world = World(SimProvider(VirtualClock(), "vastai", offers=stock))
    assert world.create(2).failure == ""
    assert [order.offer.product for order in world.providers["vastai"].orders] == ["ask1.0", "ask2.0"]


def test_replacements_are_bounded() -> None:
    world = World()
    world.lambda_.states = ["failed"] * 50
    outcome = world.create(2)
    assert "machines were unusable" in outcome.failure
    assert len(world.lambda_.orders) <= 2 * 4
    assert world.alive() == 0


def test_time_runs_out() -> None:
    world = World(SimProvider(VirtualClock(), offers=[h100()], boot_s=5000.0))
    outcome = world.create(1, timeout_at=world.clock.time() + 300)
    assert "not complete in time" in outcome.failure
    assert world.alive() == 0


def test_a_joined_machine_without_its_gpus_is_kept_and_named() -> None:
    """A restart at RunPod may find no free GPU; what was complete before is not ended by that."""
    world = World()
    candidates = (Candidate(provider="lambda", gpu_model="H100", gpu_count=1),)
    assert world.create(2, candidates=candidates).failure == ""
    machine = next(iter(world.lambda_.machines.values()))
    machine.record = {"gpu": {"model": "H100", "count": 0, "memory_gib": 80.0}}
    outcome = world.create(3, candidates=candidates)
    assert "has 0 GPUs, 1 were ordered (it is kept" in outcome.failure and machine.name in outcome.failure
    assert world.lambda_.deleted == [] and len(world.lambda_.orders) == 2
    machine.record = {"gpu": {"model": "H100", "count": 1, "memory_gib": 80.0}}
    assert world.create(2, candidates=candidates).failure == ""


def joined_cluster(wanted: int, listed: int, state: str = "running") -> PoolState:
    """Return a pool whose cluster was complete with two machines."""
    name = "lab-h100-0-1f2e3d4c"
    members = tuple(Instance("runpod", f"p{rank}", f"{name}-{rank}", "1f2e3d4c", "running") for rank in range(listed))
    cluster = Instance("runpod", "c", name, "1f2e3d4c", state, "cluster", members=members)  # type: ignore[arg-type]
    lease = SlotLease("1f2e3d4c", name, "runpod", 0.0, 6.0, "c", instance=cluster, protected=True)
    request = PoolRequest("lab", "h100", wanted, (Candidate(provider="runpod", unit="cluster"),), 3600.0)
    phase = "ready" if state == "running" else "booting"
    traits = {"runpod": ProviderTraits(list_lag_s=60.0)}
    return PoolState(request, (MachineSlot(0, phase, lease),), traits)  # type: ignore[arg-type]


@pytest.mark.parametrize(("wanted", "listed"), [(3, 2), (1, 2), (2, 3)])
def test_a_cluster_of_another_size_is_not_called_complete(wanted: int, listed: int) -> None:
    said = failure_reason(joined_cluster(wanted, listed), 10.0)
    assert said.startswith(f"lab-h100-0-1f2e3d4c has {listed} machines, {wanted} are wanted") and "is kept" in said
    assert failure_reason(joined_cluster(listed, listed), 10.0) == ""


def test_a_cluster_that_lacks_a_member_for_long_is_given_up_and_not_before() -> None:
    state = joined_cluster(2, 1, "creating")
    lease = state.slots[0].lease
    assert lease is not None and lease.instance is not None
    for now in (10.0, 60.0, 70.0):
        state = reduce(state, AccountListed(now, now, "runpod", (lease.instance,)))
        assert state.slots[0].phase == "booting" and state.deletions == ()
    gone = reduce(state, AccountListed(71.0, 71.0, "runpod", (lease.instance,)))
    assert [item.instance.id for item in gone.deletions] == ["c"]
    whole = joined_cluster(2, 2).slots[0].lease
    assert whole is not None and whole.instance is not None
    back = reduce(state, AccountListed(71.0, 71.0, "runpod", (whole.instance,)))
    assert back.slots[0].phase == "ready" and back.deletions == ()
