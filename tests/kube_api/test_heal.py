# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Taking lost nodes out of a cluster, against a real API server: taints, Nodes, pods; and the healer around it."""

from __future__ import annotations

import json
import pathlib
import threading
import time
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import RefusedError
from ansible_collections.muster.training.plugins.module_utils._model.ledger import LedgerEvent
from ansible_collections.muster.training.plugins.module_utils._model.timestamps import format_time
from ansible_collections.muster.training.plugins.module_utils._node import files
from ansible_collections.muster.training.plugins.plugin_utils._kube.api.client import Client
from ansible_collections.muster.training.plugins.plugin_utils._kube.nodes import out_of_service as subject
from ansible_collections.muster.training.plugins.plugin_utils._workflows.fleet_heal import facts
from ansible_collections.muster.training.plugins.plugin_utils._workflows.fleet_heal import run as fleet_heal
from ansible_collections.muster.training.plugins.plugin_utils._workflows.node_pool import absent as node_pool_absent
from ansible_collections.muster.training.plugins.plugin_utils._workflows.node_pool.present import Context
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared import kube_connection
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job import run as training_job
from ansible_collections.muster.training.tests.fakes.sim_provider import SimProvider
from ansible_collections.muster.training.tests.fakes.virtual import VirtualClock
from ansible_collections.muster.training.tests.support.kube_api import ApiServer
from ansible_collections.muster.training.tests.support.run_world import Said

Dict = dict[str, t.Any]
ELSEWHERE = "8a0d6f6e-0000-0000-0000-000000000000"
OURS = {"app.kubernetes.io/managed-by": "muster.training"}


def node(client: Client, name: str, ready: bool, since_s: float = 0.0) -> None:
    """Make a Node whose kubelet was last heard of ``since_s`` seconds ago."""
    client.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
    state(client, name, ready, since_s)


def state(client: Client, name: str, ready: bool, since_s: float = 0.0) -> None:
    moment = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - since_s))
    ready_is = {"type": "Ready", "status": "True" if ready else "Unknown", "lastTransitionTime": moment}
    client.patch("v1/Node", name, {"status": {"conditions": [ready_is]}}, subresource="status")


def pod(client: Client, namespace: str, name: str, on: str, labels: Dict) -> None:
    spec = {"nodeName": on, "containers": [{"name": "node", "image": "x"}], "terminationGracePeriodSeconds": 300}
    meta = {"name": name, "namespace": namespace, "labels": labels}
    client.create({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})


@pytest.fixture
def pair(client: Client, namespace: str) -> t.Iterator[tuple[str, str]]:
    """Two Nodes, of which the second is silent, with a pod of a run and one of somebody else on each."""
    names = (f"{namespace}-a", f"{namespace}-b")
    for name, ready in zip(names, (True, False), strict=True):
        node(client, name, ready, 600)
        pod(client, namespace, f"ours-{name}", name, OURS)
        pod(client, namespace, f"other-{name}", name, {})
    yield names
    for name in names:
        client.delete("v1/Node", name)


def pods(client: Client, namespace: str) -> list[str]:
    return sorted(item["metadata"]["name"] for item in client.list("v1/Pod", namespace).items)


def test_readiness_and_its_time(client: Client, pair: tuple[str, str]) -> None:
    good, bad = (t.cast(Dict, client.get("v1/Node", name)) for name in pair)
    assert subject.readiness(good, time.time()) == (True, 0.0)
    ready, seconds = subject.readiness(bad, time.time())
    assert not ready and seconds is not None and 590 < seconds < 660
    assert subject.readiness(bad, None) == subject.readiness({"status": {}}, time.time()) == (False, None)
    said = {"type": "Ready", "status": "False", "lastTransitionTime": "2020-01-01T00:00:00Z"}
    assert subject.readiness({"status": {"conditions": [said]}}, time.time()) == (False, None), "a kubelet's own date"


