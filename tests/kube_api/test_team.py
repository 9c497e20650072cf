# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The role team against a real API server with RBAC: what its members may do, and everything else they may not."""

from __future__ import annotations

import gzip
import json
import os
import pathlib
import stat
import subprocess
import sys
import time
import typing as t

import pytest
import yaml

from ansible_collections.muster.training.plugins.module_utils._model.errors import RefusedError
from ansible_collections.muster.training.plugins.module_utils._model.job import parse_job
from ansible_collections.muster.training.plugins.plugin_utils._kube.api.client import Client
from ansible_collections.muster.training.plugins.plugin_utils._kube.api.connect import connect
from ansible_collections.muster.training.plugins.plugin_utils._kube.api.errors import KubeError
from ansible_collections.muster.training.plugins.plugin_utils._kube.objects.apply import apply
from ansible_collections.muster.training.plugins.plugin_utils._workflows import kubeconfig
from ansible_collections.muster.training.plugins.plugin_utils._workflows.fleet_acceptance import parts
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared.request import RunRequest
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared.state_dir import StateHome
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.kubernetes import (
    run as kubernetes_run,
)
from ansible_collections.muster.training.tests.support.kube_api import ApiServer
from ansible_collections.muster.training.tests.support.run_world import Said

Dict = dict[str, t.Any]
DEFINITIONS = pathlib.Path(__file__).parents[1] / "fixtures" / "crds" / "kueue.json.gz"
KUEUE = "kueue.x-k8s.io/v1beta2"
QUOTA = {"cpu": 8, "memory": "16Gi", "nvidia.com/gpu": 2}
LIMIT_S = 120


class Admin:
    """Runs the team playbook as administrator."""

    def __init__(self, api: ApiServer, folder: pathlib.Path) -> None:
        self.api, self.folder = api, folder

    def play(self, team: str, *words: str, code: int = 0, **extra: t.Any) -> str:
        """Run it and return its output."""
        values = {
            "muster_team": team,
            "muster_kubeconfig": str(self.api.kubeconfig),
            "muster_state": {"path": str(self.folder / "state")},
            "team_quota": QUOTA,
            **extra,
        }
        program = str(pathlib.Path(sys.executable).parent / "ansible-playbook")
        argv = [program, "-i", "localhost,", "-c", "local", "muster.training.team", "-e", json.dumps(values), *words]
        env = {**os.environ, "ANSIBLE_NOCOLOR": "1", "ANSIBLE_HOME": str(self.folder)}
        done = subprocess.run(argv, env=env, capture_output=True, text=True, check=False, timeout=LIMIT_S)
        output = done.stdout + done.stderr
        assert done.returncode == code and "Traceback" not in output, output
        return output

    def file(self, team: str) -> pathlib.Path:
        """Return where the members' kubeconfig is."""
        return self.folder / "state" / "default" / "teams" / f"{team}.kubeconfig"


@pytest.fixture
def admin(api: ApiServer, client: Client, tmp_path: pathlib.Path) -> Admin:
    apply(client, json.loads(gzip.decompress(DEFINITIONS.read_bytes())))
    return Admin(api, tmp_path)


def changed(output: str) -> int:
    return int(output.partition("PLAY RECAP")[2].partition("changed=")[2].split()[0])


