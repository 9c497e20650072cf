# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The objects of a store in a cluster: what an API server takes, without a secret outside its Secret. The rest is the lab's."""

from __future__ import annotations

import base64
import dataclasses
import json
import pathlib
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import RefusedError
from ansible_collections.muster.training.plugins.module_utils._model.service import parse_services
from ansible_collections.muster.training.plugins.plugin_utils._kube.api.pages import ListPage
from ansible_collections.muster.training.plugins.plugin_utils._services.components import find_component
from ansible_collections.muster.training.plugins.plugin_utils._services.registry.client import digest_of
from ansible_collections.muster.training.plugins.plugin_utils._workflows.services.deploy import DeployOrder
from ansible_collections.muster.training.plugins.plugin_utils._workflows.services.deploy_cluster import ClusterService
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared import deployed
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared.digest_lock import DigestLock
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared.state_dir import StateHome
from ansible_collections.muster.training.tests.support.kube_schemas import problems
from ansible_collections.muster.training.tests.support.release_host import release_host

IMAGE = "registry.example.com/weed:4.48"


def node(name: str, **spec: t.Any) -> dict[str, t.Any]:
    ready = {"conditions": [{"type": "Ready", "status": "True"}]}
    return {"metadata": {"name": name}, "spec": spec, "status": ready}


class Cluster:
    """A client that knows Nodes and nothing else."""

    def __init__(self, *nodes: t.Any) -> None:
        self.nodes = list(nodes)

    def list(self, _kind: str) -> ListPage:
        return ListPage(self.nodes, "1")

    def get(self, *_words: t.Any) -> None:
        return None


class Running:
    """A cluster in which a service runs."""

    def __init__(self, live: t.Any) -> None:
        self.live = live

    def get(self, *_words: t.Any) -> t.Any:
        return self.live


def service(root: pathlib.Path, cluster: Cluster, rented: t.Any = None, **deploy: t.Any) -> ClusterService:
    place = {"namespace": "storage", "image": IMAGE, **deploy}
    about = {"name": "store", "kind": "object_store", "mode": "deploy", "deploy": place}
    (parsed,) = parse_services([{**about, "resources": [{"purpose": "datasets", "ref": "data"}]}])
    assert parsed.deploy is not None
    component, home = find_component("object_store", None, "x"), StateHome({"path": str(root)}, "c")
    order = DeployOrder(
        parsed, parsed.deploy, component, home, root, DigestLock(root / "l"), "", False, 1, rented or {}
    )
    client: t.Any = cluster
    return ClusterService(order, client, lambda _line: None)


def test_the_image_of_the_release_is_pinned_by_the_digest_that_was_seen_first(tmp_path: pathlib.Path) -> None:
    with release_host() as host:
        host.add_image("chrislusf/seaweedfs", "4.48", ("amd64", "arm64"))
        seen = digest_of(host.files["/v2/chrislusf/seaweedfs/manifests/4.48"][0])
        made = service(tmp_path, Cluster(), image=None)
        component = dataclasses.replace(made.order.component, image=f"{host.host}/chrislusf/seaweedfs")
        order = dataclasses.replace(made.order, component=component)
        made = dataclasses.replace(made, order=order)
        name = f"{host.host}/chrislusf/seaweedfs:4.48"
        dry = dataclasses.replace(made, order=dataclasses.replace(order, check=True))
        assert dry.find_image() == name and not order.lock.place.exists()
        assert made.find_image() == dry.find_image() == f"{name}@{seen}"
        # The tag is moved: what was seen first stays.
        host.add_image("chrislusf/seaweedfs", "4.48", ("amd64",))
        asked = len(host.asked)
        assert made.find_image() == f"{name}@{seen}" and len(host.asked) == asked
    away = dataclasses.replace(order, component=dataclasses.replace(component, image="127.0.0.1:9/weed"))
    with pytest.raises(RefusedError, match="the digest of 127.0.0.1:9/weed:4.48 is not known, and .*deploy.image"):
        dataclasses.replace(made, order=away).find_image()
    # Another controller, without the lock file and where no registry answers, takes that of the service that runs.
    used = f"127.0.0.1:9/weed:4.48@{seen}"
    live: t.Any = {"spec": {"template": {"spec": {"containers": [{"image": used}]}}}}
    running = dataclasses.replace(made, order=away, client=t.cast(t.Any, Running(live)))
    assert running.find_image() == used
    own = service(tmp_path, Cluster(), image="own.example.com/weed:1")
    assert own.find_image() == "own.example.com/weed:1"


def test_an_api_server_takes_the_objects(tmp_path: pathlib.Path) -> None:
    made = service(tmp_path, Cluster())
    credentials = made.order.component.make_credentials()
    objects: t.Any = made.build_objects(credentials, "n1")
    assert [item["kind"] for item in objects] == ["Secret", "Service", "StatefulSet"]
    secret, entry, workload = objects
    assert problems(secret) == [] and problems(entry) == []
    pod = workload["spec"]["template"]
    job: t.Any = {"spec": {"template": {**pod, "spec": {**pod["spec"], "restartPolicy": "Never"}}}}
    assert problems({"apiVersion": "batch/v1", "kind": "Job", "metadata": workload["metadata"], **job}) == []
    assert pod["spec"]["nodeSelector"] == {"kubernetes.io/hostname": "n1"}
    assert pod["spec"]["containers"][0]["image"] == IMAGE
    shown = json.dumps([entry, workload])
    assert not [value for value in credentials.values() if value in shown]
    assert made.build_objects(credentials, "n1") == objects
    other: t.Any = made.build_objects(made.order.component.make_credentials(), "n1")[-1]
    assert other["spec"]["template"]["metadata"] != pod["metadata"]


