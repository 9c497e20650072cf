# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""kube_cluster_info: what is read of nodes and classes of storage."""

from __future__ import annotations

import pathlib

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._workflows.kube_cluster_info import run as subject
from ansible_collections.muster.training.tests.support.scripted_client import scripted_client
from ansible_collections.muster.training.tests.support.scripted_http import Call, Script

NODE = {
    "metadata": {"name": "gpu-1"},
    "status": {"conditions": [{"type": "Ready", "status": "True"}], "allocatable": {"cpu": "4", "memory": "2Gi"}},
}
LOST = {"metadata": {"name": "gpu-2"}, "status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}
STORAGE = {"metadata": {"name": "local-path"}, "provisioner": "rancher.io/local-path"}


def test_nodes_and_storage_are_read_and_nothing_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    pages = [("limit", "500")]
    calls = (
        Call("GET", "/api/v1/nodes", query=pages, answer={"items": [NODE, LOST]}),
        # Whether pods may claim GPUs, which are not on the Nodes.
        *(Call("GET", path, answer={"kind": "APIGroupDiscoveryList", "items": []}) for path in ("/api", "/apis")),
        Call("GET", "/apis/storage.k8s.io/v1/storageclasses", query=pages, answer={"items": [STORAGE]}),
    )
    with Script(*calls) as script:
        monkeypatch.setattr(subject, "open_client", lambda *_args: scripted_client(script))
        found = subject.run({}, pathlib.Path())
    assert found == {
        "changed": False,
        "nodes": ["gpu-1"],
        "allocatable": {"cpu": "4000m", "memory": "2048Mi"},
        "storage": [
            {"name": "local-path", "provisioner": "rancher.io/local-path", "shared": False, "default": False},
        ],
    }
