# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The leases of a run on plain hosts while it is followed."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Iterator

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.ledger import make_event
from ansible_collections.muster.training.plugins.plugin_utils._hosts.node_client import NodeClient
from ansible_collections.muster.training.plugins.plugin_utils._provision.ledger.ledger_store import read_ledger
from ansible_collections.muster.training.plugins.plugin_utils._workflows.node_pool.lease_renewal import LeaseRenewal
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.hosts.lease_guard import (
    HostsLeaseGuard,
)
from ansible_collections.muster.training.tests.fakes.lambda_cloud import FakeLambda
from ansible_collections.muster.training.tests.fakes.virtual import VirtualClock
from ansible_collections.muster.training.tests.support.rented_runs import PRICE, World, job


@pytest.fixture
def world(tmp_path: pathlib.Path) -> Iterator[World]:
    clock = VirtualClock()
    api = FakeLambda(clock, boot_s=10.0)
    with api.loopback() as url:
        yield World(tmp_path, url, api, clock)
    assert api.violations == []


def test_a_follower_hears_when_the_run_costs_too_much(world: World) -> None:
    rented = world.rent()
    tenancy = world.begin(job(max_cost_usd=2 * PRICE), rented)
    renewed: list[str] = []

    def shell(command: str, _data: bytes) -> tuple[int, str, str]:
        renewed.append(command)
        return 0, "", ""

    renewal = LeaseRenewal([NodeClient("m", shell)], world.said.append, now=world.clock.time)
    guard = HostsLeaseGuard(tenancy, renewal, now=world.clock.time)
    assert guard.stop_reason() == guard.stop_reason() == ""
    renewal.wait()
    world.clock.sleep(3601)
    assert "has cost 5.98 USD" in guard.stop_reason()
    renewal.wait()
    assert len(renewed) == 2
    node = rented[0].node
    assert [guard.price_of(node, price) for price in (0.25, None, 9.0)] == [PRICE, PRICE, 9.0], "the higher price"
    assert guard.price_of({"name": "gpu-1"}, 0.25) == 0.25
    assert HostsLeaseGuard(None, LeaseRenewal([], world.said.append), now=world.clock.time).stop_reason() == ""


def test_a_price_that_rises_while_the_run_runs_counts_from_then_on(world: World) -> None:
    """Another command (reap, by a timer) finds in the listing what the machine costs now, and the limit holds by that."""
    rented = world.rent()
    guard = HostsLeaseGuard(
        world.begin(job(max_cost_usd=3 * PRICE), rented), LeaseRenewal([], world.said.append), now=world.clock.time
    )
    world.clock.sleep(1800)
    assert guard.stop_reason() == ""
    place = world.home.folder / "ledger.jsonl"
    with open(place, "a") as handle:
        for lease in read_ledger(world.home.folder).leases.values():
            event = make_event(lease, lease.state, world.clock.time(), price_usd_per_hour=4 * PRICE)
            handle.write(json.dumps(event.to_dict()) + "\n")
    world.clock.sleep(2)
    assert guard.stop_reason() != "" and guard.price_of(rented[0].node, PRICE) == 4 * PRICE
    # What cannot be read changes nothing.
    place.rename(world.home.folder / "away")
    world.clock.sleep(2)
    assert guard.stop_reason() != "" and guard.price_of(rented[0].node, PRICE) == 4 * PRICE
