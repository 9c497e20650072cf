# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A StorageClass is bound: a claim is made, pods of two nodes use its volume, and nothing of it is left.

The API server is real and checks every object. Stand-ins of the cluster: a driver, which binds claims to folders and
deletes them by their reclaim policy, and two nodes, which run what the pods of Jobs run in mount namespaces of their own.
"""

from __future__ import annotations

import base64
import concurrent.futures
import contextlib
import itertools
import pathlib
import shutil
import subprocess
import sys
import tempfile
import threading
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import MusterError, RefusedError
from ansible_collections.muster.training.plugins.plugin_utils._kube.api.client import Client
from ansible_collections.muster.training.plugins.plugin_utils._kube.api.connect import connect
from ansible_collections.muster.training.plugins.plugin_utils._kube.api.errors import KubeError
from ansible_collections.muster.training.plugins.plugin_utils._kube.jobs.visit_job import JOB_LABEL
from ansible_collections.muster.training.plugins.plugin_utils._workflows.services import bind, store_check
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared.request import RunRequest
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared.state_dir import StateHome
from ansible_collections.muster.training.tests.kube_api.test_team import Admin, admin, changed
from ansible_collections.muster.training.tests.support.kube_api import ApiServer
from ansible_collections.muster.training.tests.support.kubelet import Kubelet
from ansible_collections.muster.training.tests.support.mount_world import can_mount
from ansible_collections.muster.training.tests.support.run_world import Said

__all__ = ["admin"]
pytestmark = pytest.mark.skipif(not can_mount(), reason="mounts in namespaces need root")
CLAIM, VOLUME, CLASS = "v1/PersistentVolumeClaim", "v1/PersistentVolume", "storage.k8s.io/v1/StorageClass"
NODES = ("left-node", "right-node")
# What the driver does with a claim of each class.
CLASSES = {"shared": "Retain", "deleted": "Delete", "one-node": "Delete", "of-nodes": "Delete", "own-disk": "Delete"}
_spaces = itertools.count(1)
Dict = dict[str, t.Any]


class Cluster:
    """Driver, controllers and kubelets of one namespace. ``made``: claims that the driver has seen."""

    def __init__(self, client: Client, namespace: str, folder: pathlib.Path, kubelets: t.Mapping[str, Kubelet]) -> None:
        self.client, self.namespace, self.folder, self.kubelets = client, namespace, folder, kubelets
        # Memory is no disk of a node.
        self.memory = pathlib.Path(tempfile.mkdtemp(dir="/dev/shm"))
        self.made: list[str] = []
        self.left: list[list[str]] = []
        self._ended = threading.Event()
        self._pool = concurrent.futures.ThreadPoolExecutor(4)
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._ended.set()
        self._thread.join()
        self._pool.shutdown()
        shutil.rmtree(self.memory)

    def _work(self) -> None:
        jobs: set[str] = set()
        while not self._ended.wait(0.05):
            with contextlib.suppress(MusterError):
                for claim in self.client.list(CLAIM, self.namespace).items:
                    self._serve(t.cast("Dict", claim))
                for volume in self.client.list(VOLUME).items:
                    self._reclaim(t.cast("Dict", volume))
                for job in self.client.list("batch/v1/Job", self.namespace).items:
                    if job["metadata"]["uid"] not in jobs:
                        jobs.add(str(job["metadata"]["uid"]))
                        self._pool.submit(self._run, t.cast("Dict", job))

    def _serve(self, claim: Dict) -> None:
        """Bind a claim to a new volume, or refuse it as a driver does; let one go that is deleted."""
        name, uid, kind = claim["metadata"]["name"], claim["metadata"]["uid"], claim["spec"]["storageClassName"]
        if claim["metadata"].get("deletionTimestamp"):
            self.client.patch(CLAIM, name, {"metadata": {"finalizers": None}}, self.namespace)
        elif uid not in self.made:
            self.made.append(uid)
            if kind == "one-node":
                about = {"kind": "PersistentVolumeClaim", "namespace": self.namespace, "name": name, "uid": uid}
                event: Dict = {"apiVersion": "v1", "kind": "Event", "type": "Warning", "reason": "ProvisioningFailed"}
                event |= {"metadata": {"name": f"{name}-e", "namespace": self.namespace}, "involvedObject": about}
                said = "failed to provision volume: Only support ReadWriteOnce access mode"
                self.client.create(t.cast("t.Any", {**event, "message": said}))
                return
            volume = f"pv-{uid}"
            for place in (
                self.memory,
                *(self.memory / node for node in NODES),
                *(self.folder / node for node in NODES),
            ):
                (place / volume).mkdir(parents=True)
            about = {"kind": "PersistentVolumeClaim", "namespace": self.namespace, "name": name, "uid": uid}
            spec: Dict = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteMany"], "storageClassName": kind}
            spec |= {"claimRef": about, "hostPath": {"path": "/x"}, "persistentVolumeReclaimPolicy": CLASSES[kind]}
            made: t.Any = {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": volume}, "spec": spec}
            self.client.create(made)
            self.client.patch(CLAIM, name, {"spec": {"volumeName": volume}}, self.namespace)
            bound = {"status": {"phase": "Bound", "accessModes": ["ReadWriteMany"]}}
            self.client.patch(CLAIM, name, bound, self.namespace, subresource="status")

    def _reclaim(self, volume: Dict) -> None:
        """Delete a volume whose claim is gone, if its policy says so."""
        name, spec = volume["metadata"]["name"], volume["spec"]
        if spec.get("claimRef", {}).get("namespace") != self.namespace:
            return
        is_free = self.client.get(CLAIM, spec["claimRef"]["name"], self.namespace) is None
        if is_free and spec["persistentVolumeReclaimPolicy"] == "Delete":
            self.left.append([item.name for item in (self.memory / name).iterdir()])
            self.client.patch(VOLUME, name, {"metadata": {"finalizers": None}})
            self.client.delete(VOLUME, name)

    def _run(self, job: Dict) -> None:
        meta, spec = job["metadata"], job["spec"]["template"]["spec"]
        terms = spec.get("affinity", {}).get("nodeAffinity", {}).get("requiredDuringSchedulingIgnoredDuringExecution")
        node = terms["nodeSelectorTerms"][0]["matchFields"][0]["values"][0] if terms else NODES[0]
        labels: Dict = {**job["spec"]["template"]["metadata"]["labels"], JOB_LABEL: meta["name"]}
        pod: t.Any = {"apiVersion": "v1", "kind": "Pod", "spec": {**spec, "nodeName": node}}
        pod["metadata"] = {"name": f"{meta['name']}-x", "namespace": self.namespace, "labels": labels}
        self.client.create(pod)
        text, ok = self._execute(spec, node, meta["name"])
        if text is None:
            return
        self.kubelets[node].lines.clear()
        for line in text.split("\n"):
            self.kubelets[node].say(line)
        phase = {"status": {"phase": "Succeeded" if ok else "Failed"}}
        self.client.patch("v1/Pod", pod["metadata"]["name"], phase, self.namespace, subresource="status")

    def _execute(self, spec: Dict, node: str, name: str) -> tuple[str | None, bool]:
        """Run the pod with the volume of its claim where the pod mounts it; it waits while that has no volume."""
        volumes = {item["name"]: item for item in spec["volumes"]}
        (path,) = [item["mountPath"] for item in spec["containers"][0]["volumeMounts"] if item["name"] == "folder-0"]
        claim_name = volumes["folder-0"]["persistentVolumeClaim"]["claimName"]
        claim: Dict = {}
        while claim.get("status", {}).get("phase") != "Bound":
            if self._ended.wait(0.05) or self.client.get("batch/v1/Job", name, self.namespace) is None:
                return None, False
            claim = t.cast("Dict", self.client.get(CLAIM, claim_name, self.namespace) or {})
        volume, kind = claim["spec"]["volumeName"], claim["spec"]["storageClassName"]
        place = {"of-nodes": self.memory / node, "own-disk": self.folder / node}.get(kind, self.memory) / volume
        program: t.Any = self.client.get("v1/ConfigMap", volumes["program"]["configMap"]["name"], self.namespace)
        secret: t.Any = self.client.get("v1/Secret", volumes["request"]["secret"]["secretName"], self.namespace)
        files = self.folder / name
        files.mkdir()
        (files / "program").write_text(program["data"]["program"])
        (files / "request").write_bytes(base64.b64decode(secret["data"]["request"]))
        words = spec["containers"][0]["command"]
        command = words[2].replace("/muster/program/", f"{files}/").replace("/muster/request/", f"{files}/")
        script = f"mount -t tmpfs mnt /mnt && mkdir -p {path} && mount --bind {place} {path} && {command}"
        argv = ["unshare", "-m", "sh", "-c", script]
        done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)
        return done.stdout + done.stderr, done.returncode == 0

    def list_left(self) -> list[str]:
        """Return the names of claims, volumes and Jobs that there are."""
        volumes = [
            item
            for item in t.cast("list[t.Any]", self.client.list(VOLUME).items)
            if item["spec"].get("claimRef", {}).get("namespace") == self.namespace
        ]
        others = [item for kind in (CLAIM, "batch/v1/Job") for item in self.client.list(kind, self.namespace).items]
        return [str(item["metadata"]["name"]) for item in (*volumes, *others)]


@pytest.fixture
def nodes(client: Client, api: ApiServer) -> t.Iterator[dict[str, Kubelet]]:
    kubelets = {name: Kubelet(api.root) for name in NODES}
    for name, kubelet in kubelets.items():
        client.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
        status: Dict = {"addresses": [{"type": "InternalIP", "address": "127.0.0.1"}]}
        status["daemonEndpoints"] = {"kubeletEndpoint": {"Port": kubelet.port}}
        status["conditions"] = [{"type": "Ready", "status": "True"}]
        client.patch("Node", name, {"status": status}, subresource="status")
        # The API server marks a new Node as one that takes no pods yet; a controller would end that.
        client.patch("Node", name, {"spec": {"taints": None}})
    for name, policy in CLASSES.items():
        kind: t.Any = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name}}
        kind |= {"provisioner": "test.muster.training", "reclaimPolicy": policy}
        client.create(kind)
    yield kubelets
    for name, kubelet in kubelets.items():
        client.delete("Node", name)
        kubelet.close()
    for name in CLASSES:
        client.delete(CLASS, name)


@pytest.fixture
def cluster(
    client: Client, namespace: str, nodes: dict[str, Kubelet], tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> t.Iterator[Cluster]:
    monkeypatch.setattr(store_check, "_WAIT_S", {"host": 15, "pod": 15})
    found = Cluster(client, namespace, tmp_path, nodes)
    yield found
    found.close()


class Binder:
    """Who binds, with a kubeconfig and a state home."""

    def __init__(self, kubeconfig: pathlib.Path, namespace: str, folder: pathlib.Path) -> None:
        self.kubeconfig, self.namespace, self.folder = kubeconfig, namespace, folder
        self.said: t.Any = Said()

    def bind(self, storage_class: str, *, check: bool = False, **more: t.Any) -> Dict:
        filesystem = {"storage_class": storage_class, **more}
        service: Dict = {"name": "nas", "kind": "shared_filesystem", "mode": "bind", "provider": "storage_class"}
        pods = {"namespace": self.namespace, "image": "train:1", "python": sys.executable}
        options = {"services": [{**service, "filesystem": filesystem}], "pods": pods, "require_all": True}
        options |= {"kubeconfig": str(self.kubeconfig), "state_home": {"path": str(self.folder)}, "cluster": "default"}
        connecting: t.Any = lambda names: [] if not names else pytest.fail(f"asked {names}")  # noqa: E731
        return bind.run(RunRequest(options, ["localhost"], {}, self.folder, check, connecting, self.said))

    def refused(self, storage_class: str, **more: t.Any) -> str:
        with pytest.raises(RefusedError) as caught:
            self.bind(storage_class, **more)
        assert not list((StateHome({"path": str(self.folder)}, "default").folder / "bindings").glob("*"))
        return str(caught.value)


@pytest.fixture
def binder(api: ApiServer, cluster: Cluster, tmp_path: pathlib.Path) -> Binder:
    return Binder(api.kubeconfig, cluster.namespace, tmp_path / "home")


def wait_until_nothing_is_left(cluster: Cluster) -> None:
    until = 200
    while cluster.list_left() and until:
        until -= 1
        cluster._ended.wait(0.05)
    assert cluster.list_left() == []


@pytest.mark.parametrize("kind", ["shared", "deleted"])
def test_two_nodes_use_one_volume_and_it_is_removed(binder: Binder, cluster: Cluster, kind: str) -> None:
    """Also where the class keeps volumes: that of a check holds nobody's data."""
    assert binder.bind(kind, check=True)["changed"] and cluster.made == [], "check mode makes no claim"
    found = binder.bind(kind)
    (binding,) = found["bindings"]
    assert [(row["node"], row["vantage"], row["ok"]) for row in binding["reachable_from"]] == [
        (node, "pod", True) for node in NODES
    ]
    assert all(row["mb_per_s"] > 0 for row in binding["reachable_from"])
    assert binding["filesystem"]["claim"] == "nas" and binding["endpoint"] == f"storageclass/{kind}"
    wait_until_nothing_is_left(cluster)
    assert cluster.left == [[]] and len(cluster.made) == 1
    assert not binder.bind(kind)["changed"]
    wait_until_nothing_is_left(cluster)