def test_the_life_of_a_team(admin: Admin, client: Client) -> None:
    """Check mode, present, again, another quota, absent, absent again."""
    assert changed(admin.play("vision", "--check")) > 0
    assert client.get("v1/Namespace", "vision") is None and not admin.file("vision").exists()
    output = admin.play("vision")
    token = yaml.safe_load(admin.file("vision").read_text())["users"][0]["user"]["token"]
    assert token not in output and stat.S_IMODE(admin.file("vision").stat().st_mode) == 0o600
    labels = t.cast(Dict, client.get("v1/Namespace", "vision"))["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "baseline"
    queue = t.cast(Dict, client.get(f"{KUEUE}/ClusterQueue", "vision"))["spec"]
    (group,) = queue["resourceGroups"]
    assert group["coveredResources"] == ["cpu", "memory", "nvidia.com/gpu"]
    (flavor,) = group["flavors"]
    assert {item["name"]: str(item["nominalQuota"]) for item in flavor["resources"]} == {
        "cpu": "8",
        "memory": "16Gi",
        "nvidia.com/gpu": "2",
    }
    assert queue["namespaceSelector"] == {"matchLabels": {"kubernetes.io/metadata.name": "vision"}}
    hard = t.cast(Dict, client.get("v1/ResourceQuota", "muster-team", "vision"))["spec"]["hard"]
    assert hard["requests.nvidia.com/gpu"] == "2" and "requests.cpu" not in hard
    assert changed(admin.play("vision")) == 0
    more = admin.play("vision", "--diff", team_quota={**QUOTA, "cpu": 12})
    assert changed(more) == 1 and "nominalQuota: '12'" in more and token not in more
    assert changed(admin.play("vision", team_quota={**QUOTA, "cpu": 12})) == 0
    # It would go with the namespace.
    claim: Dict = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}
    meta = {"name": "checkpoints", "namespace": "vision"}
    client.create({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta, "spec": claim})
    refused = admin.play("vision", team_state="absent", code=2)
    assert "Namespace vision would be deleted with claims: checkpoints. Cancel the runs" in refused
    assert client.get(f"{KUEUE}/ClusterQueue", "vision") is not None and admin.file("vision").exists()
    assert changed(admin.play("vision", team_state="absent", team_discard=True)) > 0
    assert client.get(f"{KUEUE}/ClusterQueue", "vision") is None and not admin.file("vision").exists()
    gone = t.cast(Dict, client.get("v1/Namespace", "vision"))
    assert gone["status"]["phase"] == "Terminating", "no controller is here that would end it"
    assert client.get(f"{KUEUE}/ResourceFlavor", "muster") is not None, "it belongs to all teams"


@pytest.fixture
def member(admin: Admin, client: Client) -> Client:
    """A member of the team speech, beside another team."""
    admin.play("speech")
    admin.play("rival")
    # What the controller would count: without it admission does not know the quota yet.
    used = {"count/secrets": "0", "count/configmaps": "0", "requests.nvidia.com/gpu": "0"}
    used |= {"services.nodeports": "0", "services.loadbalancers": "0"}
    hard = t.cast(Dict, client.get("v1/ResourceQuota", "muster-team", "speech"))["spec"]["hard"]
    client.patch(
        "v1/ResourceQuota", "muster-team", {"status": {"hard": hard, "used": used}}, "speech", subresource="status"
    )
    return connect({"kubeconfig": str(admin.file("speech"))})


def test_a_member_does_what_a_job_needs(member: Client) -> None:
    assert member.namespace == "speech"
    pod = {"restartPolicy": "Never", "containers": [{"name": "node", "image": "x"}]}
    queued = {"name": "j", "labels": {"kueue.x-k8s.io/queue-name": "main"}}
    job = {"metadata": queued, "spec": {"template": {"spec": pod}}}
    parts: list[tuple[str, str, Dict]] = [
        ("Job", "batch/v1", job),
        ("ConfigMap", "v1", {"metadata": {"name": "c"}, "data": {"a": "b"}}),
        ("Secret", "v1", {"metadata": {"name": "s"}, "data": {"a": "Yg=="}}),
        ("NetworkPolicy", "networking.k8s.io/v1", {"metadata": {"name": "p"}, "spec": {"podSelector": {}}}),
    ]
    for kind, version, value in parts:
        made = {"apiVersion": version, "kind": kind, **value}
        assert apply(member, [made]).changed and not apply(member, [made]).changed
        assert member.delete(made, value["metadata"]["name"], "speech")
    for kind in ("v1/Pod", "v1/Event", f"{KUEUE}/LocalQueue", f"{KUEUE}/Workload", "v1/PersistentVolumeClaim"):
        member.list(kind, "speech")
    assert [item["metadata"]["name"] for item in member.list(f"{KUEUE}/LocalQueue", "speech").items] == ["main"]


