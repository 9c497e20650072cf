# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every engine's objects: what an API server would refuse, what all have in common, and what each engine is for."""

from __future__ import annotations

import dataclasses
import json
import re
import typing as t

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError, RefusedError
from ansible_collections.muster.training.plugins.module_utils._model.job_backends import ENGINE_LAUNCHERS
from ansible_collections.muster.training.plugins.plugin_utils._kube.jobs import (
    log_reader_job,
    network_test_job,
    registry,
    supporting_objects,
)
from ansible_collections.muster.training.plugins.plugin_utils._kube.jobs import spec as jobs_spec
from ansible_collections.muster.training.plugins.plugin_utils._kube.jobs.spec import EligibleNodes, KubeObject, Queue
from ansible_collections.muster.training.tests.support.kube_schemas import problems
from ansible_collections.muster.training.tests.unit.plugins.plugin_utils._kube.jobs.plans import (
    CLAIM,
    ENGINES,
    RUN_ID,
    build,
    plan,
    pod_of,
)

ISLAND = {"key": "muster.training/island", "operator": "In", "values": ["a"]}
RICH: dict[str, t.Any] = {
    "gpus_per_node": 2,
    "mounts": [CLAIM, {"name": "scratch", "path": "/scratch", "host_path": "/mnt", "read_only": True}],
    "checkpoints": {"path": "/data/run", "grace_s": 90},
    "resources": {"cpu": 0.5, "memory": "3Gi", "rdma": True},
    "timeout_s": 600,
    "env": {"PYTHONPATH": "/opt", "X": "1"},
    "secret_refs": [
        {"name": "TOKEN", "from": "env"},
        {"name": "KEY", "from": "kubernetes", "path": "theirs", "key": "k", "as": "file"},
        {"name": "PULL", "from": "kubernetes", "path": "run-pull", "as": "registry"},
    ],
    "restart": {"fatal_exit_codes": [65, 3], "max_crashes": 5},
}
RICH_PLAN: dict[str, t.Any] = {
    "secret": "run-secrets",
    "pull_secrets": ("run-pull",),
    "queue": Queue("gpus", topology=True, island_level="muster.training/island"),
    "fleet": EligibleNodes((ISLAND,), rdma_resource="rdma/hca", whole_node=True),
    "egress_denied": True,
}


def variants(engine: str) -> list[list[KubeObject]]:
    """Return an engine's objects for the smallest job, one with everything, and one on the nodes' own network."""
    changes, place = ENGINES[engine], ENGINES[engine].get("placement", {})
    host = {**RICH, "placement": {**place, "network_mode": "host", "priority": "high"}}
    found = [build(**changes), build(RICH_PLAN, **{**changes, **RICH}), build(RICH_PLAN, **{**changes, **host})]
    if engine not in ("trainjob", "rayjob"):
        found.append(build(**{**changes, "ttl_after_finished_s": 60}))
    if engine in ("jobset", "indexed_job"):
        found.append(build(**{**changes, "elastic": {"min": 1}}))
    return found


def templates(value: t.Any) -> t.Iterator[KubeObject]:
    """Yield every pod template in an object."""
    if isinstance(value, dict):
        if "containers" in value.get("spec", {}):
            yield value
        for item in value.values():
            yield from templates(item)
    elif isinstance(value, list):
        for item in value:
            yield from templates(item)


def test_every_engine_of_the_model_is_there() -> None:
    assert set(registry._ENGINES) == set(ENGINE_LAUNCHERS) == set(ENGINES)


@pytest.mark.parametrize("engine", ENGINES)
def test_an_api_server_would_take_the_objects(engine: str) -> None:
    for objects in variants(engine):
        assert {(item["kind"], problem) for item in objects for problem in problems(item)} == set()


