# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# ruff: noqa: F401, F811  # fixtures are imported
"""fleet_heal from its options to its result, on hosts: what is planned, done and recorded."""

from __future__ import annotations

import json
import pathlib
import time
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import (
    NodeError,
    RefusedError,
    UnreachableError,
)
from ansible_collections.muster.training.plugins.module_utils._model.ledger import LedgerEvent, fold_events
from ansible_collections.muster.training.plugins.module_utils._model.timestamps import format_time
from ansible_collections.muster.training.plugins.module_utils._node import files
from ansible_collections.muster.training.plugins.plugin_utils._hosts.node_client import NodeClient
from ansible_collections.muster.training.plugins.plugin_utils._workflows.fleet_heal import facts
from ansible_collections.muster.training.plugins.plugin_utils._workflows.fleet_heal import run as subject
from ansible_collections.muster.training.plugins.plugin_utils._workflows.node_pool.present import Context
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared.state_dir import StateHome
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job import run as training_job
from ansible_collections.muster.training.tests.support.run_world import Said
from ansible_collections.muster.training.tests.unit.plugins.plugin_utils._workflows.fleet_heal.heal_world import (
    World,
    silent,
    world,
)


def test_without_runs_and_machines_there_is_nothing_to_do(world: World) -> None:
    result = world.run()
    assert not result["changed"] and result["actions"] == [] and list(world.root.iterdir()) == []


@pytest.mark.parametrize("outcome", ["succeeded", "cancelled", "failed"])
def test_what_ended_by_itself_is_left_alone(world: World, outcome: str) -> None:
    world.record(outcome=outcome)
    assert world.run()["actions"] == []


def test_a_run_that_was_named_is_healed_whatever_its_end(world: World) -> None:
    world.record(outcome="failed")
    assert world.run(run_id="r")["resume"] == {"run_id": "r", "nodes": 2, "hosts": ["a", "b"], "job": None}
    with pytest.raises(RefusedError, match="run other does not exist"):
        world.run(run_id="other")


def test_a_free_host_takes_the_place_of_a_lost_one(world: World) -> None:
    world.record("replace")
    result = world.run("abc", preempted_nodes=["a"])
    assert result["resume"]["hosts"] == ["b", "c"] and result["rent"] == 0


def test_a_policy_may_be_given_for_once(world: World) -> None:
    world.record("wait")
    world.problems = {"b": silent("b")}
    result = world.run(lost_nodes=["b"], on_lost_node="fail")
    assert result["failed"] and result["msg"] == "not healed: b: on_lost_node is fail"


def test_a_fleet_of_which_no_host_is_left(world: World) -> None:
    """The controller, on which the play runs then, does not become a member."""
    world.record("shrink", hosts=["gone-1", "gone-2"])
    (action,) = world.run("")["actions"]
    assert action["kind"] == "wait" and "0 of 2 nodes are ready" in action["reason"]


def test_documentation_and_action_agree() -> None:
    from ansible_collections.muster.training.plugins.action import fleet_heal as face
