# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nodes that leave, against a real API server: who is evicted, what budgets hold, what is forced, what is deleted.

There are no kubelets here: the test confirms the end of pods as a kubelet would, or does not.
"""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import threading
import time
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import RefusedError
from ansible_collections.muster.training.plugins.plugin_utils._kube.api.client import Client
from ansible_collections.muster.training.plugins.plugin_utils._kube.api.connect import connect
from ansible_collections.muster.training.plugins.plugin_utils._workflows.kube_objects import kube_node as subject
from ansible_collections.muster.training.tests.support.kube_api import ApiServer

Dict = dict[str, t.Any]
LABELS = {"app": "web"}


class Kubelet:
    """Confirms the end of pods that were asked to end, on the nodes it is told."""

    def __init__(self, api: ApiServer, nodes: t.Collection[str]) -> None:
        self.client, self.nodes = connect({"kubeconfig": str(api.kubeconfig)}), nodes
        self.events = self.client.watch("v1/Pod", None)
        self.thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Kubelet:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.events.close()
        self.thread.join(10)

    def _run(self) -> None:
        for event in self.events:
            meta = event.object.get("metadata") or {}
            on = (event.object.get("spec") or {}).get("nodeName")
            if on in self.nodes and meta.get("deletionTimestamp") and event.type != "DELETED":
                self.client.delete("v1/Pod", meta["name"], meta["namespace"], uid=meta["uid"], grace_s=0)


@pytest.fixture
def world(client: Client, namespace: str) -> t.Iterator[tuple[str, str]]:
    """A namespace and a Node that is Ready, with a pod of each kind; and its password, as K3s keeps it."""
    name = f"{namespace}-a"
    node(client, name)
    pod(client, namespace, "web", name)
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "uid": "1", "controller": True}
    pod(client, namespace, "agent", name, ownerReferences=[owner])
    pod(client, namespace, "ended", name)
    client.patch("v1/Pod", "ended", {"status": {"phase": "Succeeded"}}, namespace, subresource="status")
    meta = {"name": f"{name}.node-password.k3s", "namespace": "kube-system"}
    client.create({"apiVersion": "v1", "kind": "Secret", "metadata": meta, "stringData": {"hash": "x"}})
    yield namespace, name
    for kind, thing, place in (("Node", name, None), ("Secret", meta["name"], "kube-system")):
        client.delete(f"v1/{kind}", thing, place)


def node(client: Client, name: str, ready: str = "True") -> None:
    client.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
    moment = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    conditions = [{"type": "Ready", "status": ready, "lastTransitionTime": moment}]
    client.patch("v1/Node", name, {"status": {"conditions": conditions}}, subresource="status")


def pod(client: Client, namespace: str, name: str, on: str, **meta: t.Any) -> None:
    spec = {"nodeName": on, "containers": [{"name": "node", "image": "x"}], "terminationGracePeriodSeconds": 300}
    head = {"name": name, "namespace": namespace, "labels": LABELS, **meta}
    client.create({"apiVersion": "v1", "kind": "Pod", "metadata": head, "spec": spec})


def ask(api: ApiServer, names: list[str], said: list[str] | None = None, **options: t.Any) -> Dict:
    values = {"kubeconfig": str(api.kubeconfig), "patience_s": 30, "names": names, "state": "absent"}
    check = bool(options.pop("check", False))
    tell = (said if said is not None else []).append
    return subject.run({**values, "drain_timeout_s": 20, **options}, pathlib.Path("/"), check, tell)


def pods(client: Client, namespace: str) -> list[str]:
    return sorted(item["metadata"]["name"] for item in client.list("v1/Pod", namespace).items)


def test_a_node_leaves_in_order_and_is_not_there_the_second_time(
    api: ApiServer, client: Client, world: tuple[str, str]
) -> None:
    namespace, name = world
    with Kubelet(api, [name]):
        found = ask(api, [name])
    left = found["nodes"][0]
    assert found["changed"] is True and left["evicted"] == [f"{namespace}/web"] and left["forced"] == []
    assert left["cordoned"] and left["deleted"] and left["password_deleted"] and left["refused"] == {}
    assert client.get("v1/Node", name) is None
    assert client.get("v1/Secret", f"{name}.node-password.k3s", "kube-system") is None
    assert pods(client, namespace) == ["agent", "ended"]
    again = ask(api, [name])
    assert again["changed"] is False and again["nodes"][0]["found"] is False


def test_a_node_is_drained_for_a_boot_and_stays(api: ApiServer, client: Client, world: tuple[str, str]) -> None:
    namespace, name = world
    checked = ask(api, [name], state="drained", check=True)
    assert checked["nodes"][0]["evicted"] == [f"{namespace}/web"] and checked["changed"]
    assert pods(client, namespace) == ["agent", "ended", "web"]
    with Kubelet(api, [name]):
        found = ask(api, [name], state="drained")
    left = found["nodes"][0]
    assert found["changed"] and left["evicted"] == [f"{namespace}/web"] and not left["deleted"] and not left["forced"]
    assert (client.get("v1/Node", name) or {})["spec"]["unschedulable"] is True
    assert pods(client, namespace) == ["agent", "ended"]
    assert not ask(api, [name], state="drained")["changed"]
    assert not ask(api, [f"{name}-other"], state="drained")["changed"]


class Replacer(Kubelet):
    """Its controller puts another pod there for each that goes, pinned and with a toleration of everything."""

    replaced: t.ClassVar[set[str]] = set()

    def _run(self) -> None:
        for event in self.events:
            meta, spec = event.object.get("metadata") or {}, event.object.get("spec") or {}
            if spec.get("nodeName") not in self.nodes or not meta.get("deletionTimestamp") or event.type == "DELETED":
                continue
            was_there = self.client.delete("v1/Pod", meta["name"], meta["namespace"], uid=meta["uid"], grace_s=0)
            if was_there and spec.get("tolerations") and meta["uid"] not in self.replaced:
                self.replaced.add(meta["uid"])
                head = {key: meta[key] for key in ("namespace", "labels") if key in meta}
                again = {"metadata": {**head, "name": f"dns-{meta['uid'][:8]}"}, "spec": dict(spec)}
                self.client.create({"apiVersion": "v1", "kind": "Pod", **again})


@pytest.mark.parametrize("of_run", [False, True])
def test_a_pod_that_comes_again_on_a_cordoned_node_is_evicted_once(
    api: ApiServer, client: Client, world: tuple[str, str], of_run: bool
) -> None:
    """A pinned one that tolerates the cordon, such as the cluster's DNS; one of a run keeps the node from a drain."""
    namespace, name = world
    spec = {"nodeName": name, "containers": [{"name": "node", "image": "x"}], "tolerations": [{"operator": "Exists"}]}
    labels = {"labels": {"muster.training/run-id": "x-1"}} if of_run else {}
    head = {"name": "dns", "namespace": namespace, **labels}
    client.create({"apiVersion": "v1", "kind": "Pod", "metadata": head, "spec": spec})
    with Replacer(api, [name]):
        if of_run:
            with pytest.raises(RefusedError, match="have not ended in 3 s"):
                ask(api, [name], state="drained", drain_timeout_s=3)
            return
        found = ask(api, [name], state="drained")
    assert sorted(found["nodes"][0]["evicted"]) == [f"{namespace}/dns", f"{namespace}/web"]
    assert (client.get("v1/Node", name) or {})["spec"]["unschedulable"] is True
    assert [item for item in pods(client, namespace) if item.startswith("dns-")]


