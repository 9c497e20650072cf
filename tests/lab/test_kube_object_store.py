# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""SeaweedFS deployed in the cluster by the playbook, bound from the network of pods, used by jobs, and taken away.

The tests build on each other, in their order.
"""

from __future__ import annotations

import json
import pathlib
import re
import subprocess
import time
import typing as t

import pytest

from ansible_collections.muster.training.tests.lab import seaweedfs
from ansible_collections.muster.training.tests.lab.kube.stages import until
from ansible_collections.muster.training.tests.lab.kube_plays import Controller, command
from ansible_collections.muster.training.tests.lab.kube_ray import LIMIT_S, ray_image, ray_job
from ansible_collections.muster.training.tests.lab.kube_registry import registry
from ansible_collections.muster.training.tests.support.kube_lab import NOTES, KubeLab, kube_lab

__all__ = ["kube_lab", "ray_image"]
_DATA, _CACHE = "/var/tmp/muster-store", "/var/tmp/muster-cache"


class World(t.NamedTuple):
    """A controller with the programs for services, and the image of the store."""

    controller: Controller
    image: str

    @property
    def space(self) -> str:
        return self.controller.team.namespace

    @property
    def state(self) -> pathlib.Path:
        return self.controller.folder / "state" / "default"

    def services(self, state: str = "present", check: bool = False, **deploy: t.Any) -> tuple[int, str, float]:
        """Run the playbook; return its exit code, output and seconds."""
        place = {"namespace": self.space, "node": self.controller.lab.nodes[0], "host_path": _DATA, "size": "2Gi"}
        service = {
            "name": "store",
            "kind": "object_store",
            "mode": "deploy",
            "state": state,
            "deploy": {**place, "image": self.image, **deploy},
            "resources": [{"purpose": name, "ref": name} for name in ("datasets", "checkpoints")],
        }
        pods = {"namespace": self.space, "image": self.controller.lab.image}
        began = time.monotonic()
        code, output = self.controller.play(
            "services",
            check=check,
            muster_services=[service],
            muster_services_pods=pods,
            muster_node_hosts="localhost",
        )
        return code, output, time.monotonic() - began

    def binding(self) -> dict[str, t.Any]:
        return t.cast("dict[str, t.Any]", json.loads((self.state / "bindings" / "store.json").read_text()))


def changed(output: str) -> int:
    """Return how many tasks of a play changed something."""
    return sum(int(number) for number in re.findall(r"changed=(\d+)", output))


@pytest.fixture(scope="module")
def world(kube_lab: KubeLab, tmp_path_factory: pytest.TempPathFactory) -> t.Iterator[World]:
    programs = seaweedfs.services_folder()
    node = kube_lab.nodes[0]
    with registry(kube_lab) as images, kube_lab.namespace(cpu="8", memory="16Gi") as team:
        image = seaweedfs.push_image(images)
        # A folder of a node belongs to root: the pod is somebody else.
        kube_lab.on_node(node, "sh", "-c", f"mkdir -p {_DATA} && chown 65532 {_DATA}")
        controller = Controller(kube_lab, team, tmp_path_factory.mktemp("object-store"))
        controller.programs = programs
        try:
            yield World(controller, image)
        finally:
            kube_lab.on_node(node, "rm", "-rf", _DATA)
            kube_lab.api.ask("DELETE", f"/api/v1/persistentvolumes/{team.namespace}-muster-store-data")


def test_a_check_predicts_and_changes_nothing(world: World) -> None:
    code, output, _seconds = world.services(check=True)
    assert code == 0 and changed(output) > 0, output
    assert world.controller.lab.items(f"/apis/apps/v1/namespaces/{world.space}/statefulsets") == []
    assert not (world.state / "services").exists()


def test_the_store_is_deployed_and_bound_from_pods(world: World) -> None:
    code, output, seconds = world.services()
    assert code == 0, output
    NOTES.append(f"services.yml deploys SeaweedFS in the cluster: {seconds:.1f} s")
    binding = world.binding()
    assert {(row["vantage"], row["ok"]) for row in binding["reachable_from"]} == {("pod", True)}
    assert {row["node"] for row in binding["reachable_from"]} >= set(world.controller.lab.nodes)
    assert binding["endpoint"] == f"http://muster-store.{world.space}.svc:8333"
    text = (world.state / "services" / "store.credentials").read_text()
    secrets = [line.partition(" = ")[2] for line in text.splitlines() if " = " in line]
    assert len(secrets) == 4 and not [value for value in secrets if value in output or value in json.dumps(binding)]
    pods = world.controller.lab.items(f"/api/v1/namespaces/{world.space}/pods")
    assert [item["metadata"]["name"] for item in pods] == ["muster-store-0"]
    assert not [value for value in secrets if value in json.dumps(pods)]


def test_a_second_run_sends_nothing(world: World) -> None:
    code, output, seconds = world.services()
    NOTES.append(f"services.yml again, in the cluster: {seconds:.1f} s")
    assert code == 0 and changed(output) == 0, output
    pods = world.controller.lab.items(f"/api/v1/namespaces/{world.space}/pods")
    assert [item["metadata"]["name"] for item in pods] == ["muster-store-0"]


PROGRAM = """
import json, os, pathlib, sys, time
text = pathlib.Path(os.environ["MUSTER_DATASET_TEXT"], "a.txt").read_text()
folder = pathlib.Path(os.environ["MUSTER_CHECKPOINT_DIR"])
found = sorted(folder.glob("step-*.pt"))
print(f"data={text} begins after {found[-1].name if found else 'nothing'}", flush=True)
if found:
    sys.exit(0)