def test_the_schemas_refuse_what_an_api_server_would() -> None:
    item = build()[-1]
    pod_of(item)["tolerationz"] = []
    item["spec"]["failurePolicy"]["maxRestarts"] = "three"
    found = " ".join(problems(item))
    assert "tolerationz" in found and "'three' is not of type 'integer'" in found
    policy = build()[-2]
    policy["spec"]["egres"] = []
    assert problems(policy)


@pytest.mark.parametrize("engine", ENGINES)
def test_the_same_plan_gives_the_same_objects_and_all_belong_to_the_run(engine: str) -> None:
    for first, second in zip(variants(engine), variants(engine), strict=True):
        assert json.dumps(first) == json.dumps(second)
        for item in first:
            assert item["metadata"]["namespace"] == "team-a"
            assert item["metadata"]["labels"][jobs_spec.RUN_LABEL] == RUN_ID
        for template in templates(first):
            # The policy and the follower find pods by it.
            assert template["metadata"]["labels"][jobs_spec.RUN_LABEL] == RUN_ID
            assert template["metadata"]["labels"][jobs_spec.ROLE_LABEL]


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
            changes["placement"] = {**changes.get("placement", {}), "network_mode": mode}
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


def test_a_cluster_without_rdma_refuses_a_job_that_asks_for_it() -> None:
    with pytest.raises(RefusedError, match="job.resources.rdma: the nodes of the cluster have no RDMA resource"):
        build(gpus_per_node=1, resources={"rdma": True})
    without = build({"fleet": EligibleNodes(rdma_resource="rdma/hca")}, resources={"rdma": False})[-1]
    assert "rdma/hca" not in json.dumps(without) and "IPC_LOCK" not in json.dumps(without)


def test_a_jobsets_gang_fails_and_starts_as_a_whole_with_two_budgets() -> None:
    spec = build(restart={"fatal_exit_codes": [65, 3], "max_crashes": 2}, nodes=4)[-1]["spec"]
    job = spec["replicatedJobs"][0]["template"]["spec"]
    assert (job["completions"], job["parallelism"], job["backoffLimit"]) == (4, 4, 0)
    assert job["completionMode"] == "Indexed" and job["podReplacementPolicy"] == "Failed"
    rules = job["podFailurePolicy"]["rules"]
    assert rules[0]["onExitCodes"]["values"] == [3, 65, 78] and {rule["action"] for rule in rules} == {"FailJob"}
    assert rules[1]["onPodConditions"] == [{"type": "DisruptionTarget", "status": "True"}]
    policy = spec["failurePolicy"]
    assert policy["maxRestarts"] == 2
    assert [(rule["name"], rule["action"]) for rule in policy["rules"]] == [
        ("fatal", "FailJobSet"),
        ("lost", "RestartJobSetAndIgnoreMaxRestarts"),
        ("deadline", "FailJobSet"),
    ]
    # What the Job controller writes, of which only the second is a lost node.
    fatal = "Container node for pod t/x failed with exit code 3 matching FailJob rule at index 0"
    lost = "Pod t/x has condition DisruptionTarget matching FailJob rule at index 1"
    pattern = policy["rules"][0]["onJobFailureMessagePatterns"][0]
    assert re.search(pattern, fatal) and not re.search(pattern, lost)


def test_where_nobody_counts_lost_nodes_both_budgets_are_one() -> None:
    """A JobSet bounds only what it counts: it would restart without end."""
    wanted = plan(restart={"max_crashes": 2, "max_lost_nodes": 5})
    policy = registry.build(dataclasses.replace(wanted, followed=False))[-1]["spec"]["failurePolicy"]
    assert policy["maxRestarts"] == 7
    assert [rule["action"] for rule in policy["rules"]] == ["FailJobSet", "RestartJobSet", "FailJobSet"]
    none = plan(restart={"max_crashes": 2, "max_lost_nodes": 5, "on_lost_node": "fail"})
    policy = registry.build(dataclasses.replace(none, followed=False))[-1]["spec"]["failurePolicy"]
    assert (policy["maxRestarts"], policy["rules"][1]["action"]) == (2, "FailJobSet")