def test_a_node_that_may_come_back_is_tainted_and_its_pods_go(
    client: Client, namespace: str, pair: tuple[str, str]
) -> None:
    """At once, although no kubelet confirms it; pods of others and other taints stay."""
    bad = pair[1]
    kept = {"key": "nvidia.com/gpu", "effect": "NoSchedule"}
    client.patch("v1/Node", bad, {"spec": {"taints": [kept]}})
    done = subject.release_pods(client, bad, gone=False)
    assert done == [f"Node {bad} is out of service", f"{namespace}/ours-{bad} was force-deleted"]
    found = t.cast(Dict, client.get("v1/Node", bad))
    assert subject.has_taint(found) and kept in found["spec"]["taints"]
    assert pods(client, namespace) == sorted([f"ours-{pair[0]}", f"other-{pair[0]}", f"other-{bad}"])
    assert subject.release_pods(client, bad, gone=False) == []
    assert subject.remove_taint(client, bad) and not subject.remove_taint(client, bad)
    assert t.cast(Dict, client.get("v1/Node", bad))["spec"]["taints"] == [kept]


def test_a_node_that_is_gone_is_deleted(client: Client, namespace: str, pair: tuple[str, str]) -> None:
    bad = pair[1]
    since = client.list("v1/Pod", namespace).resource_version
    with client.watch("v1/Pod", namespace, since=since, timeout_s=20) as events:
        done = subject.release_pods(client, bad, gone=True)
        last = next(event.object for event in events if event.type == "DELETED")
    taken = {item["type"]: item["status"] for item in last["status"]["conditions"]}
    assert last["status"]["phase"] == "Failed" and taken["DisruptionTarget"] == "True", "a lost node is no crash"
    assert done == [f"Node {bad} was deleted", f"{namespace}/ours-{bad} was force-deleted"]
    assert client.get("v1/Node", bad) is None and subject.release_pods(client, bad, gone=True) == []


