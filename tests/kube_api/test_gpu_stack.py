# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The role gpu_stack against a real API server: what it installs, binds, refuses and removes, by the server's count."""

from __future__ import annotations

import json
import pathlib
import typing as t

import pytest
import yaml

from ansible_collections.muster.training.plugins.plugin_utils._kube.api.client import Client
from ansible_collections.muster.training.plugins.plugin_utils._kube.api.errors import KubeError
from ansible_collections.muster.training.plugins.plugin_utils._kube.objects.apply import apply
from ansible_collections.muster.training.tests.support.kube_api import ApiServer
from ansible_collections.muster.training.tests.support.stack_cluster import (
    HELM_CHART,
    Cluster,
    Dict,
    changed,
    leaves,
    require_crds,
    start_server,
)

H100 = {"count": 2, "model": "NVIDIA H100 80GB HBM3", "memory_gib": 79.6, "arch": "hopper"}
RECORDS = [{"name": "gpu-1", "gpu": H100}, {"name": "gpu-2", "gpu": H100}, {"name": "cpu-1", "gpu": {"count": 0}}]
PLUGIN = ("apps/v1/DaemonSet", "muster-nvidia-device-plugin", "kube-system")


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> t.Iterator[ApiServer]:
    with start_server(tmp_path_factory.mktemp("api")) as server:
        yield server


@pytest.fixture
def cluster(api: ApiServer, client: Client, tmp_path: pathlib.Path) -> t.Iterator[Cluster]:
    with Cluster(api, client, tmp_path, "gpu_stack", gpu_stack_records=RECORDS) as made:
        yield made


