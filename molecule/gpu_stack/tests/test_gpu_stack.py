# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A cluster whose GPUs the device plugin offers, as the role leaves it; read by Kubernetes' own client."""

from __future__ import annotations

import os
import typing as t

import kubernetes

testinfra_hosts = ["local://"]


def load() -> None:
    kubernetes.config.load_kube_config(os.environ["MUSTER_MOLECULE_KUBECONFIG"])


def test_the_plugin_is_pinned_by_its_digest_and_fails_without_a_driver(host: t.Any) -> None:
    load()
    found = kubernetes.client.AppsV1Api().read_namespaced_daemon_set("muster-nvidia-device-plugin", "kube-system")
    (container,) = found.spec.template.spec.containers
    assert "@sha256:" in container.image
    text = " ".join([*(container.args or []), *(f"{item.name}={item.value}" for item in container.env or [])])
    assert "fail-on-init-error=true" in text.lower().replace("_", "-")


def test_nodes_have_the_labels_of_their_gpus_and_others_none(host: t.Any) -> None:
    load()
    nodes = {node.metadata.name: node.metadata.labels or {} for node in kubernetes.client.CoreV1Api().list_node().items}
    assert nodes["gpu-1"]["nvidia.com/gpu.count"] == "2" and nodes["cpu-1"] == {}
