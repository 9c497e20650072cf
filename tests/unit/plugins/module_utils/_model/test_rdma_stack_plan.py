# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who offers the HCAs of a cluster, and what is installed: a configuration for equal nodes, each bad choice refused."""

from __future__ import annotations

import dataclasses
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model import rdma_stack_plan as rules
from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError
from ansible_collections.muster.training.plugins.module_utils._model.rdma_resources import HcaMachine, read_machine
from ansible_collections.muster.training.plugins.module_utils._model.rdma_stack_plan import (
    CniFolders,
    RdmaCluster,
    RdmaNode,
    RdmaOwner,
    RdmaStackOptions,
)
from ansible_collections.muster.training.tests.support.rdma_machines import describe, port

ROCE = [port("mlx5_0", netdev="eth1"), port("mlx5_1", netdev="eth2")]
IB = [port("mlx5_0", link_layer="infiniband"), port("mlx5_1", link_layer="infiniband")]
IMAGES = {name: f"r/{name}@sha256:{'a' * 64}" for name in rules.CNI_IMAGES}


def node(name: str, ports: t.Sequence[t.Any] = ROCE, rdma: dict[str, t.Any] | None = None, **more: t.Any) -> RdmaNode:
    facts = {key: more.pop(key) for key in ("modules", "netns_exclusive") if key in more}
    return RdmaNode(name, read_machine(describe(name, ports, rdma, **facts), name), **more)


def plan(*nodes: RdmaNode, options: dict[str, t.Any] | None = None, **more: t.Any) -> rules.RdmaStackPlan:
    return rules.plan_rdma_stack(RdmaCluster(nodes, **more), RdmaStackOptions(**options or {}))


def problems(*nodes: RdmaNode, **more: t.Any) -> str:
    found = plan(*nodes, **more)
    assert found.action == "refuse" and found.labels == {}
    assert all(item.fix and "\n" not in item.problem for item in found.refusals)
    return "; ".join(item.problem for item in found.refusals)


def test_equal_nodes_share_a_configuration_and_its_name_says_which() -> None:
    found = plan(node("a"), node("b"), node("c", IB), RdmaNode("cpu"))
    assert [(group.resource, group.nodes, group.link) for group in found.groups] == [
        ("rdma/ib", ("c",), "ib"),
        ("rdma/roce", ("a", "b"), "eth"),
    ]
    assert all("-" not in group.entry["resourceName"] for group in found.groups)
    # InfiniBand without IPoIB never matches a kind of link.
    assert "linkTypes" not in found.groups[0].entry["selectors"]
    assert found.action == "install" and {name: marks and marks[0] for name, marks in found.labels.items()} == {
        "a": found.groups[1].name,
        "b": found.groups[1].name,
        "c": found.groups[0].name,
    }
    changed = plan(node("a", ROCE, {"exclude": ["mlx5_1"]}), node("b"))
    assert changed.groups[0].name != changed.groups[1].name and found.groups[1].name in {
        group.name for group in changed.groups
    }


@pytest.mark.parametrize(
    ("ports", "facts", "hcas", "nccl"),
    [
        # A storage port of half the speed, the HCA that manages switches, and both halves of a Spark's cabled port.
        ([*IB, port("mlx5_2", link_layer="ethernet", netdev="eth0")], {}, ("mlx5_0", "mlx5_1"), "=mlx5_0,mlx5_1"),
        ([ROCE[0], port("mlx5_1", netdev="eth2", rate_gbps=100.0)], {}, ("mlx5_0",), "=mlx5_0"),
        ([port("rocep1s0f0", netdev="e0"), port("roceP2p1s0f0", netdev="e1")], {}, ("roceP2p1s0f0", "rocep1s0f0"), ""),
        ([ROCE[0], port("mlx5_1", netdev="eth2", state="init")], {}, ("mlx5_0",), "=mlx5_0"),
        ([port("mlx5_1", netdev="a"), port("mlx5_10", netdev="b", state="down")], {}, ("mlx5_1",), "=mlx5_1"),
    ],
)
def test_jobs_get_the_hcas_of_the_facts(ports: list[t.Any], facts: dict[str, t.Any], hcas: t.Any, nccl: str) -> None:
    marks = plan(node("a", ports, **facts)).labels["a"]
    assert marks is not None and (marks[1].hcas, marks[1].nccl_ib_hca) == (hcas, nccl)


def test_what_is_not_read_this_time_stays_and_what_has_gone_loses_its_label() -> None:
    first = plan(node("a"), node("b"))
    before = {name: marks[1] for name, marks in first.labels.items() if marks}
    again = plan(node("a"), RdmaNode("b", HcaMachine(before["b"]), is_own=True))
    assert again.groups == first.groups and again.labels == first.labels
    gone = plan(node("a"), node("b", [], is_own=True))
    assert gone.labels["b"] is None and gone.groups[0].nodes == ("a",)
    assert plan(node("a", [], is_own=True)).labels == {"a": None}
    assert plan(node("a", [])).action == "none"


def test_programs_of_others_are_bound_and_two_of_a_kind_refused() -> None:
    theirs = RdmaOwner("DaemonSet x", "shared", frozenset("ab"))
    found = plan(node("a"), node("b"), owners=(theirs,))
    assert (found.action, found.bound, found.labels) == ("bind", {"DaemonSet x": ("a", "b")}, {})
    part = plan(node("a"), node("c"), owners=(theirs,))
    assert part.groups[0].nodes == ("c",) and set(part.labels) == {"c"}
    rival = RdmaOwner("DaemonSet y", "shared", frozenset("b"))
    assert "the HCAs of b are claimed by DaemonSet x and by DaemonSet y" in problems(node("a"), owners=(theirs, rival))
    beside = dataclasses.replace(rival, kind="sriov")
    assert any("beside one of SR-IOV" in line for line in plan(node("b"), owners=(theirs, beside)).warnings)
    # Nothing accounts for what its kubelet offers: another tool's, unless it is what this role registered.
    assert plan(node("a", offered=("rdma/x",))).bound == {rules.UNKNOWN: ("a",)}
    assert plan(node("a", offered=("rdma/roce",), is_own=True)).action == "install"