def test_the_life_of_the_plugin(cluster: Cluster, client: Client) -> None:
    """Check mode, present, again without a write, a node less, absent, absent again."""
    client.patch("v1/Node", "gpu-2", {"metadata": {"labels": {"nvidia.com/gpu.product": "kept"}}})
    bare = cluster.state()
    assert changed(cluster.play("--check")) > 0 and cluster.state() == bare
    output = cluster.play()
    assert "install: nvidia.com/gpu is to be offered on gpu-1, gpu-2" in output
    spec = t.cast("Dict", client.get(*PLUGIN))["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    environment = {item["name"]: item["value"] for item in container["env"]}
    assert environment["DEVICE_LIST_STRATEGY"] == "cdi-cri" and environment["FAIL_ON_INIT_ERROR"] == "true"
    assert container["image"].startswith("nvcr.io/nvidia/k8s-device-plugin:v0.19.3@sha256:")
    assert spec["nodeSelector"] == {"muster.training/gpu": "device-plugin"} and "runtimeClassName" not in spec
    own = {"muster.training/gpu": "device-plugin", "nvidia.com/gpu.memory": "81510", "nvidia.com/gpu.family": "hopper"}
    counted = {**own, "nvidia.com/gpu.count": "2"}
    assert cluster.labels("gpu-1") == {**counted, "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}
    assert cluster.labels("gpu-2") == {**counted, "nvidia.com/gpu.product": "kept"} and cluster.labels("cpu-1") == {}
    versions = [item["metadata"]["resourceVersion"] for item in client.list("v1/Node").items]
    again = cluster.play()
    assert changed(again) == 0
    assert [item["metadata"]["resourceVersion"] for item in client.list("v1/Node").items] == versions
    less = [RECORDS[0], {"name": "gpu-2", "gpu": {"count": 0}}]
    assert changed(cluster.play(gpu_stack_records=less)) == 1
    assert cluster.labels("gpu-2") == {"nvidia.com/gpu.product": "kept"}
    assert changed(cluster.play(gpu_stack_state="absent")) == 2
    assert client.get(*PLUGIN) is None and cluster.state() == bare
    assert changed(cluster.play(gpu_stack_state="absent")) == 0


def test_a_cluster_without_gpus_is_left_alone(cluster: Cluster, client: Client) -> None:
    output = cluster.play(gpu_stack_records=[])
    assert "none: no Node has an NVIDIA GPU" in output and changed(output) == 0 and client.get(*PLUGIN) is None


def test_what_another_tool_installed_is_bound_and_two_owners_are_refused(cluster: Cluster, client: Client) -> None:
    cluster.add_plugin("theirs", "gpu-1", "gpu-2")
    before = cluster.state()
    output = cluster.play()
    assert "bind: nvidia.com/gpu is offered by DaemonSet kube-system/theirs" in output
    assert changed(output) == 0 and cluster.state() == before
    assert changed(cluster.play(gpu_stack_provider="bind")) == 0
    cluster.add_plugin("rival", "gpu-2")
    refused = cluster.play(code=2)
    line = "nvidia.com/gpu of gpu-2 is offered by DaemonSet kube-system/rival and by DaemonSet kube-system/theirs"
    assert line in refused.replace("\n", " ") and client.get(*PLUGIN) is None
    assert changed(cluster.play(gpu_stack_state="absent")) == 0
    assert client.get("apps/v1/DaemonSet", "theirs", "kube-system") is not None


def test_bad_choices_are_refused_before_anything_is_changed(cluster: Cluster, client: Client) -> None:
    bare = cluster.state()
    assert "nothing offers nvidia.com/gpu of gpu-1, gpu-2" in cluster.play(code=2, gpu_stack_provider="bind")
    assert "gpu-9 is not a Node of the cluster" in cluster.play(code=2, gpu_stack_nodes=["gpu-9"])
    assert "value of gpu_stack_provider must be one of" in cluster.play(code=2, gpu_stack_provider="operator")
    assert cluster.state() == bare and client.get(*PLUGIN) is None


def test_the_operators_values_are_fields_of_its_policy(cluster: Cluster, client: Client) -> None:
    """The chart makes a ClusterPolicy of them; the API server knows the policy's definition, each field of it."""
    definitions = require_crds("nvidia.com_clusterpolicies")
    apply(client, [*definitions, HELM_CHART])
    (cluster.folder / "gpu-operator-v26.7.0.tgz").write_bytes(b"a chart")
    try:
        cluster.play(gpu_stack_provider="gpu_operator", gpu_stack_source=str(cluster.folder))
        chart = t.cast("Dict", client.get("helm.cattle.io/v1/HelmChart", "gpu-operator", "kube-system"))["spec"]
        assert chart["chartContent"] == "YSBjaGFydA==" and chart["failurePolicy"] == "abort"
        values = yaml.safe_load(chart["valuesContent"])
        assert values.pop("nfd") == {"enabled": True, "nodefeaturerules": False}
        assert client.get(*PLUGIN) is None and cluster.labels("gpu-1") == {}
        assert changed(cluster.play(gpu_stack_provider="gpu_operator", gpu_stack_source=str(cluster.folder))) == 0
        # The chart has values for its own DaemonSets and Deployments, which the policy wants to name.
        policy: Dict = {"apiVersion": "nvidia.com/v1", "kind": "ClusterPolicy", "metadata": {"name": "cluster-policy"}}
        spec = {**values, "daemonsets": {}}
        apply(client, [{**policy, "spec": spec}], check=True)
        for path in leaves(values):
            wrong = json.loads(json.dumps(spec))
            *parents, last = path
            place = wrong
            for key in parents:
                place = place[key]
            place[f"{last}x"] = place.pop(last)
            with pytest.raises(KubeError, match=f"{last}x"):
                apply(client, [{**policy, "spec": wrong}], check=True)
        # Back to the plugin: the chart goes.
        cluster.play()
        assert client.get("helm.cattle.io/v1/HelmChart", "gpu-operator", "kube-system") is None
        cluster.play(gpu_stack_state="absent")
    finally:
        for item in [*definitions, HELM_CHART]:
            client.delete(t.cast("t.Any", item), item["metadata"]["name"])
