# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a cluster offers to jobs as a whole: the resources of its nodes, and the storage that they can share.

Pure: rules on objects that were read.
"""

from __future__ import annotations

import collections
import dataclasses
import decimal
import typing as t
from collections.abc import Mapping, Sequence

from ....module_utils._model.quantity import parse_quantity
from ..api.kinds import KubeObject

_DEFAULT = "storageclass.kubernetes.io/is-default-class"
# Not for jobs, or counted by kubelet on its own account.
_NOT_FOR_JOBS = ("pods", "ephemeral-storage", "hugepages-1Gi", "hugepages-2Mi")
_GPU: t.Final = "nvidia.com/gpu"
# The taint of a node that is cordoned.
_UNSCHEDULABLE: t.Final = "node.kubernetes.io/unschedulable"
# Provisioners whose volumes many nodes can write at once: by their whole name, or by the end of one that has a prefix
# of the installation. Sources: the projects' own documentation of access modes.
_SHARED: t.Final = (
    "nfs.csi.k8s.io",
    "k8s-sigs.io/nfs-subdir-external-provisioner",
    "cephfs.csi.ceph.com",
    "efs.csi.aws.com",
    "fsx.csi.aws.com",
    "file.csi.azure.com",
    "filestore.csi.storage.gke.io",
    "lustre.csi.storage.gke.io",
    "csi.juicefs.com",
    "csi.weka.io",
    "csi.vastdata.com",
    "beegfs.csi.netapp.com",
    "csi.seaweedfs.com",
    "driver.longhorn.io",
)


@dataclasses.dataclass(frozen=True, slots=True)
class Storage:
    """A StorageClass: ``shared`` where all nodes can write one of its volumes."""

    name: str
    provisioner: str
    shared: bool
    default: bool


def sum_allocatable(nodes: Sequence[KubeObject]) -> dict[str, str]:
    """Return what pods can request of all nodes together, as quantities: processors, memory, devices.

    Nodes that take no pods (cordoned, not ready, or with a taint against all pods) are left out.
    """
    total: dict[str, decimal.Decimal] = collections.defaultdict(decimal.Decimal)
    for node in filter(takes_pods, nodes):
        for name, text in (node.get("status") or {}).get("allocatable", {}).items():
            total[name] += parse_quantity(str(text)) or 0
    return {
        name: _format(name, amount)
        for name, amount in sorted(total.items())
        if amount > 0 and name not in _NOT_FOR_JOBS and not name.startswith("attachable-volumes")
    }


def takes_pods(node: KubeObject) -> bool:
    """Return whether pods without tolerations can be scheduled to a node."""
    spec, conditions = node.get("spec") or {}, (node.get("status") or {}).get("conditions") or []
    ready = any(item["type"] == "Ready" and item["status"] == "True" for item in conditions)
    closed = any(item.get("effect") in ("NoSchedule", "NoExecute") for item in spec.get("taints") or [])
    return ready and not closed and not spec.get("unschedulable")


def takes_jobs(node: KubeObject, cordoned: bool = False) -> bool:
    """Return whether pods of jobs may come to a node: it is ready and has no taint but that of GPU nodes.

    :param cordoned: whether it may be cordoned.
    """
    spec, conditions = node.get("spec") or {}, (node.get("status") or {}).get("conditions") or []
    ready = any(item["type"] == "Ready" and item["status"] == "True" for item in conditions)
    closed = [item for item in spec.get("taints") or [] if item.get("effect") in ("NoSchedule", "NoExecute")]
    allowed = (_GPU, _UNSCHEDULABLE) if cordoned else (_GPU,)
    return ready and (cordoned or not spec.get("unschedulable")) and all(item.get("key") in allowed for item in closed)


def describe_sick_gpus(node: KubeObject) -> str:
    """Return how many GPUs of a node its device plugin has found unhealthy, empty where none is.

    Where none is offered at all, the plugin may not run, which says nothing of the GPUs.
    """
    status = node.get("status") or {}
    counts = [str((status.get(key) or {}).get(_GPU) or "") for key in ("allocatable", "capacity")]
    offered, known = (int(text) if text.isdecimal() else 0 for text in counts)
    return f"its device plugin has {known - offered} of {known} GPUs as unhealthy" if 0 < offered < known else ""


def read_storage(classes: Sequence[KubeObject]) -> list[Storage]:
    """Return the cluster's storage, the class to prefer first: shared before default before name."""
    found = [
        Storage(item["metadata"]["name"], str(item["provisioner"]), is_shared(str(item["provisioner"])), _default(item))
        for item in t.cast("Sequence[t.Any]", classes)
    ]
    return sorted(found, key=lambda item: (not item.shared, not item.default, item.name))


def is_shared(provisioner: str) -> bool:
    """Return whether all nodes can write a volume of this provisioner at once."""
    return any(provisioner == name or provisioner.endswith(f".{name}") for name in _SHARED)


def _default(item: Mapping[str, t.Any]) -> bool:
    return str((item["metadata"].get("annotations") or {}).get(_DEFAULT)) == "true"


def _format(name: str, amount: decimal.Decimal) -> str:
    if name == "cpu":
        return f"{int(amount * 1000)}m"
    return f"{int(amount) >> 20}Mi" if name == "memory" else str(int(amount))
