# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The pod of every engine: its container, devices, volumes, secrets and placement."""

from __future__ import annotations

import json
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import RefusedError
from ansible_collections.muster.training.plugins.plugin_utils._kube.jobs import (
    log_reader_job,
    network_test_job,
)
from ansible_collections.muster.training.plugins.plugin_utils._kube.jobs import spec as jobs_spec
from ansible_collections.muster.training.plugins.plugin_utils._kube.jobs.spec import EligibleNodes, Queue
from ansible_collections.muster.training.tests.support.kube_schemas import problems
from ansible_collections.muster.training.tests.unit.plugins.plugin_utils._kube.jobs.plans import (
    ENGINES,
    ISLAND,
    RICH,
    RICH_PLAN,
    RUN_ID,
    build,
    plan,
    pod_of,
    templates,
    variants,
)


@pytest.mark.parametrize("engine", ENGINES)
def test_every_pod_is_what_training_needs_and_no_more(engine: str) -> None:
    for template in templates(variants(engine)[0]):
        spec, main = template["spec"], template["spec"]["containers"][0]
        assert spec["automountServiceAccountToken"] is False
        assert main["securityContext"] == {"allowPrivilegeEscalation": False}
        assert not {"hostNetwork", "hostPID", "hostIPC"} & set(spec)
        assert main["name"] == jobs_spec.CONTAINER
        if template["metadata"]["labels"][jobs_spec.ROLE_LABEL] == "submitter":
            continue
        assert spec["terminationGracePeriodSeconds"] > 30 and spec["restartPolicy"] == "Never"
        assert {item.get("tolerationSeconds") for item in spec["tolerations"]} == {60}
        assert main["terminationMessagePolicy"] == "FallbackToLogsOnError"
        shm = next(item for item in spec["volumes"] if item["name"] == "muster-shm")
        assert shm["emptyDir"] == {"medium": "Memory", "sizeLimit": "1Gi"}


@pytest.mark.parametrize("engine", ENGINES)
def test_what_only_rdma_and_whole_nodes_need_is_there_for_them_alone(engine: str) -> None:
    _, rich, host = variants(engine)[:3]
    ranks = [
        item for item in templates(rich) if item["spec"]["containers"][0]["resources"].get("limits", {}).get("rdma/hca")
    ]
    assert len(ranks) == 1
    spec, main = ranks[0]["spec"], ranks[0]["spec"]["containers"][0]
    assert main["securityContext"]["capabilities"] == {"add": ["IPC_LOCK"]}
    amounts = {"cpu": "500m", "memory": "3Gi", "nvidia.com/gpu": "2", "rdma/hca": "1"}
    assert main["resources"] == {"requests": amounts, "limits": amounts}
    terms = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert terms == [{"matchExpressions": [ISLAND]}]
    apart = spec["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    # What takes no devices, such as mpirun or Ray's head, may lie beside what takes all of a node.
    role = ranks[0]["metadata"]["labels"][jobs_spec.ROLE_LABEL]
    assert apart[0]["labelSelector"]["matchLabels"] == {jobs_spec.RUN_LABEL: RUN_ID, jobs_spec.ROLE_LABEL: role}
    for item in templates(rich):
        terms = item["spec"].get("affinity", {}).get("podAntiAffinity", {})
        for term in terms.get("requiredDuringSchedulingIgnoredDuringExecution", []):
            wanted = term["labelSelector"]["matchLabels"]
            assert wanted[jobs_spec.ROLE_LABEL] == item["metadata"]["labels"][jobs_spec.ROLE_LABEL]
    assert spec["terminationGracePeriodSeconds"] >= 90 and spec["imagePullSecrets"] == [{"name": "run-pull"}]
    shared = [item["spec"] for item in templates(host) if "muster-run" in json.dumps(item)]
    assert all(item["hostNetwork"] and item["dnsPolicy"] == "ClusterFirstWithHostNet" for item in shared)


def test_on_the_nodes_own_network_no_two_pods_of_a_job_share_a_node() -> None:
    """Their ports would be the same; in the pod network each has its own."""
    for engine in ("jobset", "indexed_job", "trainjob", "mpijob", "rayjob", "volcano"):
        changes = {**ENGINES[engine], "gpus_per_node": 1}
        for mode, apart in (("host", True), ("pod", False)):
            changes["placement"] = {**changes.get("placement", {}), "network_mode": mode, "share_machines": True}
            made = [item["spec"] for item in templates(build({"fleet": EligibleNodes()}, **changes))]
            shares = [item for item in made if item.get("hostNetwork")]
            assert bool(shares) is apart, engine
            assert all("podAntiAffinity" in item["affinity"] for item in shares), engine
            if engine == "rayjob":
                rules = [item["affinity"]["podAntiAffinity"] for item in shares]
                told = [rule["requiredDuringSchedulingIgnoredDuringExecution"][0] for rule in rules]
                labels = [term["labelSelector"]["matchLabels"] for term in told]
                assert not any(jobs_spec.ROLE_LABEL in item for item in labels), "the head's ports are the workers'"
            assert apart or not any("podAntiAffinity" in item.get("affinity", {}) for item in made), engine


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("more", "apart"), [({}, True), ({"share": True}, False), ({"nodes": 1}, False)])
def test_each_pod_of_a_gang_is_on_a_machine_of_its_own(engine: str, more: dict[str, t.Any], apart: bool) -> None:
    """A gang of N nodes is N machines, unless the job shares them; so is its network test."""
    changes = {**ENGINES[engine], "nodes": more.get("nodes", 2)}
    changes["placement"] = {**changes.get("placement", {}), "share_machines": more.get("share", False)}
    made = [
        item for item in templates(build({"fleet": EligibleNodes()}, **changes)) if "muster-run" in json.dumps(item)
    ]
    for item in made:
        rules = item["spec"].get("affinity", {}).get("podAntiAffinity", {})
        labels = {**item["metadata"]["labels"]}
        told = [
            (term["topologyKey"], term["labelSelector"]["matchLabels"])
            for term in rules.get("requiredDuringSchedulingIgnoredDuringExecution", [])
        ]
        own = {key: labels[key] for key in (jobs_spec.RUN_LABEL, jobs_spec.ROLE_LABEL)}
        assert told == ([("kubernetes.io/hostname", own)] if apart else [])


