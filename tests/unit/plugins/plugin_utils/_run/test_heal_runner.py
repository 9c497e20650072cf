# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The healer on plain hosts: what it asks, what it keeps in mind, and what it leaves to others."""

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
from ansible_collections.muster.training.plugins.module_utils._model.ledger import LedgerEvent, fold_events, format_time
from ansible_collections.muster.training.plugins.module_utils._node import files
from ansible_collections.muster.training.plugins.plugin_utils._hosts.node_client import NodeClient
from ansible_collections.muster.training.plugins.plugin_utils._workflows.fleet_heal import facts
from ansible_collections.muster.training.plugins.plugin_utils._workflows.fleet_heal import run as subject
from ansible_collections.muster.training.plugins.plugin_utils._workflows.node_pool.present import Context
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared.state_dir import StateHome
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job import run as training_job
from ansible_collections.muster.training.tests.support.run_world import Said
from ansible_collections.muster.training.tests.unit.plugins.action.test_options_match_docs import compare, documented

Dict = dict[str, t.Any]
RECORD: Dict = {
    "schema": 1,
    "run_id": "r",
    "state": "ended",
    "outcome": "lost",
    "attempts": [],
    "submitted_at": "x",
    "world_size": {},
    "backend": "hosts",
    "hosts": ["a", "b"],
}


class Node(NodeClient):
    """A host that answers, refuses, or is silent."""

    def __init__(self, name: str, problem: Exception | None) -> None:
        super().__init__(name, lambda command, data: (0, "", ""))
        self.problem = problem

    def call(self, op: str, **values: t.Any) -> Dict:
        if self.problem:
            raise self.problem
        return {}


class HostVars(dict[str, t.Any]):
    """Ansible's: ``get`` of a host that is not there gives something that breaks when it is used."""

    def get(self, key: str, default: t.Any = None) -> t.Any:
        assert key in self, f"{key} is no host"
        return super().get(key, default)


class World:
    """Hosts a, b and c of the inventory; ``problems`` are how they answer."""

    def __init__(self, root: pathlib.Path) -> None:
        self.root, self.said = root, Said()
        self.problems: dict[str, Exception] = {}

    def run(self, hosts: str = "ab", check: bool = False, **options: t.Any) -> Dict:
        usual: Dict = {"state_home": {"path": str(self.root)}, "cluster": "lab", "patience_s": 100.0, "providers": []}
        hostvars = HostVars({name: {} for name in "abc"})
        request = training_job.RunRequest(
            {**usual, **options},
            list(hosts),
            hostvars,
            self.root,
            check,
            lambda names: [Node(name, self.problems.get(name)) for name in names],
            self.said,
        )
        return subject.heal_fleet(request, Context(self.root, check))

    def record(self, policy: str = "shrink", name: str = "r", **more: t.Any) -> None:
        job = {"name": "x", "nodes": 2, "template": "t", "python": None, "restart": {"on_lost_node": policy}}
        folder = files.private_dir(self.root / "lab" / "runs" / name)
        files.write_json(folder / "run.json", {**RECORD, "run_id": name, "job": job, **more})


@pytest.fixture
def world(tmp_path: pathlib.Path) -> World:
    return World(tmp_path)


def silent(name: str) -> UnreachableError:
    return UnreachableError(name, "no answer")


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
    with pytest.raises(RefusedError, match="there is no run other"):
        world.run(run_id="other")


def test_silence_is_remembered_from_call_to_call(world: World) -> None:
    """A host that answers with an error is there; check mode remembers nothing."""
    world.record()
    world.problems = {"a": NodeError("a", "a problem"), "b": silent("b")}
    place = world.root / "lab" / facts.SILENT
    assert world.run(check=True)["resume"] is None and not place.exists()
    assert world.run()["resume"] is None
    since = json.loads(place.read_text())
    assert list(since) == ["b"] and time.time() - since["b"]["since"] < 60
    assert world.run()["resume"] is None and json.loads(place.read_text())["b"]["since"] == since["b"]["since"]
    long_ago = {"since": time.time() - 604800, "seen": time.time() - 604800, "mark": ""}
    place.write_text(json.dumps({"b": long_ago}))
    assert world.run()["resume"] is None, "it may have answered for days since"
    place.write_text(json.dumps({"b": {"since": time.time() - 101, "seen": time.time() - 60, "mark": ""}}))
    result = world.run()
    shrunk = {"name": "x", "nodes": 1, "restart": {"on_lost_node": "shrink"}}
    assert result["resume"] == {"run_id": "r", "nodes": 1, "hosts": ["a"], "job": shrunk}
    del world.problems["b"]
    assert world.run()["resume"]["nodes"] == 2 and json.loads(place.read_text()) == {}


