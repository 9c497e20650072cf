# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A member of a team uses a bucket: bound by the command of the page, data staged, checkpoints stored, resumed, fetched.

With the limited kubeconfig of the role team alone: no node can be read, no pod made, no namespace but the team's seen.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import shutil
import subprocess
import typing as t
import uuid

import pytest

from ansible_collections.muster.training.tests.lab import seaweedfs
from ansible_collections.muster.training.tests.lab.kube.stages import until
from ansible_collections.muster.training.tests.lab.kube_plays import Controller, Play
from ansible_collections.muster.training.tests.lab.kube_registry import registry
from ansible_collections.muster.training.tests.support.kube_lab import KubeLab, Team, kube_lab
from ansible_collections.muster.training.tests.support.shell_blocks import Reader, own_environment, read_example

__all__ = ["kube_lab"]
BLOCKS = ("guide_team-3",)
KUEUE = "/apis/kueue.x-k8s.io/v1beta2"
_DATA = "/var/tmp/muster-member-store"
TOKEN = "token-of-a-hub-0451"
# Stores step 5 and waits; a start that finds it ends.
PROGRAM = """
import hashlib, json, os, pathlib, sys, time
text = pathlib.Path(os.environ["MUSTER_DATASET_TEXT"], "a.txt").read_text()
folder = pathlib.Path(os.environ["MUSTER_CHECKPOINT_DIR"])
found = sorted(folder.glob("step-*.pt"))
secret = hashlib.sha256(os.environ["HUB_TOKEN"].encode()).hexdigest()[:8]
print(f"data={text} secret={secret} begins after {found[-1].name if found else 'nothing'}", flush=True)
if found:
    sys.exit(0)
place = folder / "step-5.pt"
place.write_text("five")
with open(os.environ["MUSTER_METRICS_FILE"], "a") as report:
    report.write(json.dumps({"checkpoint_step": 5, "path": str(place)}) + "\\n")
time.sleep(600)
"""
_PUT = """
import sys, botocore.session
from botocore.config import Config
keys = dict(line.strip().split(" = ", 1) for line in open(sys.argv[1]) if " = " in line)
s3 = botocore.session.get_session().create_client(
    "s3", endpoint_url=sys.argv[2], region_name="us-east-1", aws_access_key_id=keys["AWS_ACCESS_KEY_ID"],
    aws_secret_access_key=keys["AWS_SECRET_ACCESS_KEY"], config=Config(s3={"addressing_style": "path"}))
print(s3.generate_presigned_url("put_object", Params={"Bucket": "data", "Key": "text/a.txt"}))
"""
_SEND = (
    "import http.client, sys; c = http.client.HTTPConnection(sys.argv[1], 8333);"
    " c.request('PUT', sys.argv[2], b'lines', {'Host': sys.argv[3]}); print(c.getresponse().status)"
)


