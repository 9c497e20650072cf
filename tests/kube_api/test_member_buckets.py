# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A member with exactly the permissions of the role team binds a bucket and uses it, where he may read no Node.

The API server, its admission policies and quotas are real. Of the cluster there is one stand-in: it makes the pod of a
Job with the rights of the Job controller, runs its command on this machine, and serves what it said as a kubelet does.
"""

from __future__ import annotations

import base64
import contextlib
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import threading
import typing as t
import uuid

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import MusterError, NodeError, RefusedError
from ansible_collections.muster.training.plugins.module_utils._model.job import parse_job
from ansible_collections.muster.training.plugins.plugin_utils._kube.api.client import Client
from ansible_collections.muster.training.plugins.plugin_utils._kube.api.connect import connect
from ansible_collections.muster.training.plugins.plugin_utils._kube.api.errors import KubeError
from ansible_collections.muster.training.plugins.plugin_utils._kube.jobs.visit_job import ANY_NODE, JOB_LABEL
from ansible_collections.muster.training.plugins.plugin_utils._workflows.services import bind
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared import pod_visits
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared.request import RunRequest
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared.state_dir import StateHome
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.object_stores import pod_store
from ansible_collections.muster.training.tests.fakes import object_store, s3_signer
from ansible_collections.muster.training.tests.kube_api.test_team import Admin, admin
from ansible_collections.muster.training.tests.support.kube_api import ApiServer
from ansible_collections.muster.training.tests.support.kubelet import Kubelet
from ansible_collections.muster.training.tests.support.run_world import Said

__all__ = ["admin"]
NODE = "painters-node"
QUEUE = "kueue.x-k8s.io/queue-name"
ACCESS, SECRET = "AKmember-access-1", "SKmember-secret-0123"
Dict = dict[str, t.Any]


class Machines:
    """What makes and runs the pods of Jobs in the team's namespace; ``pods`` counts them."""

    def __init__(self, client: Client, team: str, folder: pathlib.Path, kubelet: Kubelet) -> None:
        self.client, self.team, self.folder, self.kubelet, self.pods = client, team, folder, kubelet, 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._ended.set()
        self._thread.join()

    def _work(self) -> None:
        seen: set[str] = set()
        while not self._ended.wait(0.05):
            with contextlib.suppress(MusterError):
                for job in self.client.list("batch/v1/Job", self.team).items:
                    # Kueue would hold one of its queue back: it makes no pod.
                    if job["metadata"]["uid"] not in seen and QUEUE not in job["metadata"]["labels"]:
                        seen.add(str(job["metadata"]["uid"]))
                        self._run(job)

    def _run(self, job: t.Any) -> None:
        meta, spec = job["metadata"], job["spec"]["template"]["spec"]
        labels: Dict = {**job["spec"]["template"]["metadata"]["labels"], JOB_LABEL: meta["name"]}
        pod: t.Any = {"apiVersion": "v1", "kind": "Pod", "spec": {**spec, "nodeName": NODE}}
        pod["metadata"] = {"name": f"{meta['name']}-x", "namespace": self.team, "labels": labels}
        try:
            self.client.create(pod)
        except KubeError as error:
            about = {"kind": "Job", "namespace": self.team, "name": meta["name"], "uid": meta["uid"]}
            event: Dict = {"apiVersion": "v1", "kind": "Event", "type": "Warning", "reason": "FailedCreate"}
            event |= {"metadata": {"name": f"{meta['name']}-e", "namespace": self.team}, "involvedObject": about}
            self.client.create({**event, "message": f"Error creating: {error.message}"})
            return
        self.pods += 1
        text, ok = self._execute(spec)
        self.kubelet.lines.clear()
        for line in text.split("\n"):
            self.kubelet.say(line)
        phase = {"status": {"phase": "Succeeded" if ok else "Failed"}}
        self.client.patch("v1/Pod", pod["metadata"]["name"], phase, self.team, subresource="status")

    def _execute(self, spec: t.Any) -> tuple[str, bool]:
        program: t.Any = self.client.get("v1/ConfigMap", spec["volumes"][0]["configMap"]["name"], self.team)
        secret: t.Any = self.client.get("v1/Secret", spec["volumes"][1]["secret"]["secretName"], self.team)
        (self.folder / "program").write_text(program["data"]["program"])
        (self.folder / "request").write_bytes(base64.b64decode(secret["data"]["request"]))
        words = spec["containers"][0]["command"]
        command = words[2].replace("/muster/program/", f"{self.folder}/").replace("/muster/request/", f"{self.folder}/")
        done = subprocess.run([*words[:2], command], capture_output=True, text=True, check=False, timeout=60)
        return done.stdout + done.stderr, done.returncode == 0


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> t.Iterator[object_store.ObjectStore]:
    s3_signer.use(monkeypatch)
    with object_store.running() as found:
        found.listed = None
        found.objects["text/a"] = b"aaa"
        yield found


