# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Five services are checked from ten nodes of a cluster, all at once.

The API server is real, and so is what each pod runs, on this machine. Services and the makers of pods are stand-ins.
"""

from __future__ import annotations

import base64
import concurrent.futures
import contextlib
import pathlib
import subprocess
import sys
import threading
import time
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import MusterError
from ansible_collections.muster.training.plugins.plugin_utils._kube.api.client import Client
from ansible_collections.muster.training.plugins.plugin_utils._kube.jobs.visit_job import JOB_LABEL
from ansible_collections.muster.training.plugins.plugin_utils._services import vault
from ansible_collections.muster.training.plugins.plugin_utils._workflows.services import bind
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared.request import RunRequest
from ansible_collections.muster.training.tests.e2e.conftest import lacking
from ansible_collections.muster.training.tests.fakes import object_store, s3_signer
from ansible_collections.muster.training.tests.fakes.registry import PASSWORD, USER, FakeRegistry
from ansible_collections.muster.training.tests.fakes.trackers import TOKEN, FakeMlflow
from ansible_collections.muster.training.tests.support.kube_api import ApiServer
from ansible_collections.muster.training.tests.support.kubelet import Kubelet
from ansible_collections.muster.training.tests.support.mount_world import can_mount
from ansible_collections.muster.training.tests.support.run_world import Said

Dict = dict[str, t.Any]
NODES: t.Final = tuple(f"ten-{number}" for number in range(10))


class Makers:
    """What makes the pods of Jobs and runs them, all at once; ``made`` has the node of each, ``most`` how many ran."""

    def __init__(self, client: Client, namespace: str, folder: pathlib.Path, kubelet: Kubelet) -> None:
        self.client, self.namespace, self.folder, self.kubelet = client, namespace, folder, kubelet
        self.made: list[str] = []
        self.most = self._running = 0
        self._lock, self._ended = threading.Lock(), threading.Event()
        self._pool = concurrent.futures.ThreadPoolExecutor(4 * len(NODES))
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._ended.set()
        self._thread.join()
        self._pool.shutdown()

    def _work(self) -> None:
        seen: set[str] = set()
        while not self._ended.wait(0.05):
            with contextlib.suppress(MusterError):
                for job in self.client.list("batch/v1/Job", self.namespace).items:
                    if job["metadata"]["uid"] not in seen:
                        seen.add(str(job["metadata"]["uid"]))
                        self._pool.submit(self._run, job)

    def _run(self, job: t.Any) -> None:
        meta, spec = job["metadata"], job["spec"]["template"]["spec"]
        labels: Dict = {**job["spec"]["template"]["metadata"]["labels"], JOB_LABEL: meta["name"]}
        name = f"{meta['name']}-x"
        (term,) = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][
            "nodeSelectorTerms"
        ]
        (node,) = term["matchFields"][0]["values"]
        pod: t.Any = {"apiVersion": "v1", "kind": "Pod", "spec": {**spec, "nodeName": node}}
        pod["metadata"] = {"name": name, "namespace": self.namespace, "labels": labels}
        self.client.create(pod)
        with self._lock:
            self.made.append(node)
            self._running += 1
            self.most = max(self.most, self._running)
        try:
            self.kubelet.texts[name], ok = self._execute(name, spec)
        finally:
            with self._lock:
                self._running -= 1
        phase = {"status": {"phase": "Succeeded" if ok else "Failed"}}
        self.client.patch("v1/Pod", name, phase, self.namespace, subresource="status")

    def _execute(self, name: str, spec: t.Any) -> tuple[str, bool]:
        program: t.Any = self.client.get("v1/ConfigMap", spec["volumes"][0]["configMap"]["name"], self.namespace)
        secret: t.Any = self.client.get("v1/Secret", spec["volumes"][1]["secret"]["secretName"], self.namespace)
        folder = self.folder / name
        folder.mkdir()
        (folder / "program").write_text(program["data"]["program"])
        (folder / "request").write_bytes(base64.b64decode(secret["data"]["request"]))
        words = spec["containers"][0]["command"]
        command = words[2].replace("/muster/program/", f"{folder}/").replace("/muster/request/", f"{folder}/")
        done = subprocess.run([*words[:2], command], capture_output=True, text=True, check=False, timeout=120)
        return done.stdout + done.stderr, done.returncode == 0


@pytest.fixture
def makers(client: Client, api: ApiServer, namespace: str, tmp_path: pathlib.Path) -> t.Iterator[Makers]:
    """Ten nodes, and what runs pods on them."""
    # What the controller of accounts would make.
    account: t.Any = {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": "default", "namespace": namespace},
    }
    with contextlib.suppress(MusterError):
        client.create(account)
    kubelet = Kubelet(api.root)
    status: Dict = {
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": kubelet.port}},
        "conditions": [{"type": "Ready", "status": "True"}],
    }
    for name in NODES:
        client.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
        client.patch("v1/Node", name, {"status": status}, subresource="status")
        client.patch("v1/Node", name, {"spec": {"taints": None}})
    folder = tmp_path / "pods"
    folder.mkdir()
    found = Makers(client, namespace, folder, kubelet)
    yield found
    found.close()
    kubelet.close()
    for name in NODES:
        client.delete("v1/Node", name)


@pytest.fixture
def scratch(tmp_path: pathlib.Path) -> t.Iterator[pathlib.Path]:
    """A file system that all nodes have, which is not the disk of this machine."""
    if not can_mount():
        lacking("mounts need root")
    place = tmp_path / "scratch"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256m", "ten-nodes", place], check=True)
    yield place
    subprocess.run(["umount", place], check=True)


def test_five_services_are_checked_from_ten_nodes_at_once(
    api: ApiServer,
    client: Client,
    makers: Makers,
    namespace: str,
    scratch: pathlib.Path,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    s3_signer.use(monkeypatch)
    monkeypatch.setattr(vault, "check_access", lambda _access, _option: None)
    keys = {
        "AWS_ACCESS_KEY_ID": "AKten-access-1",
        "AWS_SECRET_ACCESS_KEY": "SKten-secret-0123",
        "BAO_TOKEN": "s.ten-0123456789",
    }
    keys |= {"REGISTRY_USERNAME": USER, "REGISTRY_PASSWORD": PASSWORD, "MLFLOW_TRACKING_TOKEN": TOKEN}
    for name, value in keys.items():
        monkeypatch.setenv(name, value)
    with object_store.running() as store, FakeRegistry("bearer") as images, FakeMlflow(TOKEN) as tracker:
        env = {"from": "env"}
        about: list[Dict] = [
            {"name": "store", "kind": "object_store", "endpoint": store.url, "secret_ref": env,
             "resources": [{"purpose": "datasets", "ref": "bucket"}, {"purpose": "checkpoints", "ref": "bucket/c"}]},
            {"name": "bao", "kind": "secrets", "endpoint": "http://bao",
             "secret_ref": {"from": "env", "keys": {"token": "BAO_TOKEN"}}},
            {"name": "images", "kind": "registry", "endpoint": images.url, "secret_ref": env},
            {"name": "mlflow", "kind": "tracking", "endpoint": tracker.url, "secret_ref": env},
            {"name": "scratch", "kind": "shared_filesystem", "provider": "path", "filesystem": {"path": str(scratch)}},
        ]  # fmt: skip
        options: Dict = {
            "services": [{**item, "mode": "bind"} for item in about],
            "pods": {"namespace": namespace, "image": "train:1", "python": sys.executable},
            "require_all": True,
            "kubeconfig": str(api.kubeconfig),
            "state_home": {"path": str(tmp_path / "state")},
            "cluster": "default",
        }
        opened: list[Client] = []
        real = bind.open_client
        monkeypatch.setattr(bind, "open_client", lambda *words: opened.append(real(*words)) or opened[-1])
        said: t.Any = Said()
        request = RunRequest(options, ["localhost"], {}, tmp_path, False, lambda _names: [], said)
        for name in ("first", "again"):
            begin = len(makers.made)
            began = time.monotonic()
            result = bind.run(request)
            seconds = time.monotonic() - began
            made = makers.made[begin:]
            requests = opened[-1].requests
            print(f"five services from ten nodes, {name}: {len(made)} pods, {requests} requests, {seconds:.1f} s")
            assert result["changed"] is (name == "first")
            # One pod on each node for all servers, and one for the file system, which a node may not have.
            assert sorted(made) == sorted(2 * NODES) and makers.most > len(NODES), makers.most
            # A Secret, a Job and a log for each pod; what is made is read before, and deleted.
            assert requests <= 12 * len(made)
        by_name = {item["name"]: item["reachable_from"] for item in result["bindings"]}
        asked = {name: {row["node"] for row in rows if row["ok"]} for name, rows in by_name.items()}
        assert asked.pop("bao") == set() and list(asked.values()) == [set(NODES)] * 4
        assert store.objects == {} and sorted(path.name for path in scratch.iterdir()) == [".muster-filesystem"]
    left = [item["metadata"]["name"] for item in client.list("batch/v1/Job", namespace).items]
    assert left == []