@pytest.mark.parametrize("restart", [{"max_lost_nodes": 0}, {"on_lost_node": "fail"}])
def test_a_lost_node_ends_a_jobset_that_may_lose_none(restart: dict[str, t.Any]) -> None:
    rules = build(restart=restart)[-1]["spec"]["failurePolicy"]["rules"]
    assert {rule["action"] for rule in rules} == {"FailJobSet"}


@pytest.mark.parametrize("engine", ["jobset", "indexed_job"])
def test_an_elastic_gang_lets_single_pods_come_and_go(engine: str) -> None:
    restart = {"max_crashes": 1, "max_lost_nodes": 2}
    objects = build(nodes=4, elastic={"min": 2}, restart=restart, placement={"engine": engine})
    job = objects[-1]["spec"]
    job = job["replicatedJobs"][0]["template"]["spec"] if engine == "jobset" else job
    assert job["backoffLimit"] == 3 and job["successPolicy"] == {"rules": [{"succeededCount": 2}]}
    assert job["podFailurePolicy"]["rules"][1]["action"] == "Ignore"
    told = json.loads(objects[0]["data"]["node.json"])
    assert told["elastic"] and told["env"]["PET_NNODES"] == "2:4" and "is_host={first}" in told["env"]["PET_RDZV_CONF"]


def test_pods_are_found_under_the_name_that_they_are_told() -> None:
    name = RUN_ID
    wanted = {
        "jobset": f"{name}-node-0-0.{name}",
        "indexed_job": f"{name}-0.{name}",
        "trainjob": f"{name}-node-0-0.{name}",
        "mpijob": f"{name}-worker-0.{name}",
        "volcano": f"{name}-node-0.{name}",
    }
    for engine, coordinator in wanted.items():
        objects = build(**ENGINES[engine])
        specs = [json.loads(text) for key, text in objects[0]["data"].items() if key.endswith(".json")]
        assert {spec["coordinator"] for spec in specs} == {coordinator}, engine
    job = build(**ENGINES["indexed_job"])
    service = next(item for item in job if item["kind"] == "Service")
    assert service["metadata"]["name"] == job[-1]["spec"]["template"]["spec"]["subdomain"] == name
    assert service["spec"]["clusterIP"] == "None" and service["spec"]["publishNotReadyAddresses"] is True


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


def test_a_trainjob_leaves_nothing_to_the_defaults_that_lose_it() -> None:
    objects = build(**ENGINES["trainjob"], timeout_s=60)
    runtime, job = objects[-2:]
    assert job["spec"] == {
        "runtimeRef": {"apiGroup": "trainer.kubeflow.org", "kind": "TrainingRuntime", "name": RUN_ID},
        "activeDeadlineSeconds": 60,
    }
    assert runtime["spec"]["mlPolicy"] == {"numNodes": 2}
    inside = runtime["spec"]["template"]["spec"]
    # Nobody hears how often the JobSet of a TrainJob started again: one bound for all.
    assert "RestartJobSetAndIgnoreMaxRestarts" not in json.dumps(inside)
    assert inside["failurePolicy"]["maxRestarts"] == 6 and "ttlSecondsAfterFinished" not in json.dumps(runtime)
    group = inside["replicatedJobs"][0]["template"]
    assert group["metadata"]["labels"] == {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}


