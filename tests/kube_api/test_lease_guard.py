# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs in pods on rented machines: a real API server, a fake provider. No kubelets: pods are where the test puts them."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import typing as t
from collections.abc import Iterator

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import RefusedError
from ansible_collections.muster.training.plugins.module_utils._model.ledger import Lease
from ansible_collections.muster.training.plugins.module_utils._model.run_record import BackendRef
from ansible_collections.muster.training.plugins.plugin_utils._kube.api.client import Client
from ansible_collections.muster.training.plugins.plugin_utils._kube.api.connect import connect
from ansible_collections.muster.training.plugins.plugin_utils._provision.ledger.ledger_store import read_ledger
from ansible_collections.muster.training.plugins.plugin_utils._workflows.kube_objects import kube_node
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared import cluster_identity
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job import run as training_job
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.kubernetes import (
    lease_guard as subject,
)
from ansible_collections.muster.training.tests.fakes.lambda_cloud import FakeLambda
from ansible_collections.muster.training.tests.fakes.virtual import VirtualClock
from ansible_collections.muster.training.tests.support.kube_api import ApiServer
from ansible_collections.muster.training.tests.support.rented_runs import PRICE, World, job
from ansible_collections.muster.training.tests.support.run_world import Said

RUN = "muster.training/run-id"
Dict = dict[str, t.Any]


