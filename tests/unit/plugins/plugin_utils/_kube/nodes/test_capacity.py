# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a cluster offers to jobs, from objects as an API server writes them."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._kube.nodes import capacity


def node(ready: str = "True", spec: dict[str, t.Any] | None = None, **allocatable: str) -> t.Any:
    conditions = [{"type": "MemoryPressure", "status": "False"}, {"type": "Ready", "status": ready}]
    return {
        "metadata": {"name": "n"},
        "spec": spec or {},
        "status": {"conditions": conditions, "allocatable": {"cpu": "2", "memory": "1048576Ki", **allocatable}},
    }


def test_resources_of_nodes_that_take_pods_are_summed() -> None:
    closed = node(spec={"taints": [{"key": "x", "effect": "NoSchedule"}]})
    cordoned, preferred = node(spec={"unschedulable": True}), {"taints": [{"key": "x", "effect": "PreferNoSchedule"}]}
    gpus = node(spec=preferred, cpu="1930m", **{"nvidia.com/gpu": "8", "pods": "110", "ephemeral-storage": "9Gi"})
    found = capacity.sum_allocatable([node(**{"nvidia.com/gpu": "0"}), gpus, closed, cordoned, node("Unknown")])
    assert found == {"cpu": "3930m", "memory": "2048Mi", "nvidia.com/gpu": "8"}


def test_devices_that_no_node_has_are_left_out() -> None:
    assert capacity.sum_allocatable([node(**{"nvidia.com/gpu": "0", "hugepages-2Mi": "4Gi"})]) == {
        "cpu": "2000m",
        "memory": "1024Mi",
    }


@pytest.mark.parametrize(
    ("provisioner", "shared"),
    [
        ("nfs.csi.k8s.io", True),
        ("rook-ceph.cephfs.csi.ceph.com", True),
        ("rook-ceph.rbd.csi.ceph.com", False),
        ("rancher.io/local-path", False),
        ("notnfs.csi.k8s.io", False),
    ],
)
def test_storage_that_many_nodes_write_is_known_by_its_provisioner(provisioner: str, shared: bool) -> None:
    assert capacity.is_shared(provisioner) is shared


def test_shared_storage_is_preferred_then_the_default() -> None:
    def storage_class(name: str, provisioner: str, default: str = "false") -> t.Any:
        marks = {"storageclass.kubernetes.io/is-default-class": default}
        return {"metadata": {"name": name, "annotations": marks}, "provisioner": provisioner}

    found = capacity.read_storage(
        [
            storage_class("block", "ebs.csi.aws.com"),
            storage_class("local-path", "rancher.io/local-path", "true"),
            storage_class("nfs", "nfs.csi.k8s.io"),
        ]
    )
    assert [(item.name, item.shared, item.default) for item in found] == [
        ("nfs", True, False),
        ("local-path", False, True),
        ("block", False, False),
    ]


@pytest.mark.parametrize(
    ("spec", "ready", "takes"),
    [
        ({}, "True", True),
        ({}, "False", False),
        ({"unschedulable": True}, "True", False),
        ({"taints": [{"key": "nvidia.com/gpu", "effect": "NoSchedule"}]}, "True", True),
        ({"taints": [{"key": "other", "effect": "NoSchedule"}]}, "True", False),
        ({"taints": [{"key": "other", "effect": "PreferNoSchedule"}]}, "True", True),
    ],
)
def test_nodes_that_take_pods_of_jobs(spec: t.Any, ready: str, takes: bool) -> None:
    node: t.Any = {"spec": spec, "status": {"conditions": [{"type": "Ready", "status": ready}]}}
    assert capacity.takes_jobs(node) is takes
