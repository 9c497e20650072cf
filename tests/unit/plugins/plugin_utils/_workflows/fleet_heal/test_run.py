# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# ruff: noqa: F401, F811  # fixtures are imported
"""fleet_heal from its options to its result, on hosts: what is planned, done and recorded."""

from __future__ import annotations

import json
import pathlib
import threading
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
from ansible_collections.muster.training.plugins.plugin_utils._hosts import gang
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

RUNNING: dict[str, t.Any] = {"state": "running", "outcome": None, "submitted_at": "2026-11-24T10:00:00Z"}


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
    assert result["gang"] is None and result["deleted"] == [
        name for action in result["actions"] if action["kind"] == "give_back" for name in action["nodes"]
    ]


def test_a_notice_is_written_into_the_history_of_the_run_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.record("wait", **RUNNING)
    stopped: list[t.Any] = []

    def stop_gang(*asked: t.Any) -> tuple[dict[str, t.Any], dict[str, t.Any]]:
        stopped.append(asked)
        return {}, {}

    monkeypatch.setattr(gang, "stop_gang", stop_gang)
    place = world.root / "lab" / "runs" / "r" / "events.jsonl"
    given: dict[str, t.Any] = {"notices": {"a": "EC2 will terminate it", "c": "it goes"}}
    world.run("abc", check=True, noticed_at="2026-11-24T12:00:00Z", **given)
    assert not place.exists()
    world.run("abc", noticed_at="2026-11-24T12:00:00Z", **given)
    noted = [json.loads(line) for line in place.read_text().splitlines()]
    assert noted[0] == {"at": 1795521600.0, "kind": "notice", "node": "a", "detail": "EC2 will terminate it"}
    assert [line["kind"] for line in noted] == ["notice"] and len(stopped) == 1
    record = json.loads((place.parent / "run.json").read_text())
    assert (record["outcome"], record["cause"]) == ("lost", "preempted")
    world.record("wait", **RUNNING)
    world.run("abc", noticed_at="2026-11-24T12:00:05Z", **given)
    assert place.read_text().count('"notice"') == 1


def test_who_follows_the_run_gets_the_time_to_stop_it(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gang, "stop_gang", lambda *_asked: ({}, {}))
    monkeypatch.setattr(subject, "LOCK_S", 0.1)
    world.record("wait", **RUNNING)
    held = StateHome({"path": str(world.root)}, "lab").lock("r")
    with pytest.raises(RefusedError, match="run r is being followed by"):
        world.run("abc", lost_nodes=["a"])
    threading.Timer(0.5, held.close).start()
    assert "the rest of the run was stopped on a, b" in world.run("abc", notices={"a": "it goes"})["done"]


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