def test_a_driver_that_has_no_such_volumes(binder: Binder, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    text = binder.refused("one-node")
    assert "left-node (pod): " in text and "Only support ReadWriteOnce access mode" in text
    assert "Name a StorageClass whose driver has ReadWriteMany" in text
    wait_until_nothing_is_left(cluster)


@pytest.mark.parametrize(
    ("kind", "words"),
    [("own-disk", "its volume is on the node's own disk"), ("of-nodes", "does not show what right-node has written")],
)
def test_volumes_that_each_node_has_for_itself(binder: Binder, cluster: Cluster, kind: str, words: str) -> None:
    """A driver may give them for ReadWriteMany: pods then train into different folders."""
    text = binder.refused(kind)
    assert f"left-node (pod): {words}" in text.replace("/mnt/muster-check ", "")
    assert "a StorageClass whose driver has ReadWriteMany" in text
    wait_until_nothing_is_left(cluster)
    assert cluster.left == [[]]


def test_a_class_that_the_cluster_does_not_have(binder: Binder, cluster: Cluster) -> None:
    text = binder.refused("shard")
    # Other tests make classes, too.
    assert "filesystem.storage_class: the cluster has no StorageClass shard (it has " in text
    assert all(f" {name}" in text for name in ("deleted", "of-nodes", "one-node", "own-disk", "shared"))
    assert "the cluster has no StorageClass shard" in binder.refused("shard", check=True) and cluster.made == []


def make_claim(cluster: Cluster, name: str, **changes: t.Any) -> None:
    spec: Dict = {"accessModes": ["ReadWriteMany"], "storageClassName": "shared"}
    spec |= {"resources": {"requests": {"storage": "1Gi"}}, **changes}
    meta: t.Any = {"name": name, "namespace": cluster.namespace}
    cluster.client.create({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta, "spec": spec})


def test_the_claim_of_the_jobs_is_the_one_that_is_checked(binder: Binder, cluster: Cluster) -> None:
    make_claim(cluster, "corpus")
    (binding,) = binder.bind("shared", claim="corpus")["bindings"]
    assert [row["ok"] for row in binding["reachable_from"]] == [True, True] and len(cluster.made) == 1
    live: t.Any = cluster.client.get(CLAIM, "corpus", cluster.namespace)
    assert [item.name for item in (cluster.memory / live["spec"]["volumeName"]).iterdir()] == [], (
        "nothing is left in it"
    )
    cluster.client.delete(CLAIM, "corpus", cluster.namespace)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"accessModes": ["ReadWriteOnce"]}, "corpus has the access mode ReadWriteOnce, not ReadWriteMany"),
        ({"storageClassName": "deleted"}, "corpus is of the StorageClass deleted"),
    ],
)
def test_a_claim_that_does_not_fit(binder: Binder, cluster: Cluster, changes: Dict, words: str) -> None:
    make_claim(cluster, "corpus", **changes)
    text = binder.refused("shared", claim="corpus")
    assert words in text and "team_claims" in text
    cluster.client.delete(CLAIM, "corpus", cluster.namespace)


