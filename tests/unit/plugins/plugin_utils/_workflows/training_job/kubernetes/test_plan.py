# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a cluster cannot run is refused before anything is made, in one line that names the option."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import RefusedError
from ansible_collections.muster.training.plugins.module_utils._model.job import Job
from ansible_collections.muster.training.plugins.plugin_utils._kube.api.kinds import KubeObject
from ansible_collections.muster.training.plugins.plugin_utils._kube.jobs.spec import Queue
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.kubernetes import (
    plan as kubernetes_plan,
)
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.kubernetes.cluster_facts import (
    ClusterFacts,
)
from ansible_collections.muster.training.tests.unit.plugins.plugin_utils._kube.jobs.plans import CLAIM, plan


def node(name: str, gpus: int = 8, taint: str = "") -> KubeObject:
    spec: KubeObject = {"taints": [{"key": taint, "effect": "NoSchedule"}]} if taint else {}
    status = {"conditions": [{"type": "Ready", "status": "True"}], "allocatable": {"nvidia.com/gpu": str(gpus)}}
    return {"metadata": {"name": name, "labels": {}}, "spec": spec, "status": status}


def require(job: Job, seen: ClusterFacts) -> None:
    problem = kubernetes_plan.decide(job, "team", seen).problem
    if problem:
        raise problem


def facts(*nodes: KubeObject, **changes: t.Any) -> ClusterFacts:
    values: dict[str, t.Any] = {"queues": ("main",), "queue": Queue("main"), "claims": {}, "policies": []}
    return ClusterFacts(**{"nodes": list(nodes) or None, **values, **changes})


SMALL = {"resources": {"cpu": 1, "memory": "1Gi"}}
CASES: list[tuple[dict[str, t.Any], ClusterFacts, str]] = [
    (
        {"placement": {"queue": "other"}, **SMALL},
        facts(node("a"), node("b")),
        r"job\.placement\.queue: no LocalQueue other",
    ),
    (
        {"placement": {"priority": "high"}, **SMALL},
        facts(node("a"), node("b"), queue=None),
        r"job\.placement\.priority: needs a LocalQueue",
    ),
    (
        {"placement": {"priority": "high"}, **SMALL},
        facts(node("a"), node("b"), priorities=("low",)),
        r"no WorkloadPriorityClass high \(there are: low\)",
    ),
    (SMALL, facts(node("a"), queues=("a", "b"), queue=None), r"the namespace team has several LocalQueues \(a, b\)"),
    ({"placement": {"network_mode": "host"}, "gpus_per_node": 1}, facts(node("a")), r"1 of 1 nodes fit, 2 are needed"),
    ({"gpus_per_node": 8}, facts(node("a")), r"1 of 1 nodes fit, 2 are needed"),
    ({"gpus_per_node": 1}, facts(node("a", taint="node.kubernetes.io/disk-pressure")), r"taint node\.kubernetes"),
    ({"resources": {"rdma": True}}, facts(), r"job\.resources\.rdma: nodes cannot be read with this kubeconfig"),
    ({"mounts": [CLAIM]}, facts(node("a"), node("b")), r"PersistentVolumeClaim claim does not exist in"),
    (
        {"gpus_per_node": 8},
        facts(node("a"), node("b"), queue=Queue("main", node_labels={"pool": "rented"})),
        r"0 of 2 nodes fit, .* \(not of the queue's flavor \(pool=rented\)\)",
    ),
    (
        {"gpus_per_node": 8},
        facts(node("a"), node("b"), queue=Queue("main", topology=True, island_level="muster.training/island")),
        r"no island has room for 2 pods \(no node has an island label\)",
    ),
]


@pytest.mark.parametrize(("job", "seen", "words"), CASES, ids=[words[:40] for *_unused, words in CASES])
def test_what_a_cluster_cannot_run_is_refused(job: dict[str, t.Any], seen: ClusterFacts, words: str) -> None:
    with pytest.raises(RefusedError, match=words) as caught:
        require(plan(**job).job, seen)
    assert "\n\n" not in str(caught.value)