@pytest.fixture
def machines(admin: Admin, client: Client, api: ApiServer, tmp_path: pathlib.Path) -> t.Iterator[Machines]:
    """The team with a node, on which the stand-in runs what the member's Jobs ask for."""
    team = f"painters-{uuid.uuid4().hex[:6]}"
    admin.play(team)
    # What the controller would count: without it admission does not know the quotas yet.
    for name in ("muster-team", "muster-team-unqueued"):
        hard = t.cast("Dict", client.get("v1/ResourceQuota", name, team))["spec"]["hard"]
        status = {"status": {"hard": hard, "used": dict.fromkeys(hard, "0")}}
        client.patch("v1/ResourceQuota", name, status, team, subresource="status")
    keys = {"AWS_ACCESS_KEY_ID": ACCESS, "AWS_SECRET_ACCESS_KEY": SECRET}
    meta: t.Any = {"name": "store-keys", "namespace": team}
    client.create({"apiVersion": "v1", "kind": "Secret", "metadata": meta, "stringData": keys})
    kubelet = Kubelet(api.root)
    client.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}})
    addresses = [{"type": "InternalIP", "address": "127.0.0.1"}]
    port = {"kubeletEndpoint": {"Port": kubelet.port}}
    client.patch("Node", NODE, {"status": {"addresses": addresses, "daemonEndpoints": port}}, subresource="status")
    folder = tmp_path / "pods"
    folder.mkdir()
    found = Machines(client, team, folder, kubelet)
    yield found
    found.close()
    kubelet.close()
    client.delete("Node", NODE)
    admin.play(team, team_state="absent", team_discard=True)


class Member:
    """What a member does, with his kubeconfig and a state home of his own."""

    def __init__(self, kubeconfig: pathlib.Path, team: str, folder: pathlib.Path, endpoint: str) -> None:
        self.kubeconfig, self.team, self.folder, self.endpoint = kubeconfig, team, folder, endpoint
        self.setting = {"path": str(folder / "member")}
        self.home = StateHome(self.setting, "default")
        self.client = connect({"kubeconfig": str(self.kubeconfig)})

    def bind(self, *services: Dict) -> Dict:
        """Bind these services, without any the bucket."""
        resources = [{"purpose": name, "ref": "bucket"} for name in ("datasets", "checkpoints")]
        service: Dict = {"name": "store", "kind": "object_store", "mode": "bind", "endpoint": self.endpoint}
        service |= {"resources": resources, "secret_ref": {"from": "kubernetes", "path": "store-keys"}}
        pods = {"namespace": self.team, "image": "train:1", "python": sys.executable}
        options: Dict = {"services": list(services) or [service], "pods": pods, "require_all": True}
        options |= {"kubeconfig": str(self.kubeconfig)}
        options |= {"state_home": self.setting, "cluster": "default"}
        # Hosts are not asked: the controller is no machine that runs jobs.
        connecting: t.Any = lambda names: [] if not names else pytest.fail(f"asked {names}")  # noqa: E731
        said: t.Any = Said()
        return bind.run(RunRequest(options, ["localhost"], {}, self.folder, False, connecting, said))

    def open_store(self) -> pod_store.PodStore:
        datasets = [{"name": "text", "binding": "store", "prefix": "text"}]
        about: Dict = {"name": "j", "nodes": 2, "launcher": "command", "command": ["true"], "image": "train:1"}
        about |= {"placement": {"backend": "kubernetes"}, "python": sys.executable, "datasets": datasets}
        job = parse_job({**about, "checkpoints": {"binding": "store"}})
        found = pod_store.open_store(self.home, job, None, "r", self.client)
        assert found is not None
        self.visits = pod_store.visits_for(self.client, job, self.team, ())
        return found