REF = {"api_version": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": "r", "namespace": "default"}


class Healer:
    """A controller whose run has pods on both nodes; the second is a rented machine."""

    def __init__(self, api: ApiServer, root: pathlib.Path, names: tuple[str, str]) -> None:
        self.api, self.root, self.said = api, root, Said()
        self.clock = VirtualClock(time.time())
        self.provider = SimProvider(self.clock, "lambda")
        folder = files.private_dir(root / "lab" / "runs" / "r")
        job = {"name": "x", "nodes": 2, "restart": {"on_lost_node": "replace"}}
        value = {"schema": 1, "run_id": "r", "job": job, "state": "running", "outcome": None, "hosts": list(names)}
        more = {"backend": "kubernetes", "attempts": [], "submitted_at": "x", "world_size": {}, "backend_ref": REF}
        files.write_json(folder / "run.json", {**value, **more})
        event = {"cluster": "lab", "token": "0123abcd", "resource": "instance", "provider": "lambda", "account": "acc1"}
        made = LedgerEvent.from_dict(
            {**event, "schema": 1, "at": format_time(time.time() - 7200), "event": "joined", "pool": "p", "name": names[1],
             "id": "i-1"}
        )  # fmt: skip
        (root / "lab" / "ledger.jsonl").write_text(made.line())

    def run(self, check: bool = False, **options: t.Any) -> Dict:
        usual: Dict = {"providers": [], "state_home": {"path": str(self.root)}, "cluster": "lab", "run_id": None}
        more: Dict = {"kubeconfig": str(self.api.kubeconfig), "patience_s": 120.0, "rentable": True, "joinable": True}
        request = training_job.RunRequest(
            {**usual, **more, **options}, [], {}, self.root, check, lambda names: [], self.said
        )
        return fleet_heal.heal_fleet(request, Context(self.root, check))

    def given_back(self, options: t.Any, context: t.Any) -> Dict:
        place = self.root / "lab" / "ledger.jsonl"
        last = json.loads(place.read_text().splitlines()[-1])
        place.write_text(place.read_text() + json.dumps({**last, "event": "verified"}) + "\n")
        return {"billing": []}

    def events(self) -> list[str]:
        return [json.loads(line)["event"] for line in (self.root / "lab" / "ledger.jsonl").read_text().splitlines()]


@pytest.fixture
def healer(api: ApiServer, tmp_path: pathlib.Path, pair: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> Healer:
    found = Healer(api, tmp_path, pair)
    monkeypatch.setattr(facts, "open_providers", lambda providers, externals: {"lambda": found.provider})
    # That giving back proves what it says is tested where it lives.
    monkeypatch.setattr(node_pool_absent, "ensure_absent", found.given_back)
    return found


def test_another_cluster_than_that_of_the_run_is_refused(healer: Healer, pair: tuple[str, str], client: Client) -> None:
    """Its nodes are not there, so each would seem gone and be replaced."""
    place = healer.root / "lab" / "runs" / "r" / "run.json"
    value = json.loads(place.read_text())
    elsewhere = {**REF, "cluster_id": "8a0d6f6e-0000-0000-0000-000000000000"}
    files.write_json(place, {**value, "backend_ref": elsewhere})
    with pytest.raises(RefusedError, match="run r was started on another cluster"):
        healer.run()
    assert healer.events() == ["joined"] and client.get("v1/Node", pair[1])


@pytest.mark.parametrize("rented", [True, False])
def test_another_cluster_than_that_of_a_node_is_refused(
    healer: Healer, pair: tuple[str, str], client: Client, rented: bool
) -> None:
    """The newest run has ended well, so that no run is healed: the node of this name is still somebody else's."""
    ledger, record = healer.root / "lab" / "ledger.jsonl", healer.root / "lab" / "runs" / "r" / "run.json"
    elsewhere = {**REF, "cluster_id": ELSEWHERE}
    value = {**json.loads(record.read_text()), "state": "ended", "outcome": "succeeded"}
    if rented:
        value["backend"] = "hosts"
        line = {**json.loads(ledger.read_text()), "evidence": {"run_place": {"cluster": elsewhere}}}
        ledger.write_text(ledger.read_text() + json.dumps({**line, "run_id": "r"}) + "\n")
    else:
        value["backend_ref"] = elsewhere
        ledger.unlink()
    files.write_json(record, value)
    before = client.get("v1/Node", pair[1])
    refusal = f"{pair[1]} is a node of" if rented else "run r was started on"
    with pytest.raises(RefusedError, match=rf"{refusal} another cluster .*{ELSEWHERE}"):
        healer.run(lost_nodes=[pair[1]])
    after = client.get("v1/Node", pair[1])
    assert before and after and before["metadata"]["resourceVersion"] == after["metadata"]["resourceVersion"]
    with pytest.raises(RefusedError, match=f"than expected .{ELSEWHERE}"):
        healer.run(lost_nodes=[pair[1]], cluster_id=ELSEWHERE)
    done = healer.run(lost_nodes=[pair[1]], cluster_id=client.cluster_id())["done"]
    assert f"Node {pair[1]} was deleted" in done if rented else f"Node {pair[1]} is out of service" in done


def test_what_the_provider_took_leaves_the_cluster(
    healer: Healer, client: Client, namespace: str, pair: tuple[str, str]
) -> None:
    """Check mode changes nothing; then the loss is noted, the Node goes, the rest is for the playbook; then nothing."""
    checked = healer.run(check=True)
    assert [item["kind"] for item in checked["actions"]] == ["mark_lost", "give_back", "release", "rent", "join"]
    assert checked["changed"] and healer.events() == ["joined"] and client.get("v1/Node", pair[1])
    assert not (healer.root / "lab" / facts.SILENT).exists()
    result = healer.run()
    assert (result["rent"], result["join"], result["backend"]) == (1, True, "kubernetes")
    assert result["resume"] is None, "the run has not ended: its engine starts the gang again"
    gang = result["gang"]
    assert gang["labels"] == {"muster.training/run-id": gang["name"]} and gang["stop_s"] > 60
    assert healer.events() == ["joined", "lost", "verified"] and client.get("v1/Node", pair[1]) is None
    assert f"ours-{pair[1]}" not in pods(client, namespace) and f"ours-{pair[0]}" in pods(client, namespace)
    again = healer.run()
    assert again["done"] == [] and healer.events() == ["joined", "lost", "verified"]


def test_a_run_that_was_left_before_its_ranks_began_is_known_by_its_pods(
    healer: Healer, client: Client, namespace: str, pair: tuple[str, str]
) -> None:
    """The record has no node: its follower had ended. The lost machine is replaced all the same."""
    place = healer.root / "lab" / "runs" / "r" / "run.json"
    value = json.loads(place.read_text())
    files.write_json(place, {**value, "hosts": [], "backend_ref": {**REF, "namespace": namespace}})
    assert "rent" not in [item["kind"] for item in healer.run(check=True)["actions"]], "no pod of it is on that node"
    label = {**OURS, "muster.training/run-id": "r"}
    pod(client, namespace, "r-0-1", pair[1], label)
    pod(client, namespace, "r-test", pair[0], {**label, "muster.training/role": "network-test"})
    assert [item["kind"] for item in healer.run(check=True)["actions"]] == [
        *("mark_lost", "give_back", "release", "rent", "join"),
    ]


def test_a_machine_that_may_still_run_is_ended_first(
    healer: Healer, client: Client, pair: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its pods are freed only when giving it back was proved."""
    monkeypatch.setattr(facts, "_is_usable", lambda *_args: True)
    asked: list[t.Any] = []

    def stuck(options: t.Any, context: t.Any) -> Dict:
        asked.append(options["nodes"])
        return {"billing": [{"token": "0123abcd", "problem": "it is still listed"}]}

    monkeypatch.setattr(node_pool_absent, "ensure_absent", stuck)
    with pytest.raises(Exception, match="could not be deleted: it is still listed"):
        healer.run()
    assert asked == [["0123abcd"]] and client.get("v1/Node", pair[1]) is not None
    monkeypatch.setattr(node_pool_absent, "ensure_absent", healer.given_back)
    result = healer.run()
    assert client.get("v1/Node", pair[1]) is None and result["done"][0] == f"{pair[1]} was deleted, with proof"


def test_pods_may_save_before_a_node_goes_that_was_given_notice(
    healer: Healer, client: Client, namespace: str, pair: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is evicted, which asks it to end, while its kubelet answers; only then the machine ends."""
    monkeypatch.setattr(facts, "_is_usable", lambda *_args: True)
    state(client, pair[1], True)
    ended: list[bool] = []

    def absent(options: t.Any, context: t.Any) -> Dict:
        ended.append(client.get("v1/Node", pair[1]) is None)
        return healer.given_back(options, context)

    monkeypatch.setattr(node_pool_absent, "ensure_absent", absent)
    asked = threading.Event()

    def kubelet() -> None:
        with client.watch("v1/Pod", namespace, timeout_s=60) as events:
            for event in events:
                meta = event.object.get("metadata") or {}
                if meta.get("deletionTimestamp") and event.type == "MODIFIED":
                    asked.set()
                    client.delete("v1/Pod", meta["name"], namespace, uid=meta["uid"], grace_s=0)
                if pair[1] not in " ".join(pods(client, namespace)):
                    return

    thread = threading.Thread(target=kubelet, daemon=True)
    thread.start()
    result = healer.run(notices={pair[1]: "EC2 will terminate it"}, noticed_at="2026-11-24T12:00:00Z")
    thread.join(30)
    assert [item["kind"] for item in result["actions"]][:3] == ["mark_lost", "drain", "give_back"]
    assert result["done"][1] == f"{pair[1]} left the cluster: 2 pods were evicted, 0 deleted by force"
    assert asked.is_set() and ended == [True] and healer.events() == ["joined", "lost", "verified"]
    # Who follows the run, its record and the report read it there.
    noted = [json.loads(line) for line in (healer.root / "lab/runs/r/events.jsonl").read_text().splitlines()]
    told = {"at": 1795521600.0, "kind": "notice", "node": pair[1], "detail": "EC2 will terminate it"}
    assert noted == [told]
    lost = next(line for line in (healer.root / "lab/ledger.jsonl").read_text().splitlines() if '"lost"' in line)
    assert json.loads(lost)["reason"] == "notice of preemption: EC2 will terminate it"


@pytest.mark.parametrize("ahead_s", [150, -150, 7200])
def test_a_controllers_clock_that_is_wrong_costs_no_machine(
    healer: Healer, client: Client, pair: tuple[str, str], monkeypatch: pytest.MonkeyPatch, ahead_s: float
) -> None:
    """A node has just fallen silent; another time it was silent before is no part of that."""
    monkeypatch.setattr(facts, "_is_usable", lambda *_args: True)
    real = time.time
    files.write_json(healer.root / "lab" / facts.SILENT, {pair[1]: real() - 3600})
    state(client, pair[1], True)
    state(client, pair[1], False, 5)
    monkeypatch.setattr(time, "time", lambda: real() + ahead_s)
    found = healer.run()
    assert [item["kind"] for item in found["actions"]] == ["wait"], found["actions"]
    assert healer.events() == ["joined"] and client.get("v1/Node", pair[1])
    state(client, pair[1], False, 130 + ahead_s)
    assert [item["kind"] for item in healer.run(check=True)["actions"]][:2] == ["mark_lost", "give_back"]


def test_the_patience_with_nodes_is_none_with_the_server(healer: Healer, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[Client] = []
    usual = kube_connection.open_client

    def open_client(*given: t.Any, **named: t.Any) -> Client:
        opened.append(usual(*given, **named))
        return opened[0]

    monkeypatch.setattr(kube_connection, "open_client", open_client)
    healer.run(check=True, patience_s=3.0)
    assert [client.transport.patience_s for client in opened] == [360.0]


def test_without_a_way_to_join_it_says_so(healer: Healer) -> None:
    result = healer.run(joinable=False)
    assert (
        result["failed"]
        and "set muster_join_role" in result["msg"]
        and healer.events() == ["joined", "lost", "verified"]
    )


def test_an_own_node_is_waited_for_until_somebody_says_that_it_is_off(
    healer: Healer, client: Client, pair: tuple[str, str]
) -> None:
    (healer.root / "lab" / "ledger.jsonl").unlink()
    assert not healer.run()["changed"] and client.get("v1/Node", pair[1])
    silent = json.loads((healer.root / "lab" / facts.SILENT).read_text())
    assert list(silent) == [pair[1]] and time.time() - silent[pair[1]]["since"] > 500
    assert healer.run(lost_nodes=[pair[1]])["done"][0] == f"Node {pair[1]} is out of service"
    state(client, pair[1], True)
    assert healer.run()["done"] == [f"Node {pair[1]} takes pods again"]


@pytest.mark.parametrize("effect", [None, "NoSchedule"])
def test_a_control_plane_that_carries_the_run_is_not_lost(
    healer: Healer, pair: tuple[str, str], client: Client, effect: str | None
) -> None:
    """K3s servers take jobs like other nodes; what the run is on is there, whatever keeps new pods off it."""
    label = {"node-role.kubernetes.io/control-plane": "true"}
    taints = [{"key": next(iter(label)), "effect": effect}] if effect else []
    client.patch("v1/Node", pair[0], {"metadata": {"labels": label}, "spec": {"taints": taints}})
    told = healer.run(check=True)
    assert told["lost"] == [pair[1]], told
    assert not any("knows it any more" in line for line in healer.said.lines)