class Rented(World):
    """Two rented machines that are nodes of a cluster, and the Job object that runs ``r1`` there."""

    def __init__(self, *args: t.Any) -> None:
        super().__init__(*args)
        self.progress = Said()
        self.options: Dict = {}

    def join(self, api: ApiServer, namespace: str) -> None:
        """Rent, make a Node of each machine, put a pod of the run on each, make the run's object."""
        self.client: Client = connect({"kubeconfig": str(api.kubeconfig)})
        self.namespace, self.kubeconfig = namespace, str(api.kubeconfig)
        self.names = [place.host for place in self.rent()]
        for name in self.names:
            node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}
            self.client.create(node)
            ready = {"conditions": [{"type": "Ready", "status": "True"}]}
            self.client.patch("v1/Node", name, {"status": ready}, subresource="status")
            self.pod(f"r1-{name}", name, {RUN: "r1"}, "Succeeded")
        template = {
            "metadata": {"labels": {"x": "y"}},
            "spec": {"restartPolicy": "Never", "containers": [{"name": "node", "image": "x"}]},
        }
        meta = {"name": "r1", "namespace": namespace}
        made = {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": {"template": template}}
        self.live = self.client.create(made)
        uid, cluster_id = self.live["metadata"]["uid"], self.client.cluster_id()
        self.ref = BackendRef("batch/v1", "Job", "r1", namespace, uid, cluster_id=cluster_id)
        # As the ledger has it.
        self.place = {key: value for key, value in self.ref.to_dict().items() if key != "context"}

    def pod(self, name: str, on: str, labels: Dict, phase: str) -> None:
        spec = {"nodeName": on, "containers": [{"name": "node", "image": "x"}], "terminationGracePeriodSeconds": 0}
        meta = {"name": name, "namespace": self.namespace, "labels": labels}
        self.client.create({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})
        self.client.patch("v1/Pod", name, {"status": {"phase": phase}}, self.namespace, subresource="status")

    def finished(self) -> None:
        """Let the cluster's own controller say that the run has succeeded."""
        times = {"startTime": "2026-01-01T00:00:00Z", "completionTime": "2026-01-01T00:01:00Z"}
        kinds = ("SuccessCriteriaMet", "Complete")
        said = [{"type": kind, "status": "True", "reason": "x", "message": "x"} for kind in kinds]
        self.client.patch(
            "batch/v1/Job", "r1", {"status": {**times, "conditions": said}}, self.namespace, subresource="status"
        )

    def custody(self, **changes: t.Any) -> subject.ClusterLeaseGuard:
        hostvars: Dict = {"localhost": {"muster_providers": self.providers}}
        request = training_job.RunRequest(
            self.options, ["localhost"], hostvars, self.folder, False, lambda names: [], self.progress
        )
        more: Dict = {"externals": self.outside, "scheduler": self.stage}
        return subject.ClusterLeaseGuard(request, self.home, job(**changes), "r1", self.client, **more)

    def leases(self) -> list[Lease]:
        return list(read_ledger(self.home.folder).leases.values())


@pytest.fixture
def world(tmp_path: pathlib.Path, api: ApiServer, namespace: str) -> Iterator[Rented]:
    clock = VirtualClock()
    fake = FakeLambda(clock, boot_s=10.0)
    with fake.loopback() as url:
        found = Rented(tmp_path, url, fake, clock)
        found.join(api, namespace)
        yield found
    for name in found.names:
        found.client.delete("v1/Node", name)
    assert fake.violations == []


def test_a_run_that_has_ended_gives_its_machines_back(world: Rented) -> None:
    """Its rules are in the ledger while it runs, with its price; its nodes leave before the machines end."""
    custody = world.custody(release="success")
    # Before the start: what its checkpoints would go with.
    leases = subject.find_leases(world.home, {}, [*world.names, "own-node"])
    assert subject.find_prices(leases) == dict.fromkeys(world.names, PRICE)
    custody.bind_nodes({*world.names, "own-node"}, world.ref)
    assert {lease.run_id for lease in world.leases()} == {"r1"}
    assert {lease.release for lease in world.leases()} == {"success"}
    assert custody.prices([*world.names, "own-node"]) == {**dict.fromkeys(world.names, PRICE), "own-node": None}
    assert custody.stop_reason() == "" and world.alive() == 2
    assert custody.delete_due({"changed": True}, "failed") == {"changed": True} and world.alive() == 2
    result = custody.delete_due({"changed": True}, "succeeded")
    assert result["released"] == world.names and not result.get("failed") and "kept" not in result
    assert world.alive() == 0 and {lease.state for lease in world.leases()} == {"verified"}
    assert [world.client.get("v1/Node", name) for name in world.names] == [None, None]
    assert custody.delete_due({"changed": False}, "succeeded") == {"changed": False}


def test_nodes_of_another_cluster_by_the_ledger_are_left_as_they_are(world: Rented) -> None:
    """A kubeconfig that points to another cluster than the machines' has nodes of the same names, perhaps."""
    place = {"cluster": world.home.folder.name, "state_home": {"path": str(world.home.folder.parent)}}
    values = {"kubeconfig": world.kubeconfig, "patience_s": 30, "drain_timeout_s": 5, "names": world.names, **place}

    def ask(state: str) -> Dict:
        return kube_node.run({**values, "state": state}, pathlib.Path("/"), False, world.progress.say)

    custody = world.custody(release="always")
    custody.bind_nodes(world.names, world.ref)
    assert ask("cordoned")["changed"] and ask("schedulable")["changed"]
    before = [t.cast(Dict, world.client.get("v1/Node", name))["metadata"]["resourceVersion"] for name in world.names]
    world.custody(release="always").bind_nodes(world.names[1:], dataclasses.replace(world.ref, cluster_id="another"))
    expected = rf"{world.names[1]} is a node of another cluster in the ledger \(another\) than .*nothing was changed"
    for state in ("absent", "cordoned"):
        with pytest.raises(RefusedError, match=expected):
            ask(state)
    assert cluster_identity.ledger_clusters(world.home) == {
        world.client.cluster_id(): world.names[0],
        "another": world.names[1],
    }
    assert cluster_identity.ledger_clusters(world.home, world.names[1:]) == {"another": world.names[1]}
    assert cluster_identity.ledger_clusters(world.home, ["own-node"]) == {}
    after = [t.cast(Dict, world.client.get("v1/Node", name))["metadata"]["resourceVersion"] for name in world.names]
    assert after == before
    values["cluster_id"] = world.client.cluster_id()
    assert ask("cordoned")["changed"], "who names the cluster by its id is believed"


def test_no_run_begins_on_a_cluster_that_has_none_of_the_machines(world: Rented) -> None:
    cluster_identity.require_ledger_cluster(world.client, world.home)
    world.custody(release="always").bind_nodes(world.names[:1], dataclasses.replace(world.ref, cluster_id="another"))
    with pytest.raises(RefusedError, match=rf"{world.names[0]} is a node of another cluster in the ledger \(another\)"):
        cluster_identity.require_ledger_cluster(world.client, world.home)
    # Machines of both: each is as good.
    world.custody(release="always").bind_nodes(world.names[1:], world.ref)
    cluster_identity.require_ledger_cluster(world.client, world.home)


def test_what_was_noted_is_not_noted_again(world: Rented) -> None:
    lines = (world.home.folder / "ledger.jsonl").read_text
    custody = world.custody(release="always")
    custody.bind_nodes(world.names[:1], world.ref)
    first = lines()
    custody.bind_nodes(world.names[:1], world.ref)
    assert lines() == first
    world.custody(release="always").bind_nodes(world.names[:1], world.ref)
    assert lines() == first, "the same run followed again changes nothing"
    custody.bind_nodes(world.names, world.ref)
    assert len(lines().splitlines()) == len(first.splitlines()) + 1
    places = [lease.run_place for lease in world.leases()]
    assert places == [{"cluster": world.place}] * 2


def test_a_machine_that_another_run_is_on_by_then_is_kept(world: Rented) -> None:
    """It goes over to that run, so that no reaper ends it by the first one's rule; its node takes pods again."""
    busy, free = world.names
    custody = world.custody(release="always")
    custody.bind_nodes(world.names, world.ref)
    world.pod("r2-0", busy, {RUN: "r2"}, "Running")
    result = custody.delete_due({}, "succeeded")
    assert result["released"] == [free] and result["kept"] == {busy: "run r2 uses it"}
    assert not result.get("failed") and world.alive() == 1
    node = t.cast(Dict, world.client.get("v1/Node", busy))
    assert not node["spec"].get("unschedulable") and world.client.get("v1/Pod", "r2-0", world.namespace)
    (held,) = [lease for lease in world.leases() if lease.open]
    assert (held.run_id, held.release) == ("r2", None)


def test_a_cluster_that_does_not_tell_keeps_the_machines(world: Rented) -> None:
    """A limited user may not cordon; ending a machine under somebody else's run would be worse than billing on."""
    custody = world.custody(release="always")
    custody.bind_nodes(world.names, world.ref)
    custody._client = connect({"host": "https://127.0.0.1:1", "token": "x", "patience_s": 0})
    result = custody.delete_due({}, "succeeded")
    assert result["failed"] and world.alive() == 2
    assert result["msg"].count("was not deleted: could not check whether another run uses it") == 2


def test_a_run_that_costs_too_much_has_to_end(world: Rented) -> None:
    custody = world.custody(max_cost_usd=5.0)
    custody.bind_nodes(world.names, world.ref)
    assert custody.stop_reason() == ""
    world.clock.sleep(3600)
    assert custody.stop_reason().startswith("its run has cost 5.9")
    assert sorted(custody.delete_due({}, "cancelled")["released"]) == world.names


def test_a_ledger_that_cannot_be_written_is_said_once_and_tried_again(
    world: Rented, monkeypatch: pytest.MonkeyPatch
) -> None:
    custody = world.custody(release="success")
    (lease,) = [item for item in world.leases() if item.name == world.names[0]]
    given_up = json.loads((world.home.folder / "ledger.jsonl").read_text().splitlines()[-1])
    line = {**given_up, "token": lease.token, "name": lease.name, "id": lease.id, "event": "draining"}
    with (world.home.folder / "ledger.jsonl").open("a") as ledger:
        ledger.write(json.dumps(line) + "\n")
    for _time in range(3):
        custody.bind_nodes(world.names[:1], world.ref)
    warnings = [text for text in world.progress.lines if "could not be written to the ledger" in text]
    assert len(warnings) == 1 and "is being deleted (draining)" in warnings[0]


def test_a_reaper_asks_the_cluster_about_runs_that_nobody_follows(world: Rented) -> None:
    custody = world.custody(release="success")
    custody.bind_nodes(world.names, world.ref)
    settings = json.loads(world.settings.read_text())
    world.copy(read_ledger(world.home.folder).events)
    assert world.reap() == 0 and world.alive() == 2, "without a cluster it cannot know"
    world.settings.write_text(json.dumps({**settings, "kubeconfig": world.kubeconfig}))
    assert world.reap() == 0 and world.alive() == 2, "the run goes on"
    world.finished()
    assert world.reap() == 0 and world.alive() == 0


def test_a_reaper_whose_cluster_is_away_keeps_to_the_other_rules(
    world: Rented, capsys: pytest.CaptureFixture[str]
) -> None:
    world.custody(release="always").bind_nodes(world.names, world.ref)
    world.copy(read_ledger(world.home.folder).events)
    settings = json.loads(world.settings.read_text())
    world.settings.write_text(json.dumps({**settings, "kubeconfig": "/nowhere/config"}))
    assert world.reap() == 0 and world.alive() == 2
    assert "warning: the runs of the cluster cannot be read" in capsys.readouterr().err


def test_a_run_started_again_is_another_object(world: Rented) -> None:
    from ansible_collections.muster.training.plugins.plugin_utils._workflows.node_pool.run_status_kubernetes import (
        read_run_end,
    )

    assert read_run_end(world.client, world.place) is None
    assert read_run_end(world.client, {"kind": "Job"}) is None, "a ledger may say anything"
    found = read_run_end(world.client, {**world.place, "uid": "other"})
    assert found is not None and (found.state, found.outcome) == ("ended", "cancelled")
    elsewhere = {**world.place, "uid": "other", "cluster_id": "8a0d6f6e-0000-0000-0000-000000000000"}
    assert read_run_end(world.client, elsewhere) is None, "that it is not on another cluster says nothing"
    here = {**elsewhere, "cluster_id": world.place["cluster_id"]}
    assert read_run_end(world.client, here) == found
