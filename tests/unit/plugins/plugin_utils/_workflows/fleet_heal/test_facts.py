# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# ruff: noqa: F401, F811  # fixtures are imported
"""The facts for healing: silence, names of no node, machines that no inventory has."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import time
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import (
    MusterError,
    NodeError,
    RefusedError,
    UnreachableError,
)
from ansible_collections.muster.training.plugins.module_utils._model.heal_plan import HealAction
from ansible_collections.muster.training.plugins.module_utils._model.lease import (
    AccountIdentity,
    Instance,
    ProviderTraits,
)
from ansible_collections.muster.training.plugins.module_utils._model.ledger import LedgerEvent, fold_events
from ansible_collections.muster.training.plugins.module_utils._model.timestamps import format_time
from ansible_collections.muster.training.plugins.module_utils._node import files
from ansible_collections.muster.training.plugins.plugin_utils._hosts.node_client import NodeClient
from ansible_collections.muster.training.plugins.plugin_utils._provision.create_state import AccountListed
from ansible_collections.muster.training.plugins.plugin_utils._provision.ledger.ledger_store import read_ledger
from ansible_collections.muster.training.plugins.plugin_utils._workflows.fleet_heal import facts
from ansible_collections.muster.training.plugins.plugin_utils._workflows.fleet_heal import run as subject
from ansible_collections.muster.training.plugins.plugin_utils._workflows.node_pool.present import Context
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared.open_ledger import open_machines
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared.state_dir import OWN_CLUSTER, StateHome
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job import run as training_job
from ansible_collections.muster.training.tests.fakes.sim_provider import SimMachine, SimProvider, outage
from ansible_collections.muster.training.tests.fakes.virtual import VirtualClock
from ansible_collections.muster.training.tests.support.run_world import Said
from ansible_collections.muster.training.tests.unit.plugins.plugin_utils._workflows.fleet_heal.heal_world import (
    World,
    silent,
    world,
)


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


def test_a_name_that_no_node_has_is_said(world: World) -> None:
    world.record("wait")
    world.run(lost_nodes=["gpu-33"], preempted_nodes=["a"])
    assert [line for line in world.said.lines if "not a node" in line] == [
        "warning: lost_nodes names gpu-33, which is not a node of this fleet"
    ]


@pytest.mark.parametrize("memory", ["[]", "{", '{"b": "x"}', '{"b": 5.0}', '{"b": {"since": "x"}}'])
def test_a_damaged_memory_is_no_memory(world: World, memory: str) -> None:
    world.record()
    world.problems = {"b": silent("b")}
    (world.root / "lab" / facts.SILENT).write_text(memory)
    assert world.run()["resume"] is None


@pytest.mark.parametrize(("mark", "lost"), [("2026-11-01T00:00:00Z", True), ("2026-11-08T00:00:00Z", False)])
def test_a_node_that_was_ready_once_more_is_newly_silent(tmp_path: pathlib.Path, mark: str, lost: bool) -> None:
    """Its kubelet says so itself, and dates it: two short faults a week apart are no silence of a week."""
    home = StateHome({"path": str(tmp_path)}, "lab")
    home.folder.mkdir(parents=True)
    week = 604800.0
    kept = {"since": 1000.0, "seen": 1000.0, "mark": "2026-11-01T00:00:00Z"}
    (home.folder / facts.SILENT).write_text(json.dumps({"gpu-1": kept}))
    found = facts._update_silence(home, {"gpu-1": facts.NodeCondition(False, mark=mark)}, 1000.0 + week)
    assert found["gpu-1"].since == (1000.0 if lost else 1000.0 + week)


def test_hosts_beside_a_cluster_that_was_brought_up_from_here_are_healed_as_hosts(world: World) -> None:
    """The kubeconfig of that cluster comes by itself; its API server is not asked, here it does not even exist."""
    own: t.Any = {"kubeconfig": str(world.root / "missing"), OWN_CLUSTER: True}
    world.record()
    long_ago = {"b": {"since": time.time() - 101, "seen": time.time() - 60, "mark": ""}}
    world.problems = {"b": silent("b")}
    (world.root / "lab" / facts.SILENT).write_text(json.dumps(long_ago))
    assert world.run(**own)["resume"]["hosts"] == ["a"], "the run is one of hosts"
    world.record(outcome="succeeded")
    world.problems = {}
    assert world.run(**own)["resume"] is None, "the last one was"
    world.record(backend="kubernetes", outcome="succeeded", name="pods", submitted_at="y")
    place = world.root / "lab" / "runs" / "r"
    os.utime(place, (1, 1))
    with pytest.raises(MusterError, match="missing"):
        world.run(**own)
    with pytest.raises(MusterError, match="missing"):
        world.run(kubeconfig=own["kubeconfig"])


def test_without_any_run_the_cluster_that_was_brought_up_from_here_is_the_fleet(world: World) -> None:
    with pytest.raises(MusterError, match="missing"):
        world.run(kubeconfig=str(world.root / "missing"), **{OWN_CLUSTER: True})


@pytest.mark.parametrize(
    ("credential", "place", "listed", "known", "usable"),
    [
        ("aaaa", "a", (), False, False),
        # A listing may be empty: its provider has the last word on an id.
        ("aaaa", "a", (), True, None),
        ("aaaa", "a", (), outage(), None),
        ("bbbb", "a", (), False, None),
        ("aaaa", "b", (), False, None),
        ("bbbb", "b", ("lab-h100-0-1f2e3d4c",), True, True),
        ("aaaa", "a", ("i-1",), True, True),
        ("aaaa", "a", ("bobs-box",), True, True),
    ],
)
def test_a_machine_is_lost_only_where_an_absence_proves_it(
    credential: str, place: str, listed: tuple[str, ...], known: bool | Exception, usable: bool | None
) -> None:
    event = {"cluster": "lab", "token": "1f2e3d4c", "resource": "instance", "provider": "lambda", "account": "aaaa"}
    event |= {"pool": "h100", "name": "lab-h100-0-1f2e3d4c", "at": format_time(1000.0), "event": "joined", "id": "i-1"}
    event |= {"schema": 1, "fingerprint": "aaaa", "api": "https://a.example"}
    (lease,) = fold_events([LedgerEvent.from_dict(event)]).values()
    token = {"lab-h100-0-1f2e3d4c": "1f2e3d4c"}
    instances = tuple(Instance("lambda", "i-1", name, token.get(name), "running") for name in listed)
    listing = AccountListed(5000.0, 5000.0, "lambda", instances)
    account = SimProvider(VirtualClock(), account=credential)
    account.api = f"https://{place}.example"
    if known is True:
        account.machines["i-1"] = SimMachine("i-1", lease.name, 1.0, 0.0, 0.0, 0.0)
    account.look_faults = [known] if isinstance(known, Exception) else []
    assert facts._is_usable(lease, listing, account, [lease]) is usable


def test_a_host_whose_kernel_says_that_a_gpu_is_gone_gets_no_gang(world: World) -> None:
    world.record("shrink")
    world.devices = {"b": {"gpu_errors": ["NVRM: Xid (PCI:0000:18:00): 79, GPU has fallen off the bus."]}}
    result = world.run()
    assert result["resume"]["hosts"] == ["a"]
    assert "wait b: no gang is placed on it: GPU 0000:18:00.0: Xid 79, it has fallen off the bus" in world.said.lines
    assert world.run(gpu_faults=False)["resume"]["hosts"] == ["a", "b"]


def test_a_machine_whose_gpu_failed_is_remembered_by_its_provider_s_id(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is rented, it says that a GPU is gone, and its listing says on which machine it is."""
    event = {"cluster": "lab", "token": "1f2e3d4c", "resource": "instance", "provider": "lambda", "account": "acc1"}
    event |= {"pool": "h100", "name": "lab-h100-0-1f2e3d4c", "at": format_time(1000.0), "event": "joined", "id": "i-1"}
    event |= {"schema": 1, "fingerprint": "acc1", "api": "https://lambda.example"}
    (files.private_dir(world.root / "lab") / "ledger.jsonl").write_text(json.dumps(event) + "\n")
    account = SimProvider(VirtualClock())
    account.machines["i-1"] = SimMachine("i-1", str(event["name"]), 1.0, 0.0, 0.0, 0.0, host="m-7")
    monkeypatch.setattr(facts, "open_providers", lambda *_given: {"lambda": account})
    home = StateHome({"path": str(world.root)}, "lab")
    leases = read_ledger(home.folder).leases
    state = world.state(home)
    assert state.hosts == {event["name"]: "m-7"} and list(state.leases.values()) == list(leases.values())
    (node,) = (item for item in state.facts.nodes if item.name == event["name"])
    sick = dataclasses.replace(node, gpu_fault="GPU 0000:18:00.0: Xid 79, it has fallen off the bus")
    state.facts = dataclasses.replace(state.facts, nodes=(sick,))
    marks = [HealAction("mark_lost", (node.name,), sick.gpu_fault)]
    subject._remember_faults(world.request(), home, state, marks)
    found = open_machines(home).read()[0].find_host("lambda", "m-7", time.time())
    assert found is not None and found.fault == "gpu_fault" and "Xid 79" in found.detail
    # One that is lost for another reason is no fault of its machine.
    state.facts = dataclasses.replace(state.facts, nodes=(node,))
    (world.root / "machines.jsonl").unlink()
    subject._remember_faults(world.request(), home, state, marks)
    assert not (world.root / "machines.jsonl").exists()
