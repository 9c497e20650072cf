# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# ruff: noqa: F401, F811  # fixtures are imported
"""Machines end with their run: rules in the ledger, costs, deadlines, a reaper that does the rest."""

from __future__ import annotations

import dataclasses
import pathlib
import subprocess
import types
import typing as t
from collections.abc import Iterator

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError, MusterError, RefusedError
from ansible_collections.muster.training.plugins.module_utils._model.job import parse_job
from ansible_collections.muster.training.plugins.module_utils._model.node_report import NodeReport
from ansible_collections.muster.training.plugins.plugin_utils._hosts.node_client import NodeClient
from ansible_collections.muster.training.plugins.plugin_utils._provision.ledger.ledger_store import (
    LedgerWriter,
    read_ledger,
)
from ansible_collections.muster.training.plugins.plugin_utils._provision.run_exit_ssh import NodeEnd
from ansible_collections.muster.training.plugins.plugin_utils._workflows.node_pool import ledger_replica, run_leases
from ansible_collections.muster.training.plugins.plugin_utils._workflows.node_pool import present as node_pool_present
from ansible_collections.muster.training.tests.fakes.lambda_cloud import FakeLambda
from ansible_collections.muster.training.tests.fakes.virtual import VirtualClock
from ansible_collections.muster.training.tests.support.rented_runs import PRICE, World, job
from ansible_collections.muster.training.tests.unit.plugins.plugin_utils._workflows.node_pool.run_world import world


@pytest.mark.parametrize(
    ("rule", "outcome", "left"),
    [
        ("success", "succeeded", 0),
        ("success", "failed", 2),
        ("always", "failed", 0),
        ("always", "cancelled", 0),
        ("always", "lost", 0),
        ("never", "succeeded", 2),
    ],
)
def test_machines_end_with_their_run(world: World, rule: str, outcome: str, left: int) -> None:
    tenancy = world.begin(job(release=rule), world.rent())
    result = world.end(tenancy, outcome)
    assert world.alive() == left
    assert len(result.get("released", [])) == 2 - left and not result.get("failed")
    assert len([line for line in world.said if line.startswith("deleting lab-h100-")]) == 2 - left
    assert world.end(tenancy, outcome) == {}
    states = {lease.state for lease in read_ledger(world.home.folder).leases.values()}
    assert states == ({"joined"} if left else {"verified"})


def test_a_run_on_machines_of_ones_own_has_no_lease(world: World) -> None:
    own = [run_leases.RunHost("a", {"ownership": "owned", "id": "x", "provider": "static"}, "/r")]
    assert world.begin(job(release="always"), own) is None
    assert not (world.home.folder / "ledger.jsonl").exists()


@pytest.mark.parametrize("changes", [{"release": "always"}, {"max_cost_usd": 5.0}])
def test_a_rule_for_machines_that_nobody_could_end_is_refused(world: World, changes: dict[str, t.Any]) -> None:
    strange = [run_leases.RunHost("a", {"ownership": "rented", "id": "x", "provider": "lambda", "name": "mine"}, "/r")]
    with pytest.raises(InputError, match=f"job.{next(iter(changes))}: a is rented, but not in the ledger"):
        world.begin(job(**changes), strange)
    assert world.begin(job(), strange) is None


def test_the_cost_of_a_run_counts_from_its_own_start(world: World) -> None:
    places = world.rent()
    world.clock.sleep(10 * 3600)
    tenancy = world.begin(job(max_cost_usd=2 * PRICE), places)
    assert tenancy.over(world.clock.time() + 3590) == ""
    assert "has cost 5.98 USD" in tenancy.over(world.clock.time() + 3600)
    world.clock.sleep(3601)
    # A run that is stopped for its cost gives its machines back, whatever became of it.
    assert len(world.end(tenancy, "cancelled")["released"]) == 2 and world.alive() == 0


def test_the_same_run_goes_on_counting_and_another_begins_anew(world: World) -> None:
    places = world.rent()
    assert world.begin(job(max_cost_usd=9.0), places)
    lines = len(read_ledger(world.home.folder).events)
    world.clock.sleep(3600)
    again = world.begin(job(max_cost_usd=9.0), places)
    assert len(read_ledger(world.home.folder).events) == lines
    assert "has cost 11.96 USD" in again.over(world.clock.time() + 3600)
    other = world.begin(job(), places, "r2")
    assert other.over(world.clock.time() + 10**6) == ""
    assert run_leases.find_run_leases(world.home, "r1") is None
    lease = next(iter(read_ledger(world.home.folder).leases.values()))
    assert (lease.run_id, lease.release, lease.max_cost_usd) == ("r2", None, None)


def test_the_rule_that_a_pool_was_rented_with_holds(world: World) -> None:
    places = world.rent(release="success")
    assert world.begin(job(), places)
    lines = len(read_ledger(world.home.folder).events)
    tenancy = world.begin(job(), places)
    assert len(read_ledger(world.home.folder).events) == lines
    assert len(world.end(tenancy, "succeeded")["released"]) == 2 and world.alive() == 0


