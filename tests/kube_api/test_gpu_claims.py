# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``gpu_stack_provider: dra`` against a real API server: its life, its refusals, its objects field by field."""

from __future__ import annotations

import json
import pathlib
import typing as t

import pytest
import yaml

from ansible_collections.muster.training.plugins.plugin_utils._kube.api.client import Client
from ansible_collections.muster.training.plugins.plugin_utils._kube.api.connect import connect
from ansible_collections.muster.training.plugins.plugin_utils._kube.api.errors import KubeError
from ansible_collections.muster.training.plugins.plugin_utils._kube.nodes import gpu_claims
from ansible_collections.muster.training.plugins.plugin_utils._kube.objects import device_claims
from ansible_collections.muster.training.plugins.plugin_utils._kube.objects.apply import apply
from ansible_collections.muster.training.tests.kube_api.test_cluster_jobs import Roles
from ansible_collections.muster.training.tests.kube_api.test_gpu_stack import PLUGIN, RECORDS
from ansible_collections.muster.training.tests.support.kube_api import ApiServer
from ansible_collections.muster.training.tests.support.stack_cluster import Cluster, Dict, changed, start_server

DRIVER = ("apps/v1/DaemonSet", "muster-nvidia-dra", "kube-system")
KINDS = (
    "resource.k8s.io/v1/DeviceClass",
    "rbac.authorization.k8s.io/v1/ClusterRole",
    "rbac.authorization.k8s.io/v1/ClusterRoleBinding",
    "admissionregistration.k8s.io/v1/ValidatingAdmissionPolicy",
    "admissionregistration.k8s.io/v1/ValidatingAdmissionPolicyBinding",
    "v1/ServiceAccount",
    "v1/Node",
)


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> t.Iterator[ApiServer]:
    with start_server(tmp_path_factory.mktemp("api")) as server:
        yield server


@pytest.fixture
def cluster(api: ApiServer, client: Client, tmp_path: pathlib.Path) -> t.Iterator[Cluster]:
    values: Dict = {"gpu_stack_records": RECORDS, "gpu_stack_provider": "dra"}
    with Cluster(api, client, tmp_path, "gpu_stack", **values) as made:
        yield made
        made.play(gpu_stack_state="absent")


def set_kubelets(client: Client, version: str) -> None:
    """Have the kubelets of both nodes with GPUs say their version."""
    for name in ("gpu-1", "gpu-2"):
        client.patch("v1/Node", name, {"status": {"nodeInfo": {"kubeletVersion": version}}}, subresource="status")


