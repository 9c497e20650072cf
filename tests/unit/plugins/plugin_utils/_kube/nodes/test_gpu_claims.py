# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""GPUs that pods claim are shown on Nodes and pods, where no kubelet offers any and this user may read them."""

from __future__ import annotations

import types
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError
from ansible_collections.muster.training.plugins.plugin_utils._kube.api.errors import KubeError
from ansible_collections.muster.training.plugins.plugin_utils._kube.nodes import gpu_claims
from ansible_collections.muster.training.plugins.plugin_utils._kube.placement.node_fit import gpu_count, gpu_requests

GPU = "nvidia.com/gpu"


def device(kind: str = "gpu", **more: t.Any) -> dict[str, t.Any]:
    return {"name": "x", "attributes": {"type": {"string": kind}}, **more}


def part(node: str, *devices: t.Any, generation: int = 1, driver: str = "gpu.nvidia.com") -> t.Any:
    pool = {"name": node, "generation": generation}
    return {"metadata": {}, "spec": {"driver": driver, "nodeName": node, "pool": pool, "devices": list(devices)}}


def node(name: str, offered: str = "0") -> t.Any:
    return {"metadata": {"name": name}, "status": {"allocatable": {GPU: offered, "cpu": "4"}}}


def cluster(served: bool = True, error: Exception | None = None, **kinds: t.Any) -> t.Any:
    def read(kind: str) -> t.Any:
        if error is not None:
            raise error
        return types.SimpleNamespace(items=kinds.get(kind.rpartition("/")[2], []))

    return types.SimpleNamespace(list=read, catalog=types.SimpleNamespace(serves=lambda _version: served))


CLASS: t.Any = {"metadata": {"name": "gpu.nvidia.com"}}
SLICES = [part("a", device(), device(taints=[{"key": "xid", "effect": "NoExecute"}]), device("mig"))]


def test_a_node_is_shown_with_the_gpus_of_its_slices() -> None:
    shown = gpu_claims.show_offered(cluster(DeviceClass=[CLASS], ResourceSlice=SLICES), [node("a"), node("b")])
    assert [gpu_count(item) for item in shown] == [1, 0] and shown[0]["status"]["capacity"] == {GPU: "2"}
    assert shown[0]["status"]["allocatable"]["cpu"] == "4" and gpu_claims.read_device_class(shown) == "gpu.nvidia.com"
    assert gpu_claims.read_device_class(shown[1:]) is None


@pytest.mark.parametrize(
    "client",
    [
        cluster(DeviceClass=[], ResourceSlice=SLICES),
        cluster(DeviceClass=[CLASS]),
        cluster(served=False, DeviceClass=[CLASS], ResourceSlice=SLICES),
        cluster(error=InputError("kind", "is not served")),
        cluster(error=KubeError("x", "refused", status=403)),
    ],
)
def test_without_a_class_or_slices_that_can_be_read_nodes_are_as_they_were(client: t.Any) -> None:
    nodes = [node("a")]
    assert gpu_claims.show_offered(client, nodes) == nodes


def test_another_error_of_the_api_server_is_not_taken_for_no_gpus() -> None:
    with pytest.raises(KubeError):
        gpu_claims.show_offered(cluster(error=KubeError("x", "refused", status=500)), [node("a")])


def test_where_a_kubelet_offers_gpus_nothing_is_asked() -> None:
    nodes = [node("a"), node("b", "8")]
    assert gpu_claims.show_offered(cluster(error=AssertionError("asked")), nodes) == nodes


def test_the_newest_generation_of_a_pool_counts_and_drivers_of_others_do_not() -> None:
    slices = [part("a", device(), device()), part("a", device(), generation=2), part("a", device(), driver="nic.x")]
    assert gpu_claims.count_devices(slices) == {"a": 1}


def test_a_class_is_nvidias_or_the_one_that_stands_for_its_resource() -> None:
    other: t.Any = {"metadata": {"name": "fast"}, "spec": {"extendedResourceName": GPU}}
    assert gpu_claims.find_class([other, CLASS]) is CLASS and gpu_claims.find_class([other]) is other
    assert gpu_claims.find_class([{"metadata": {"name": "nic"}, "spec": {}}]) is None  # type: ignore[typeddict-item]


def test_a_pod_is_shown_with_what_it_holds() -> None:
    held = {"devices": {"results": [{"driver": "gpu.nvidia.com"}, {"driver": "nic.x"}]}}
    claims = [
        {"metadata": {}, "status": {"allocation": held, "reservedFor": [{"uid": "u"}]}},
        {"metadata": {}, "status": {"reservedFor": [{"uid": "v"}]}},
        {"metadata": {}},
    ]
    client = cluster(DeviceClass=[CLASS], ResourceSlice=SLICES, ResourceClaim=claims)
    container = {"name": "c", "resources": {"requests": {"cpu": "1"}}}
    pods: t.Any = [
        {"metadata": {"name": uid, "uid": uid}, "spec": {"containers": [container]}} for uid in ("u", "v", "w")
    ]
    shown = gpu_claims.show_held(client, gpu_claims.show_offered(client, [node("a")]), pods)
    assert [gpu_requests(pod) for pod in shown] == [1, 0, 0]
    assert shown[0]["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "1", GPU: "1"}
    assert gpu_claims.show_held(client, [node("a")], pods) == pods