def test_the_pod_is_bound_to_a_permanent_node_and_stays_there(tmp_path: pathlib.Path) -> None:
    taint = {"taints": [{"key": "x", "effect": "NoSchedule"}]}
    cluster = Cluster(node("a-rented"), node("b-tainted", **taint), node("c-owned"), node("d-owned"))
    rented = {"a-rented": "a-rented"}
    assert service(tmp_path, cluster, rented).choose_node() == "c-owned"
    assert service(tmp_path, cluster, rented, node="d-owned").choose_node() == "d-owned"
    home = service(tmp_path, cluster).order.home
    deployed.write_deployed(home, "store", {"node": "d-owned"})
    assert service(tmp_path, cluster, rented).choose_node() == "d-owned"


def test_metrics_that_would_fill_their_claim_are_refused(tmp_path: pathlib.Path) -> None:
    place = {"namespace": "m", "image": IMAGE, "node": "a", "size": "5Gi"}
    about = {"name": "own", "kind": "monitoring", "mode": "deploy"}

    def bring(**deploy: t.Any) -> None:
        (parsed,) = parse_services([{**about, "deploy": {**place, **deploy}}])
        assert parsed.deploy is not None
        component, home = find_component("monitoring", None, "x"), StateHome({"path": str(tmp_path)}, "c")
        order = DeployOrder(
            parsed, parsed.deploy, component, home, tmp_path, DigestLock(tmp_path / "l"), "", True, 1, {}
        )
        client: t.Any = Cluster(node("a"))
        ClusterService(order, client, lambda _line: None, "10.0.0.1").ensure_present()

    with pytest.raises(RefusedError, match=r"keeps up to 9.0 GB, and its claim of 5Gi has room for 4.3 GB") as told:
        bring(retention={"gb": 9})
    assert told.value.fix == "Write deploy.retention: {gb: 4} or less, or give it more room"
    with pytest.raises(RefusedError, match="there is no namespace m"):
        bring()


def test_a_cluster_without_one_is_refused(tmp_path: pathlib.Path) -> None:
    cluster = Cluster(node("a-rented"))
    with pytest.raises(RefusedError, match="no Node that is not rented"):
        service(tmp_path, cluster, {"a-rented": "a-rented"}).choose_node()
    with pytest.raises(RefusedError, match="has no Node gone"):
        service(tmp_path, cluster, node="gone").choose_node()


def test_a_rented_machine_is_known_by_its_name_in_the_cluster_and_its_addresses(tmp_path: pathlib.Path) -> None:
    by_address = node("n-1")
    by_address["status"]["addresses"] = [{"type": "InternalIP", "address": "10.0.0.9"}]
    cluster = Cluster(node("gpu-1"), by_address, node("z-owned"))
    rented = {"GPU-1": "GPU-1", "10.0.0.9": "box"}
    assert service(tmp_path, cluster, rented).choose_node() == "z-owned"
    for name in ("gpu-1", "n-1"):
        with pytest.raises(RefusedError, match=f"{name} is rented"):
            service(tmp_path, cluster, rented, node=name).choose_node()


class Objects(Cluster):
    """A client with some objects, by kind."""

    def __init__(self, **objects: t.Any) -> None:
        super().__init__(node("n"))
        self.objects, self.deleted = objects, t.cast("list[str]", [])

    def get(self, kind: str, *_words: t.Any) -> t.Any:
        return self.objects.get(kind.rpartition("/")[2])

    def delete(self, kind: str, *_words: t.Any, uid: str) -> None:
        self.deleted.append(kind.rpartition("/")[2])


def made_by(manager: str, name: str, **more: t.Any) -> dict[str, t.Any]:
    labels = {"muster.training/service": "store"}
    return {"metadata": {"name": name, "labels": labels, "managedFields": [{"manager": manager}]}, **more}


def secret(**values: str) -> dict[str, t.Any]:
    text = "\n".join(f"{name} = {value}" for name, value in values.items())
    return made_by("muster", "muster-store", data={"muster-credentials": base64.b64encode(text.encode()).decode()})


def test_keys_stay_as_long_as_the_data(tmp_path: pathlib.Path) -> None:
    """A claim of the user's, or of another tool, is kept whatever is asked; so are the keys, also where they are nowhere else."""
    for claim, place in ((made_by("kubectl", "muster-store-data"), {}), (made_by("muster", "mine"), {"claim": "mine"})):
        cluster = Objects(Secret=secret(SEAL_KEY="abcdefgh-key"), PersistentVolumeClaim=claim)
        made = service(tmp_path, cluster, delete_data=True, **place)
        assert made.ensure_absent()["kept"] == f"storage/{claim['metadata']['name']}" and cluster.deleted == ["Secret"]
        assert deployed.read_credentials(made.order.home, "store") == {"SEAL_KEY": "abcdefgh-key"}


