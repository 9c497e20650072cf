# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The Molecule scenarios of the roles that offer devices to pods, on a real API server."""

from __future__ import annotations

import json
import pathlib
import typing as t

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._kube.api.client import Client
from ansible_collections.muster.training.tests.support.kube_api import ApiServer
from ansible_collections.muster.training.tests.support.molecule import run_step
from ansible_collections.muster.training.tests.support.rdma_machines import describe, port
from ansible_collections.muster.training.tests.support.stack_cluster import Cluster, start_server

ROCE = [port("mlx5_0", netdev="eth1"), port("mlx5_1", netdev="eth2")]
GPU = {"model": "NVIDIA H100 80GB HBM3", "count": 2, "memory_gib": 80, "arch": "hopper"}
VALUES: dict[str, dict[str, t.Any]] = {
    "gpu_stack": {"gpu_stack_records": [{"name": "gpu-1", "gpu": GPU}]},
    "rdma_stack": {
        "rdma_stack_devices": [
            {"gpu-1": describe("gpu-1", ROCE), "gpu-2": describe("gpu-2", ROCE, rdma={"exclude": ["mlx5_1"]})}
        ]
    },
}


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> t.Iterator[ApiServer]:
    with start_server(tmp_path_factory.mktemp("api")) as server:
        yield server


@pytest.mark.parametrize("role", sorted(VALUES))
def test_a_scenario(api: ApiServer, client: Client, tmp_path: pathlib.Path, role: str) -> None:
    place = tmp_path / "inventory"
    place.mkdir()
    values = {
        **VALUES[role],
        "ansible_connection": "local",
        "ansible_python_interpreter": "{{ ansible_playbook_python }}",
        "muster_kubeconfig": str(api.kubeconfig),
        "muster_state": {"path": str(tmp_path / "state")},
    }
    (place / "hosts.json").write_text(json.dumps({"ungrouped": {"hosts": {"localhost": values}}}))
    variables = {"MUSTER_MOLECULE_INVENTORY": str(place), "MUSTER_MOLECULE_KUBECONFIG": str(api.kubeconfig)}
    with Cluster(api, client, tmp_path, role) as cluster:
        bare = cluster.versions("v1/Node")
        for step in ("check", "converge", "idempotence", "verify", "cleanup"):
            run_step(role, step, tmp_path, **variables)
            if step == "check":
                assert cluster.versions("v1/Node") == bare
        assert not client.list("apps/v1/DaemonSet", "kube-system").items and cluster.labels("gpu-1") == {}