place = folder / "step-5.pt"
place.write_text("five")
with open(os.environ["MUSTER_METRICS_FILE"], "a") as report:
    report.write(json.dumps({"checkpoint_step": 5, "path": str(place)}) + "\\n")
time.sleep(600)
"""
_PUT = """
import sys, botocore.session, urllib.request
from botocore.config import Config
keys = dict(line.strip().split(" = ", 1) for line in open(sys.argv[1]) if " = " in line)
s3 = botocore.session.get_session().create_client(
    "s3", endpoint_url=sys.argv[2], region_name="us-east-1", aws_access_key_id=keys["AWS_ACCESS_KEY_ID"],
    aws_secret_access_key=keys["AWS_SECRET_ACCESS_KEY"], config=Config(s3={"addressing_style": "path"}))
print(s3.generate_presigned_url("put_object", Params={"Bucket": "datasets", "Key": "text/a.txt"}))
"""


def put_data(world: World) -> None:
    """Put an object into the bucket for datasets, from a node, by the address of the Service."""
    argv = [str(world.controller.programs / "python"), "-c", _PUT]
    argv += [str(world.state / "services" / "store.credentials"), world.binding()["endpoint"]]
    signed = subprocess.run(argv, capture_output=True, text=True, check=True).stdout.strip()
    entry = world.controller.lab.api.get(f"/api/v1/namespaces/{world.space}/services/muster-store")
    host = world.binding()["endpoint"].partition("://")[2]
    path = signed.partition(host)[2]
    send = (
        "import http.client, sys; c = http.client.HTTPConnection(sys.argv[1], 8333);"
        " c.request('PUT', sys.argv[2], b'lines', {'Host': sys.argv[3]}); print(c.getresponse().status)"
    )
    said = world.controller.lab.on_node(
        world.controller.lab.nodes[1], "python3", "-c", send, entry["spec"]["clusterIP"], path, host
    )
    assert said.strip() == "200", said


def test_a_job_reads_its_data_is_killed_with_its_node_and_resumes_from_the_bucket(world: World) -> None:
    lab = world.controller.lab
    put_data(world)
    keeper, other = lab.nodes[0], lab.nodes[1]
    job = command(
        "python3",
        "-c",
        PROGRAM,
        nodes=1,
        datasets=[{"name": "text", "binding": "store", "prefix": "text"}],
        checkpoints={"binding": "store", "grace_s": 5},
        restart={"max_lost_nodes": 1},
    )
    # Not on the store's node, which is not the one that is lost.
    lab.kubectl("cordon", keeper)
    try:
        play = world.controller.start("train", job)
        assert until(lambda: stored(world) or play.ended, 180), play.output
        lab.kubectl("uncordon", keeper)
        lab.fault("kill", other)
        code, output = play.wait(400)
    finally:
        lab.kubectl("uncordon", keeper)
        lab.fault("start", other)
        ready = "jsonpath={.status.conditions[?(@.type=='Ready')].status}"
        assert until(lambda: lab.kubectl("get", "node", other, "-o", ready) == "True", 120)
    assert code == 0, output
    record, folder = world.controller.run()
    text = "".join(place.read_text() for place in (folder / "logs").iterdir())
    assert "data=lines begins after nothing" in text and "data=lines begins after step-5.pt" in text, text
    assert record["outcome"] == "succeeded" and len(record["attempts"]) == 2
    assert lab.api.get(f"/api/v1/namespaces/{world.space}/secrets/{record['run_id']}-secrets") is None
    # Its pods are gone, and the controller does not know the names of Services: a pod reads the bucket for it.
    code, output = world.controller.play("fetch", check=True)
    assert code == 0 and "check mode starts none" in output, output
    began = time.monotonic()
    code, output = world.controller.play("fetch")
    NOTES.append(f"fetch from the store in the cluster: {time.monotonic() - began:.1f} s, the pod's start included")
    assert code == 0 and "starting a pod that reads the object store store" in output, output
    assert (folder / "files" / "step-5.pt").read_text() == "five"
    assert changed(world.controller.play("fetch")[1]) == 0
    jobs = lab.items(f"/apis/batch/v1/namespaces/{world.space}/jobs")
    assert [item for item in jobs if item["metadata"]["name"].startswith("muster-files")] == []


def stored(world: World) -> bool:
    """Return whether the run has told that a checkpoint is in the bucket."""
    places = list((world.controller.folder / "state").glob("*/runs/*/events.jsonl"))
    return any("checkpoint_stored" in place.read_text() for place in places)


def test_workers_of_an_mpi_job_read_the_data_that_they_share_on_their_node(world: World) -> None:
    lab = world.controller.lab
    put_data(world)
    lab.cluster.install(["mpi-operator"])
    for node in lab.nodes:
        lab.on_node(node, "mkdir", "-p", _CACHE)
    program = 'echo "rank $OMPI_COMM_WORLD_RANK reads $(cat $MUSTER_DATASET_TEXT/a.txt)"'
    job = command(
        "sh",
        "-c",
        program,
        launcher="mpi",
        mounts=[{"name": "cache", "path": "/cache", "host_path": _CACHE}],
        datasets=[{"name": "text", "binding": "store", "prefix": "text", "cache": "/cache"}],
    )
    try:
        code, output = world.controller.play("train", job, muster_run_id="mpi-data")
        assert code == 0, output
        _record, folder = world.controller.run("mpi-data")
        text = "".join(place.read_text() for place in (folder / "logs").iterdir())
        assert "rank 0 reads lines" in text and "rank 1 reads lines" in text, text
        staged = [lab.on_node(node, "sh", "-c", f"find {_CACHE} -name a.txt").split() for node in lab.nodes]
        assert {len(found) for found in staged} <= {0, 1} and any(staged), staged
    finally:
        for node in lab.nodes:
            lab.on_node(node, "rm", "-rf", _CACHE)


def test_ray_train_resumes_from_the_bucket_in_another_cluster(world: World, ray_image: str) -> None:
    """No folder is shared: the driver of the first cluster gives up, and the next cluster's group begins where it was."""
    job = ray_job(ray_image, world.controller.folder, 0, 2, checkpoints={"binding": "store", "grace_s": 5})
    code, output = world.controller.play("train", job, limit_s=2 * LIMIT_S, muster_run_id="ray-store")
    assert code == 0, output
    record, folder = world.controller.run("ray-store")
    assert (record["outcome"], record["world_size"]) == ("succeeded", {"asked": 2, "seen": 2})
    text = "".join(place.read_text() for place in (folder / "logs").iterdir())
    # Ray repeats what its workers print.
    groups = dict.fromkeys(re.findall(r"pid=(\d+), ip=(\S+)\) rank 0 of 2 (new|resumed)", text))
    assert [begun for _pid, _address, begun in groups] == ["new", "resumed", "resumed"], text
    assert "Checkpoint(filesystem=s3, path=checkpoints/ray-store/" in text, text
    text = (world.state / "services" / "store.credentials").read_text()
    secrets = [line.partition(" = ")[2] for line in text.splitlines() if " = " in line]
    kept = [place.read_text(errors="replace") for place in folder.rglob("*") if place.is_file()]
    assert not [value for value in secrets if any(value in data for data in (output, *kept))]
    assert world.controller.lab.api.get(f"/api/v1/namespaces/{world.space}/secrets/ray-store-secrets") is None


def test_a_removal_keeps_the_claim_unless_the_data_is_to_go(world: World) -> None:
    code, output, _seconds = world.services("absent")
    assert code == 0 and changed(output) > 0, output
    lab, space = world.controller.lab, world.space
    assert lab.items(f"/apis/apps/v1/namespaces/{space}/statefulsets") == []
    claims = lab.items(f"/api/v1/namespaces/{space}/persistentvolumeclaims")
    assert [item["metadata"]["name"] for item in claims] == ["muster-store-data"]
    assert world.services("absent")[:1] == (0,) and not (world.state / "bindings" / "store.json").exists()
    code, output, _seconds = world.services("absent", delete_data=True)
    assert code == 0, output
    left = lab.items(f"/api/v1/namespaces/{space}/persistentvolumeclaims")
    assert [item for item in left if not item["metadata"].get("deletionTimestamp")] == []