def test_an_mpijob_removes_its_workers_and_waits_for_them() -> None:
    objects = build(**ENGINES["mpijob"], processes_per_node=4, gpus_per_node=4)
    spec = objects[-1]["spec"]
    assert spec["runPolicy"]["cleanPodPolicy"] == "Running" and spec["slotsPerWorker"] == 4
    assert spec["launcherCreationPolicy"] == "WaitForWorkersReady"
    launcher, worker = (spec["mpiReplicaSpecs"][kind] for kind in ("Launcher", "Worker"))
    assert (launcher["replicas"], worker["replicas"]) == (1, 2)
    assert worker["template"]["spec"]["containers"][0]["readinessProbe"]["tcpSocket"] == {"port": 2222}
    asked = launcher["template"]["spec"]["containers"][0]["resources"]
    assert asked["requests"] == {"cpu": "10m", "memory": "64Mi"} and set(asked["limits"]) == {"cpu", "memory"}
    told = json.loads(objects[0]["data"]["launcher.json"])
    # One argument each: "-np 8" as one argument is read by no mpirun.
    assert told["argv"][1:3] == ["-np", "8"] and not any(" " in item for item in told["argv"])
    assert told["env"]["OMPI_MCA_orte_default_hostfile"] == told["env"]["PRTE_MCA_prte_default_hostfile"]
    assert told["env"]["PRTE_MCA_prte_keep_fqdn_hostnames"] == "false"


def test_a_rayjobs_cluster_goes_when_the_job_has_ended_and_its_workers_have_the_code() -> None:
    objects = build(RICH_PLAN, **{**ENGINES["rayjob"], **RICH})
    spec = objects[-1]["spec"]
    assert spec["shutdownAfterJobFinishes"] is True and spec["backoffLimit"] == 5
    assert spec["ttlSecondsAfterFinished"] <= 60, "so long the Ray cluster holds its GPUs after the job"
    assert spec["entrypoint"] == "python3 -I -S -u /muster/program/muster_node/pod.py /muster/spec/driver.json"
    group = spec["rayClusterSpec"]["workerGroupSpecs"][0]
    assert group["replicas"] == group["minReplicas"] == group["maxReplicas"] == 2
    pod = group["template"]["spec"]
    main, code = pod["containers"][0], pod["initContainers"][0]
    assert "command" not in main and code["command"][-1] == "prepare"
    assert code["resources"] == main["resources"] != {}, "a quota of the namespace may insist on amounts"
    env = {item["name"]: item for item in main["env"]}
    assert env["PYTHONPATH"]["value"] == "/muster/run/code:/opt" and env["X"]["value"] == "1"
    assert env["TOKEN"]["valueFrom"] == {"secretKeyRef": {"name": "run-secrets", "key": "TOKEN"}}
    assert env["KEY_FILE"]["value"] == "/muster/secrets/KEY" and "PULL" not in env
    told = json.loads(objects[0]["data"]["driver.json"])
    assert told["env"]["MUSTER_RAY_MAX_FAILURES"] == "5" and told["ray"]["nodes"] == 2
    # The driver runs on the head: it would be refused for the lack of devices that only workers get.
    assert (told["gpus"], told["rdma"]) == (0, False)
    policy = next(item for item in objects if item["kind"] == "NetworkPolicy")
    asks = policy["spec"]["ingress"][1]
    assert asks["ports"] == [{"protocol": "TCP", "port": 8265}]
    # KubeRay's chart labels its operator by name, its manifests by component.
    named = [label for peer in asks["from"] for label in peer["podSelector"]["matchLabels"].items()]
    assert named == [(f"app.kubernetes.io/{key}", "kuberay-operator") for key in ("name", "component")]


def test_a_volcano_jobs_first_fitting_rule_is_the_fatal_one() -> None:
    spec = build(
        placement={"engine": "volcano", "queue": "research"}, restart={"fatal_exit_codes": [3]}, resources={"cpu": 1}
    )[-1]["spec"]
    assert [(rule.get("exitCode"), rule.get("event"), rule["action"]) for rule in spec["policies"]] == [
        (3, None, "AbortJob"),
        (78, None, "AbortJob"),
        (None, "PodEvicted", "RestartJob"),
        (None, "PodFailed", "RestartJob"),
    ]
    assert (
        spec["maxRetry"] == 3 + 3
        and spec["minAvailable"] == 2
        and spec["queue"] == "research"
        and spec["plugins"]["env"] == []
    )
    assert spec["tasks"][0]["template"]["spec"]["schedulerName"] == "volcano"


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