def test_a_cluster_without_rdma_refuses_a_job_that_asks_for_it() -> None:
    with pytest.raises(RefusedError, match="job.resources.rdma: the nodes of the cluster have no RDMA resource"):
        build(gpus_per_node=1, resources={"rdma": True})
    without = build({"fleet": EligibleNodes(rdma_resource="rdma/hca")}, resources={"rdma": False})[-1]
    assert "rdma/hca" not in json.dumps(without) and "IPC_LOCK" not in json.dumps(without)


def test_a_queue_gets_its_labels_where_kueue_looks_for_them() -> None:
    for engine in ("jobset", "indexed_job", "trainjob", "mpijob", "rayjob"):
        changes = {**ENGINES[engine], "gpus_per_node": 1}
        changes["placement"] = {**changes.get("placement", {}), "priority": "high"}
        objects = build({"queue": Queue("gpus", topology=True)}, **changes)
        labels = objects[-1]["metadata"]["labels"]
        assert labels["kueue.x-k8s.io/queue-name"] == "gpus" and labels["kueue.x-k8s.io/priority-class"] == "high"
        made = [item for item in templates(objects) if item["metadata"]["labels"][jobs_spec.ROLE_LABEL] != "submitter"]
        unconstrained = {"kueue.x-k8s.io/podset-unconstrained-topology": "true"}
        assert all(item["metadata"]["annotations"] == unconstrained for item in made)
        assert "priorityClassName" not in json.dumps(objects)
    alone = build(placement={"priority": "high"})
    assert pod_of(alone[-1])["priorityClassName"] == "high" and "kueue" not in json.dumps(alone)
    inside = {"queue": Queue("q", topology=True, island_level="muster.training/island")}
    required = {"kueue.x-k8s.io/podset-required-topology": "muster.training/island"}
    assert next(templates(build(inside)))["metadata"]["annotations"] == required
    assert "podset" not in json.dumps(build({"queue": Queue("q")}))


