# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a cluster cannot run is refused before anything is made, in one line that names the option."""

from __future__ import annotations

import dataclasses
import types
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError, RefusedError
from ansible_collections.muster.training.plugins.plugin_utils._kube.api.errors import KubeError
from ansible_collections.muster.training.plugins.plugin_utils._kube.jobs.spec import KubeObject, Queue
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.kubernetes import (
    plan as kubernetes_plan,
)
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.kubernetes.plan import Facts
from ansible_collections.muster.training.tests.unit.plugins.plugin_utils._kube.jobs.plans import CLAIM, plan


def node(name: str, gpus: int = 8, taint: str = "") -> KubeObject:
    spec: KubeObject = {"taints": [{"key": taint, "effect": "NoSchedule"}]} if taint else {}
    status = {"conditions": [{"type": "Ready", "status": "True"}], "allocatable": {"nvidia.com/gpu": str(gpus)}}
    return {"metadata": {"name": name, "labels": {}}, "spec": spec, "status": status}


def facts(*nodes: KubeObject, **changes: t.Any) -> Facts:
    values: dict[str, t.Any] = {"queues": ("main",), "queue": Queue("main"), "claims": {}, "policies": []}
    return Facts(**{"nodes": list(nodes) or None, **values, **changes})


SMALL = {"resources": {"cpu": 1, "memory": "1Gi"}}
CASES: list[tuple[dict[str, t.Any], Facts, str]] = [
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
    ({"resources": {"rdma": True}}, facts(), r"job\.resources\.rdma: nodes may not be read here"),
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
def test_what_a_cluster_cannot_run_is_refused(job: dict[str, t.Any], seen: Facts, words: str) -> None:
    with pytest.raises(RefusedError, match=words) as caught:
        kubernetes_plan.judge(plan(**job).job, seen, "team")
    assert "\n\n" not in str(caught.value)


def test_what_cannot_be_read_is_left_to_the_cluster() -> None:
    wanted = plan(gpus_per_node=8, mounts=[CLAIM]).job
    unseen = facts(claims=None)
    kubernetes_plan.judge(wanted, unseen, "team")
    assert unseen.warnings == ["nodes cannot be read with this kubeconfig: the scheduler will judge"]


def test_queue_and_priority_of_volcano_are_its_own_to_judge() -> None:
    asked = {"engine": "volcano", "queue": "research", "priority": "high"}
    seen = facts(node("a"), queues=(), queue=None)
    kubernetes_plan.judge(plan(placement=asked, **SMALL).job, seen, "team")


def test_two_pods_of_a_job_on_one_node_are_fine_where_each_has_room() -> None:
    kubernetes_plan.judge(plan(gpus_per_node=1).job, facts(node("a")), "team")


class Served:
    """A cluster that serves some kinds; ``forbidden`` are those that may not be listed."""

    def __init__(self, *kinds: str, forbidden: str = "") -> None:
        self.forbidden = forbidden
        self.kinds = [tuple(kind.rsplit("/", 1)) for kind in kinds]
        self.catalog = self

    def entries(self) -> list[t.Any]:
        found = [
            types.SimpleNamespace(api_version=version, group=version.split("/")[0]) for version, _kind in self.kinds
        ]
        return [types.SimpleNamespace(resource=item) for item in found]

    def find(self, api_version: str, kind: str) -> None:
        if (api_version, kind) not in self.kinds:
            raise InputError(kind, "the API server does not serve this kind")

    def list(self, kind: str, _namespace: str | None) -> t.Any:
        if kind.endswith(self.forbidden):
            raise KubeError(kind, "forbidden", status=403)
        return types.SimpleNamespace(items=[])

    def get(self, _kind: str, name: str, _namespace: str | None = None) -> KubeObject | None:
        return {"data": {"a": "", "b": ""}} if name == "there" else None


QUEUES = "kueue.x-k8s.io/v1beta2/LocalQueue"


def test_who_may_not_list_queues_may_submit_to_one() -> None:
    """Asked for by its name; without one the gang would go around the queue, and that is said."""
    client: t.Any = Served(QUEUES, forbidden="LocalQueue")
    job = plan(placement={"queue": "main"}, **SMALL).job
    seen = kubernetes_plan.look(client, job, "team")
    kubernetes_plan.judge(job, dataclasses.replace(seen, nodes=None), "team")
    assert seen.queue == Queue("main")
    assert any("queues cannot be read" in line for line in kubernetes_plan.look(client, plan().job, "team").warnings)
    assert not any(
        "queues" in line for line in kubernetes_plan.look(t.cast(t.Any, Served("x/v1/Y")), plan().job, "team").warnings
    )


def test_a_kueue_that_is_too_old_is_named_where_a_queue_is_asked_for() -> None:
    client: t.Any = Served("kueue.x-k8s.io/v1beta1/LocalQueue")
    with pytest.raises(RefusedError, match=r"Kueue serves kueue.x-k8s.io/v1beta1, and .*v1beta2 is needed"):
        kubernetes_plan.look(client, plan(placement={"queue": "main"}, **SMALL).job, "team")
    assert kubernetes_plan.look(client, plan().job, "team").queue is None


def test_an_engine_whose_operator_is_missing_is_refused_with_the_way_without_it() -> None:
    client: t.Any = Served("batch.volcano.sh/v1alpha1/Job")
    with pytest.raises(RefusedError, match=r"jobset needs JobSet 0.10 or newer.* set placement.engine: indexed_job"):
        kubernetes_plan.insist_engine(client, plan().job)
    with pytest.raises(RefusedError, match=r"rayjob needs KubeRay.* Install it$"):
        kubernetes_plan.insist_engine(client, plan(launcher="ray").job)
    for engine in ("indexed_job", "volcano"):
        kubernetes_plan.insist_engine(client, plan(placement={"engine": engine}).job)


@pytest.mark.parametrize(
    ("ref", "words"),
    [
        ({"path": "gone"}, "'X': there is no Secret gone in the namespace team"),
        ({"path": "there", "key": "c"}, r"the Secret there has no key c \(it has a, b\)"),
        ({"path": "there", "as": "registry"}, "has no key .dockerconfigjson"),
        ({"path": "there", "key": "a"}, ""),
    ],
)
def test_a_secret_that_is_not_there_is_refused(ref: dict[str, str], words: str) -> None:
    job = plan(secret_refs=[{"name": "X", "from": "kubernetes", **ref}]).job
    seen = dataclasses.replace(kubernetes_plan.look(t.cast(t.Any, Served()), job, "team"), nodes=None)
    if not words:
        kubernetes_plan.judge(job, seen, "team")
        return
    with pytest.raises(RefusedError, match=words):
        kubernetes_plan.judge(job, seen, "team")
