# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is read of a cluster before a plan is made, and what a queue's flavors say of its nodes."""

from __future__ import annotations

import dataclasses
import types
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError, RefusedError
from ansible_collections.muster.training.plugins.module_utils._model.job import Job
from ansible_collections.muster.training.plugins.module_utils._model.rdma_resources import (
    FACTS,
    NETWORK_RESOURCE,
    HcaFacts,
    needs_node_network,
)
from ansible_collections.muster.training.plugins.plugin_utils._kube.api.errors import KubeError
from ansible_collections.muster.training.plugins.plugin_utils._kube.api.kinds import KubeObject
from ansible_collections.muster.training.plugins.plugin_utils._kube.jobs.spec import Queue
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.kubernetes import cluster_facts
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.kubernetes import (
    plan as kubernetes_plan,
)
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.kubernetes.cluster_facts import (
    ClusterFacts,
)
from ansible_collections.muster.training.tests.support.kube_lab import queue_objects
from ansible_collections.muster.training.tests.unit.plugins.plugin_utils._kube.jobs.plans import plan

SMALL = {"resources": {"cpu": 1, "memory": "1Gi"}}


def require(job: Job, seen: ClusterFacts) -> None:
    problem = kubernetes_plan.decide(job, "team", seen).problem
    if problem:
        raise problem


class Served:
    """A cluster that serves some kinds; ``forbidden`` are those that may not be listed."""

    def __init__(self, *kinds: str, forbidden: str = "") -> None:
        self.forbidden = forbidden
        self.kinds = [tuple(kind.rsplit("/", 1)) for kind in kinds]
        self.catalog = self

    def serves(self, api_version: str) -> bool:
        return any(version == api_version for version, _kind in self.kinds)

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
    seen = cluster_facts.read_cluster_facts(client, job, "team")
    require(job, dataclasses.replace(seen, nodes=None))
    assert seen.queue == Queue("main")
    assert any(
        "queues cannot be read" in line
        for line in cluster_facts.read_cluster_facts(client, plan().job, "team").warnings
    )
    assert not any(
        "queues" in line
        for line in cluster_facts.read_cluster_facts(t.cast(t.Any, Served("x/v1/Y")), plan().job, "team").warnings
    )


def test_a_kueue_that_is_too_old_is_named_where_a_queue_is_asked_for() -> None:
    client: t.Any = Served("kueue.x-k8s.io/v1beta1/LocalQueue")
    with pytest.raises(RefusedError, match=r"Kueue serves kueue.x-k8s.io/v1beta1, and .*v1beta2 is needed"):
        cluster_facts.read_cluster_facts(client, plan(placement={"queue": "main"}, **SMALL).job, "team")
    assert cluster_facts.read_cluster_facts(client, plan().job, "team").queue is None


def test_an_engine_whose_operator_is_missing_is_refused_with_the_way_without_it() -> None:
    client: t.Any = Served("batch.volcano.sh/v1alpha1/Job")
    with pytest.raises(RefusedError, match=r"jobset needs JobSet 0.10 or newer.* set placement.engine: indexed_job"):
        cluster_facts.require_engine(client, plan().job)
    with pytest.raises(RefusedError, match=r"rayjob needs KubeRay.* Install it$"):
        cluster_facts.require_engine(client, plan(launcher="ray").job)
    for engine in ("indexed_job", "volcano"):
        cluster_facts.require_engine(client, plan(placement={"engine": engine}).job)


@pytest.mark.parametrize(
    ("ref", "words"),
    [
        ({"path": "gone"}, "'X': Secret gone does not exist in the namespace team"),
        ({"path": "there", "key": "c"}, r"the Secret there has no key c \(it has a, b\)"),
        ({"path": "there", "as": "registry"}, "has no key .dockerconfigjson"),
        ({"path": "there", "key": "a"}, ""),
    ],
)
def test_a_secret_that_is_not_there_is_refused(ref: dict[str, str], words: str) -> None:
    job = plan(secret_refs=[{"name": "X", "from": "kubernetes", **ref}]).job
    seen = dataclasses.replace(cluster_facts.read_cluster_facts(t.cast(t.Any, Served()), job, "team"), nodes=None)
    if not words:
        require(job, seen)
        return
    with pytest.raises(RefusedError, match=words):
        require(job, seen)


LOCAL = {"metadata": {"name": "main"}, "spec": {"clusterQueue": "team"}}
TAINT = {"key": "kwok.x-k8s.io/node", "operator": "Exists"}