def test_a_volume_that_would_stay_goes_with_its_claim_and_its_folder_is_named(tmp_path: pathlib.Path) -> None:
    spec = {"persistentVolumeReclaimPolicy": "Retain", "hostPath": {"path": "/srv/store"}}
    claim = made_by("muster", "muster-store-data", spec={"volumeName": "pv"})
    cluster = Objects(PersistentVolumeClaim=claim, PersistentVolume=made_by("muster", "pv", spec=spec))
    made = service(tmp_path, cluster, delete_data=True)
    deployed.write_credentials(made.order.home, "store", {"SEAL_KEY": "abcdefgh-key"})
    assert made.ensure_absent()["kept"] == "/srv/store"
    assert cluster.deleted == ["PersistentVolumeClaim", "PersistentVolume"]
    assert deployed.read_credentials(made.order.home, "store") is not None


def test_the_keys_of_a_service_are_not_replaced(tmp_path: pathlib.Path) -> None:
    made = service(tmp_path, Objects(Secret=secret(SEAL_KEY="abcdefgh-key", TLS_KEY="one-of-a-kind")))
    deployed.write_credentials(made.order.home, "store", {"SEAL_KEY": "abcdefgh-key", "TLS_KEY": "another-one"})
    made._require_same_keys()
    deployed.write_credentials(made.order.home, "store", {"SEAL_KEY": "hgfedcba-key"})
    with pytest.raises(RefusedError, match="has other keys than") as caught:
        made._require_same_keys()
    assert "abcdefgh" not in str(caught.value) and "hgfedcba" not in str(caught.value)


def test_a_claim_that_is_pending_is_what_a_service_waits_for(tmp_path: pathlib.Path) -> None:
    claim = made_by("muster", "muster-store-data", status={"phase": "Pending"})
    fix = service(tmp_path, Objects(PersistentVolumeClaim=claim))._find_fix()
    assert (
        fix == "Its claim muster-store-data is Pending: look why with kubectl describe pvc -n storage muster-store-data"
    )
    bound = made_by("muster", "muster-store-data", status={"phase": "Bound"})
    assert "kubectl describe pod" in service(tmp_path, Objects(PersistentVolumeClaim=bound))._find_fix()


def test_a_namespace_that_is_not_there_is_refused(tmp_path: pathlib.Path) -> None:
    with pytest.raises(RefusedError, match="there is no namespace storage"):
        service(tmp_path, Cluster(node("n"))).ensure_present()


def test_a_tracker_has_its_names_its_secrets_and_the_projects_image_with_clients_of_stores(
    tmp_path: pathlib.Path,
) -> None:
    """What it reads from its environment alone comes from the Secret."""
    place = {"namespace": "storage", "login": True}
    about = {"name": "mlflow", "kind": "tracking", "mode": "deploy", "deploy": place, "hosts": ["mlflow.mesh"]}
    (parsed,) = parse_services([about])
    assert parsed.deploy is not None
    address = "postgresql://mlflow:pw-canary-0001@db.example/mlflow"
    component, home = find_component("tracking", None, "x"), StateHome({"path": str(tmp_path)}, "c")
    order = DeployOrder(parsed, parsed.deploy, component, home, tmp_path, DigestLock(tmp_path / "l"), "", True, 1, {})
    client: t.Any = Cluster()
    made = ClusterService(dataclasses.replace(order, database=address), client, lambda _line: None, "10.0.0.7")
    assert made.site.endpoint == "http://10.0.0.7:5000", "the controller and people reach it, too"
    assert made.find_image() == "ghcr.io/mlflow/mlflow:v3.17.2-full"
    credentials = component.make_credentials()
    objects: t.Any = made.build_objects(credentials, "n1")
    secret, entry, workload = objects
    assert problems(secret) == [] and "accounts.ini" in secret["data"]
    (container,) = workload["spec"]["template"]["spec"]["containers"]
    words = " ".join(container["command"])
    assert words.startswith("mlflow server") and "muster-mlflow.storage.svc.cluster.local:*" in words
    assert "mlflow.mesh:*" in words and "10.0.0.7:*" in words
    assert workload["spec"]["template"]["spec"]["hostNetwork"] is True
    hidden = {item["name"]: item["valueFrom"]["secretKeyRef"] for item in container["env"] if "valueFrom" in item}
    name = "MLFLOW_FLASK_SERVER_SECRET_KEY"
    names = (name, "MLFLOW_BACKEND_STORE_URI")
    assert hidden == {item: {"name": "muster-mlflow", "key": item} for item in names} and name in secret["data"]
    shown = json.dumps([entry, workload])
    assert "canary" not in shown and "backend-store-uri" not in words
    assert not [value for value in credentials.values() if value in shown]
    volumes = workload["spec"]["template"]["spec"]["volumes"]
    assert name not in str(volumes), "it is no file"
