# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which programs offer the HCAs of which nodes, by their images, their owners and who installed them."""

from __future__ import annotations

import types
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.rdma_stack_plan import RdmaOwner
from ansible_collections.muster.training.plugins.plugin_utils._kube.nodes import rdma_owners

SHARED = "ghcr.io/mellanox/k8s-rdma-shared-dev-plugin:v1.5.3"
OWN = {"muster.training/stack": "rdma"}
POLICY = "mellanox.com/v1alpha1/NicClusterPolicy"
CHART = "helm.cattle.io/v1/HelmChart"


def daemon_set(name: str, image: str = SHARED, space: str = "kube-system", **meta: t.Any) -> t.Any:
    spec = {"selector": {"matchLabels": {"app": name}}, "template": {"spec": {"containers": [{"image": image}]}}}
    return {"kind": "DaemonSet", "metadata": {"name": name, "namespace": space, "uid": name, **meta}, "spec": spec}


def pod(owner: str, node: str) -> t.Any:
    return {"metadata": {"ownerReferences": [{"uid": owner}]}, "spec": {"nodeName": node}}


def make_client(**kinds: list[t.Any]) -> t.Any:
    """Return a client whose API serves the kinds that are given; pods are chosen by their owner."""

    def read(kind: str, *_words: t.Any, labels: str = "", **_how: t.Any) -> t.Any:
        items = kinds.get(kind, [])
        if kind == "v1/Pod":
            owner = labels.partition("=")[2]
            items = [item for item in items if item["metadata"]["ownerReferences"][0]["uid"] == owner]
        return types.SimpleNamespace(items=items)

    served = {kind.rpartition("/")[0] for kind in kinds}
    return types.SimpleNamespace(list=read, catalog=types.SimpleNamespace(serves=lambda version: version in served))


@pytest.mark.parametrize(
    ("image", "kind"),
    [
        (SHARED, "shared"),
        ("nvcr.io/nvidia/mellanox/k8s-rdma-shared-dev-plugin@sha256:00", "shared"),
        ("registry:5000/rdma-shared-dp:1", "shared"),
        ("ghcr.io/k8snetworkplumbingwg/sriov-network-device-plugin:v3.11.0", "sriov"),
        ("602401143452.dkr.ecr.us-west-2.amazonaws.com/eks/aws-efa-k8s-device-plugin:v0.5.3", "efa"),
        ("nvcr.io/nvidia/k8s-device-plugin:v0.17.4", None),
        ("ghcr.io/mellanox/network-operator:1", None),
    ],
)
def test_a_program_is_known_by_its_image(image: str, kind: str | None) -> None:
    assert rdma_owners.find_kind(daemon_set("x", image)) == kind


def test_owners_have_the_nodes_of_their_pods() -> None:
    mine = [daemon_set("muster-rdma-ib-1", labels=OWN), daemon_set("muster-rdma-ib-2", labels=OWN)]
    theirs = daemon_set("theirs", ownerReferences=[{"uid": "policy"}])
    policy = {"kind": "NicClusterPolicy", "metadata": {"name": "nic-cluster-policy", "uid": "policy"}}
    pods = [pod("muster-rdma-ib-1", "a"), pod("muster-rdma-ib-2", "b"), pod("theirs", "c"), pod("gone", "d")]
    client = make_client(**{"v1/Pod": pods, POLICY: [policy]})
    assert rdma_owners.read_owners(client, [*mine, theirs, daemon_set("other", "busybox")]) == (
        # However many configurations the role has: one owner.
        RdmaOwner("the role rdma_stack", "shared", frozenset("ab"), own=True),
        RdmaOwner("NicClusterPolicy nic-cluster-policy", "shared", frozenset("c")),
    )
    assert rdma_owners.list_foreign(client) == ("NicClusterPolicy nic-cluster-policy",)
    assert rdma_owners.list_policies(client) == []


def test_what_the_roles_chart_runs_is_the_roles() -> None:
    chart = {
        "kind": "HelmChart",
        "metadata": {"name": "network-operator", "namespace": "kube-system", "labels": OWN},
        "spec": {"targetNamespace": "network-operator"},
    }
    policy = {"metadata": {"name": "nic-cluster-policy", "uid": "p", "labels": OWN}}
    client = make_client(**{CHART: [chart], POLICY: [policy], "v1/Pod": [pod("sriov-device-plugin", "a")]})
    plugin = daemon_set("sriov-device-plugin", "x/sriov-network-device-plugin:1", "network-operator")
    (owner,) = rdma_owners.read_owners(client, [plugin])
    assert (owner.kind, owner.own, owner.nodes) == ("sriov", True, {"a"})
    assert rdma_owners.list_foreign(client) == ()
    assert rdma_owners.list_policies(client) == [{"kind": POLICY, "name": "nic-cluster-policy"}]
    foreign = make_client(**{CHART: [{**chart, "metadata": {"name": "network-operator", "namespace": "kube-system"}}]})
    assert rdma_owners.list_foreign(foreign) == ("HelmChart kube-system/network-operator",)