def queue(*objects: dict[str, t.Any]) -> t.Any:
    kept = {(item["apiVersion"].split("/")[0], item["kind"], item["metadata"]["name"]): item for item in objects}

    def get(kind: str, name: str) -> t.Any:
        return kept.get((kind.split("/")[0], kind.rpartition("/")[2], name))

    return cluster_facts._read_queue(t.cast(t.Any, types.SimpleNamespace(get=get)), LOCAL)


def test_the_only_flavor_says_which_nodes() -> None:
    found = queue(*queue_objects("team", {"cpu": "1"}, topology=False, simulated=True))
    assert (found.tolerations, found.node_labels, found.topology) == ((TAINT,), {"type": "kwok"}, False)
    found = queue(*queue_objects("team", {"cpu": "1"}, topology=True, simulated=True))
    assert (found.tolerations, found.node_labels, found.topology) == ((TAINT,), {"type": "kwok"}, True)
    assert found.island_level is None


def test_several_flavors_name_no_node_and_all_tolerations() -> None:
    objects = queue_objects("team", {"cpu": "1"}, topology=False, simulated=True)
    (outer,) = (item for item in objects if item["kind"] == "ClusterQueue")
    outer["spec"]["resourceGroups"][0]["flavors"].append({"name": "other", "resources": []})
    bear = {"key": "spot", "operator": "Exists"}
    other = {**objects[-3], "metadata": {"name": "other"}, "spec": {"nodeLabels": {"x": "y"}, "tolerations": [bear]}}
    assert other["kind"] == "ResourceFlavor"
    found = queue(*objects, other)
    assert (found.tolerations, found.node_labels) == ((TAINT, bear), {})


def rdma_node(resource: str) -> KubeObject:
    offered = {"nvidia.com/gpu": "8", **({resource: "1k"} if resource else {})}
    status = {"conditions": [{"type": "Ready", "status": "True"}], "allocatable": offered}
    return {"metadata": {"name": resource or "plain", "labels": {}}, "spec": {}, "status": status}


@pytest.mark.parametrize(
    ("resource", "level", "forbidden", "mode", "why"),
    [
        ("", "", False, "pod", "the job gets no RDMA device"),
        ("nvidia.com/rdma/sriov_a", "", False, "pod", "nvidia.com/rdma/sriov_a is moved into the pod"),
        ("rdma/ib", "", False, "pod", "rdma/ib needs no network of the node"),
        ("rdma/roce", "", False, "host", "rdma/roce is shared and belongs to the nodes' network"),
        ("rdma/roce", "restricted", False, "pod", "the namespace enforces restricted"),
        (
            "rdma/rdma_shared_device_a",
            "",
            False,
            "host",
            "rdma/rdma_shared_device_a is shared and belongs to the nodes'",
        ),
        ("rdma/rdma_shared_device_a", "privileged", False, "host", "rdma/rdma_shared_device_a is shared"),
        ("rdma/rdma_shared_device_a", "baseline", False, "pod", "the namespace enforces baseline"),
        ("rdma/rdma_shared_device_a", "", True, "pod", "the namespace cannot be read"),
    ],
)
def test_the_network_auto_is_what_the_devices_need(
    resource: str, level: str, forbidden: bool, mode: str, why: str
) -> None:
    labels = {"pod-security.kubernetes.io/enforce": level} if level else {}

    def get(kind: str, name: str) -> KubeObject:
        assert (kind, name) == ("v1/Namespace", "team") and needs_node_network(resource)
        if forbidden:
            raise KubeError(kind, "forbidden", status=403)
        return {"metadata": {"name": name, "labels": labels}}

    client: t.Any = types.SimpleNamespace(get=get)
    job = plan(gpus_per_node=8).job
    enforced = cluster_facts.read_security_level(client, "team") if needs_node_network(resource) else None
    decision = kubernetes_plan.decide(
        job, "team", ClusterFacts([rdma_node(resource)], (), None, {}, [], enforced=enforced)
    )
    assert decision.job.placement.network_mode == mode
    assert len(decision.notes) == 1
    assert decision.notes[0].startswith(f"placement.network_mode: auto is {mode}: {why}")