def test_a_team_has_its_claim_and_members_make_none(
    admin: Admin, client: Client, nodes: dict[str, Kubelet], tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An administrator makes it; a member binds it, uses it, and neither makes nor removes one."""
    monkeypatch.setattr(store_check, "_WAIT_S", {"host": 15, "pod": 15})
    team, other = (f"sculptors-{next(_spaces)}" for _number in range(2))
    claims = [{"name": "nas", "storage_class": "shared", "size": "5Gi"}]
    admin.play(team, team_claims=claims)
    admin.play(other, team_claims=claims)
    assert changed(admin.play(team, team_claims=claims)) == 0
    for name in ("muster-team", "muster-team-unqueued"):
        hard = t.cast("Dict", client.get("v1/ResourceQuota", name, team))["spec"]["hard"]
        status = {"status": {"hard": hard, "used": dict.fromkeys(hard, "0")}}
        client.patch("v1/ResourceQuota", name, status, team, subresource="status")
    folder = tmp_path / "pods"
    folder.mkdir()
    cluster = Cluster(client, team, folder, nodes)
    try:
        binder = Binder(admin.file(team), team, tmp_path / "home")
        (binding,) = binder.bind("shared")["bindings"]
        assert [(row["node"], row["ok"]) for row in binding["reachable_from"]] == [(NODES[0], True)]
        assert "whether pods on other nodes see what it writes was not checked" in "".join(binder.said.lines)
        member = connect({"kubeconfig": str(admin.file(team))})
        assert t.cast("Dict", member.get(CLAIM, "nas", team))["spec"]["resources"]["requests"]["storage"] == "5Gi"
        made: t.Any = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "mine"}}
        made["spec"] = {"accessModes": ["ReadWriteMany"]}
        for refused in (
            lambda: member.create(made),
            lambda: member.delete(CLAIM, "nas", team),
            lambda: member.get(CLAIM, "nas", other),
        ):
            with pytest.raises(KubeError) as caught:
                refused()
            assert caught.value.status == 403
        text = Binder(admin.file(team), team, tmp_path / "other").refused("shared", claim="none")
        assert "there is no claim none in the namespace" in text and "team_claims of the role team" in text
        assert changed(admin.play(team)) == 0 and client.get(CLAIM, "nas", team), "a claim is never pruned"
        client.delete(CLAIM, "nas", team)
    finally:
        cluster.close()
        client.delete(CLAIM, "nas", other)
