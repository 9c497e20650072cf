# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From a RunPod pod to a node record."""

from __future__ import annotations

import re
import typing as t

from ....module_utils._model.node import NodeState
from ..node_record import CONTAINER, MAX_GPUS, ProviderHost, build_record, clean_address
from ..parsing import JsonObject, as_mapping, moment, number, text, texts, whole

STATES: t.Final[dict[str, NodeState]] = {
    "PROVISIONING": "creating",
    "STARTING": "creating",
    "RUNNING": "running",
    "EXITED": "stopped",
    "ERROR": "failed",
    "TERMINATED": "gone",
}
_MAX_PORT = 65535


def gpu_memory_gib(gpu_id: str | None) -> float | None:
    """Return the memory of one GPU from an id such as ``NVIDIA H100 80GB HBM3``, None where it is not named."""
    match = re.search(r"\b(\d+)GB\b", gpu_id or "")
    return float(match.group(1)) if match else None


def direct_ssh(raw: JsonObject) -> tuple[str, int, str | None] | None:
    """Return where the pod's own SSH server answers.

    ``ssh.proxy`` is an interactive shell only (no SFTP, no SCP), which Ansible cannot use.
    """
    direct = as_mapping(as_mapping(raw.get("ssh")).get("direct"))
    host, port = text(direct.get("host")), whole(direct.get("port"))
    if host is None or not port or port > _MAX_PORT:
        return None
    return host, port, text(direct.get("username"))


def to_host(raw: JsonObject, account: str) -> ProviderHost:
    """Return the record of one pod; ``fabric_hint`` is the cluster whose members share a network."""
    member = as_mapping(raw.get("cluster"))
    cluster_id = text(member.get("id"))
    network = as_mapping(raw.get("clusterNetwork"))
    gpu, cpu = as_mapping(raw.get("gpu")), as_mapping(raw.get("cpu"))
    gpu_id = text(gpu.get("id"))
    direct = direct_ssh(raw)
    public = clean_address(direct[0]) if direct else None
    inner = clean_address(member.get("ip"))
    name = text(raw.get("name")) or str(raw["id"])
    return ProviderHost(
        id=str(raw["id"]),
        name=name,
        record=build_record(
            id=str(raw["id"]),
            name=name,
            provider="runpod",
            account=account,
            ownership="rented",
            kind="container",
            state=STATES.get(str(raw.get("status")), "unknown"),
            product=gpu_id or text(cpu.get("id")),
            region=text(raw.get("dataCenterId")),
            preemptible=False,
            user=direct[2] if direct else "root",
            lan=(inner,) if inner else (),
            public=(public,) if public else (),
            gpu=(
                gpu_id,
                whole(gpu.get("count"), MAX_GPUS) if gpu_id else 0 if cpu else None,
                gpu_memory_gib(gpu_id),
            ),
            cpu=(whole(cpu.get("vcpuCount")) or whole(cpu.get("count")), "x86_64"),
            memory_gib=number(cpu.get("memory")),
            price_usd_per_hour=number(raw.get("cost")),
            created_at=moment(raw.get("createdAt")),
            fabric_hint=cluster_id,
            k3s=(False, (CONTAINER,)),
        ),
        data={
            "runpod_id": str(raw["id"]),
            "runpod_name": text(raw.get("name")),
            "runpod_status": text(raw.get("status")),
            "runpod_actions": texts(raw.get("actions")),
            "runpod_cloud": text(raw.get("cloud")),
            "runpod_data_center": text(raw.get("dataCenterId")),
            "runpod_cuda_version": text(raw.get("cudaVersion")),
            "runpod_image": text(raw.get("image")),
            "runpod_ports": texts(raw.get("ports")),
            "runpod_cluster_id": cluster_id,
            "runpod_cluster_rank": whole(member.get("rank")),
            "runpod_cluster_cidr": text(network.get("cidr")),
            "runpod_reachable": direct is not None,
        },
        direct=direct,
    )
