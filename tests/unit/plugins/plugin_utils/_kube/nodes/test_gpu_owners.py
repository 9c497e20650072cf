# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which objects of a cluster offer GPUs: plugins by image and mount, the operator's as its policy's, classes of DRA."""

from __future__ import annotations

import types
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError
from ansible_collections.muster.training.plugins.plugin_utils._kube.nodes import gpu_owners

NVIDIA = "nvcr.io/nvidia/k8s-device-plugin:v0.19.3"
FOLDER = "/var/lib/kubelet/device-plugins"
HELM = {"meta.helm.sh/release-name": "gpu-operator"}


def daemon_set(name: str, image: str = NVIDIA, path: str = FOLDER, **meta: t.Any) -> t.Any:
    return {
        "metadata": {"name": name, "namespace": "kube-system", "uid": f"uid-{name}", **meta},
        "spec": {
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "spec": {"containers": [{"image": image}], "volumes": [{"hostPath": {"path": path}}, {"emptyDir": {}}]}
            },
        },
    }


def pod(owner: str, node: str | None) -> dict[str, t.Any]:
    return {
        "metadata": {"name": f"{owner}-{node}", "ownerReferences": [{"uid": f"uid-{owner}"}]},
        "spec": {"nodeName": node},
    }


class Cluster:
    """Objects by kind, and pods by their label."""

    def __init__(self, pods: t.Any = (), **kinds: t.Any) -> None:
        self.pods, self.kinds = pods, {key.replace("_", "/"): value for key, value in kinds.items()}
        self.catalog = types.SimpleNamespace(serves=self.serves)

    def serves(self, api_version: str) -> bool:
        return any(kind.rpartition("/")[0] == api_version for kind in self.kinds)

    def list(self, kind: str, namespace: str | None = None, *, labels: str = "") -> t.Any:
        if kind == "v1/Pod":
            assert namespace == "kube-system" and labels.startswith("app=")
            return types.SimpleNamespace(items=self.pods)
        if kind not in self.kinds:
            raise InputError("kind", "is not served")
        return types.SimpleNamespace(items=self.kinds[kind])


def read(cluster: Cluster, *daemon_sets: t.Any) -> list[tuple[str, list[str], bool]]:
    found = gpu_owners.read_owners(t.cast("t.Any", cluster), daemon_sets)
    return [(item.title, sorted(item.nodes), item.own) for item in found]


@pytest.mark.parametrize(
    ("image", "path", "offers"),
    [
        (NVIDIA, FOLDER, True),
        ("registry.local/mirror/k8s-device-plugin@sha256:0", f"{FOLDER}/", True),
        ("gke.gcr.io/nvidia-gpu-device-plugin@sha256:1", FOLDER, True),
        ("mcr.microsoft.com/oss/v2/nvidia/k8s-device-plugin:v0.18", "/var/lib/kubelet/plugins_registry", True),
        # Feature discovery and the daemon of MPS run from the same image.
        (NVIDIA, "/etc/kubernetes/node-feature-discovery/features.d", False),
        (NVIDIA, "/run/nvidia/mps", False),
        ("rocm/k8s-device-plugin:1.25", FOLDER, False),
        ("ghcr.io/mellanox/k8s-rdma-shared-dev-plugin:v1.5.3", FOLDER, False),
        ("aws-efa-k8s-device-plugin:v0.5", FOLDER, False),
    ],
)
def test_a_plugin_is_known_by_its_image_and_the_folder_of_the_kubelet(image: str, path: str, offers: bool) -> None:
    assert gpu_owners.is_gpu_plugin(daemon_set("x", image, path)) is offers


def test_a_plugin_has_the_nodes_of_its_own_pods() -> None:
    own = daemon_set("mine", labels={"muster.training/stack": "gpu"})
    pods = [pod("theirs", "b"), pod("theirs", None), pod("mine", "a"), pod("another", "c")]
    assert read(Cluster(pods), daemon_set("theirs"), own, daemon_set("cni", "flannel")) == [
        ("DaemonSet kube-system/theirs", ["b"], False),
        ("DaemonSet kube-system/mine", ["a"], True),
    ]


def test_the_operators_plugin_is_its_policys_and_ours_where_our_chart_made_it() -> None:
    policy = {"kind": "ClusterPolicy", "metadata": {"name": "cluster-policy", "uid": "p", "annotations": HELM}}
    plugin = daemon_set("nvidia-device-plugin-daemonset", ownerReferences=[{"uid": "p"}])
    pods = [pod("nvidia-device-plugin-daemonset", "a")]
    theirs = Cluster(pods, **{"nvidia.com_v1_ClusterPolicy": [policy]})
    assert read(theirs, plugin) == [("ClusterPolicy cluster-policy", ["a"], False)]
    chart = {"metadata": {"name": "gpu-operator", "labels": {"muster.training/stack": "gpu"}}}
    ours = Cluster(pods, **{"nvidia.com_v1_ClusterPolicy": [policy], "helm.cattle.io_v1_HelmChart": [chart]})
    assert read(ours, plugin) == [("ClusterPolicy cluster-policy", ["a"], True)]


def test_a_class_of_dra_that_offers_the_name_has_the_nodes_of_its_slices() -> None:
    classes = [
        {
            "kind": "DeviceClass",
            "metadata": {"name": "gpu.nvidia.com"},
            "spec": {"extendedResourceName": "nvidia.com/gpu"},
        },
        {"kind": "DeviceClass", "metadata": {"name": "mig.nvidia.com"}, "spec": {}},
    ]
    slices = [
        {"metadata": {"name": "s"}, "spec": {"driver": "gpu.nvidia.com", "nodeName": "a", "devices": [{}]}},
        {"metadata": {"name": "u"}, "spec": {"driver": "nic.example", "nodeName": "b"}},
    ]
    kinds = {"resource.k8s.io_v1_DeviceClass": classes, "resource.k8s.io_v1_ResourceSlice": slices}
    assert read(Cluster(**kinds)) == [("DeviceClass gpu.nvidia.com", ["a"], False)]


def test_an_api_that_is_not_served_has_no_objects() -> None:
    assert gpu_owners.list_served(t.cast("t.Any", Cluster()), "nvidia.com/v1/ClusterPolicy") == []
    other = t.cast("t.Any", Cluster(**{"nvidia.com_v1_Other": []}))
    assert gpu_owners.list_served(other, "nvidia.com/v1/ClusterPolicy") == []


def test_feature_discovery_is_known_by_its_image() -> None:
    assert gpu_owners.has_nfd([daemon_set("nfd-worker", "registry.k8s.io/nfd/node-feature-discovery:v0.19.0", "/x")])
    assert not gpu_owners.has_nfd([daemon_set("x")])