def test_a_free_host_takes_the_place_of_a_lost_one(world: World) -> None:
    world.record("replace")
    result = world.run("abc", preempted_nodes=["a"])
    assert result["resume"]["hosts"] == ["b", "c"] and result["rent"] == 0


def test_a_machine_that_no_inventory_has_is_looked_at(world: World) -> None:
    """Its run knows it, and the ledger: without an account nobody can say that it is gone."""
    world.record("wait", hosts=["a", "lab-p-1-0123abcd"])
    event = {"schema": 1, "cluster": "lab", "token": "0123abcd", "resource": "instance", "provider": "lambda"}
    event |= {"account": "acc", "pool": "p", "name": "lab-p-1-0123abcd", "id": "i", "event": "joined"}
    made = LedgerEvent.from_dict({**event, "at": format_time(time.time() - 7200)})
    (world.root / "lab" / "ledger.jsonl").write_text(made.line())
    assert [item["kind"] for item in world.run("a")["actions"]] == ["wait"]
    told = world.run("a", check=True, lost_nodes=["lab-p-1-0123abcd"])
    assert [item["kind"] for item in told["actions"]] == ["mark_lost", "give_back", "wait"]


def test_a_policy_may_be_given_for_once(world: World) -> None:
    world.record("wait")
    world.problems = {"b": silent("b")}
    result = world.run(lost_nodes=["b"], on_lost_node="fail")
    assert result["failed"] and result["msg"] == "not healed: b: on_lost_node is fail"


def test_a_name_that_no_node_has_is_said(world: World) -> None:
    world.record("wait")
    world.run(lost_nodes=["gpu-33"], preempted_nodes=["a"])
    assert [line for line in world.said.lines if "no node" in line] == [
        "warning: gpu-33: it was named as lost, and no node is called so"
    ]


@pytest.mark.parametrize("memory", ["[]", "{", '{"b": "x"}', '{"b": 5.0}', '{"b": {"since": "x"}}'])
def test_a_damaged_memory_is_no_memory(world: World, memory: str) -> None:
    world.record()
    world.problems = {"b": silent("b")}
    (world.root / "lab" / facts.SILENT).write_text(memory)
    assert world.run()["resume"] is None


def test_the_ledgers_line_of_a_loss() -> None:
    event = {"schema": 1, "cluster": "lab", "token": "0123abcd", "resource": "instance", "provider": "lambda"}
    event |= {"account": "acc", "pool": "p", "name": "lab-p-0-0123abcd", "id": "i", "price_usd_per_hour": 2.0}
    made = LedgerEvent.from_dict({**event, "event": "joined", "at": format_time(1000.0), "run_id": "r"})
    (lease,) = fold_events([made]).values()
    line = subject.lost_event(lease, 2000.0, "notice")
    (after,) = fold_events([made, line]).values()
    assert (after.state, after.id, after.run_id, after.open) == ("lost", "i", "r", True)
    assert after.price_usd_per_hour == 2.0 and line.reason == "notice"


def test_a_fleet_of_which_no_host_is_left(world: World) -> None:
    """The controller, on which the play runs then, does not become a member."""
    world.record("shrink", hosts=["gone-1", "gone-2"])
    (action,) = world.run("")["actions"]
    assert action["kind"] == "wait" and "0 of 2 nodes are there" in action["reason"]


def test_documentation_and_action_agree() -> None:
    from ansible_collections.muster.training.plugins.action import fleet_heal as face

    assert compare(documented("fleet_heal"), face.ActionModule.OPTIONS) == []


@pytest.mark.parametrize(("mark", "lost"), [("2026-11-01T00:00:00Z", True), ("2026-11-08T00:00:00Z", False)])
def test_a_node_that_was_ready_once_more_is_newly_silent(tmp_path: pathlib.Path, mark: str, lost: bool) -> None:
    """Its kubelet says so itself, and dates it: two short faults a week apart are no silence of a week."""
    home = StateHome({"path": str(tmp_path)}, "lab")
    home.folder.mkdir(parents=True)
    week = 604800.0
    kept = {"since": 1000.0, "seen": 1000.0, "mark": "2026-11-01T00:00:00Z"}
    (home.folder / facts.SILENT).write_text(json.dumps({"gpu-1": kept}))
    found = facts._update_silence(home, {"gpu-1": (False, None, False, mark)}, 1000.0 + week)
    assert found["gpu-1"]["since"] == (1000.0 if lost else 1000.0 + week)
