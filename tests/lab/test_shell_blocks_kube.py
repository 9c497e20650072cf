# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A reader of the pages about clusters types their shell blocks, in one session on a real cluster, torch in pods.

Files are the pages' own, with the image and the sizes of the cluster.
"""

from __future__ import annotations

import contextlib
import json
import pathlib
import shutil
import typing as t
import uuid

import pytest

from ansible_collections.muster.training.tests.lab.kube import plan
from ansible_collections.muster.training.tests.lab.kube.stages import until
from ansible_collections.muster.training.tests.lab.kube_plays import training
from ansible_collections.muster.training.tests.support.kube_lab import KubeLab, not_run
from ansible_collections.muster.training.tests.support.shell_blocks import (
    Reader,
    newest_run,
    own_environment,
    read_example,
    require_said,
)

pytestmark = pytest.mark.torch
BLOCKS = (
    "guide_team-0",
    "README-2",
    "guide_team-1",
    "guide_fabric-2",
    "guide_fabric-4",
    "guide_heal-1",
    "guide_acceptance-1",
    "guide_team-2",
)
SAID = {
    ("guide_team-0", 0): "vision.kubeconfig",
    ("README-2", 0): "succeeded",
    ("guide_team-1", 1): "succeeded",
    ("guide_team-1", 2): "step=",
    ("guide_team-1", 3): "fetched ",
    ("guide_fabric-2", 0): "UNPROVEN",
    ("guide_fabric-4", 0): "2 of 2 ranks alive",
    ("guide_heal-1", 0): "changed=0",
    ("guide_acceptance-1", 0): "accept.html",
}
SIZE = 2
KUEUE = "/apis/kueue.x-k8s.io/v1beta2"


class Office:
    """Home and folder of an administrator who is a member of the team as well."""

    def __init__(self, lab: KubeLab, root: pathlib.Path) -> None:
        self.lab = lab
        # A cluster may be there from an earlier session, which trained the same job.
        self.checkpoints = f"{plan.SHARED}/reader-{uuid.uuid4().hex[:8]}"
        home, folder = root / "home", root / "work"
        for place in (home / ".kube", folder):
            place.mkdir(parents=True)
        for name in ("config", "admin.config"):
            shutil.copy(lab.kubeconfig, home / ".kube" / name)
        self.home, self.state = home, home / ".local" / "state" / "muster"
        self.reader = Reader(folder, own_environment(home), {"run": lambda: newest_run(self.state)})
        quota = {"cpu": SIZE, "memory": f"{2 * SIZE}Gi"}
        team = read_example("guide_team", 0) | {"team_quota": quota, "team_pod_security": "privileged"}
        self.reader.write("vision.yml", team)
        self.reader.write("pool.yml", {"muster_heal_patience_s": 120})

    def fit(self, job: dict[str, t.Any], **changes: t.Any) -> dict[str, t.Any]:
        """Return a job of a page with what is other on this cluster: image, sizes and torch as a folder of its nodes."""
        own = training(self.lab, "unused", steps=60)
        torch = own["mounts"][0]
        kept = {key: own[key] for key in ("env", "resources")}
        mounts = [torch, *job.get("mounts", [])]
        return {**job, "image": self.lab.image, "gpus_per_node": 0, **kept, "mounts": mounts, **changes}

    def write_job(self, steps: int) -> None:
        """Write the README's job of as many steps."""
        example = read_example("README", 1)["muster_job"]
        own = training(self.lab, "unused", steps=steps)
        changes = {"nodes": SIZE, "args": own["args"], "code": own["code"], "datasets": own["datasets"]}
        self.reader.write("job.yml", {"muster_job": self.fit(example, **changes)})

    def prepare(self, name: str) -> dict[int, t.Callable[[], t.Any]]:
        """Return what comes before single commands of a block, by the number of the command."""
        return {
            "README-2": {0: self.have_a_claim},
            "guide_team-1": {0: self.become_a_member},
            "guide_fabric-2": {0: self.have_a_namespace},
            "guide_fabric-4": {0: self.have_a_run},
            "guide_acceptance-1": {0: self.write_acceptance},
        }.get(name, {})

    def have_a_claim(self) -> None:
        """Make the claim that several nodes can mount, and write the job."""
        self.lab.on_node(self.lab.nodes[0], "mkdir", self.checkpoints)
        size = {"storage": "1Gi"}
        spec = {"accessModes": ["ReadWriteMany"], "storageClassName": "", "volumeName": "vision-checkpoints"}
        claim = {"metadata": {"name": "checkpoints", "namespace": "vision"}, "kind": "PersistentVolumeClaim"}
        volume = {"metadata": {"name": "vision-checkpoints"}, "kind": "PersistentVolume"}
        shared = {"capacity": size, "accessModes": ["ReadWriteMany"], "hostPath": {"path": self.checkpoints}}
        shared |= {"claimRef": {"namespace": "vision", "name": "checkpoints"}}
        objects = [{**volume, "spec": shared}, {**claim, "spec": {**spec, "resources": {"requests": size}}}]
        self.lab.cluster.apply([{"apiVersion": "v1", **item} for item in objects])
        self.write_job(60)

    def become_a_member(self) -> None:
        """Take the kubeconfig that the playbook has printed, and write a job of one's own."""
        for place in (self.reader.folder, self.home):
            shutil.copy(self.state / "default" / "teams" / "vision.kubeconfig", place / "vision.kubeconfig")
        self.write_job(80)

    def have_a_namespace(self) -> None:
        self.lab.kubectl("create", "namespace", "team-a")
        job = self.fit(read_example("guide_fabric", 1)["muster_fabric_job"])
        # The links of one machine have no figure to expect.
        self.reader.write("fabric.yml", {"muster_fabric_job": job, "muster_fabric_allow_unproven": True})

    def have_a_run(self) -> None:
        """Start a run in the namespace, which nobody follows."""
        placement = {"backend": "kubernetes", "namespace": "team-a"}
        small = {"cpu": 0.1, "memory": "128Mi"}
        job = {"name": "stuck", "nodes": 2, "launcher": "command", "command": ["sleep", "600"], "resources": small}
        job |= {"image": self.lab.image, "placement": placement}
        self.reader.write("stuck.yml", {"muster_job": job, "training_job_wait": False})
        words = (
            "muster.training.train -e @stuck.yml -e muster_train_hosts=localhost -e muster_kubeconfig=~/.kube/config"
        )
        self.reader.type(f"ansible-playbook -i localhost, -c local {words}")
        # A pod that runs has its rank a moment later.
        until(lambda: [self.has_its_rank(pod) for pod in self.pods("team-a")] == [True] * SIZE, 120)

    def pods(self, namespace: str) -> list[dict[str, t.Any]]:
        return [pod for pod in self.lab.pods(namespace) if pod["metadata"]["name"].startswith("stuck")]

    def has_its_rank(self, pod: dict[str, t.Any]) -> bool:
        if pod["status"]["phase"] != "Running":
            return False
        words = ("exec", pod["metadata"]["name"], "-n", "team-a", "--", "sh", "-c", "cat /proc/[0-9]*/comm")
        try:
            return "sleep" in self.lab.kubectl(*words).split()
        except AssertionError:
            return False

    def write_acceptance(self) -> None:
        """End what runs, and write the file of the guide."""
        self.lab.kubectl("delete", "namespace", "team-a", "--wait=false")
        values = read_example("guide_acceptance", 0)
        job = self.fit(values["muster_accept_job"])
        # Nodes of one machine share its processors: whether two do more than one is chance.
        few = {"fleet_acceptance_tests": ["fabric", "queue", "user", "resume"], "fleet_acceptance_nodes": SIZE}
        few |= {"muster_fabric_allow_unproven": True}
        self.reader.write("cluster.yml", values | few | {"muster_accept_job": job})

    def close(self) -> None:
        """Remove what a session that failed has left."""
        with contextlib.suppress(AssertionError):
            self.reader.run("guide_team-2")
        self.lab.unlabel()
        self.lab.on_node(self.lab.nodes[0], "rm", "-rf", self.checkpoints)
        for path in ("/api/v1/namespaces/team-a", "/api/v1/persistentvolumes/vision-checkpoints"):
            self.lab.api.ask("DELETE", path)
        self.lab.api.ask("DELETE", f"{KUEUE}/resourceflavors/muster")
        until(lambda: self.lab.api.get("/api/v1/namespaces/vision") is None, 90)


