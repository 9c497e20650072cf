# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which leases are due when nobody asks."""

from __future__ import annotations

import dataclasses
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.ledger import Lease
from ansible_collections.muster.training.plugins.module_utils._model.timestamps import format_time
from ansible_collections.muster.training.plugins.plugin_utils._provision.bill.due_rules import RunView, find_due_leases

NOW = 1_795_255_200.0
LEASE = Lease(
    token="1f2e3d4c",
    resource="instance",
    cluster="lab",
    pool="h100",
    name="lab-h100-0-1f2e3d4c",
    provider="lambda",
    account="acc1",
    state="joined",
    settled=True,
    intent_at=NOW - 7200,
    changed_at=NOW - 3600,
    ids=("i-1",),
    run_id="r1",
    price_usd_per_hour=10.0,
)


def reasons(runs: dict[str, RunView] | None = None, **changes: t.Any) -> list[str]:
    return list(find_due_leases([dataclasses.replace(LEASE, **changes)], runs or {}, NOW).values())


def test_a_running_lease_is_left_alone() -> None:
    assert reasons() == []
    assert reasons({"r1": RunView("running")}, release="always", deadline=format_time(NOW + 1), max_cost_usd=20.1) == []


@pytest.mark.parametrize(
    ("runs", "changes", "word"),
    [
        ({}, {"deadline": format_time(NOW)}, "deadline"),
        ({}, {"max_cost_usd": 20.0}, "20.00 USD"),
        ({"r1": RunView("ended", "succeeded")}, {"release": "success"}, "succeeded"),
        ({"r1": RunView("ended", "failed")}, {"release": "always"}, "failed"),
        ({}, {"state": "lost"}, "released"),
        ({}, {"state": "failed"}, "released"),
        ({}, {"state": "draining"}, "released"),
        ({}, {"state": "intent", "settled": False}, "never answered"),
        ({}, {"state": "created", "until": NOW - 1201}, "never complete"),
        ({}, {"state": "adopted", "until": NOW - 1201}, "never complete"),
        ({}, {"state": "intent", "until": NOW - 1201}, "never complete"),
    ],
)
def test_what_is_due(runs: dict[str, RunView], changes: dict[str, t.Any], word: str) -> None:
    assert len(found := reasons(runs, **changes)) == 1
    assert word in found[0]


@pytest.mark.parametrize(
    ("run", "release"),
    [
        (RunView("ended", "failed"), "success"),
        (RunView("ended", "succeeded"), "never"),
        (RunView("ended", "lost"), None),
    ],
)
def test_a_run_that_ended_keeps_its_pool_where_the_user_said_so(run: RunView, release: str | None) -> None:
    assert reasons({"r1": run}, release=release) == []


def test_a_verified_lease_is_never_due_but_its_cost_counts() -> None:
    gone = dataclasses.replace(LEASE, token="00000000", state="verified", changed_at=NOW - 3600)
    assert find_due_leases([gone], {}, NOW) == {}
    # 10 USD for the one that is gone and 20 USD for the one that runs.
    assert list(find_due_leases([gone, dataclasses.replace(LEASE, max_cost_usd=30.0)], {}, NOW)) == [
        ("1f2e3d4c", "instance")
    ]
    assert find_due_leases([gone, dataclasses.replace(LEASE, max_cost_usd=30.5)], {}, NOW) == {}


@pytest.mark.parametrize("state", ["created", "adopted", "joined"])
def test_a_gang_that_somebody_may_wait_for_or_has_is_left_alone(state: str) -> None:
    assert reasons(state=state, until=NOW - (10**6 if state == "joined" else 1199)) == []
    assert reasons(state=state) == []


def test_an_open_order_of_a_controller_at_work_is_left_alone() -> None:
    assert reasons(state="intent", settled=False, intent_at=NOW - 120) == []
