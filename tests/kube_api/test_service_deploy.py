# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An object store in a cluster, by its role against a real API server; its pod becomes ready when the test says so."""

from __future__ import annotations

import base64
import contextlib
import json
import pathlib
import re
import threading
import time
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import MusterError
from ansible_collections.muster.training.plugins.plugin_utils._kube.api.client import Client
from ansible_collections.muster.training.plugins.plugin_utils._workflows.services import deploy_info
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared.request import RunRequest
from ansible_collections.muster.training.tests.kube_api.test_cluster_jobs import Roles
from ansible_collections.muster.training.tests.support.kube_api import ApiServer
from ansible_collections.muster.training.tests.support.run_world import Said

IMAGE = "registry.example.com/weed:4.48"
NODE = "storage-1"
KINDS = ("v1/Secret", "v1/Service", "apps/v1/StatefulSet")


class Store:
    """A store that the role deploys in a namespace."""

    def __init__(self, roles: Roles, client: Client, namespace: str, ended: threading.Event) -> None:
        self.roles, self.client, self.namespace = roles, client, namespace
        # Nothing makes its pod ready from then on.
        self.ended = ended

    def entry(self, state: str = "present", **deploy: t.Any) -> dict[str, t.Any]:
        """Return what a user writes."""
        place = {"namespace": self.namespace, "host_path": "/srv/store", "image": IMAGE, **deploy}
        service = {"name": "store", "kind": "object_store", "mode": "deploy", "state": state, "deploy": place}
        return {**service, "resources": [{"purpose": "datasets", "ref": "data"}]}

    def play(self, state: str = "present", code: int = 0, **deploy: t.Any) -> str:
        return self.roles.play("object_store", code=code, object_store_service=self.entry(state, **deploy))

    def objects(self) -> list[t.Any]:
        found = [self.client.get(kind, "muster-store", self.namespace) for kind in KINDS]
        return [item for item in found if item is not None]

    def credentials(self) -> str:
        return (self.roles.folder / "state" / "default" / "services" / "store.credentials").read_text()


@pytest.fixture
def store(api: ApiServer, client: Client, namespace: str, tmp_path: pathlib.Path) -> t.Iterator[Store]:
    """The role, a Node, and what makes the pod of the store ready."""
    with one_node(client, namespace, "muster-store") as ended:
        yield Store(Roles(api, tmp_path), client, namespace, ended)


@contextlib.contextmanager
def one_node(client: Client, namespace: str, name: str) -> t.Iterator[threading.Event]:
    """Give a Node, and what makes the pod of a StatefulSet ready."""
    addresses = [{"type": "InternalIP", "address": "10.9.8.7"}]
    status = {"conditions": [{"type": "Ready", "status": "True"}], "addresses": addresses}
    client.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}})
    client.patch("v1/Node", NODE, {"status": status}, subresource="status")
    client.patch("v1/Node", NODE, {"spec": {"taints": None}})
    ended = threading.Event()

    def make_ready() -> None:
        while not ended.wait(0.1):
            live: t.Any = client.get("apps/v1/StatefulSet", name, namespace)
            if live is None or (live.get("status") or {}).get("observedGeneration") == live["metadata"]["generation"]:
                continue
            counts = dict.fromkeys(("replicas", "readyReplicas", "availableReplicas", "updatedReplicas"), 1)
            said = {**counts, "observedGeneration": live["metadata"]["generation"]}
            said |= {"currentRevision": "r", "updateRevision": "r", "currentReplicas": 1}
            with contextlib.suppress(MusterError):
                client.patch("apps/v1/StatefulSet", name, {"status": said}, namespace, subresource="status")

    thread = threading.Thread(target=make_ready, daemon=True)
    thread.start()
    try:
        yield ended
    finally:
        ended.set()
        thread.join()
        client.delete("v1/Node", NODE)


def test_it_is_deployed_once_and_removed(store: Store) -> None:
    began = time.monotonic()
    output = store.play()
    secret, entry, workload = store.objects()
    keys = [line.partition(" = ")[2] for line in store.credentials().splitlines() if " = " in line]
    assert not [key for key in keys if key in output + json.dumps([entry, workload])]
    spec = workload["spec"]["template"]["spec"]
    assert spec["nodeSelector"] == {"kubernetes.io/hostname": NODE} and "s3.json" in secret["data"]
    before = [item["metadata"]["resourceVersion"] for item in store.objects()]
    middle = time.monotonic()
    again = store.play()
    assert "changed=0" in again and [item["metadata"]["resourceVersion"] for item in store.objects()] == before
    print(f"deployed in {middle - began:.1f} s, again {time.monotonic() - middle:.1f} s")
    # A controller that has lost its file finds the credentials where the store has them.
    place = store.roles.folder / "state" / "default" / "services" / "store.credentials"
    kept = place.read_text()
    place.unlink()
    assert "changed=0" in store.play() and place.read_text() == kept
    # What was made by hand with its name, and what it no longer has, is told apart.
    assert re.search(r"changed=[1-9]", store.play("absent")) and store.objects() == []
    assert store.client.get("v1/PersistentVolumeClaim", "muster-store-data", store.namespace) is not None
    assert "changed=0" in store.play("absent")
    store.play("absent", delete_data=True)
    claim: t.Any = store.client.get("v1/PersistentVolumeClaim", "muster-store-data", store.namespace)
    assert claim is None or claim["metadata"].get("deletionTimestamp")
    volumes = [item for item in store.client.list("v1/PersistentVolume").items if "store" in item["metadata"]["name"]]
    assert [item for item in volumes if not item["metadata"].get("deletionTimestamp")] == []
    # The folder of the Node is not deleted from here, and can be read with its keys alone.
    assert place.read_text() == kept