@pytest.fixture
def member(admin: Admin, machines: Machines, tmp_path: pathlib.Path, server: object_store.ObjectStore) -> Member:
    return Member(admin.file(machines.team), machines.team, tmp_path, server.url)


def test_a_member_binds_a_bucket_and_his_job_finds_its_data(
    member: Member, machines: Machines, server: object_store.ObjectStore
) -> None:
    """Keys from the team's Secret, asked from where the scheduler puts a pod, data listed by a pod: all with his rights."""
    (binding,) = member.bind()["bindings"]
    assert [(row["node"], row["vantage"], row["ok"]) for row in binding["reachable_from"]] == [(NODE, "pod", True)]
    assert SECRET not in str(binding) and list(server.objects) == ["text/a"]
    assert not member.bind()["changed"]
    said: t.Any = Said()
    values = member.open_store().values(member.visits, said)
    assert pod_store.FILE in values and "dataset text: 1 objects" in "".join(said.lines)
    assert machines.pods == 3
    left = [member.client.list(kind, member.team).items for kind in ("v1/ConfigMap", "batch/v1/Job")]
    assert left == [[], []]
    assert [item["metadata"]["name"] for item in member.client.list("v1/Secret", member.team).items] == ["store-keys"]


def test_a_binding_that_was_never_asked_from_pods_names_the_command(member: Member) -> None:
    member.bind()
    (place,) = (member.home.folder / "bindings").glob("*.json")
    place.write_text(place.read_text().replace('"pod"', '"host"'))
    with pytest.raises(RefusedError, match=r"any pod \(pod\): not checked.*services playbook and muster_services_pods"):
        member.open_store()


def test_a_quota_that_is_used_up_is_the_reason(member: Member, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """The words of the quota, not that a pod did not end in time."""
    monkeypatch.setattr(pod_visits, "_PATIENCE_S", 0.5)
    meta: t.Any = {"name": "small", "namespace": member.team}
    client.create({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": meta, "spec": {"hard": {"pods": "0"}}})
    status = {"status": {"hard": {"pods": "0"}, "used": {"pods": "0"}}}
    client.patch("v1/ResourceQuota", "small", status, member.team, subresource="status")
    visits = pod_visits.PodVisits(member.client, member.team, "train:1", sys.executable)
    answers, errors = visits.ask({ANY_NODE: {"op": "s3", "step": "clean_up", "delete": []}})
    assert answers == {} and isinstance(errors[ANY_NODE], NodeError)
    assert "the namespace's quota is used up" in errors[ANY_NODE].message and "small" in errors[ANY_NODE].message


@pytest.mark.skipif(importlib.util.find_spec("botocore") is not None, reason="this Python has what is to be missing")
def test_nothing_is_deployed_that_could_not_be_bound_afterwards(tmp_path: pathlib.Path) -> None:
    """The package that is missing is named before the first service of the list is deployed."""
    entry = {"name": "store", "kind": "object_store", "mode": "deploy", "deploy": {"host": "localhost"}}
    service = {**entry, "resources": [{"purpose": "datasets", "ref": "datasets"}]}
    values = {"muster_services": [service], "muster_state": {"path": str(tmp_path / "state")}}
    program = str(pathlib.Path(sys.executable).parent / "ansible-playbook")
    argv = [
        program,
        "-i",
        "localhost,",
        "-c",
        "local",
        "muster.training.services",
        "-e",
        "muster_train_hosts=localhost",
    ]
    env = {**os.environ, "ANSIBLE_NOCOLOR": "1", "ANSIBLE_HOME": str(tmp_path)}
    argv += ["-e", json.dumps(values)]
    done = subprocess.run(argv, env=env, capture_output=True, text=True, check=False, timeout=120)
    said = "muster_services: the Python of ansible-playbook has no botocore"
    assert done.returncode == 2 and said in done.stdout, done.stdout
    assert "TASK [muster.training.object_store" not in done.stdout and not (tmp_path / "state").exists()