def test_a_node_whose_pods_do_not_end_is_not_drained_and_is_schedulable_again(
    api: ApiServer, client: Client, world: tuple[str, str]
) -> None:
    namespace, name = world
    expected = f"{name}: 1 pods have not ended in 2 s, such as {namespace}/web"
    with pytest.raises(RefusedError, match=expected):
        ask(api, [name], state="drained", drain_timeout_s=2)
    assert "unschedulable" not in (client.get("v1/Node", name) or {})["spec"]
    assert "web" in pods(client, namespace)


def test_what_does_not_end_in_time_is_forced_off_and_named(
    api: ApiServer, client: Client, world: tuple[str, str]
) -> None:
    namespace, name = world
    said: list[str] = []
    left = ask(api, [name], said, drain_timeout_s=3)["nodes"][0]
    assert left["evicted"] == left["forced"] == [f"{namespace}/web"] and left["deleted"]
    assert pods(client, namespace) == ["agent", "ended"]
    assert said[0] == f"{name}: 1 pods are still running"


def test_a_budget_holds_a_pod_until_the_time_is_over(api: ApiServer, client: Client, world: tuple[str, str]) -> None:
    """No controller counts the budget's pods here, so it allows no disruption."""
    namespace, name = world
    spec = {"minAvailable": 1, "selector": {"matchLabels": LABELS}}
    meta = {"name": "web", "namespace": namespace}
    client.create({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": meta, "spec": spec})
    # A pod that does not run yet is held by no budget.
    running = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    client.patch("v1/Pod", "web", {"status": running}, namespace, subresource="status")
    said: list[str] = []
    began = time.monotonic()
    with Kubelet(api, [name]):
        left = ask(api, [name], said, drain_timeout_s=5)["nodes"][0]
    assert 4 < time.monotonic() - began < 15
    assert left["evicted"] == [] and left["forced"] == [f"{namespace}/web"]
    assert "disruption budget" in left["refused"][f"{namespace}/web"]
    assert "disruption budget" in said[0]


def test_pods_of_a_silent_kubelet_are_forced_at_once(api: ApiServer, client: Client, namespace: str) -> None:
    name = f"{namespace}-silent"
    node(client, name, ready="Unknown")
    pod(client, namespace, "web", name)
    began = time.monotonic()
    left = ask(api, [name], drain_timeout_s=60)["nodes"][0]
    assert time.monotonic() - began < 20
    assert left["forced"] == [f"{namespace}/web"] and left["evicted"] == [] and left["deleted"]


def test_many_nodes_leave_at_the_same_time(api: ApiServer, client: Client, namespace: str) -> None:
    names = [f"{namespace}-{number}" for number in range(12)]
    for name in names:
        node(client, name)
        pod(client, namespace, f"web-{name}", name)
    with Kubelet(api, names):
        found = ask(api, [*names, "nowhere"])
    assert [left["evicted"] for left in found["nodes"][:12]] == [[f"{namespace}/web-{name}"] for name in names]
    assert pods(client, namespace) == [] and all(left["deleted"] for left in found["nodes"][:12])
    assert found["nodes"][12]["found"] is False


def test_check_mode_says_what_would_go_and_changes_nothing(
    api: ApiServer, client: Client, world: tuple[str, str]
) -> None:
    namespace, name = world
    before = client.get("v1/Node", name)
    found = ask(api, [name], check=True)
    left = found["nodes"][0]
    assert found["changed"] is True and left["evicted"] == [f"{namespace}/web"] and left["password_deleted"]
    after = client.get("v1/Node", name)
    assert before is not None and after is not None
    assert after["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]
    assert pods(client, namespace) == ["agent", "ended", "web"]


def test_a_node_is_closed_and_opened_again(api: ApiServer, client: Client, world: tuple[str, str]) -> None:
    name = world[1]
    assert [ask(api, [name], state="cordoned")["changed"] for _ in range(2)] == [True, False]
    assert t.cast(Dict, client.get("v1/Node", name))["spec"]["unschedulable"] is True
    assert [ask(api, [name], state="schedulable")["changed"] for _ in range(2)] == [True, False]
    assert "unschedulable" not in t.cast(Dict, client.get("v1/Node", name))["spec"]
    assert ask(api, [name, "nowhere"], state="cordoned", check=True)["changed"] is True
    assert "unschedulable" not in t.cast(Dict, client.get("v1/Node", name))["spec"]


PLAY = """
- hosts: all
  gather_facts: false
  tasks:
    - ansible.builtin.include_role: {name: muster.training.teardown, tasks_from: leave_cluster}
    - ansible.builtin.debug: {msg: the machines end}
"""


def leave_by_role(
    folder: pathlib.Path, rented: str, owned: str, environment: str = "", **values: str
) -> subprocess.CompletedProcess[str]:
    """Run the role's tasks for a rented and an owned node that cannot be reached, as those that go often cannot.

    :param environment: the kubeconfig that kubectl would find.
    """
    hosts = {
        name: {"muster_node": {"name": name, "ownership": kind}}
        for name, kind in ((rented, "rented"), (owned, "owned"))
    }
    (folder / "hosts.json").write_text(json.dumps({"all": {"hosts": hosts}}))
    (folder / "play.yml").write_text(PLAY)
    program = str(pathlib.Path(sys.executable).parent / "ansible-playbook")
    extra = json.dumps({"muster_state": {"path": str(folder / "state")}, **values})
    argv = [program, "-i", str(folder / "hosts.json"), str(folder / "play.yml"), "-e", extra]
    env = {**os.environ, "KUBECONFIG": environment}
    return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=120, cwd=folder, env=env)


@pytest.mark.parametrize("named", [True, False], ids=["that is named", "of the state home"])
def test_rented_nodes_leave_the_cluster_and_owned_ones_stay(
    api: ApiServer, client: Client, world: tuple[str, str], tmp_path: pathlib.Path, named: bool
) -> None:
    name = world[1]
    owned = f"{name}-owned"
    node(client, owned)
    if not named:
        home = tmp_path / "state" / "default"
        home.mkdir(parents=True)
        (home / "kubeconfig").write_text(api.kubeconfig.read_text())
    with Kubelet(api, [name, owned]):
        done = leave_by_role(tmp_path, name, owned, **({"muster_kubeconfig": str(api.kubeconfig)} if named else {}))
    assert done.returncode == 0, done.stdout
    assert client.get("v1/Node", name) is None and client.get("v1/Node", owned) is not None
    assert client.delete("v1/Node", owned)


def test_a_machine_that_is_gone_leaves_and_what_remains_on_it_is_said(
    api: ApiServer, client: Client, world: tuple[str, str], tmp_path: pathlib.Path
) -> None:
    """No way to it exists: its Node goes, the steps after that are done, and the command has succeeded."""
    name, home = world[1], tmp_path / "state" / "default"
    home.mkdir(parents=True)
    (home / "kubeconfig").write_text(api.kubeconfig.read_text())
    away = {"ansible_host": "127.0.0.1", "ansible_port": 9, "ansible_become": True}
    roles = {"head": "server", name: "agent"}
    hosts = {host: {**away, "muster_k3s_role": role} for host, role in roles.items()}
    (tmp_path / "hosts.json").write_text(json.dumps({"all": {"children": {"muster_nodes": {"hosts": hosts}}}}))
    program = str(pathlib.Path(sys.executable).parent / "ansible-playbook")
    extra = {"muster_state": {"path": str(tmp_path / "state")}, "muster_remove_nodes": name}
    argv = [program, "-i", str(tmp_path / "hosts.json"), "muster.training.remove_nodes", "-e", json.dumps(extra)]
    env = {**os.environ, "KUBECONFIG": "", "ANSIBLE_NOCOLOR": "1"}
    with Kubelet(api, [name]):
        done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=150, cwd=tmp_path, env=env)
    assert done.returncode == 0 and client.get("v1/Node", name) is None, done.stdout
    said = f"{name} has left: its Node is deleted, and the cluster continues without it."
    assert said in done.stdout and "joins again by itself. Run this command again then" in done.stdout, done.stdout
    assert "TASK [Look whether the quota of the team's queue is what the nodes have]" in done.stdout, done.stdout


def test_the_cluster_of_somebodys_environment_is_not_touched(
    api: ApiServer, client: Client, world: tuple[str, str], tmp_path: pathlib.Path
) -> None:
    """Machines that are in no cluster may have the name of a node of another one."""
    done = leave_by_role(tmp_path, world[1], "b", environment=str(api.kubeconfig))
    assert done.returncode == 0 and "the machines end" in done.stdout, done.stdout
    assert client.get("v1/Node", world[1]) is not None


def test_a_cluster_that_is_away_keeps_no_machine_alive(api: ApiServer, tmp_path: pathlib.Path) -> None:
    text = api.kubeconfig.read_text().replace(str(api.port), "1")
    away = tmp_path / "away"
    away.write_text(text)
    done = leave_by_role(tmp_path, "a", "b", muster_kubeconfig=str(away))
    assert done.returncode == 0, done.stdout
    assert "the machines end" in done.stdout and "refused" in done.stdout


CLOSING = """
- hosts: all
  gather_facts: false
  tasks:
    - ansible.builtin.include_role: {name: muster.training.devices, tasks_from: "{{ item }}"}
      loop: "{{ steps }}"
      vars: {__devices_mark: "{{ mark }}", __devices_node: "{{ inventory_hostname }}", devices_drain_timeout_s: 20}
"""


def test_the_role_devices_closes_a_node_for_a_boot_and_opens_what_it_closed_alone(
    api: ApiServer, client: Client, world: tuple[str, str], tmp_path: pathlib.Path
) -> None:
    namespace, name = world
    mark = tmp_path / "notes/drained"
    local = {"ansible_connection": "local", "ansible_become": False, "ansible_python_interpreter": sys.executable}
    (tmp_path / "hosts.json").write_text(json.dumps({"all": {"hosts": {name: local}}}))
    (tmp_path / "play.yml").write_text(CLOSING)

    def play(*steps: str) -> None:
        program = str(pathlib.Path(sys.executable).parent / "ansible-playbook")
        values = {"steps": steps, "mark": str(mark), "muster_state": {"path": str(tmp_path / "state")}}
        argv = [program, "-i", str(tmp_path / "hosts.json"), str(tmp_path / "play.yml"), "-e", json.dumps(values)]
        env = {**os.environ, "KUBECONFIG": str(api.kubeconfig), "ANSIBLE_NOCOLOR": "1"}
        done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=120, cwd=tmp_path, env=env)
        assert done.returncode == 0, done.stdout + done.stderr

    def is_closed() -> bool:
        return bool((client.get("v1/Node", name) or {})["spec"].get("unschedulable"))

    with Kubelet(api, [name]):
        play("close_node", "drain_node")
        assert is_closed() and mark.exists() and "web" not in pods(client, namespace)
        # Cut here, the next run opens it.
        play("close_node", "open_node")
        assert not is_closed() and not mark.exists()
        client.patch("v1/Node", name, {"spec": {"unschedulable": True}})
        play("close_node", "open_node")
        assert is_closed() and not mark.exists()