def test_secrets_are_files_that_only_the_pod_knows_the_values_of() -> None:
    objects = build(RICH_PLAN, **RICH)
    pod = pod_of(objects[-1])
    volume = next(item for item in pod["volumes"] if item["name"] == "muster-secrets")
    assert volume["projected"]["sources"] == [
        {"secret": {"name": "run-secrets", "items": [{"key": "TOKEN", "path": "TOKEN"}]}},
        {"secret": {"name": "theirs", "items": [{"key": "k", "path": "KEY"}]}},
    ]
    assert {item["name"] for item in pod["containers"][0]["env"]}.isdisjoint({"TOKEN", "KEY", "PULL"})
    told = json.loads(objects[0]["data"]["node.json"])
    assert [item["name"] for item in told["secrets"]] == ["TOKEN", "KEY"]
    with pytest.raises(RefusedError, match="no Secret holds 'TOKEN'"):
        build(secret_refs=[{"name": "TOKEN", "from": "env"}])


def test_checkpoints_lie_on_their_mount_or_in_the_pod() -> None:
    kept = build(RICH_PLAN, **RICH)
    told = json.loads(kept[0]["data"]["node.json"])
    assert told["checkpoint_dir"] == f"/data/run/{RUN_ID}" and told["keep_logs"] == f"/data/run/.muster/{RUN_ID}/logs"
    assert "muster-checkpoints" not in json.dumps(kept)
    pod = pod_of(build(checkpoints={"path": "/ckpt"})[-1])
    assert {"name": "muster-checkpoints", "mountPath": "/ckpt"} in pod["containers"][0]["volumeMounts"]
    alone = json.loads(build()[0]["data"]["node.json"])
    assert alone["checkpoint_dir"] == "/muster/run/checkpoints" and alone["keep_logs"] is None


def test_pods_beside_the_queue_go_where_it_sends_the_job() -> None:
    """Nobody admits the probe and the reader: on nodes of their own taint they would wait for ever, or run elsewhere."""
    taint = {"key": "dedicated", "operator": "Exists"}
    queue = Queue("q", tolerations=(taint,), node_labels={"pool": "gpu"})
    shared = {"mounts": [{"name": "s", "path": "/ckpt", "pvc": "c"}], "checkpoints": {"path": "/ckpt/x"}}
    for made in (
        network_test_job.build(plan({"queue": queue})),
        log_reader_job.build(plan({"queue": queue}, **shared)) or [],
    ):
        assert [problem for item in made for problem in problems(item)] == []
        pod = made[-1]["spec"]["template"]["spec"]
        assert taint in pod["tolerations"] and pod["nodeSelector"] == {"pool": "gpu"}
        assert pod["activeDeadlineSeconds"] == made[-1]["spec"]["activeDeadlineSeconds"], "under their own quota"
        assert any(item.get("tolerationSeconds") for item in pod["tolerations"]), "its own are kept"
    several = network_test_job.build(plan({"queue": Queue("q", tolerations=(taint,))}))[-1]["spec"]["template"]["spec"]
    assert taint in several["tolerations"] and "nodeSelector" not in several
    assert taint not in pod_of(build({"queue": queue})[-1])["tolerations"], "that is the queue's to say"


def test_a_pod_is_attached_to_the_networks_of_its_rdma_resource() -> None:
    fleet = EligibleNodes(rdma_resource="nvidia.com/rdma_roce", rdma_networks=("team/a", "team/b"))
    for spec in templates(build({"fleet": fleet}, resources={"rdma": True})):
        limits = spec["spec"]["containers"][0]["resources"].get("limits", {})
        if limits.get("nvidia.com/rdma_roce"):
            # One device for each network.
            assert limits["nvidia.com/rdma_roce"] == "2"
            assert spec["metadata"]["annotations"]["k8s.v1.cni.cncf.io/networks"] == "team/a,team/b"
    own = json.dumps(build({"fleet": fleet}, placement={"network_mode": "host"}))
    assert "k8s.v1.cni.cncf.io" not in own
    assert "k8s.v1.cni.cncf.io" not in json.dumps(build({"fleet": fleet}, resources={"rdma": False}))