def test_a_namespace_is_read_only_where_the_network_depends_on_it() -> None:
    class Cluster(Served):
        asked: t.ClassVar[list[str]] = []
        resource = "rdma/rdma_shared_device_a"

        def list(self, kind: str, _namespace: str | None) -> t.Any:
            return types.SimpleNamespace(items=[rdma_node(self.resource)] if kind == "v1/Node" else [])

        def get(self, kind: str, name: str, _namespace: str | None = None) -> KubeObject | None:
            self.asked.append(f"{kind}/{name}")
            return {"metadata": {"name": name, "labels": {"pod-security.kubernetes.io/enforce": "baseline"}}}

    cluster: t.Any = Cluster()
    assert cluster_facts.read_cluster_facts(cluster, plan().job, "team").enforced == "baseline"
    assert cluster.asked == ["v1/Namespace/team"]
    assert (
        cluster_facts.read_cluster_facts(cluster, plan(placement={"network_mode": "pod"}).job, "team").enforced is None
    )
    cluster.resource = "rdma/hca"
    assert cluster_facts.read_cluster_facts(cluster, plan().job, "team").enforced is None
    assert cluster.asked == ["v1/Namespace/team"]


def test_a_named_network_is_not_decided_on() -> None:
    decision = kubernetes_plan.decide(
        plan(placement={"network_mode": "host"}).job, "team", ClusterFacts(None, (), None, {}, [])
    )
    assert decision.job.placement.network_mode == "host" and decision.notes == ()


def test_a_job_is_attached_to_the_networks_that_take_its_resource() -> None:
    """A device of a network moves into the pod, one for each network; the nodes' own network is not needed."""
    resource = "nvidia.com/rdma_roce"

    class Cluster(Served):
        def list(self, kind: str, _namespace: str | None) -> t.Any:
            items: dict[str, list[t.Any]] = {"v1/Node": [rdma_node(resource)], NETWORK_KIND: NETWORK_OBJECTS}
            return types.SimpleNamespace(items=items.get(kind, []))

    cluster: t.Any = Cluster(NETWORK_KIND)
    job = plan(gpus_per_node=8, resources={"rdma": resource}).job
    facts = cluster_facts.read_cluster_facts(cluster, job, "team")
    assert facts.networks == {resource: ("team/a", "team/b"), "x.y/z": ("team/other",)} and facts.enforced is None
    decision = kubernetes_plan.decide(job, "team", facts)
    target = decision.placement.target
    assert (target.rdma_resource, target.rdma_networks) == (resource, ("team/a", "team/b"))
    assert decision.job.placement.network_mode == "pod"
    # A cluster without Multus has no networks.
    none: t.Any = Cluster()
    assert cluster_facts.read_cluster_facts(none, job, "team").networks == {}


def test_nodes_of_whose_hcas_pods_get_a_part_have_their_names() -> None:
    """Without a verdict on the network, too; not where the device is moved into the pod under a name of its own."""
    facts = HcaFacts("roce", {"resourceName": "roce"}, ("mlx5_0",), ("eth1",), "=mlx5_0").to_text()
    nodes = [rdma_node("rdma/roce"), rdma_node("rdma/roce")]
    for name, item in zip("ab", nodes, strict=True):
        item["metadata"] = {"name": name, "labels": {}, "annotations": {FACTS: facts} if name == "a" else {}}
    job = plan(nodes=2, gpus_per_node=8).job
    cluster = ClusterFacts(nodes, (), None, {}, [], enforced="")
    assert kubernetes_plan.decide(job, "team", cluster).network.environment == {"a": {"NCCL_IB_HCA": "=mlx5_0"}}
    attached = dataclasses.replace(cluster, networks={"rdma/roce": ("team/a",)})
    assert kubernetes_plan.decide(job, "team", attached).network.environment == {}
    plain = plan(nodes=2, gpus_per_node=8, resources={"rdma": False}).job
    assert kubernetes_plan.decide(plain, "team", cluster).network.environment == {"a": {}}


def test_device_files_of_the_host_are_no_way_to_rdma() -> None:
    """The cgroup of devices denies a pod what it did not get as a resource."""
    mounts = [{"name": "hca", "path": "/hca", "host_path": "/dev/infiniband"}]
    problem = kubernetes_plan.decide(plan(mounts=mounts).job, "team", ClusterFacts([], (), None, {}, [])).problem
    assert problem is not None and "hca mounts /dev/infiniband" in problem.message
    assert "job.resources.rdma: true" in str(problem)


NETWORK_KIND = "k8s.cni.cncf.io/v1/NetworkAttachmentDefinition"
NETWORK_OBJECTS = [
    {"metadata": {"name": name, "annotations": {NETWORK_RESOURCE: resource}}}
    for name, resource in (("b", "nvidia.com/rdma_roce"), ("a", "nvidia.com/rdma_roce"), ("other", "x.y/z"))
] + [{"metadata": {"name": "plain"}}]
