# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A member of a team uses a bucket, a registry and a tracker, bound by the command of the page from the page's own entries:
the gang's image by digest, data staged, checkpoints stored, resumed, fetched, and its losses in MLflow.

With the limited kubeconfig of the role team alone: no node can be read, no pod made, no namespace but the team's seen.
SeaweedFS and distribution are real; MLflow is a strict fake on this machine.
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

from ansible_collections.muster.training.tests.fakes.trackers import FakeMlflow
from ansible_collections.muster.training.tests.lab import kube_said, seaweedfs
from ansible_collections.muster.training.tests.lab.kube import images as lab_images
from ansible_collections.muster.training.tests.lab.kube import plan
from ansible_collections.muster.training.tests.lab.kube.stages import until
from ansible_collections.muster.training.tests.lab.kube_plays import Controller, Play
from ansible_collections.muster.training.tests.lab.kube_registry import Registry, registry
from ansible_collections.muster.training.tests.support.kube_lab import KubeLab, Team, kube_lab
from ansible_collections.muster.training.tests.support.loopback import reachable
from ansible_collections.muster.training.tests.support.shell_blocks import Reader, own_environment, read_example

__all__ = ["kube_lab"]
BLOCKS = ("guide_team-3",)
KUEUE = "/apis/kueue.x-k8s.io/v1beta2"
_DATA = "/var/tmp/muster-member-store"
TOKEN = "token-of-a-hub-0451"
HOST, CERTS = "registry.mesh:5000", "/etc/containerd/certs.d"
IMAGE = f"{HOST}/team/train:1"
LOGIN = {"MLFLOW_TRACKING_USERNAME": "vision", "MLFLOW_TRACKING_PASSWORD": "login-of-a-tracker-0451"}
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
    report.write(json.dumps({"at": time.time(), "step": 5, "loss": 0.25}) + "\\n")
    report.write(json.dumps({"at": time.time(), "checkpoint_step": 5, "path": str(place)}) + "\\n")
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
    """An administrator with a store and a registry in the cluster, and a member with a folder, a home and a kubeconfig.

    ``mlflow``: the address of a tracker. ``pushed``: the image of each service.
    """

    def __init__(self, lab: KubeLab, root: pathlib.Path, store: Team, pushed: t.Mapping[str, str], mlflow: str) -> None:
        self.lab, self.root, self.store, self.team = lab, root, store, f"team-{uuid.uuid4().hex[:6]}"
        self.mlflow = mlflow
        self.programs = seaweedfs.services_folder()
        self.admin = Controller(lab, store, root / "admin")
        self.admin.folder.mkdir()
        self.admin.programs = self.programs
        resources = [{"purpose": name, "ref": ref} for name, ref in (("datasets", "data"), ("checkpoints", "saved"))]
        about = {"store": ("object_store", {"resources": resources}), "images": ("registry", {"hosts": [HOST]})}
        services = [
            {"name": name, "kind": kind, "mode": "deploy", "deploy": self.place(name, pushed[name]), **more}
            for name, (kind, more) in about.items()
        ]
        pods = {"namespace": store.namespace, "image": lab.image}
        self.play("services", muster_services=services, muster_services_pods=pods)
        self.trust()
        archive = lab_images.Archives(lab.cluster.podman.home, lab.cluster.binaries, lab.cluster.say).get("training")
        self.play("image", muster_image=IMAGE, muster_image_archive=str(archive))
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

    def place(self, name: str, image: str) -> dict[str, str]:
        """Return where a service runs: on the first node, with a folder of it."""
        about = {"namespace": self.store.namespace, "node": self.lab.nodes[0], "size": "2Gi", "image": image}
        return {**about, "host_path": f"{_DATA}/{name}"}

    def binding(self, name: str) -> dict[str, t.Any]:
        """Return the administrator's binding of a service."""
        return t.cast("dict[str, t.Any]", json.loads((self.state / "bindings" / f"{name}.json").read_text()))

    def credentials(self, name: str, *wanted: str) -> dict[str, str]:
        """Return these credentials of a service that the administrator has deployed."""
        lines = (self.state / "services" / f"{name}.credentials").read_text().splitlines()
        found = dict(line.split(" = ", 1) for line in lines if " = " in line)
        return {key: found[key] for key in wanted}

    def trust(self) -> None:
        """Let the nodes know the name and the CA of the registry, which the role k3s does of K3s."""
        bound = self.binding("images")
        (self.lab.cluster.folder / "shared" / "images.crt").write_text(bound["ca"])
        text = f'server = "{bound["endpoint"]}"\n[host."{bound["endpoint"]}"]\n  ca = "{plan.SHARED}/images.crt"\n'
        for node in self.lab.nodes:
            words = f"mkdir -p {CERTS}/{HOST}; cat > {CERTS}/{HOST}/hosts.toml <<'END'\n{text}\nEND"
            self.lab.on_node(node, "sh", "-ec", words)

    def give_to_the_team(self) -> None:
        """Give the keys of the services as Secrets of the namespace, a secret of the jobs, and the file of the page."""
        secrets = {
            "store-keys": self.credentials("store", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"),
            "images-login": self.credentials("images", "REGISTRY_USERNAME", "REGISTRY_PASSWORD"),
            "mlflow-login": LOGIN,
            "hub": {"token": TOKEN},
        }
        for name, data in secrets.items():
            meta = {"name": name, "namespace": self.team}
            self.lab.cluster.apply([{"apiVersion": "v1", "kind": "Secret", "metadata": meta, "stringData": data}])
        values = read_example("guide_team", 2)
        values["muster_services_pods"] = {"namespace": self.team, "image": self.lab.image}
        values["muster_services"] += read_example("guide_team", 3)
        store, images, mlflow = values["muster_services"]
        bound = self.binding("store")
        store |= {"endpoint": bound["endpoint"], "resources": bound["resources"]}
        images |= {name: self.binding("images")[name] for name in ("endpoint", "ca")}
        mlflow["endpoint"] = self.mlflow
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
            "image": IMAGE,
            "tracking": {"binding": "mlflow", "experiment": "vision", "log": True},
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
        for name in ("store", "images"):
            self.lab.api.ask("DELETE", f"/api/v1/persistentvolumes/{self.store.namespace}-muster-{name}-data")
        for node in self.lab.nodes:
            self.lab.on_node(node, "rm", "-rf", f"{CERTS}/{HOST}")
        (self.lab.cluster.folder / "shared" / "images.crt").unlink(missing_ok=True)


def push_images(lab: KubeLab, images: Registry) -> dict[str, str]:
    """Put the services' own images into a registry of the lab; return their names."""
    distribution = lab.cluster.binaries.get("registry").read_bytes()
    pushed = images.push("distribution", {"usr/bin/registry": distribution}, "amd64", False)
    return {"store": seaweedfs.push_image(images), "images": pushed}


@pytest.fixture(scope="module")
def mlflow(kube_lab: KubeLab) -> t.Iterator[tuple[FakeMlflow, str]]:
    """Give a tracker that wants a login, and the address at which pods and this machine reach it."""
    address = kube_said.gateway(kube_lab)
    with FakeMlflow(hosts=(address,), login=":".join(LOGIN.values())) as server, reachable(server.url, address) as url:
        yield server, url


@pytest.fixture(scope="module")
def walk(
    kube_lab: KubeLab, mlflow: tuple[FakeMlflow, str], tmp_path_factory: pytest.TempPathFactory
) -> t.Iterator[Walk]:
    with registry(kube_lab) as images, kube_lab.namespace(cpu="2", memory="4Gi") as store:
        # Folders of a node belong to root: the pods are somebody else.
        folders = f"{_DATA}/store {_DATA}/images"
        kube_lab.on_node(kube_lab.nodes[0], "sh", "-c", f"mkdir -p {folders} && chown 65532 {folders}")
        found = Walk(kube_lab, tmp_path_factory.mktemp("walk"), store, push_images(kube_lab, images), mlflow[1])
        try:
            yield found
        finally:
            found.close()


def test_a_member_binds_trains_resumes_and_fetches(walk: Walk, mlflow: tuple[FakeMlflow, str]) -> None:
    walk.give_to_the_team()
    (bound,) = walk.reader.run(BLOCKS[0])
    assert all(f"{name} at http" in bound for name in ("store", "images", "mlflow")), bound
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
    assert record["image"] == record["image_digest"], record
    assert record["image"].startswith(f"{IMAGE.rpartition(':')[0]}@sha256:"), record
    (logged,) = mlflow[0].runs.values()
    assert "vision" in mlflow[0].experiments and logged["status"] == "FINISHED", logged
    assert {(key, value) for key, value, _at, step in logged["rows"] if step == 5} >= {("loss", "0.25")}, logged
    for secret in (LOGIN["MLFLOW_TRACKING_PASSWORD"], *walk.credentials("images", "REGISTRY_PASSWORD").values()):
        assert secret not in text + output + bound + place.read_text() + str(logged)
    words = "muster.training.fetch -e muster_train_hosts=localhost -e muster_kubeconfig=vision.kubeconfig"
    fetched = walk.reader.type(f"ansible-playbook -i localhost, -c local {words} -e muster_fetch_dest=./model")
    assert "fetched" in fetched, fetched
    assert [found.read_text() for found in (walk.reader.folder / "model").rglob("step-5.pt")] == ["five"]
    # The run's own object stays for its time, as every run's does.
    left = walk.lab.kubectl("get", "job,configmap,secret", "-n", walk.team, "-o", "name").split()
    assert [name for name in left if "muster-visit" in name or "muster-files" in name] == [], left
    shutil.rmtree(walk.reader.folder / "model")
