# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Members of a team against a real API server: no job goes around the queue, nothing is taken from other teams."""

from __future__ import annotations

import copy
import time
import typing as t

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._kube.api.client import Client
from ansible_collections.muster.training.plugins.plugin_utils._kube.api.connect import connect
from ansible_collections.muster.training.plugins.plugin_utils._kube.api.errors import KubeError
from ansible_collections.muster.training.plugins.plugin_utils._kube.jobs import (
    log_reader_job,
    network_test_job,
    registry,
)
from ansible_collections.muster.training.plugins.plugin_utils._kube.jobs.spec import Queue
from ansible_collections.muster.training.plugins.plugin_utils._kube.objects.apply import apply
from ansible_collections.muster.training.tests.kube_api.test_team import QUOTA, Admin, admin, changed
from ansible_collections.muster.training.tests.unit.plugins.plugin_utils._kube.jobs.plans import CLAIM, ENGINES, plan

__all__ = ["admin"]

Dict = dict[str, t.Any]
POLICY = "admissionregistration.k8s.io/v1/ValidatingAdmissionPolicy"
LABEL = "kueue.x-k8s.io/queue-name"
QUEUED = {"labels": {LABEL: "main"}}
GPU = {"limits": {"nvidia.com/gpu": "2"}}
# The kinds of the engines' jobs, which this cluster has no controllers for.
KINDS = (
    ("jobset.x-k8s.io", "v1alpha2", "JobSet"),
    ("trainer.kubeflow.org", "v1alpha1", "TrainJob"),
    ("trainer.kubeflow.org", "v1alpha1", "TrainingRuntime"),
    ("kubeflow.org", "v2beta1", "MPIJob"),
    ("ray.io", "v1", "RayJob"),
    ("batch.volcano.sh", "v1alpha1", "Job"),
)


def definition(group: str, version: str, kind: str) -> Dict:
    plural = f"{kind.lower()}s"
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"plural": plural, "singular": kind.lower(), "kind": kind},
            "versions": [{"name": version, "served": True, "storage": True, "schema": schema}],
        },
    }


def count(client: Client, team: str) -> None:
    """Do what the quota's controller would: without its count admission does not know a quota yet."""
    for quota in client.list("v1/ResourceQuota", team).items:
        hard = quota["spec"]["hard"]
        status = {"status": {"hard": hard, "used": dict.fromkeys(hard, "0")}}
        client.patch("v1/ResourceQuota", quota["metadata"]["name"], status, team, subresource="status")


@pytest.fixture(params=["", "shared"], ids=["alone", "cohort"])
def member(admin: Admin, client: Client, request: pytest.FixtureRequest) -> Client:
    """A member of a team that may borrow from others, and of one that may not."""
    apply(client, [definition(*kind) for kind in KINDS])
    team = f"queued-{request.param or 'alone'}"
    admin.play(team, team_cohort=request.param)
    count(client, team)
    return connect({"kubeconfig": str(admin.file(team))})


def job(name: str, container: Dict | None = None, meta: Dict | None = None, **pod: t.Any) -> Dict:
    spec = {"restartPolicy": "Never", "containers": [{"name": "node", "image": "x", **(container or {})}], **pod}
    meta = {"name": name, **(meta or {})}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": {"template": {"spec": spec}}}


def said(client: Client, value: Dict, *, admitted: bool = False) -> str:
    """Return what the API server says, empty when it admits this. It looks for new and gone rules every second."""
    until = time.monotonic() + 30
    while True:
        try:
            client.create(value, dry_run=True)
            answer = ""
        except KubeError as exc:
            answer = str(exc)
        if (answer == "") == admitted or time.monotonic() > until:
            return answer
        time.sleep(0.2)


def refused(client: Client, value: Dict, match: str) -> None:
    answer = said(client, value)
    assert match in answer, (value, answer)


def owned(uid: str) -> Dict:
    """Return what a controller notes on what it makes for a JobSet."""
    owner = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": "gang", "uid": uid, "controller": True}
    return {"ownerReferences": [owner]}


def test_no_job_goes_around_the_queue(member: Client, client: Client) -> None:
    beside = "a team's jobs go through its queue, set the label kueue.x-k8s.io/queue-name: main"
    limit: Dict = {"activeDeadlineSeconds": 60}
    init: Dict = {"initContainers": [{"name": "first", "image": "x", "resources": GPU}]}
    claim: Dict = {"resourceClaims": [{"name": "gpu", "resourceClaimName": "gpu"}]}
    ways = [
        job("gpu", {"resources": GPU}),
        job("plain"),
        job("empty", meta={"labels": {LABEL: ""}}, **limit, containers=[{"name": "a", "image": "x", "resources": GPU}]),
        job("limited", {"resources": GPU}, **limit),
        job("init", **limit, **init),
        job("claim", **limit, **claim),
    ]
    ways += [
        {"apiVersion": f"{group}/{version}", "kind": kind, "metadata": {"name": "raw"}, "spec": {}}
        for group, version, kind in KINDS
        if kind not in ("TrainingRuntime", "Job")
    ]
    for value in ways:
        refused(member, value, beside)
    refused(member, {**job("volcano", meta=QUEUED), "apiVersion": "batch.volcano.sh/v1alpha1"}, "forbidden")
    # Kueue would take these for parts of the queued job that owns them.
    made = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": "gang", **QUEUED}}
    gang = member.create({**made, "spec": {}})
    part = owned(gang["metadata"]["uid"])
    refused(member, job("forged", {"resources": GPU}, {**QUEUED, **part}), "belongs to a controller")
    client.create(job("gang-node-0", {"resources": GPU}, {**part, "namespace": member.namespace}))
    with pytest.raises(KubeError, match="belongs to a controller"):
        member.patch("batch/v1/Job", "gang-node-0", {"spec": {"parallelism": 64}}, member.namespace)
    with pytest.raises(KubeError, match=beside):
        member.patch("jobset.x-k8s.io/v1alpha2/JobSet", "gang", {"metadata": {"labels": {LABEL: None}}})