def test_the_jobs_own_policy_lets_its_pods_talk_and_nobody_else() -> None:
    own = {"podSelector": {"matchLabels": {jobs_spec.RUN_LABEL: RUN_ID}}}
    spec = next(item for item in build() if item["kind"] == "NetworkPolicy")["spec"]
    assert spec == {**own, "policyTypes": ["Ingress"], "ingress": [{"from": [own]}]}
    spec = next(item for item in build({"egress_denied": True}) if item["kind"] == "NetworkPolicy")["spec"]
    assert spec["policyTypes"] == ["Ingress", "Egress"] and spec["egress"][0] == {"to": [own]}
    assert [port["port"] for port in spec["egress"][1]["ports"]] == [53, 53]


@pytest.mark.parametrize(
    ("selector", "denies"),
    [
        ({}, True),
        ({"matchLabels": {"a": "b"}}, False),
        ({"matchLabels": {"team": "ml", "tier": "train"}}, False),
        ({"matchLabels": {"team": "ml"}}, True),
        ({"matchExpressions": [{"key": "team", "operator": "In", "values": ["ml", "ops"]}]}, True),
        ({"matchExpressions": [{"key": "team", "operator": "In", "values": ["ops"]}]}, False),
        ({"matchExpressions": [{"key": "team", "operator": "NotIn", "values": ["ops"]}]}, True),
        ({"matchExpressions": [{"key": "web", "operator": "NotIn", "values": ["yes"]}]}, True),
        ({"matchExpressions": [{"key": "team", "operator": "Exists"}]}, True),
        ({"matchExpressions": [{"key": "web", "operator": "Exists"}]}, False),
        ({"matchExpressions": [{"key": "web", "operator": "DoesNotExist"}]}, True),
        ({"matchLabels": {"team": "ml"}, "matchExpressions": [{"key": "team", "operator": "DoesNotExist"}]}, False),
    ],
)
def test_a_policy_denies_the_egress_of_the_pods_that_it_selects(selector: dict[str, t.Any], denies: bool) -> None:
    labels = {"team": "ml"}
    policy = {"spec": {"podSelector": selector, "policyTypes": ["Ingress", "Egress"]}}
    assert supporting_objects.denies_egress([policy], labels) is denies
    policy["spec"]["policyTypes"] = ["Ingress"]
    assert not supporting_objects.denies_egress([policy], labels)


def test_code_that_no_config_map_can_hold_is_refused_with_the_way_out() -> None:
    with pytest.raises(InputError, match="is 1024 KiB when packed, the limit is 900 KiB. Leave out data"):
        build({"archive": b"x" * (1 << 20)})
    objects = build({"archive": b"x" * (900 << 10)})
    assert len(json.dumps(objects[0])) < 1 << 20
    without = build({"archive": b""})
    assert len(without) == len(objects) - 1 and "/muster/code" not in json.dumps(without[-1])


def test_another_program_or_code_is_another_object() -> None:
    before, after = build(), build({"archive": b"other"})
    names = [
        [item["metadata"]["name"] for item in objects if item["kind"] == "ConfigMap"] for objects in (before, after)
    ]
    assert names[0][1] != names[1][1] and all(item["immutable"] for item in before if item["kind"] == "ConfigMap")


def test_companions_belong_to_the_live_object() -> None:
    objects = build()
    live = {**objects[-1], "metadata": {**objects[-1]["metadata"], "uid": "u-1"}}
    made = jobs_spec.set_owner(objects[:-1], live)
    assert all(item["metadata"]["ownerReferences"][0]["uid"] == "u-1" for item in made)
    assert all(not problems(item) for item in made) and "ownerReferences" not in json.dumps(objects)


