# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nodes that exist in the API alone (kwok): for scheduling at a size that no single machine has."""

from __future__ import annotations

import json
import os
import pathlib
import typing as t

from ..host import LabError
from . import manifests, plan
from .cluster import Cluster
from .stages import until

LABEL = "type=kwok"
TAINT = {"key": "kwok.x-k8s.io/node", "value": "fake", "effect": "NoSchedule"}
GPU = "nvidia.com/gpu"
_NODES = "/api/v1/nodes"
_READY_S = 120
# The pods of a Job end well after a set time, or after what an annotation of theirs says ("30s").
DELAY = "pod-complete.stage.kwok.x-k8s.io/delay"
_STAGES = ("node/fast", "node/heartbeat-with-lease", "pod/fast")
_FROM = {"expressionFrom": f'.metadata.annotations["{DELAY}"]'}


def node(index: int, gpus: int) -> dict[str, t.Any]:
    """Return one Node with GPUs as an extended resource; only pods that tolerate its taint go there."""
    name = f"kwok-{index:03d}"
    capacity = {"cpu": "64", "memory": "512Gi", "pods": "110", GPU: str(gpus)}
    labels = {
        "type": "kwok",
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels, "annotations": {"kwok.x-k8s.io/node": "fake"}},
        "spec": {"taints": [TAINT]},
        "status": {"capacity": capacity, "allocatable": capacity},
    }


def add(cluster: Cluster, count: int = 100, gpus: int = 8, pod_s: float = 1.0) -> None:
    """Have ``count`` simulated nodes, all Ready; those that are there already stay.

    :param pod_s: how long the pods of a Job take; a kwok that runs already keeps to what it was told.
    :raises LabError: when they do not become Ready.
    """
    folder = cluster.binaries.get("kwok").parent
    stages = folder / pathlib.PurePath(plan.KWOK_STAGES).name
    new = stages.with_suffix(f".{os.getpid()}")
    new.write_bytes(_stages(cluster, pod_s).read_bytes())
    new.rename(stages)
    cluster.machines.ask(cluster.up_record.control, "systemctl", "start", "lab-kwok.service")
    api = cluster.api
    for index in range(count):
        status, answer = api.ask("POST", _NODES, node(index, gpus))
        if status not in (201, 409):
            raise LabError(f"the API server refused a simulated node: {answer}")
    wanted = {f"kwok-{index:03d}" for index in range(count)}

    def lacking() -> set[str]:
        return wanted - {name for name, ready in api.nodes().items() if ready}

    if not until(lambda: not lacking(), _READY_S):
        raise LabError(f"{len(lacking())} of {count} simulated nodes are not Ready: journalctl -u lab-kwok on control")


def _stages(cluster: Cluster, pod_s: float) -> pathlib.Path:
    """Return what kwok does with nodes and pods: its own fast stages, with a duration for the pods of Jobs."""
    delay = {"durationMilliseconds": int(1000 * pod_s), "durationFrom": _FROM}
    patch = [{"op": "add", "path": "/spec/delay", "value": delay}]
    content = {"patches": [{"target": {"kind": "Stage", "name": "pod-complete"}, "patch": json.dumps(patch)}]}
    folders = [f"kustomize/stage/{name}" for name in _STAGES]
    kubectl = [str(cluster.binaries.get("labk8s")), "kubectl"]
    return manifests.kustomized(cluster.podman.home, kubectl, "kwok", folders, content)


def remove(cluster: Cluster) -> None:
    """Delete the simulated nodes with their pods, and stop kwok."""
    names = [name for name in cluster.api.nodes() if name.startswith("kwok-")]
    if names:
        cluster.kubectl("delete", "node", "--selector", LABEL, "--wait=false")
        until(lambda: not any(name in cluster.api.nodes() for name in names), _READY_S)
    cluster.machines.ask(cluster.up_record.control, "systemctl", "stop", "lab-kwok.service")
