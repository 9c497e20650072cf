# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A cluster whose HCAs the shared device plugin offers, as the role leaves it; read by Kubernetes' own client."""

from __future__ import annotations

import json
import os
import typing as t

import kubernetes

testinfra_hosts = ["local://"]
SELECTOR = "muster.training/stack=rdma"


def load() -> None:
    kubernetes.config.load_kube_config(os.environ["MUSTER_MOLECULE_KUBECONFIG"])


def test_each_group_has_a_plugin_pinned_by_its_digest(host: t.Any) -> None:
    load()
    listed = kubernetes.client.AppsV1Api().list_namespaced_daemon_set("kube-system", label_selector=SELECTOR).items
    assert len(listed) == 2
    assert all("@sha256:" in item.spec.template.spec.containers[0].image for item in listed)


def test_the_configuration_has_the_hcas_of_jobs_alone(host: t.Any) -> None:
    load()
    listed = kubernetes.client.CoreV1Api().list_namespaced_config_map("kube-system", label_selector=SELECTOR).items
    entries = [json.loads(item.data["config.json"])["configList"][0] for item in listed]
    assert {entry["resourceName"] for entry in entries} == {"roce"}
    assert ["eth1"] in [entry["selectors"].get("ifNames") for entry in entries]