def test_the_probe_runs_where_the_job_will_and_asks_for_next_to_nothing() -> None:
    value = plan(RICH_PLAN, **RICH)
    objects = network_test_job.build(value)
    assert [problem for item in objects for problem in problems(item)] == []
    pod = objects[-1]["spec"]["template"]["spec"]
    job = pod_of(registry.build(value)[-1])["affinity"]
    assert pod["affinity"]["nodeAffinity"] == job["nodeAffinity"]
    own = {jobs_spec.RUN_LABEL: RUN_ID, jobs_spec.ROLE_LABEL: "probe"}
    (term,) = pod["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert term["labelSelector"]["matchLabels"] == own
    assert "gpu" not in json.dumps(pod["containers"][0]["resources"]) and objects[-1]["spec"]["backoffLimit"] == 0
    told = json.loads(objects[0]["data"]["probe.json"])
    assert told["mode"] == "probe" and told["coordinator"] == f"{RUN_ID}-probe-0.{RUN_ID}-probe"
    # The policy is the job's own: it is proven too.
    policies = [next(o for o in made if o["kind"] == "NetworkPolicy") for made in (objects, registry.build(value))]
    assert policies[0] == policies[1]


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


def test_the_reader_mounts_the_checkpoints_and_nothing_else() -> None:
    shared = {"name": "shared", "path": "/ckpt", "pvc": "claim"}
    other = {"name": "other", "path": "/data", "pvc": "claim2"}
    value = plan(mounts=[shared, other], checkpoints={"path": "/ckpt/x"})
    made = log_reader_job.build(value)
    assert made is not None and [problem for item in made for problem in problems(item)] == []
    pod = made[-1]["spec"]["template"]["spec"]
    claims = [item["persistentVolumeClaim"]["claimName"] for item in pod["volumes"] if "persistentVolumeClaim" in item]
    told = json.loads(made[0]["data"]["reader.json"])
    assert claims == ["claim"] and told["mode"] == "kept" and told["keep_logs"].startswith("/ckpt/x/.muster/")
    assert log_reader_job.build(plan()) is None, "what lies in a pod is gone with it"


@settings(max_examples=300)
@given(run_id=st.text(min_size=1, max_size=80) | st.from_regex(r"[a-z0-9-]{35,80}", fullmatch=True))
def test_a_runs_name_is_always_one_that_engines_can_append_to(run_id: str) -> None:
    name = jobs_spec.object_name(run_id)
    assert len(name) <= 40 and re.fullmatch(r"[a-z]([a-z0-9-]*[a-z0-9])?", name)
    assert re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?", jobs_spec.label_value(run_id))


def test_runs_that_differ_have_names_that_differ() -> None:
    ids = ["a" * 48, "a" * 47 + "b", "A", "a", "run-a", "1", "run-1", "x_y", "x-y", "é", "è"]
    assert len({jobs_spec.object_name(item) for item in ids}) == len(ids)
    assert jobs_spec.object_name("char-lm-0a1b2c3d") == "char-lm-0a1b2c3d"


@pytest.mark.parametrize(
    ("queue", "asked"),
    [
        (None, {"cpu", "memory"}),
        (Queue("q", quota_resources=frozenset({"cpu", "nvidia.com/gpu"})), {"cpu"}),
        (Queue("q", quota_resources=frozenset({"nvidia.com/gpu"})), set()),
        (Queue("q"), set()),
    ],
)
def test_a_launcher_asks_for_nothing_that_its_queue_has_no_quota_for(queue: Queue | None, asked: set[str]) -> None:
    """Kueue never admits a gang of which a pod asks for such a resource."""
    spec = build({"queue": queue}, **ENGINES["mpijob"])[-1]["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]
    resources = spec["containers"][0]["resources"]
    assert set(resources.get("requests", {})) == set(resources.get("limits", {})) == asked