class Walk:
    """An administrator with a store in the cluster, and a member with a folder, a home and a kubeconfig of his own."""

    def __init__(self, lab: KubeLab, root: pathlib.Path, store: Team, image: str) -> None:
        self.lab, self.root, self.store, self.team = lab, root, store, f"team-{uuid.uuid4().hex[:6]}"
        self.programs = seaweedfs.services_folder()
        self.admin = Controller(lab, store, root / "admin")
        self.admin.folder.mkdir()
        self.admin.programs = self.programs
        place = {"namespace": store.namespace, "node": lab.nodes[0], "host_path": _DATA, "size": "2Gi", "image": image}
        resources = [{"purpose": name, "ref": ref} for name, ref in (("datasets", "data"), ("checkpoints", "saved"))]
        service = {"name": "store", "kind": "object_store", "mode": "deploy", "deploy": place, "resources": resources}
        pods = {"namespace": store.namespace, "image": lab.image}
        self.play("services", muster_services=[service], muster_services_pods=pods)
        quota = {"cpu": 2, "memory": "4Gi"}
        member = root / "member"
        (member / "home").mkdir(parents=True)
        self.play(
            "team", muster_team=self.team, team_quota=quota, team_kubeconfig_path=str(member / "vision.kubeconfig")
        )
        self.reader = Reader(member, own_environment(member / "home"), {}, self.programs)
        self.reader.environment["KUBECONFIG"] = ""

    def play(self, playbook: str, **extra: t.Any) -> str:
        """Run a playbook as administrator."""
        code, output = self.admin.play(playbook, **extra)
        assert code == 0, output
        return output

    @property
    def state(self) -> pathlib.Path:
        return self.admin.folder / "state" / "default"

    def give_to_the_team(self) -> None:
        """Give the keys of the store as a Secret of the namespace, a secret of the jobs, and the file of the page."""
        lines = (self.state / "services" / "store.credentials").read_text().splitlines()
        keys = dict(line.split(" = ", 1) for line in lines if " = " in line)
        own = {name: keys[name] for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")}
        for name, data in (("store-keys", own), ("hub", {"token": TOKEN})):
            meta = {"name": name, "namespace": self.team}
            self.lab.cluster.apply([{"apiVersion": "v1", "kind": "Secret", "metadata": meta, "stringData": data}])
        values = read_example("guide_team", 2)
        values["muster_services_pods"] = {"namespace": self.team, "image": self.lab.image}
        (entry,) = values["muster_services"]
        bound = json.loads((self.state / "bindings" / "store.json").read_text())
        entry |= {"endpoint": bound["endpoint"], "resources": bound["resources"]}
        self.reader.write("services.yml", values)
        self.put_data(bound["endpoint"])

    def put_data(self, endpoint: str) -> None:
        """Put an object into the bucket for datasets, from a node, by the address of the Service."""
        argv = [str(self.programs / "python"), "-c", _PUT, str(self.state / "services" / "store.credentials"), endpoint]
        signed = subprocess.run(argv, capture_output=True, text=True, check=True).stdout.strip()
        entry = self.lab.api.get(f"/api/v1/namespaces/{self.store.namespace}/services/muster-store")
        host = endpoint.partition("://")[2]
        words = ("python3", "-c", _SEND, entry["spec"]["clusterIP"], signed.partition(host)[2], host)
        assert self.lab.on_node(self.lab.nodes[1], *words).strip() == "200"

    def start_training(self) -> Play:
        job = {
            "name": "walk",
            "nodes": 2,
            "launcher": "command",
            "command": ["python3", "-c", PROGRAM],
            "image": self.lab.image,
            "resources": {"cpu": 0.2, "memory": "128Mi"},
            "datasets": [{"name": "text", "binding": "store", "prefix": "text"}],
            "checkpoints": {"binding": "store", "grace_s": 5},
            "restart": {"max_crashes": 2},
            "secret_refs": [{"name": "HUB_TOKEN", "from": "kubernetes", "path": "hub", "key": "token"}],
            "placement": {"backend": "kubernetes", "namespace": self.team},
        }
        self.reader.write("job.yml", {"muster_job": job})
        argv = [str(self.programs / "ansible-playbook"), "-i", "localhost,", "-c", "local", "muster.training.train"]
        argv += ["-e", "muster_train_hosts=localhost", "-e", "muster_kubeconfig=vision.kubeconfig", "-e", "@job.yml"]
        return Play(argv, {**os.environ, **self.reader.environment}, self.reader.folder / "train.log")

    def stored(self) -> set[t.Any]:
        """Return the nodes whose checkpoint is in the bucket by what the run has told."""
        found = set()
        for place in self.reader.folder.glob("home/.local/state/muster/*/runs/*/events.jsonl"):
            events = [json.loads(line) for line in place.read_text().splitlines()]
            found |= {event.get("rank", event.get("node")) for event in events if event["kind"] == "checkpoint_stored"}
        return found

    def lose_a_pod(self) -> None:
        """Delete a pod of the gang with the member's own rights."""
        pods = [
            pod["metadata"]["name"] for pod in self.lab.pods(self.team) if pod["metadata"]["name"].startswith("walk")
        ]
        kubeconfig = str(self.reader.folder / "vision.kubeconfig")
        self.lab.kubectl("--kubeconfig", kubeconfig, "delete", "pod", pods[0], "-n", self.team, "--wait=false")

    def close(self) -> None:
        with contextlib.suppress(AssertionError):
            self.play("team", muster_team=self.team, team_state="absent", team_discard=True)
        until(lambda: self.lab.api.get(f"/api/v1/namespaces/{self.team}") is None, 90)
        self.lab.api.ask("DELETE", f"{KUEUE}/resourceflavors/muster")
        self.lab.on_node(self.lab.nodes[0], "rm", "-rf", _DATA)
        self.lab.api.ask("DELETE", f"/api/v1/persistentvolumes/{self.store.namespace}-muster-store-data")


@pytest.fixture(scope="module")
def walk(kube_lab: KubeLab, tmp_path_factory: pytest.TempPathFactory) -> t.Iterator[Walk]:
    with registry(kube_lab) as images, kube_lab.namespace(cpu="2", memory="4Gi") as store:
        # A folder of a node belongs to root: the pod is somebody else.
        kube_lab.on_node(kube_lab.nodes[0], "sh", "-c", f"mkdir -p {_DATA} && chown 65532 {_DATA}")
        found = Walk(kube_lab, tmp_path_factory.mktemp("walk"), store, seaweedfs.push_image(images))
        try:
            yield found
        finally:
            found.close()


def test_a_member_binds_trains_resumes_and_fetches(walk: Walk) -> None:
    walk.give_to_the_team()
    (bound,) = walk.reader.run(BLOCKS[0])
    assert "changed=1" in bound and "store at http" in bound, bound
    (again,) = walk.reader.run(BLOCKS[0])
    assert "changed=0" in again, again
    play = walk.start_training()
    try:
        assert until(lambda: len(walk.stored()) == 2 or play.ended, 240), play.output
        walk.lose_a_pod()
        code, output = play.wait(240)
    finally:
        play.stop()
    assert code == 0, output
    (place,) = walk.reader.folder.glob("home/.local/state/muster/default/runs/*/run.json")
    record = json.loads(place.read_text())
    text = "".join(log.read_text() for log in (place.parent / "logs").iterdir())
    assert text.count("data=lines secret=") >= 4 and TOKEN not in text + output
    assert "begins after nothing" in text and text.count("begins after step-5.pt") == 2, text
    assert (record["outcome"], len(record["attempts"])) == ("succeeded", 2)
    words = "muster.training.fetch -e muster_train_hosts=localhost -e muster_kubeconfig=vision.kubeconfig"
    fetched = walk.reader.type(f"ansible-playbook -i localhost, -c local {words} -e muster_fetch_dest=./model")
    assert "fetched" in fetched, fetched
    assert [found.read_text() for found in (walk.reader.folder / "model").rglob("step-5.pt")] == ["five"]
    # The run's own object stays for its time, as every run's does.
    left = walk.lab.kubectl("get", "job,configmap,secret", "-n", walk.team, "-o", "name").split()
    assert [name for name in left if "muster-visit" in name or "muster-files" in name] == [], left
    shutil.rmtree(walk.reader.folder / "model")