def test_what_cannot_be_read_is_left_to_the_cluster() -> None:
    wanted = plan(gpus_per_node=8, mounts=[CLAIM]).job
    unseen = facts(claims=None)
    require(wanted, unseen)
    assert unseen.warnings == ["nodes cannot be read with this kubeconfig: the scheduler alone decides where pods run"]


@pytest.mark.parametrize(
    ("placement", "seen", "named"),
    [
        ({"island": "rack-1", "priority": "high"}, facts(), ["placement.island: rack-1", "placement.priority: high"]),
        ({"island": "rack-1"}, facts(node("a")), []),
        ({"priority": "high"}, facts(priorities=("high",)), []),
        ({"priority": "high", "engine": "volcano"}, facts(), []),
    ],
)
def test_names_that_cannot_be_looked_up_are_told(
    placement: dict[str, str], seen: ClusterFacts, named: list[str]
) -> None:
    told = kubernetes_plan.name_unseen(plan(placement=placement, **SMALL).job, seen)
    assert [line.partition(" could")[0] for line in told] == [f"job.{name}" for name in named]


def test_queue_and_priority_of_volcano_are_its_own_to_judge() -> None:
    asked = {"engine": "volcano", "queue": "research", "priority": "high"}
    seen = facts(node("a"), node("b"), queues=(), queue=None)
    require(plan(placement=asked, **SMALL).job, seen)


def test_two_pods_of_a_job_are_on_one_node_where_the_job_says_so() -> None:
    require(plan(gpus_per_node=1, placement={"share_machines": True}).job, facts(node("a")))
    words = r"1 of 1 nodes fit, 2 are needed: a \(fits\)\. .* or set job\.placement\.share_machines: true"
    with pytest.raises(RefusedError, match=words):
        require(plan(gpus_per_node=1).job, facts(node("a")))


@pytest.mark.parametrize(
    ("job", "refused"),
    [
        ({"gpus_per_node": 4}, "a has room for 2 pods of the job"),
        ({"gpus_per_node": 5}, None),
        ({"resources": {"cpu": 0.3}}, "a has room for 13 pods of the job"),
        ({"resources": {"cpu": 2.1}}, None),
        ({"resources": {"memory": "1Gi"}}, "a has room for 16 pods of the job"),
        ({}, "a has room for any number of pods of the job"),
        ({"resources": {"cpu": 0.3}, "placement": {"share_machines": True}}, None),
        ({"resources": {"cpu": 0.3}, "nodes": 1}, None),
    ],
)
def test_a_queue_with_a_topology_gets_no_gang_that_it_could_pack(job: dict[str, t.Any], refused: str | None) -> None:
    """Kueue fills a machine before it takes the next one, whatever its pods ask of each other."""
    pair = [node("a"), node("b")]
    for item in pair:
        item["status"]["allocatable"] |= {"cpu": "4", "memory": "16Gi"}
    seen = facts(*pair, queue=Queue("main", topology=True))
    if refused is None:
        require(plan(**job).job, seen)
        return
    with pytest.raises(RefusedError, match=refused):
        require(plan(**job).job, seen)
    require(plan(**job).job, facts(*pair, queue=Queue("main")))


def test_gpus_that_pods_claim_go_to_no_queue_with_a_topology() -> None:
    """Kueue places there by what pods request, and sees no claims."""
    pair = [node("a"), node("b")]
    for item in pair:
        item["metadata"].setdefault("annotations", {})["muster.training/device-class"] = "gpu.nvidia.com"
    wanted = plan(gpus_per_node=8).job
    decided = kubernetes_plan.decide(wanted, "team", facts(*pair))
    assert decided.problem is None and decided.placement.target.device_class == "gpu.nvidia.com"
    assert kubernetes_plan.decide(plan().job, "team", facts(*pair)).placement.target.device_class is None
    with pytest.raises(
        RefusedError, match=r"main places pods by topology, and Kueue counts no GPUs there that pods claim"
    ):
        require(wanted, facts(*pair, queue=Queue("main", topology=True)))
