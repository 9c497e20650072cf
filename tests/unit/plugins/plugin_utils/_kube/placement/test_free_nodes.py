# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which nodes a gang could start again on."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._kube.api.kinds import KubeObject
from ansible_collections.muster.training.plugins.plugin_utils._kube.jobs.spec import RUN_LABEL
from ansible_collections.muster.training.plugins.plugin_utils._kube.placement import free_nodes
from ansible_collections.muster.training.tests.unit.plugins.plugin_utils._kube.jobs.plans import plan


def node(name: str, ready: str = "True", **more: t.Any) -> KubeObject:
    has = {"nvidia.com/gpu": "8", "cpu": "64", "memory": "256Gi"}
    status = {"conditions": [{"type": "Ready", "status": ready}], "allocatable": has}
    return {"metadata": {"name": name}, "spec": more, "status": status}


def pod(on: str, run: str | None = None, phase: str = "Running", **requests: str) -> KubeObject:
    labels = {RUN_LABEL: run} if run else {}
    asked = {key.replace("gpu", "nvidia.com/gpu"): value for key, value in requests.items()}
    spec = {"nodeName": on, "containers": [{"resources": {"requests": asked}}, {}]}
    return {"metadata": {"name": f"pod-{on}", "labels": labels}, "spec": spec, "status": {"phase": phase}}


@pytest.mark.parametrize(
    ("job", "pods", "reason"),
    [
        ({"gpus_per_node": 8}, [], ""),
        ({"gpus_per_node": 8}, [pod("a", "other", gpu="8")], "taken by run other (nvidia.com/gpu)"),
        ({"gpus_per_node": 4}, [pod("a", "other", gpu="4")], ""),
        # What the run itself still holds is its own.
        ({"gpus_per_node": 8}, [pod("a", "r", gpu="8")], ""),
        ({"gpus_per_node": 8}, [pod("a", "other", "Succeeded", gpu="8")], ""),
        ({"gpus_per_node": 8}, [pod("a", None, gpu="1")], "taken by pod-a (nvidia.com/gpu)"),
        ({"gpus_per_node": 8}, [pod("b", "other", gpu="8")], ""),
        ({"resources": {"cpu": 40}}, [pod("a", "other", cpu="32500m")], "taken by run other (cpu)"),
        ({"resources": {"memory": "200Gi"}}, [pod("a", "other", memory="64Gi")], "taken by run other (memory)"),
        # What a cluster runs beside jobs goes where there is room.
        ({"resources": {"cpu": 40}}, [pod("a", None, cpu="60")], ""),
    ],
)
def test_a_node_that_others_have_is_none(job: dict[str, t.Any], pods: list[KubeObject], reason: str) -> None:
    assert free_nodes.find_unavailable(plan(**job).job, [node("a")], pods, "r") == ({"a": reason} if reason else {})


def test_a_node_that_the_job_may_not_run_on_is_none() -> None:
    tainted = {"taints": [{"key": "pool", "value": "x", "effect": "NoSchedule"}]}
    nodes = [node("a", ready="False"), node("b", unschedulable=True), node("c", **tainted)]
    assert free_nodes.find_unavailable(plan(gpus_per_node=8).job, nodes, [], "r") == {"a": "not ready", "b": "cordoned"}
    assert free_nodes.find_unavailable(plan(gpus_per_node=16).job, [node("d")], [], "r") == {"d": "8 GPUs"}