def publish(client: Client, *nodes: str, count: int = 2) -> None:
    """Say what a driver of some nodes would say of their GPUs."""
    devices = [{"name": f"gpu-{number}", "attributes": {"type": {"string": "gpu"}}} for number in range(count)]
    for node in nodes:
        pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
        spec = {"driver": "gpu.nvidia.com", "nodeName": node, "pool": pool, "devices": devices}
        meta = {"name": f"{node}-gpus"}
        client.create(
            t.cast(
                "t.Any", {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": meta, "spec": spec}
            )
        )


@pytest.fixture
def slices(client: Client) -> t.Iterator[None]:
    publish(client, "gpu-1", "gpu-2")
    yield
    for node in ("gpu-1", "gpu-2"):
        client.delete(gpu_claims.SLICE, f"{node}-gpus")


def test_the_life_of_the_driver(cluster: Cluster, client: Client, slices: None) -> None:
    """Check mode, present, again without a write, another provider in its place, back, absent, absent again."""
    set_kubelets(client, "v1.34.2")
    bare = cluster.versions(*KINDS)
    assert changed(cluster.play("--check")) > 0 and cluster.versions(*KINDS) == bare and client.get(*DRIVER) is None
    output = cluster.play()
    assert "install: nvidia.com/gpu is to be offered on gpu-1, gpu-2" in output
    spec = t.cast("Dict", client.get(*DRIVER))["spec"]["template"]["spec"]
    image = "registry.k8s.io/dra-driver-nvidia/dra-driver-nvidia-gpu:v0.4.1@sha256:"
    assert spec["containers"][0]["image"].startswith(image) and spec["nodeSelector"] == {"muster.training/gpu": "dra"}
    assert cluster.labels("gpu-1")["nvidia.com/gpu.product"] == "NVIDIA-H100-80GB-HBM3"
    assert cluster.labels("cpu-1") == {}
    present = cluster.versions(*KINDS)
    assert changed(cluster.play()) == 0 and cluster.versions(*KINDS) == present
    # Nodes are shown with what their drivers say.
    shown = gpu_claims.show_offered(client, client.list("v1/Node").items)
    offered = {
        item["metadata"]["name"]: item.get("status", {}).get("allocatable", {}).get("nvidia.com/gpu") for item in shown
    }
    assert offered == {"gpu-1": "2", "gpu-2": "2", "cpu-1": None}

    assert changed(cluster.play(gpu_stack_provider="device_plugin")) > 0
    assert client.get(*DRIVER) is None and client.get(*PLUGIN) is not None
    assert client.get(gpu_claims.CLASS, "gpu.nvidia.com") is None
    cluster.play()
    assert client.get(*DRIVER) is not None and client.get(*PLUGIN) is None
    assert changed(cluster.play(gpu_stack_state="absent")) == 2 and cluster.labels("gpu-1") == {}
    gone = cluster.versions(*KINDS)
    assert client.get(*DRIVER) is None and gone.keys() == bare.keys()
    assert changed(cluster.play(gpu_stack_state="absent")) == 0


@pytest.mark.parametrize(
    ("version", "said"),
    [("v1.34.1", "older ones are on gpu-1 (v1.34.1), gpu-2 (v1.34.1)"), ("", "older ones are on gpu-1 (unknown)")],
)
def test_an_older_kubelet_is_refused_and_nothing_is_written(
    cluster: Cluster, client: Client, version: str, said: str
) -> None:
    set_kubelets(client, version)
    bare = cluster.versions(*KINDS)
    refused = " ".join(cluster.play(code=2).split())
    assert said in refused and "set gpu_stack_provider: device_plugin" in refused
    assert cluster.versions(*KINDS) == bare


def test_an_api_server_without_claims_is_refused(tmp_path: pathlib.Path) -> None:
    flags = ("--allow-privileged=true", "--runtime-config=resource.k8s.io/v1=false,resource.k8s.io/v1beta1=false")
    with ApiServer(tmp_path / "api", flags) as server:
        client = connect({"kubeconfig": str(server.kubeconfig)})
        values: Dict = {"gpu_stack_records": RECORDS, "gpu_stack_provider": "dra"}
        with Cluster(server, client, tmp_path, "gpu_stack", **values) as made:
            set_kubelets(client, "v1.34.2")
            refused = " ".join(made.play(code=2).split())
            assert "dra needs resource.k8s.io/v1, which the API server does not serve. Upgrade Kubernetes" in refused
            assert client.get(*DRIVER) is None and made.labels("gpu-1") == {}
            assert gpu_claims.show_offered(client, client.list("v1/Node").items) == client.list("v1/Node").items
            assert changed(made.play(gpu_stack_state="absent")) == 0


def test_a_driver_of_another_tool_is_bound_and_one_way_is_kept(cluster: Cluster, client: Client, slices: None) -> None:
    set_kubelets(client, "v1.34.2")
    meta = {"name": "gpu.nvidia.com"}
    theirs = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": meta, "spec": {}}
    client.create(t.cast("t.Any", theirs))
    try:
        assert "bind: nvidia.com/gpu is offered by DeviceClass gpu.nvidia.com" in cluster.play()
        assert client.get(*DRIVER) is None
        client.delete(gpu_claims.SLICE, "gpu-2-gpus")
        mixed = " ".join(cluster.play(code=2, gpu_stack_provider="device_plugin").split())
        assert "device_plugin beside DeviceClass gpu.nvidia.com, which offers the GPUs of gpu-1" in mixed
        assert changed(cluster.play(gpu_stack_state="absent")) == 0
        assert client.get(gpu_claims.CLASS, "gpu.nvidia.com") is not None
    finally:
        client.delete(gpu_claims.CLASS, "gpu.nvidia.com")
        publish(client, "gpu-2")


def leaves(value: t.Any, path: tuple[t.Any, ...] = ()) -> t.Iterator[tuple[t.Any, ...]]:
    """Yield the path of each key below a template's own specification."""
    pairs: t.Iterable[tuple[t.Any, t.Any]] = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in pairs:
        if isinstance(key, str):
            yield (*path, key)
        if isinstance(item, dict | list):
            yield from leaves(item, (*path, key))


def test_each_field_of_a_claim_is_one_of_the_api(client: Client, namespace: str) -> None:
    meta: t.Any = {"name": "run-gpus", "namespace": namespace}
    template: t.Any = device_claims.build_template(meta, "gpu.nvidia.com", 2)
    apply(client, [template], check=True)
    tried = 0
    for path in leaves(template["spec"], ("spec",)):
        wrong = json.loads(json.dumps(template))
        place = wrong
        for key in path[:-1]:
            place = place[key]
        place[f"{path[-1]}x"] = place.pop(path[-1])
        with pytest.raises(KubeError, match=f"{path[-1]}x"):
            apply(client, [wrong], check=True)
        tried += 1
    assert tried == 8


def test_kueue_of_this_role_counts_claims_and_starts_again_for_it(
    api: ApiServer, client: Client, tmp_path: pathlib.Path
) -> None:
    config = {"apiVersion": "config.kueue.x-k8s.io/v1beta2", "resources": {"excludeResourcePrefixes": ["example.com"]}}
    name, space = "kueue-controller-manager", "kueue-system"
    pod = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "manager", "image": "kueue:1"}]}}
    manifests = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": space}},
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "kueue-manager-config", "namespace": space},
            "data": {"controller_manager_config.yaml": yaml.safe_dump(config)},
        },
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": name, "namespace": space},
            "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": pod},
        },
    ]
    (tmp_path / "manifests.yaml").write_text(yaml.safe_dump_all(manifests))
    values: Dict = {
        "__gang_name": "kueue",
        "__gang_definition": "clusterqueues.kueue.x-k8s.io",
        "__gang_deployment": {"kind": "Deployment", "name": name, "namespace": space},
        "__gang_version": "",
        "__gang_source": str(tmp_path / "manifests.yaml"),
        "gang_scheduling_lock_file": str(tmp_path / "lock.json"),
        # No controller makes the Deployment available here.
        "gang_scheduling_wait_s": 1,
    }

    def read() -> tuple[Dict, Dict, list[str]]:
        made = client.get("v1/ConfigMap", "kueue-manager-config", space)
        live = client.get("apps/v1/Deployment", name, space)
        assert made is not None and live is not None
        settings = yaml.safe_load(made["data"]["controller_manager_config.yaml"])
        marks = live["spec"]["template"]["metadata"].get("annotations") or {}
        return settings, marks, [str(item["metadata"]["generation"]) for item in (live,)]

    roles = Roles(api, tmp_path)
    roles.play("gang_scheduling", "ensure_controller", code=2, **values)
    assert read()[:2] == (config, {})
    roles.play("gang_scheduling", "ensure_controller", code=2, gpu_stack_provider="dra", **values)
    settings, marks, generation = read()
    mappings = [{"name": "nvidia.com/gpu", "deviceClassNames": ["gpu.nvidia.com"]}]
    assert settings["resources"] == {**config["resources"], "deviceClassMappings": mappings}  # type: ignore[dict-item]
    assert json.loads(marks["muster.training/device-classes"]) == mappings
    roles.play("gang_scheduling", "ensure_controller", code=2, gpu_stack_provider="dra", **values)
    assert read() == (settings, marks, generation), "the second run writes nothing"
    roles.play("gang_scheduling", "ensure_controller", code=2, **values)
    assert read()[:2] == (config, {}), "the pods start again without it"
