# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads which programs of a cluster offer the GPUs of its nodes: device plugins, the GPU operator, DRA."""

from __future__ import annotations

import re
import typing as t

from ....module_utils._model.gpu_stack_plan import GpuOwner
from ..api.client import Client
from ..api.kinds import KubeObject
from . import gpu_claims
from .gpu_claims import list_served

# Of all that this collection installs for GPUs, by which it finds it again; other stacks have other values.
STACK_LABEL, STACK_VALUE = "muster.training/stack", "gpu"
# NVIDIA's plugin, its copies, and that of Google's nodes. The same image runs feature discovery and the daemon of MPS,
# which mount no folder of the kubelet's.
_IMAGE: t.Final = re.compile(r"(?:^|/)(?:k8s|nvidia|nvidia-gpu)-device-plugin")
_FOLDERS: t.Final = ("device-plugins", "plugins_registry")
# NVIDIA's driver of DRA, under its older names, too.
_CLAIMED: t.Final = re.compile(r"dra-driver-nvidia-gpu|nvidia-dra-driver-gpu|k8s-dra-driver-gpu")
_NFD: t.Final = "node-feature-discovery"
HELM_CHART: t.Final = "helm.cattle.io/v1/HelmChart"


def read_owners(client: Client, daemon_sets: t.Sequence[KubeObject]) -> tuple[GpuOwner, ...]:
    """Return what offers GPUs in a cluster, with the nodes on which each does."""
    releases = {_name(item) for item in list_served(client, HELM_CHART) if is_own(item)}
    policies = {str(item["metadata"].get("uid")): item for item in list_served(client, "nvidia.com/v1/ClusterPolicy")}
    found: dict[str, GpuOwner] = {}
    for item in daemon_sets:
        if is_gpu_plugin(item):
            owner = next((policies[uid] for uid in list_owner_ids(item) if uid in policies), item)
            title, own = describe_object(owner), is_own(owner) or find_release(owner) in releases
            nodes = frozenset(read_pod_nodes(client, item))
            before = found.get(title, GpuOwner(title, frozenset()))
            found[title] = GpuOwner(title, before.nodes | nodes, own)
    return (*found.values(), *_read_claimed(client, releases))


def _read_claimed(client: Client, releases: t.Container[str]) -> t.Iterator[GpuOwner]:
    """Yield the class by which pods claim the GPUs of nodes (DRA)."""
    item = gpu_claims.find_class(list_served(client, gpu_claims.CLASS))
    if item is not None:
        nodes = frozenset(gpu_claims.count_devices(list_served(client, gpu_claims.SLICE)))
        own = is_own(item) or find_release(item) in releases
        yield GpuOwner(describe_object({"kind": "DeviceClass", **item}), nodes, own, claimed=True)


def is_gpu_plugin(daemon_set: KubeObject) -> bool:
    """Whether a DaemonSet is a device plugin for NVIDIA's GPUs: by its image, and the kubelet's folder in its pods."""
    images = _list_images(daemon_set)
    return any(_IMAGE.search(image) and not re.search("amd|rocm|intel", image) for image in images)


def is_gpu_driver(daemon_set: KubeObject) -> bool:
    """Whether a DaemonSet gives pods NVIDIA's GPUs, as a device plugin or by claims."""
    return is_gpu_plugin(daemon_set) or any(_CLAIMED.search(image) for image in _list_images(daemon_set))


def _list_images(daemon_set: KubeObject) -> list[str]:
    """Return the images of a DaemonSet whose pods register with the kubelet, none of another one."""
    spec = read_pod_template(daemon_set)
    paths = [str((item.get("hostPath") or {}).get("path") or "") for item in spec.get("volumes") or ()]
    mounted = any(path.rstrip("/").endswith(_FOLDERS) for path in paths)
    return [str(item.get("image") or "") for item in spec.get("containers") or ()] if mounted else []


def has_nfd(daemon_sets: t.Iterable[KubeObject]) -> bool:
    """Whether Node Feature Discovery runs in the cluster."""
    images = [
        str(part.get("image")) for item in daemon_sets for part in read_pod_template(item).get("containers") or ()
    ]
    return any(_NFD in image for image in images)


def read_pod_template(daemon_set: KubeObject) -> t.Mapping[str, t.Any]:
    """Return the specification of a DaemonSet's pods."""
    return ((daemon_set.get("spec") or {}).get("template") or {}).get("spec") or {}


def read_pod_nodes(client: Client, daemon_set: KubeObject) -> t.Iterator[str]:
    """Yield the nodes that have a pod of a DaemonSet."""
    matched = ((daemon_set.get("spec") or {}).get("selector") or {}).get("matchLabels") or {}
    labels = ",".join(f"{key}={value}" for key, value in sorted(matched.items()))
    uid = str(daemon_set["metadata"].get("uid"))
    for pod in client.list("v1/Pod", daemon_set["metadata"].get("namespace"), labels=labels).items:
        node = (pod.get("spec") or {}).get("nodeName")
        if node and uid in list_owner_ids(pod):
            yield str(node)


def list_owner_ids(item: KubeObject) -> set[str]:
    """Return the uids of an object's owners."""
    return {str(reference.get("uid")) for reference in item["metadata"].get("ownerReferences") or ()}


def is_own(item: KubeObject, stack: str = STACK_VALUE) -> bool:
    """Whether this collection installed an object of one of its stacks."""
    return (item["metadata"].get("labels") or {}).get(STACK_LABEL) == stack


def find_release(item: KubeObject) -> str:
    """Return the Helm release that an object is of, empty for none."""
    return str((item["metadata"].get("annotations") or {}).get("meta.helm.sh/release-name") or "")


def _name(item: KubeObject) -> str:
    return str(item["metadata"]["name"])


def describe_object(item: KubeObject) -> str:
    """Return an object in words: ``DaemonSet kube-system/name``."""
    space = item["metadata"].get("namespace")
    return f"{item.get('kind') or 'DaemonSet'} {f'{space}/' if space else ''}{_name(item)}"
