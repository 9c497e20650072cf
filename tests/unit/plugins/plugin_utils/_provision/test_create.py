# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Renting a pool: adopt, create, settle, gate, re-roll, all or nothing, within the caps."""

from __future__ import annotations

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import MusterError, ProviderError
from ansible_collections.muster.training.plugins.module_utils._model.lease import Created, Refused, Traits, Unsettled
from ansible_collections.muster.training.plugins.module_utils._model.ledger import LedgerEvent
from ansible_collections.muster.training.plugins.module_utils._model.offer import Candidate
from ansible_collections.muster.training.plugins.plugin_utils._provision.readiness import ProbeReport
from ansible_collections.muster.training.tests.fakes.pool_world import World
from ansible_collections.muster.training.tests.fakes.sim_provider import SimProvider, h100, outage
from ansible_collections.muster.training.tests.fakes.virtual import VirtualClock

FULL = Refused("capacity", "insufficient capacity")


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


def test_creates_are_issued_at_once_unless_the_api_has_a_pace() -> None:
    world = World()
    world.create(8)
    assert max(world.lambda_.order_times) - min(world.lambda_.order_times) == 0
    paced = World(SimProvider(VirtualClock(), traits=Traits(create_interval_s=12.0), offers=[h100()]))
    paced.create(4)
    gaps = [b - a for a, b in zip(paced.lambda_.order_times, paced.lambda_.order_times[1:], strict=False)]
    assert all(12.0 <= gap < 13.0 for gap in gaps)


def test_the_wall_is_the_slowest_boot() -> None:
    world = World(SimProvider(VirtualClock(), offers=[h100()], boot_s=300.0))
    start = world.clock.time()
    world.create(8)
    assert world.clock.time() - start <= 1.15 * 300


@pytest.mark.parametrize("late", [None, 0.0, 30.0, 60.0, 90.0])
def test_a_lost_answer_makes_one_machine_at_most(late: float | None) -> None:
    world = World()
    world.lambda_.answers = [Unsettled("reset by peer") if late is None else late]
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
    world.lambda_.answers = [Refused("throttled", "too many requests", 40.0)]
    start = world.clock.time()
    assert world.create(1).failure == ""
    assert world.lambda_.order_times == [start, start + 40.0]


def test_an_absurd_wait_is_cut() -> None:
    world = World()
    world.lambda_.answers = [Refused("throttled", "too many requests", 1e9)]
    assert world.create(1).failure == ""


def test_an_offer_without_capacity_gives_way_to_the_next() -> None:
    cheap, dear = h100(price=1.0, region="us-west-1"), h100(price=2.0)
    world = World(SimProvider(VirtualClock(), offers=[dear, cheap]))
    world.lambda_.answers = [FULL]
    outcome = world.create(1)
    assert outcome.failure == ""
    assert [order.offer.region for order in world.lambda_.orders] == ["us-west-1", "us-east-1"]
    assert world.kinds()[:2] == ["intent 1", "failed 1"]


def test_a_gang_that_cannot_be_completed_is_given_back_and_says_why() -> None:
    world = World()
    world.lambda_.answers = [None, None, FULL]
    outcome = world.create(3)
    assert "every offer was refused" in outcome.failure
    assert "insufficient capacity" in "; ".join(outcome.state.history)
    assert outcome.proof.clean
    assert world.alive() == 0
    assert {lease.state for lease in world.leases.values()} == {"verified"}


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


@pytest.mark.parametrize("why", ["quota", "credentials", "rule"])
def test_a_refusal_that_waiting_does_not_heal_is_not_repeated(why: str) -> None:
    world = World(SimProvider(VirtualClock(), offers=[h100(), h100(price=3.0, region="us-west-1")]))
    world.lambda_.answers = [Refused(why, "no")] * 2  # type: ignore[arg-type]
    outcome = world.create(1, capacity_wait_s=600.0)
    assert outcome.failure
    assert len(world.lambda_.orders) == (2 if why == "rule" else 1)


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


def test_an_offer_with_a_stock_of_one_is_ordered_once() -> None:
    stock = [h100("vastai", price, product=f"ask{price}", stock=1, region=None) for price in (1.0, 2.0)]
    world = World(SimProvider(VirtualClock(), "vastai", offers=stock))
    assert world.create(2).failure == ""
    assert [order.offer.product for order in world.providers["vastai"].orders] == ["ask1.0", "ask2.0"]


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
    world = World(SimProvider(VirtualClock(), offers=[h100()], traits=Traits(boot_limit_s=600.0)))
    world.lambda_.states = ["creating"]
    assert world.create(1).failure == ""
    assert len(world.lambda_.orders) == 2


def test_replacements_are_bounded() -> None:
    world = World()
    world.lambda_.states = ["failed"] * 50
    outcome = world.create(2)
    assert "machines were unusable" in outcome.failure
    assert len(world.lambda_.orders) <= 2 * 4
    assert world.alive() == 0


def test_a_create_with_an_error_and_an_id_is_destroyed() -> None:
    world = World()
    world.lambda_.answers = [Created("x", usable=False, reason="bid too low")]
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
    world.lambda_.account = "acc2"
    world.lambda_.machines = {}
    with pytest.raises(ProviderError, match="account acc1"):
        world.create(1)
    assert len(world.lambda_.orders) == 1 and world.lambda_.deleted == []


def test_time_runs_out() -> None:
    world = World(SimProvider(VirtualClock(), offers=[h100()], boot_s=5000.0))
    outcome = world.create(1, timeout_at=world.clock.time() + 300)
    assert "not complete in time" in outcome.failure
    assert world.alive() == 0


def test_a_smaller_count_gives_back_the_last() -> None:
    world = World()
    world.create(3)
    assert world.create(2).failure == ""
    assert sorted(item.name[-1] for item in world.lambda_.machines.values()) == ["1", "2"]


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


def test_what_is_under_way_is_finished_though_offers_cannot_be_read() -> None:
    world = World()
    world.create(1)
    world.lines.keep("intent")
    world.lambda_.offer_faults = [outage()]
    outcome = world.create(1)
    assert (outcome.failure, outcome.order_count) == ("", 0)


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


def test_a_machine_that_cannot_be_deleted_is_told_and_does_not_hold_up_the_pool() -> None:
    world = World()
    world.lambda_.states = ["failed"]
    world.lambda_.delete_faults = [outage()] * 100
    outcome = world.create(1)
    assert outcome.failure == ""
    assert "cannot be deleted" in "; ".join(outcome.state.history)
    assert [item["delete_failed"] for item in outcome.proof.billing] == [True]


def test_a_machine_with_our_form_of_name_but_no_line_is_not_adopted() -> None:
    world = World()
    world.lambda_.make("lab-h100-0-deadbeef")
    assert world.create(1).failure == ""
    assert sorted(item.name for item in world.lambda_.machines.values()) == [
        "lab-h100-0-00000001",
        "lab-h100-0-deadbeef",
    ]


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