def test_a_member_does_nothing_else(admin: Admin, member: Client) -> None:
    """Nothing in other namespaces, nothing of the cluster, no quota, no right, no pod past the queue."""
    reads: list[tuple[str, str | None]]
    reads = [("v1/Secret", "rival"), ("v1/Pod", "rival"), ("v1/Secret", "kube-system"), ("v1/ConfigMap", "default")]
    reads += [("v1/Secret", None), ("v1/Pod", None), ("v1/Namespace", None), ("v1/Node", None)]
    reads += [(f"{KUEUE}/ClusterQueue", None), (f"{KUEUE}/LocalQueue", "rival")]
    reads += [("rbac.authorization.k8s.io/v1/RoleBinding", "speech"), ("v1/ServiceAccount", "speech")]
    for kind, namespace in reads:
        with pytest.raises(KubeError) as refused:
            member.list(kind, namespace)
        assert refused.value.status == 403, (kind, namespace)
    admin_role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
    subject = {"kind": "ServiceAccount", "name": "member", "namespace": "speech"}
    rbac = "rbac.authorization.k8s.io/v1"
    rules = [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]
    pod = {"containers": [{"name": "node", "image": "x"}]}
    quota = {"hard": {"requests.nvidia.com/gpu": "100"}}
    writes: list[tuple[str, str, str, Dict]] = [
        ("v1", "ResourceQuota", "muster-team", {"spec": quota}),
        ("v1", "LimitRange", "muster-team", {"spec": {"limits": []}}),
        ("v1", "Pod", "past-the-queue", {"spec": pod}),
        ("v1", "ServiceAccount", "another", {}),
        (rbac, "Role", "muster-member", {"rules": rules}),
        (rbac, "RoleBinding", "up", {"roleRef": admin_role, "subjects": [subject]}),
        (KUEUE, "LocalQueue", "main", {"spec": {"clusterQueue": "rival"}}),
        (KUEUE, "ClusterQueue", "speech", {"spec": {"resourceGroups": []}}),
        (KUEUE, "Workload", "mine", {"spec": {"active": True}}),
        ("v1", "Namespace", "speech", {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "privileged"}}}),
    ]
    for version, kind, name, value in writes:
        meta = {"name": name, **value.pop("metadata", {})}
        with pytest.raises(KubeError) as refused:
            member.apply({"apiVersion": version, "kind": kind, "metadata": meta, **value}, force=True)
        assert refused.value.status == 403, kind
    token = {"type": "kubernetes.io/service-account-token"}
    notes = {"annotations": {"kubernetes.io/service-account.name": "default"}}
    with pytest.raises(KubeError, match="a team makes no tokens of service accounts"):
        member.create({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "t", **notes}, **token})
    open_ = {"type": "NodePort", "ports": [{"port": 80}]}
    with pytest.raises(KubeError, match="exceeded quota"):
        member.create({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "out"}, "spec": open_})
    with pytest.raises(KubeError) as refused:
        kubeconfig.request_token(member, "member", "speech", 600)
    assert refused.value.status == 403, "a member cannot make itself a token that lasts"
    with pytest.raises(KubeError) as refused:
        apply(member, [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": "rival"}}])
    assert refused.value.status == 403


def test_acceptance_knows_a_plain_user_from_an_administrator(member: Client, client: Client) -> None:
    assert parts.find_excess_rights(member) == []
    assert "list secrets everywhere" in parts.find_excess_rights(client)


def test_a_job_without_a_queue_gets_no_gpu_past_the_quota(member: Client, client: Client) -> None:
    """What a controller would make for a job that names no queue: the ResourceQuota refuses it."""
    assert member.namespace == "speech"
    for name, count in (("two", "2"), ("third", "1")):
        gpus = {"nvidia.com/gpu": count}
        container = {"name": "node", "image": "x", "resources": {"requests": gpus, "limits": gpus}}
        meta = {"name": name, "namespace": "speech"}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {"containers": [container]}}
        if name == "two":
            made = client.create(pod)
            assert made["spec"]["containers"][0]["resources"]["requests"]["cpu"] == "100m", "the LimitRange's default"
            continue
        with pytest.raises(KubeError, match="exceeded quota: muster-team"):
            client.create(pod)


def check(admin: Admin, member: Client, folder: pathlib.Path, **changes: t.Any) -> list[str]:
    """Return what check mode of a job says to a member."""
    value = {"name": "gang", "nodes": 2, "image": "i:1", "script": "/t.py", "resources": {"cpu": 2}, **changes}
    value["placement"] = {"backend": "kubernetes", "engine": "indexed_job"}
    said = Said()
    options = {"cluster": "default", "kubeconfig": str(admin.file(member.namespace)), "wait": False}
    asked = RunRequest(options, [], {}, folder, True, lambda _names: pytest.fail("no host is asked"), said)
    kubernetes_run.run(asked, StateHome({"path": str(folder / "own")}, "default"), parse_job(value))
    return said.lines


def test_a_check_of_a_member_says_what_the_quota_has_left(
    admin: Admin, client: Client, member: Client, tmp_path: pathlib.Path
) -> None:
    """What Kueue would decide, by the team's own ClusterQueue; that of others cannot be read."""
    with pytest.raises(KubeError):
        member.get(f"{KUEUE}/ClusterQueue", "rival")
    assert not [line for line in check(admin, member, tmp_path) if "asked" in line]
    with pytest.raises(RefusedError, match=r"never be admitted: 10 CPU asked, ClusterQueue speech has 8"):
        check(admin, member, tmp_path, resources={"cpu": 5})
    row = {"name": "cpu", "total": "6", "borrowed": "0"}
    taken = {"flavorsReservation": [{"name": "muster", "resources": [row]}], "pendingWorkloads": 1}
    client.patch(f"{KUEUE}/ClusterQueue", "speech", {"status": taken}, subresource="status")
    (said,) = [line for line in check(admin, member, tmp_path) if "asked" in line]
    assert said.endswith(
        "would wait: 4 CPU asked, ClusterQueue speech has 8 (6 in use, 2 left); 1 job waits there already"
    )
    # A team of before, whose members may not read it.
    client.delete("rbac.authorization.k8s.io/v1/ClusterRoleBinding", "muster-team-speech-reader")
    until = time.monotonic() + 10
    while not (told := [line for line in check(admin, member, tmp_path) if "not known" in line]):
        assert time.monotonic() < until
    assert "the quota of queue main cannot be read with this kubeconfig" in told[-1]
    admin.play("speech")


def test_readers_of_nodes(admin: Admin) -> None:
    admin.play("robots", team_reads_nodes=True)
    reader = connect({"kubeconfig": str(admin.file("robots"))})
    reader.list("v1/Node", None)
    reader.list(f"{KUEUE}/ClusterQueue", None)
    with pytest.raises(KubeError):
        reader.list("v1/Secret", "kube-system")
    assert changed(admin.play("robots", team_reads_nodes=True)) == 0


def test_what_is_not_asked_for_any_more_is_taken_back(admin: Admin, client: Client) -> None:
    """Rights of an earlier setting, and a queue under its old name: with two, jobs would not know theirs."""
    admin.play("sensors", team_reads_nodes=True, team_queue="first")
    reader = connect({"kubeconfig": str(admin.file("sensors"))})
    reader.list("v1/Node", None)
    admin.play("beside", team_reads_nodes=True)
    client.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "work", "namespace": "sensors"}})
    admin.play("sensors", team_queue="second", team_isolated=False)
    with pytest.raises(KubeError, match="nodes is forbidden"):
        reader.list("v1/Node", None)
    assert [item["metadata"]["name"] for item in client.list(f"{KUEUE}/LocalQueue", "sensors").items] == ["second"]
    assert client.list("networking.k8s.io/v1/NetworkPolicy", "sensors").items == []
    assert client.get("v1/ConfigMap", "work", "sensors") is not None
    connect({"kubeconfig": str(admin.file("beside"))}).list("v1/Node", None)