def test_the_collections_own_pods_are_admitted(member: Client, client: Client) -> None:
    """Jobs of all engines in the queue; the probe and the reader beside it, as far as their quota reaches."""
    refused(member, job("known"), "go through its queue")
    for engine, changes in ENGINES.items():
        if engine != "volcano":
            *_around, main = registry.build(plan({"queue": Queue("main")}, gpus_per_node=2, **changes))
            main["metadata"]["namespace"] = member.namespace
            assert member.create(main, dry_run=True)["metadata"]["labels"][LABEL] == "main", engine
    of_gang = pod(member, registry.build(plan({"queue": Queue("main")}, gpus_per_node=2)), "gang")
    assert client.create(of_gang)
    shared: Dict = {"mounts": [CLAIM], "checkpoints": {"path": "/data/x"}}
    for objects in (network_test_job.build(plan()), log_reader_job.build(plan(**shared)) or []):
        main = copy.deepcopy(objects[-1])
        main["metadata"]["namespace"] = member.namespace
        assert member.create(main)
        name = main["metadata"]["name"]
        assert client.create(pod(member, objects, name))
    full = {"status": {"used": {"pods": "500", "requests.cpu": "4", "requests.memory": "1Gi"}}}
    client.patch("v1/ResourceQuota", "muster-team-unqueued", full, member.namespace, subresource="status")
    refused(client, pod(member, network_test_job.build(plan()), "one-more"), "exceeded quota: muster-team-unqueued")
    of_gang["metadata"]["name"] = "after"
    of_gang["spec"]["containers"][0].pop("resources")
    assert client.create(of_gang), "pods of queued jobs are not counted there"


def pod(member: Client, objects: list[Dict], name: str) -> Dict:
    """Return a pod as a controller would make it from the job at the end of the list."""
    spec = objects[-1]["spec"]
    spec = spec["replicatedJobs"][0]["template"]["spec"] if "replicatedJobs" in spec else spec
    template = copy.deepcopy(spec["template"])
    meta = {**template.get("metadata", {}), "name": name, "namespace": member.namespace}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": template["spec"]}


def test_nothing_is_taken_from_other_teams(member: Client, client: Client) -> None:
    """No address of theirs, and no priority before which their gangs would have to go."""
    service: Dict = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}}
    spec: Dict = {"selector": {"a": "b"}, "ports": [{"port": 443}]}
    taken = {"externalIPs": ["192.0.2.1"]}
    refused(member, {**service, "spec": {**spec, **taken}}, "takes no addresses of others, leave out externalIPs")
    member.create({**service, "spec": spec})
    with pytest.raises(KubeError, match="takes no addresses"):
        member.patch("v1/Service", "s", {"spec": taken}, member.namespace)
    for name in ("system-node-critical", "system-cluster-critical"):
        urgent = pod(member, [job("j", priorityClassName=name)], "urgent")
        refused(client, urgent, "take no priority of the cluster's own")


def test_further_subjects_are_held_too_and_administrators_are_not(admin: Admin, client: Client) -> None:
    alike = {"kind": "ServiceAccount", "name": "member", "namespace": "subjects-b"}
    admin.play("subjects-a", team_subjects=[alike])
    admin.play("subjects-b")
    other = connect({"kubeconfig": str(admin.file("subjects-b"))})
    value = job("beside", meta={"namespace": "subjects-a"})
    refused(other, value, "go through its queue")
    assert client.create(value)


def test_the_rules_come_and_go_with_the_team(admin: Admin, client: Client) -> None:
    """A second run changes nothing; without a queue its rules go; with the team all go."""

    def policies() -> set[str]:
        found = client.list(POLICY, None).items + client.list(f"{POLICY}Binding", None).items
        return {item["metadata"]["name"] for item in found if item["metadata"]["name"].startswith("muster-team-rules.")}

    always = {f"muster-team-rules.{name}" for name in ("secrets", "services", "priorities")}
    admin.play("rules", team_cohort="shared")
    assert policies() == {*always, "muster-team-rules.queue"}
    assert changed(admin.play("rules", team_cohort="shared")) == 0
    admin.play("rules", team_queueing=False)
    assert policies() == always
    assert [item["metadata"]["name"] for item in client.list("v1/ResourceQuota", "rules").items] == ["muster-team"]
    rights = t.cast(Dict, client.get("rbac.authorization.k8s.io/v1/Role", "muster-member", "rules"))["rules"]
    assert any(rule["apiGroups"] == ["batch.volcano.sh"] for rule in rights)
    alone = connect({"kubeconfig": str(admin.file("rules"))})
    assert said(alone, job("held-by-the-quota", {"resources": GPU}), admitted=True) == ""
    admin.play("rules", team_state="absent", team_quota=QUOTA)
    assert policies() == set()


def test_settings_that_could_not_work_are_refused(admin: Admin) -> None:
    everybody = [{"kind": "Group", "name": "system:authenticated"}]
    assert "own controllers members" in admin.play("all", code=2, team_subjects=everybody)
    assert "must be one of: baseline, privileged" in admin.play("strict", code=2, team_pod_security="restricted")
