# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pods that would not get GPUs or HCAs: one line with the node or the option, the fact, and what to do.

What concerns machines is in ``test_bad_input_devices``; the list of all kinds is at the end.
"""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model import gpu_proof, rdma_stack_plan
from ansible_collections.muster.training.plugins.module_utils._model.gpu_proof import ProvedNode, SeenDevices
from ansible_collections.muster.training.plugins.module_utils._model.job import parse_job
from ansible_collections.muster.training.plugins.module_utils._model.rdma_resources import read_machine
from ansible_collections.muster.training.plugins.module_utils._model.rdma_stack_plan import (
    RdmaCluster,
    RdmaNode,
    RdmaStackOptions,
)
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.kubernetes import (
    plan as kubernetes_plan,
)
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.kubernetes.cluster_facts import (
    ClusterFacts,
)
from ansible_collections.muster.training.tests.support.rdma_machines import describe, port
from ansible_collections.muster.training.tests.unit.bad_input import test_bad_input_devices as machines

ROCE = [port("mlx5_0", netdev="eth1")]
CHARTS = {"has_helm_charts": True}


def stack(*nodes: RdmaNode, options: dict[str, t.Any] | None = None, **cluster: t.Any) -> rdma_stack_plan.RdmaStackPlan:
    return rdma_stack_plan.plan_rdma_stack(RdmaCluster(nodes, **cluster), RdmaStackOptions(**options or {}))


def refused(*nodes: RdmaNode, options: dict[str, t.Any] | None = None, **cluster: t.Any) -> list[str]:
    """Return the refusals of a plan that installs nothing."""
    plan = stack(*nodes, options=options, **cluster)
    assert plan.action == "refuse" and plan.labels == {}
    return [f"{item.problem}. {item.fix}" for item in plan.refusals]


def machine(name: str, ports: t.Sequence[t.Any] = ROCE, **more: t.Any) -> RdmaNode:
    facts = {key: more.pop(key) for key in ("modules", "netns_exclusive") if key in more}
    return RdmaNode(name, read_machine(describe(name, ports, **facts), name), **more)


def proved(**changes: t.Any) -> list[str]:
    """Return the findings of a pod on a node."""
    node = ProvedNode("gpu-1", **changes)
    return [f"{node.node}: {item.problem}. {item.fix}" for item in gpu_proof.judge_node(node)]


def config_with_dash() -> list[str]:
    dash = '{"configList": [{"resourceName": "rdma-a", "rdmaHcaMax": 63, "selectors": {"vendors": ["15b3"]}}]}'
    policy = {"rdmaSharedDevicePlugin": {"config": dash}}
    return refused(machine("a"), options={"provider": "network_operator", "policy": policy}, **CHARTS)


def folders_of_another() -> list[str]:
    given = {"operator": {"cniNetworkDirectory": "/etc/cni/net.d"}}
    options = {"provider": "network_operator", "operator_values": given}
    return refused(machine("a", kubelet="v1.34.1+k3s1"), options=options, **CHARTS)


def mounted_device_files() -> list[str]:
    mounts = [{"name": "hca", "path": "/hca", "host_path": "/dev/infiniband"}]
    asked: dict[str, t.Any] = {
        "name": "x",
        "nodes": 1,
        "launcher": "command",
        "command": ["true"],
        "image": "i:1",
        "mounts": mounts,
    }
    asked |= {"placement": {"backend": "kubernetes"}}
    job = parse_job(asked, {})
    problem = kubernetes_plan.decide(job, "team", ClusterFacts([], (), None, {}, [])).problem
    assert problem is not None
    return [str(problem)]


SEEN = SeenDevices(verbs=("/dev/infiniband/uverbs0",), gids=1, memlock="unlimited", complete=True)
PODS: list[tuple[str, t.Callable[[], list[str]], tuple[str, str]]] = [
    (
        "no label, so that no plugin runs",
        lambda: proved(expected=2),
        ("gpu-1: offers no nvidia.com/gpu, its facts have 2: no device plugin runs on it", "Run the role gpu_stack"),
    ),
    (
        "a pod without its device",
        lambda: proved(expected=1, capacity=1, offered=1, seen=SeenDevices(complete=True)),
        ("gpu-1: its pod got 1 GPUs and sees no device: CDI is off", "container_runtime_containerd"),
    ),
    (
        "a name of a resource with a dash",
        config_with_dash,
        ("rdma_stack_policy.rdmaSharedDevicePlugin.config: resourceName rdma-a may have letters", "or correct it"),
    ),
    (
        "modules that are not loaded",
        lambda: refused(machine("a", modules=["ib_uverbs", "rdma_cm"])),
        ("a: rdma_ucm, ib_umad not loaded", "role rdma"),
    ),
    (
        "folders of another system for Multus",
        folders_of_another,
        ("cniNetworkDirectory is /etc/cni/net.d, and the nodes have /var/lib/rancher/k3s", "Leave it out"),
    ),
    (
        "one node with a low MTU",
        lambda: list(stack(machine("a"), machine("b", [{**ROCE[0], "mtu": 1500}])).warnings),
        ("b: the MTU of its HCAs is 1500, and 9000 on others", "set rdma_mtu on all, or on none"),
    ),
    (
        "device files that are mounted",
        mounted_device_files,
        ("job.mounts: hca mounts /dev/infiniband, whose files a pod may not open", "job.resources.rdma: true"),
    ),
    (
        "no GID in the pod",
        lambda: proved(rdma="rdma/roce", hcas=1, seen=SeenDevices(verbs=SEEN.verbs, memlock="unlimited", complete=True)),
        ("gpu-1: its pod got rdma/roce and its HCAs have no GID there", "the network of the node, or one of its own"),
    ),
    (
        "a pod that may lock 8 MiB",
        lambda: proved(rdma="rdma/roce", hcas=1, seen=SeenDevices(verbs=SEEN.verbs, gids=1, memlock="8388608", complete=True)),
        ("gpu-1: its pod may lock 8388608 bytes of memory", "LimitMEMLOCK=infinity, and restart K3s"),
    ),
]  # fmt: skip


@pytest.mark.parametrize(("lines", "says"), [row[1:] for row in PODS], ids=[row[0] for row in PODS])
def test_what_keeps_devices_from_pods_is_one_line(lines: t.Callable[[], list[str]], says: tuple[str, str]) -> None:
    found = [line for line in lines() if says[0] in line]
    assert len(found) == 1 and says[1] in found[0] and "\n" not in found[0], lines()


def test_infiniband_without_ipoib_is_chosen_by_its_driver() -> None:
    (group,) = stack(machine("a", [port("mlx5_0", link_layer="infiniband")])).groups
    assert group.entry["selectors"] == {"vendors": ["15b3"], "drivers": ["mlx5_core"]}


# Each kind of bad input of GPUs and of RDMA, and the row that has it.
KINDS = {
    "a driver of a runfile and of packages": "driver of a runfile and of packages",
    "Secure Boot and dkms": "Secure Boot and dkms",
    "nouveau in use by a display": "nouveau drives a display",
    "a kernel without headers in the archive": "no headers of the running kernel",
    "P100 with open modules": "P100 with open modules",
    "module and library differ": "module and libraries of two versions",
    "a GPU on the bus that nvidia-smi does not list": "a GPU that fell off the bus",
    "toolkit 1.17.3": "a toolkit with a hole",
    "K3s started before the toolkit": "K3s started before the toolkit",
    "containerd without CDI": "containerd without CDI",
    "containerd without CDI, in a pod": "a pod without its device",
    "held packages of an older branch": "held packages of an older branch",
    "apt locked by unattended upgrades": "apt in use",
    "a full disk while dkms builds": "disk that was full while dkms built",
    "a fabric manager of another version": "fabric manager of another version",
    "no label, so that the plugin runs nowhere": "no label, so that no plugin runs",
    "a resource's name with a dash": "a name of a resource with a dash",
    "rdma_ucm not loaded": "rdma_ucm is not loaded",
    "rdma_ucm not loaded, in a cluster": "modules that are not loaded",
    "exclusive namespaces": "exclusive network namespaces",
    "a port that is INIT": "no subnet manager",
    "one port of two slower": "one port slower than the others",
    "an MTU of 1500": "a low MTU",
    "an MTU of 1500 on one node": "one node with a low MTU",
    "memlock of 8 MiB": "services may lock 8 MiB",
    "memlock of 8 MiB, in a pod": "a pod that may lock 8 MiB",
    "a storage HCA chosen by NCCL": "a storage HCA whose name begins as that of another",
    "device files mounted into a pod": "device files that are mounted",
    "a bond over both ports": "a bond over both ports",
    "a virtual function without a driver": "a virtual function without a driver",
    "K3s with another folder for Multus": "folders of another system for Multus",
    "no GID in the pod": "no GID in the pod",
}


def test_each_kind_has_its_row() -> None:
    rows = {row[0] for table in (machines.REFUSED, machines.TOLD, machines.MENDED, PODS) for row in table}
    assert [kind for kind, row in KINDS.items() if row not in rows] == []