def test_machines_that_the_run_did_not_use_stay(world: World) -> None:
    tenancy = world.begin(job(nodes=1, release="always"), world.rent()[:1])
    assert len(world.end(tenancy, "succeeded")["released"]) == 1 and world.alive() == 1


def test_a_machine_that_is_being_given_back_takes_no_run(world: World) -> None:
    places = world.rent()
    lease = next(iter(read_ledger(world.home.folder).leases.values()))
    event = next(item for item in read_ledger(world.home.folder).events if item.event == "joined")
    with LedgerWriter(world.home.folder) as writer:
        writer.append(dataclasses.replace(event, event="draining"))
    with pytest.raises(RefusedError, match=f"{lease.name} is being deleted"):
        world.begin(job(), places)


def test_without_credentials_the_end_is_told_and_left_to_the_reaper(world: World) -> None:
    tenancy = world.begin(job(release="always"), world.rent())
    result = world.end(tenancy, "succeeded", providers=[])
    assert result["failed"] and "no credentials for lambda" in result["msg"] and world.alive() == 2
    wrong = world.end(tenancy, "succeeded", providers=[{"name": "lambda", "api_tokn": "x"}])
    assert wrong["failed"] and "Did you mean 'api_token'" in wrong["msg"]


def test_a_ledger_in_use_is_waited_for_and_then_named(world: World) -> None:
    places = world.rent()
    with LedgerWriter(world.home.folder, "the rent playbook"), pytest.raises(RefusedError, match="the rent playbook"):
        world.begin(job(release="always"), places)
    tenancy = world.begin(job(release="always"), places)
    with LedgerWriter(world.home.folder, "the rent playbook"):
        result = world.end(tenancy, "succeeded", timeout_s=60.0)
    assert result["failed"] and "the rent playbook" in result["msg"] and "reap" in result["msg"]


@pytest.mark.parametrize(
    ("rule", "exits", "left"),
    [("always", (1, 0), 0), ("success", (0, 0), 0), ("success", (0, 1), 2), ("success", (0, None), 2)],
)
def test_a_reaper_ends_the_machines_of_a_run_that_nobody_follows(
    world: World, rule: str, exits: tuple[int | None, ...], left: int
) -> None:
    places = world.rent()
    world.begin(job(release=rule), places, sender=world.copy)
    # The controller is gone with all that it had.
    assert world.reap() == 0 and world.alive() == 2
    for place, code in zip(places, exits, strict=True):
        if code is not None:
            world.ends[place.node["id"]] = NodeEnd("ended", code, "x", 500.0)
    assert world.reap() == 0
    assert world.alive() == left
    assert world.reap() == 0


def test_a_reaper_keeps_a_run_within_its_cost(world: World) -> None:
    world.begin(job(max_cost_usd=2 * PRICE), world.rent(), sender=world.copy)
    world.clock.sleep(3500)
    assert world.reap() == 0 and world.alive() == 2
    world.clock.sleep(101)
    assert world.reap() == 0 and world.alive() == 0


def test_where_a_run_is_kept() -> None:
    hosts = [types.SimpleNamespace(name=name, node={"id": name}) for name in "ab"]
    reports = {name: NodeReport(state_dir=f"/s/{name}") for name in "ab"}
    found = run_leases.list_run_hosts(job(), "r1", hosts, reports)
    assert [(item.run_dir, item.decides) for item in found] == [("/s/a/runs/r1", True), ("/s/b/runs/r1", True)]
    mpi = parse_job({"name": "x", "nodes": 2, "launcher": "mpi", "command": ["true"]})
    assert [item.decides for item in run_leases.list_run_hosts(mpi, "r1", hosts, reports)] == [True, False]


def test_a_rule_needs_its_copy_where_one_is_wanted(world: World) -> None:
    def broken(_events: object) -> None:
        raise MusterError("keeper-1: no answer")

    with pytest.raises(RefusedError, match="keeper-1: no answer"):
        world.begin(job(release="always"), world.rent(), sender=broken)


def test_awx_must_say_where_the_ledger_is_kept() -> None:
    node_pool_present.require_persistent_state({"state_home": {}}, {})
    node_pool_present.require_persistent_state({"state_home": {"path": "/mnt/state"}}, {"awx_job_id": 7})
    for name in ("awx_job_id", "tower_job_id"):
        with pytest.raises(RefusedError, match="muster_reaper_host"):
            node_pool_present.require_persistent_state({"state_home": {}}, {name: 7})


@pytest.mark.parametrize(
    ("rule", "names", "said"),
    [
        ({"max_cost_usd": 5}, ["b", "a"], "job.max_cost_usd counts no cost of a, b: the ledger of this cluster has no"),
        ({"release": "success"}, ["a"], "job.release ends nothing of a: the ledger of this cluster has no open lease"),
        ({"release": "success"}, [], ""),
        ({}, ["a"], ""),
    ],
)
def test_a_rule_on_money_that_does_not_hold_is_named(rule: dict[str, t.Any], names: list[str], said: str) -> None:
    found = run_leases.describe_void_rule(parse_job({"name": "x", "script": "/t.py", **rule}), names)
    assert found.startswith(said) and bool(found) is bool(said)