def test_a_team_keeps_its_namespace(admin: Admin, client: Client) -> None:
    """Moving it would leave the old one with the members' rights and without the rules that hold them."""
    admin.play("movers")
    client.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "work", "namespace": "movers"}})
    said = admin.play("movers", code=2, team_namespace="moved")
    assert "team_namespace: team movers has the namespace movers. Keep it" in said
    assert "deletionTimestamp" not in t.cast(Dict, client.get("v1/Namespace", "movers"))["metadata"]
    assert client.get("v1/Namespace", "moved") is None and changed(admin.play("movers")) == 0


def test_a_queue_is_given_up_and_what_is_left_of_it_goes(admin: Admin, client: Client) -> None:
    """Options of the command line are texts: "false" is no true."""
    admin.play("queued")
    admin.play("queued", "-e", "team_queueing=false", "-e", "team_reads_nodes=false")
    assert client.get(f"{KUEUE}/ClusterQueue", "queued") is None
    assert client.list(f"{KUEUE}/LocalQueue", "queued").items == []
    reader = "rbac.authorization.k8s.io/v1/ClusterRole"
    assert client.get(reader, "muster-team-queued-reader") is None
    hard = t.cast(Dict, client.get("v1/ResourceQuota", "muster-team", "queued"))["spec"]["hard"]
    assert hard["requests.cpu"] == "8", "the quota that was the queue's"
    admin.play("queued")
    assert changed(admin.play("queued", team_state="absent", team_queueing=False)) > 0
    assert client.get(f"{KUEUE}/ClusterQueue", "queued") is None