def test_bad_machines_are_refused_by_name() -> None:
    assert "nothing offers the HCAs of a" in problems(node("a"), options={"provider": "bind"})
    exclusive = node("a", netns_exclusive=True)
    assert "a: RDMA devices belong to one network namespace each (exclusive)" in problems(exclusive)
    assert "a: rdma_ucm, ib_umad not loaded" in problems(node("a", modules=["ib_uverbs", "rdma_cm"]))
    refused = RdmaNode("a", read_machine({"facts": {}, "rdma": REFUSED}, "a"))
    assert problems(refused) == "a: packages are held"
    with pytest.raises(InputError, match="Use one of shared_device_plugin"):
        plan(options={"provider": "ofed"})
    for bad in ({}, {"rdma": {}}, {"facts": {}, "rdma": {}}, None):
        with pytest.raises(InputError, match="a: must have facts and rdma"):
            read_machine(bad, "a")


REFUSED = {"hcas": [], "kind": "roce", "refusals": [{"problem": "packages are held", "fix": "Unhold them"}]}


def test_bad_choices_for_an_operator_are_refused_by_name() -> None:
    whole, part = node("a"), node("b", ROCE, {"exclude": ["mlx5_1"]})
    operator: dict[str, t.Any] = {"provider": "network_operator", "operator_version": "26.1.2"}
    charts: dict[str, t.Any] = {"has_helm_charts": True}
    assert "network_operator needs HelmChart" in problems(whole, options=operator)
    assert "nodes need different configurations" in problems(whole, part, options=operator, **charts)
    newer = plan(whole, part, options={**operator, "operator_version": "26.7.0"}, **charts)
    assert newer.action == "install" and newer.node_policies
    assert not plan(whole, options=operator, **charts).node_policies
    foreign = {**charts, "foreign": ("NicClusterPolicy nic-cluster-policy",)}
    assert "would change NicClusterPolicy nic-cluster-policy" in problems(whole, options=operator, **foreign)
    dash = '{"configList": [{"resourceName": "rdma-a", "rdmaHcaMax": 63, "selectors": {"vendors": ["15b3"]}}]}'
    policy = {"rdmaSharedDevicePlugin": {"config": dash}}
    assert "resourceName rdma-a may have letters" in problems(whole, options={**operator, "policy": policy}, **charts)
    k3s = node("a", kubelet="v1.34.1+k3s1")
    folder = {"operator": {"cniNetworkDirectory": "/etc/cni/net.d"}}
    said = problems(k3s, options={**operator, "operator_values": folder}, **charts)
    assert "cniNetworkDirectory is /etc/cni/net.d, and the nodes have /var/lib/rancher/k3s/agent/etc/cni/net.d" in said


def test_virtual_functions_need_images_addresses_and_interfaces() -> None:
    options: dict[str, t.Any] = {"provider": "sriov", "images": IMAGES, "ipam": {"type": "host-local"}}
    found = plan(node("a"), options=options, has_helm_charts=True)
    assert found.groups[0].resource == "nvidia.com/rdma_roce" and found.groups[0].netdevs == ("eth1", "eth2")
    exclusive = node("b", rdma={"sharing": False}, netns_exclusive=True)
    assert plan(exclusive, options=options, has_helm_charts=True).groups[0].exclusive

    def said(*nodes: RdmaNode, **changes: t.Any) -> str:
        return problems(*nodes, options={**options, **changes}, has_helm_charts=True)

    assert "rdma_stack_images.plugins: its digest is not in" in said(
        node("a"), images={"multus-cni": IMAGES["multus-cni"]}
    )
    assert "has no GID" in said(node("a"), ipam={})
    assert "rdma_stack_vfs is 0" in said(node("a"), vfs=0)
    assert "a: an HCA of jobs has no network interface" in said(node("a", IB))


@pytest.mark.parametrize(
    ("kubelet", "programs"),
    [
        ("v1.34.1", "/opt/cni/bin"),
        ("v1.34.1+k3s1", "/var/lib/rancher/k3s/data/cni"),
        ("v1.31.2+k3s1", "/var/lib/rancher/k3s/data/cni"),
        ("v1.31.1+k3s1", "/var/lib/rancher/k3s/data/current/bin"),
        ("v1.27.16+k3s1", "/var/lib/rancher/k3s/data/current/bin"),
    ],
)
def test_networks_are_where_the_nodes_containerd_looks(kubelet: str, programs: str) -> None:
    found = rules.find_cni_folders([RdmaNode("a", kubelet=kubelet)])
    assert found.programs == programs and ("rancher" in found.networks) is ("k3s" in kubelet)
    assert rules.find_cni_folders([]) == CniFolders()


def test_what_slows_rdma_between_nodes_is_told() -> None:
    low = node("b", [port("mlx5_0", netdev="eth1", mtu=1500), port("mlx5_1", netdev="eth2")])
    assert list(plan(node("a"), low).warnings) == [
        "b: the MTU of its HCAs is 1500, and 9000 on others: set rdma_mtu on all, or on none"
    ]
    efa = [{**port("efa_0"), "vendor": "1d0f", "driver": "efa"}]
    assert any("EFA is offered by AWS' device plugin" in line for line in plan(node("a", efa)).warnings)
