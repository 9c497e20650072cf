# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads which device plugins of a cluster offer the HCAs of its nodes."""

from __future__ import annotations

import re
import typing as t

from ....module_utils._model.rdma_stack_plan import OwnerKind, RdmaOwner
from ..api.client import Client
from ..api.kinds import KubeObject
from .gpu_claims import list_served
from .gpu_owners import (
    HELM_CHART,
    describe_object,
    is_own,
    list_owner_ids,
    read_pod_nodes,
    read_pod_template,
)

# Of all that this collection installs for RDMA, by which it finds it again.
STACK_VALUE: t.Final = "rdma"
_IMAGES: t.Final[tuple[tuple[OwnerKind, re.Pattern[str]], ...]] = (
    ("shared", re.compile(r"(?:^|/)(?:k8s-)?rdma-shared-d(?:ev-plugin|p)")),
    ("sriov", re.compile(r"(?:^|/)sriov-(?:network-)?device-plugin")),
    ("efa", re.compile(r"(?:^|/)aws-efa-k8s-device-plugin")),
)
_POLICIES: t.Final = (
    "mellanox.com/v1alpha1/NicClusterPolicy",
    "mellanox.com/v1alpha1/NicNodePolicy",
    *(f"sriovnetwork.openshift.io/v1/{kind}" for kind in ("SriovNetworkNodePolicy", "SriovNetwork", "SriovIBNetwork")),
)
_CHART: t.Final = "network-operator"


def read_owners(client: Client, daemon_sets: t.Sequence[KubeObject]) -> tuple[RdmaOwner, ...]:
    """Return what offers HCAs in a cluster, with the nodes on which each does."""
    charts = [item for item in list_served(client, HELM_CHART) if is_own(item, STACK_VALUE)]
    spaces = {(item.get("spec") or {}).get("targetNamespace") for item in charts}
    policies = {str(item["metadata"].get("uid")): item for kind in _POLICIES[:2] for item in list_served(client, kind)}
    found: dict[tuple[str, OwnerKind], RdmaOwner] = {}
    for item in daemon_sets:
        kind = find_kind(item)
        if kind is None:
            continue
        owner = next((policies[uid] for uid in list_owner_ids(item) if uid in policies), item)
        own = is_own(owner, STACK_VALUE) or item["metadata"].get("namespace") in spaces
        # What this role installed is one owner, however many configurations it has.
        title = "the role rdma_stack" if own else describe_object(owner)
        before = found.get((title, kind), RdmaOwner(title, kind, frozenset()))
        nodes = before.nodes | frozenset(read_pod_nodes(client, item))
        found[title, kind] = RdmaOwner(title, kind, nodes, own)
    return tuple(found.values())


def list_foreign(client: Client) -> tuple[str, ...]:
    """Return the network operator's objects that have the names of this role's and are of other tools."""
    named = [item for item in list_served(client, HELM_CHART) if item["metadata"]["name"] == _CHART]
    listed = [*named, *list_served(client, "mellanox.com/v1alpha1/NicClusterPolicy")]
    return tuple(describe_object(item) for item in listed if not is_own(item, STACK_VALUE))


def list_policies(client: Client) -> list[dict[str, str]]:
    """Return the operator's policies that this role has applied, as ``kube_wait`` takes them."""
    found = []
    for kind in _POLICIES:
        for item in list_served(client, kind):
            meta = item["metadata"]
            if is_own(item, STACK_VALUE):
                space = {"namespace": str(meta["namespace"])} if meta.get("namespace") else {}
                found.append({"kind": kind, "name": str(meta["name"]), **space})
    return found


def find_kind(daemon_set: KubeObject) -> OwnerKind | None:
    """Return which kind of RDMA device plugin a DaemonSet runs, by its image; None for another program."""
    images = [str(item.get("image") or "") for item in read_pod_template(daemon_set).get("containers") or ()]
    return next((kind for kind, pattern in _IMAGES if any(pattern.search(image) for image in images)), None)