def test_a_store_that_is_as_asked_for_is_found_without_a_role(store: Store) -> None:
    """Nothing is written for it: the playbook runs the role of what is pending alone."""

    def pending(**deploy: t.Any) -> list[str]:
        state = {"path": str(store.roles.folder / "state")}
        options = {"services": [store.entry(**deploy)], "state_home": state, "cluster": "default"}
        options["kubeconfig"] = str(store.roles.api.kubeconfig)
        said: t.Any = Said()
        request = RunRequest(options, [], {}, store.roles.folder, False, lambda _names: [], said)
        return list(deploy_info.run(request, [])["pending"])

    assert pending() == ["store"]
    store.play()
    before = [item["metadata"]["resourceVersion"] for item in store.objects()]
    assert pending() == [] and pending(image="registry.example.com/weed:4.49") == ["store"] and pending(tls=True)
    assert [item["metadata"]["resourceVersion"] for item in store.objects()] == before
    record = store.roles.folder / "state" / "default" / "services" / "store.json"
    text = record.read_text()
    record.write_text(text.replace("http://muster-store", "http://another"))
    assert pending() == ["store"], "what is recorded of it is not so"
    record.write_text(text)
    assert pending() == []
    store.client.delete("v1/Secret", "muster-store", store.namespace)
    assert pending() == ["store"]
    store.play()
    store.ended.set()
    store.client.patch("apps/v1/StatefulSet", "muster-store", {"status": {"readyReplicas": 0, "availableReplicas": 0}},
                       store.namespace, subresource="status")  # fmt: skip
    assert pending() == ["store"], "its pod is not ready"


def test_an_object_of_another_with_its_name_stays(store: Store) -> None:
    meta: t.Any = {"name": "muster-store", "namespace": store.namespace}
    store.client.create({"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": {"ports": [{"port": 1}]}})
    assert "is not this collection's" in store.play(code=2)


def test_what_the_cluster_says_of_a_pod_that_is_not_ready_is_shown(
    api: ApiServer, client: Client, namespace: str, tmp_path: pathlib.Path
) -> None:
    about: t.Any = {
        "apiVersion": "v1", "kind": "Event", "metadata": {"name": "e1", "namespace": namespace}, "type": "Warning",
        "involvedObject": {"kind": "Pod", "name": "muster-metrics-0", "namespace": namespace},
        "reason": "Failed", "message": "Error: ErrImagePull", "lastTimestamp": "2026-01-01T00:00:00Z",
    }  # fmt: skip
    client.create(about)
    place = {"namespace": namespace, "host_path": "/srv/metrics", "image": "registry.example.com/prometheus:1"}
    service = {"name": "metrics", "kind": "monitoring", "mode": "deploy", "deploy": place}
    with one_node(client, namespace, "muster-nothing"):
        said = Roles(api, tmp_path).play("monitoring", code=2, monitoring_service=service, monitoring_wait_s=2)
    assert "is not ready after 2 s" in said and "Failed: Error: ErrImagePull" in said


def test_a_prometheus_reads_nodes_and_pods_and_nothing_else(
    api: ApiServer, client: Client, namespace: str, tmp_path: pathlib.Path
) -> None:
    roles = Roles(api, tmp_path)
    place = {"namespace": namespace, "host_path": "/srv/metrics", "image": "registry.example.com/prometheus:1"}
    service = {"name": "metrics", "kind": "monitoring", "mode": "deploy", "deploy": place}
    rights = [f"rbac.authorization.k8s.io/v1/{kind}" for kind in ("ClusterRole", "ClusterRoleBinding")]

    def objects() -> list[t.Any]:
        own = [client.get(kind, "muster-metrics", namespace) for kind in (*KINDS, "v1/ServiceAccount")]
        found = [*own, *(client.get(kind, f"muster-{namespace}-metrics") for kind in rights)]
        return [item for item in found if item is not None]

    with one_node(client, namespace, "muster-metrics"):
        roles.play("monitoring", monitoring_service=service)
        secret, _entry, workload, _account, role, binding = objects()
        spec = workload["spec"]["template"]["spec"]
        assert spec["serviceAccountName"] == "muster-metrics" and spec["automountServiceAccountToken"] is True
        assert [(rule["resources"], rule["verbs"]) for rule in role["rules"]] == [
            (["nodes", "pods"], ["get", "list", "watch"])
        ]
        assert binding["subjects"][0]["namespace"] == namespace
        config = json.loads(base64.b64decode(secret["data"]["prometheus.yml"]))
        assert [job["job_name"] for job in config["scrape_configs"]] == ["muster-nodes", "muster-dcgm"]
        about = json.loads((tmp_path / "state" / "default" / "services" / "metrics.json").read_text())
        assert about["endpoint"] == "https://10.9.8.7:9090", "the controller reaches it at its Node"
        before = [item["metadata"]["resourceVersion"] for item in objects()]
        assert "changed=0" in roles.play("monitoring", monitoring_service=service)
        assert [item["metadata"]["resourceVersion"] for item in objects()] == before
        roles.play("monitoring", monitoring_service={**service, "state": "absent"})
        assert objects() == []
