# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""GPUs that pods claim (DRA): ResourceSlices say which ones a node has, ResourceClaims which ones pods hold.

A Node says nothing of them. They are shown on Nodes and pods that were read as a kubelet with a device plugin would
offer them, so that all other rules have one place to look at.
"""

from __future__ import annotations

import collections
import typing as t

from ....module_utils._model.errors import InputError
from ....module_utils._model.gpu_stack_plan import CLAIMED_API, DRIVER, GPU
from ..api.client import Client
from ..api.errors import KubeError
from ..api.kinds import KubeObject

CLASS, SLICE, CLAIM = (f"{CLAIMED_API}/{kind}" for kind in ("DeviceClass", "ResourceSlice", "ResourceClaim"))
# In memory alone: the class by which pods claim the GPUs that a Node is shown with.
_MARK: t.Final = "muster.training/device-class"
_CLOSED: t.Final = ("NoSchedule", "NoExecute")


def list_served(client: Client, kind: str) -> list[KubeObject]:
    """Return the objects of a kind in all namespaces; none where the API server does not serve it."""
    if not client.catalog.serves(kind.rpartition("/")[0]):
        return []
    try:
        return client.list(kind).items
    except InputError:
        return []


def list_readable(client: Client, kind: str) -> list[KubeObject]:
    """Return the objects of a kind in all namespaces; none where it is not served, or not for this user to read."""
    try:
        return list_served(client, kind)
    except KubeError as error:
        if not error.is_forbidden:
            raise
        return []


def find_class(classes: t.Iterable[KubeObject]) -> KubeObject | None:
    """Return the class by which pods claim whole GPUs: NVIDIA's, else the one that stands for their resource."""
    by_name = {str(item["metadata"]["name"]): item for item in classes}
    named = (item for item in by_name.values() if (item.get("spec") or {}).get("extendedResourceName") == GPU)
    return by_name.get(DRIVER) or next(named, None)


def count_devices(slices: t.Iterable[KubeObject], *, healthy: bool = False) -> dict[str, int]:
    """Return by node how many GPUs its driver has; with ``healthy`` without those that it keeps pods from."""
    specs = [item.get("spec") or {} for item in slices if (item.get("spec") or {}).get("driver") == DRIVER]
    newest: dict[str, int] = collections.Counter()
    for spec in specs:
        pool = spec.get("pool") or {}
        newest[str(pool.get("name"))] = max(newest[str(pool.get("name"))], int(pool.get("generation") or 0))
    counts: dict[str, int] = collections.Counter()
    for spec in specs:
        pool = spec.get("pool") or {}
        if spec.get("nodeName") and int(pool.get("generation") or 0) == newest[str(pool.get("name"))]:
            devices = [item for item in spec.get("devices") or () if _is_gpu(item)]
            counts[str(spec["nodeName"])] += sum(not healthy or not _is_closed(item) for item in devices)
    return dict(counts)


def show_offered(client: Client, nodes: t.Sequence[KubeObject]) -> list[KubeObject]:
    """Return Nodes with the GPUs that pods claim, where no kubelet offers any: a cluster has one way to get them."""
    listed = list(nodes)
    if not listed or any(_offers(node) for node in listed):
        return listed
    device_class = find_class(list_readable(client, CLASS))
    slices = list_readable(client, SLICE) if device_class else []
    if device_class is None or not slices:
        return listed
    known, offered = count_devices(slices), count_devices(slices, healthy=True)
    name = str(device_class["metadata"]["name"])
    return [_show(node, name, known, offered) for node in listed]


def read_device_class(nodes: t.Iterable[KubeObject]) -> str | None:
    """Return the class by which pods claim GPUs of Nodes as ``show_offered`` shows them, None without one."""
    marks = ((node["metadata"].get("annotations") or {}).get(_MARK) for node in nodes)
    return next((str(mark) for mark in marks if mark), None)


def show_held(client: Client, nodes: t.Sequence[KubeObject], pods: t.Sequence[KubeObject]) -> list[KubeObject]:
    """Return pods with the GPUs that they hold by claims as requests of their first containers."""
    if read_device_class(nodes) is None:
        return list(pods)
    held = count_held(list_readable(client, CLAIM))
    return [_hold(pod, held.get(str(pod["metadata"].get("uid")), 0)) for pod in pods]


def count_held(claims: t.Iterable[KubeObject]) -> dict[str, int]:
    """Return by uid of a pod how many GPUs it holds."""
    held: dict[str, int] = collections.Counter()
    for claim in claims:
        status = claim.get("status") or {}
        results = ((status.get("allocation") or {}).get("devices") or {}).get("results") or ()
        count = sum(item.get("driver") == DRIVER for item in results)
        for user in status.get("reservedFor") or ():
            held[str(user.get("uid"))] += count
    return dict(held)


def _offers(node: KubeObject) -> bool:
    return str(((node.get("status") or {}).get("allocatable") or {}).get(GPU, "0")) != "0"


def _is_gpu(device: t.Mapping[str, t.Any]) -> bool:
    """Return whether a device is a whole GPU, no part of one."""
    kind = (device.get("attributes") or {}).get("type") or {}
    return bool(kind.get("string", "gpu") == "gpu")


def _is_closed(device: t.Mapping[str, t.Any]) -> bool:
    return any(item.get("effect") in _CLOSED for item in device.get("taints") or ())


def _show(node: KubeObject, name: str, known: t.Mapping[str, int], offered: t.Mapping[str, int]) -> KubeObject:
    own = str(node["metadata"]["name"])
    if own not in known:
        return node
    status = node.get("status") or {}
    counts = {"capacity": known, "allocatable": offered}
    shown = {key: {**(status.get(key) or {}), GPU: str(by_node[own])} for key, by_node in counts.items()}
    marks = {**(node["metadata"].get("annotations") or {}), _MARK: name}
    copy = {**node, "metadata": {**node["metadata"], "annotations": marks}, "status": {**status, **shown}}
    return t.cast(KubeObject, copy)


def _hold(pod: KubeObject, count: int) -> KubeObject:
    containers = (pod.get("spec") or {}).get("containers") or []
    if not count or not containers:
        return pod
    first, *others = containers
    has = first.get("resources") or {}
    amounts = {key: {**(has.get(key) or {}), GPU: str(count)} for key in ("requests", "limits")}
    spec = {**pod["spec"], "containers": [{**first, "resources": {**has, **amounts}}, *others]}
    return t.cast(KubeObject, {**pod, "spec": spec})