def test_what_is_no_team_is_refused(admin: Admin, client: Client) -> None:
    assert "team_quota: is required" in admin.play("empty", code=2, team_quota={})
    assert "cannot be used for a team" in admin.play("kube-system", code=2)
    said = admin.play("typo", code=2, team_quota={"cpu": "8 cores"})
    assert "team_quota: 8 cores is not a Kubernetes quantity" in said and client.get("v1/Namespace", "typo") is None
    wrong = {"kind": "Robot", "name": "x", "apiGroup": "rbac.authorization.k8s.io"}
    assert "subjects" in admin.play("subject", code=2, team_subjects=[wrong])
    admin.play("subject")


def token_options(admin: Admin, **more: t.Any) -> Dict:
    own = {"kubeconfig": str(admin.api.kubeconfig), "state": "present", "account": "member", "lifetime_s": 600}
    home = {"state_home": {"path": str(admin.folder / "state")}, "cluster": "default"}
    return {**own, **home, **more}


def test_a_token_is_renewed_when_it_must(admin: Admin, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Late in its life, when its account is another one of that name, or when others could read the file."""
    admin.play("tokens", team_token_s=600)

    def run() -> bool:
        return bool(kubeconfig.run(token_options(admin, namespace="tokens"), pathlib.Path("/"), False)["changed"])

    assert not run()
    admin.file("tokens").chmod(0o644)
    assert run() and stat.S_IMODE(admin.file("tokens").stat().st_mode) == 0o600 and not run()
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 500)
    assert run()
    monkeypatch.undo()
    client.delete("v1/ServiceAccount", "member", "tokens")
    client.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "member", "namespace": "tokens"}})
    assert run() and not run()