@pytest.fixture(scope="module")
def office(kube_lab: KubeLab, tmp_path_factory: pytest.TempPathFactory) -> t.Iterator[Office]:
    if not kube_lab.torch:
        not_run("the cluster has no torch (MUSTER_TORCH_PYTHON)")
    found = Office(kube_lab, tmp_path_factory.mktemp("reader"))
    yield found
    found.close()


@pytest.mark.parametrize("name", BLOCKS)
def test_a_block_does_what_the_page_says(office: Office, name: str) -> None:
    printed = office.reader.run(name, office.prepare(name))
    require_said(SAID, name, printed)


def test_what_the_session_leaves(office: Office) -> None:
    """After all blocks: two runs that succeeded, one acceptance with its proof of a resume, and no team."""
    records = [json.loads(place.read_text()) for place in office.state.glob("default/runs/char-lm*/run.json")]
    assert [(record["outcome"], record["backend"]) for record in records] == [("succeeded", "kubernetes")] * 2
    value = json.loads((office.state / "default" / "accept.json").read_text())
    parts = {part["name"]: part["outcome"] for part in value["parts"]}
    assert {parts[name] for name in ("queue", "user", "resume")} == {"pass"}, parts
    # Deleted: the cluster takes a moment to remove what is in it.
    assert until(lambda: office.lab.api.get("/api/v1/namespaces/vision") is None, 90)
