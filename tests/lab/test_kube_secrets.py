# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""OpenBao deployed in a cluster: a job in pods has its token from there and its image from a private registry.

The tests of OpenBao build on each other, in their order.
"""

from __future__ import annotations

import hashlib
import json
import pathlib
import time
import typing as t

import pytest

from ansible_collections.muster.training.tests.lab import openbao, podman
from ansible_collections.muster.training.tests.lab.kube import images
from ansible_collections.muster.training.tests.lab.kube.binaries import Binaries
from ansible_collections.muster.training.tests.lab.kube.stages import until
from ansible_collections.muster.training.tests.lab.kube_plays import Controller, command
from ansible_collections.muster.training.tests.lab.kube_registry import registry
from ansible_collections.muster.training.tests.support import canary
from ansible_collections.muster.training.tests.support.kube_lab import NOTES, KubeLab, kube_lab

__all__ = ["kube_lab"]

TOKEN = "kv-canary-of-pods/ü&0001"
# It asks OpenBao with the token that was made for the run, and prints what it has: the controller hides it.
ASKS = """
import hashlib, os, ssl, sys, urllib.request
assert hashlib.sha256(os.environ["TOKEN"].encode()).hexdigest() == sys.argv[1]
assert open(os.environ["AS_FILE_FILE"]).read() == os.environ["TOKEN"]
loose = ssl._create_unverified_context()
request = urllib.request.Request(sys.argv[2] + "/v1/auth/token/lookup-self", headers={"X-Vault-Token": os.environ["MADE"]})
assert urllib.request.urlopen(request, context=loose, timeout=20).status == 200
print("the token is", os.environ["TOKEN"], "and", os.environ["MADE"], flush=True)
"""


class World(t.NamedTuple):
    """A controller of a namespace, and the image of OpenBao."""

    controller: Controller
    image: str

    @property
    def state(self) -> pathlib.Path:
        """The folder of the cluster in the state home."""
        return self.controller.folder / "state" / "default"

    def services(self, state: str = "present", **deploy: t.Any) -> tuple[int, str, float]:
        """Run the playbook for OpenBao in the namespace."""
        namespace = self.controller.team.namespace
        place = {"namespace": namespace, "image": self.image, "size": "1Gi", "node": self.controller.lab.nodes[-1]}
        place |= {"host_path": f"/var/lib/bao-{namespace}", **deploy}
        asked = {"name": "bao", "kind": "secrets", "mode": "deploy", "state": state, "deploy": place}
        began = time.monotonic()
        code, output = self.controller.play("services", muster_services=[asked], muster_node_hosts="localhost")
        return code, output, time.monotonic() - began

    def objects(self) -> str:
        """Return all objects of the namespace, Secrets left out, and what happened to them."""
        kinds = "pods,jobs,jobsets,configmaps,services,statefulsets,events,persistentvolumeclaims"
        return self.controller.lab.kubectl("get", kinds, "-n", self.controller.team.namespace, "-o", "json")


@pytest.fixture(scope="module")
def world(kube_lab: KubeLab, tmp_path_factory: pytest.TempPathFactory) -> t.Iterator[World]:
    openbao.program()
    with kube_lab.namespace(cpu="4", memory="8Gi") as team, registry(kube_lab) as images_of_lab:
        place = f"/var/lib/bao-{team.namespace}"
        node = kube_lab.nodes[-1]
        # Folders of a node are not made for the pod's user.
        kube_lab.on_node(node, "sh", "-c", f"mkdir -p {place} && chown 65532:65532 {place}")
        yield World(
            Controller(kube_lab, team, tmp_path_factory.mktemp("controller")), openbao.push_image(images_of_lab)
        )
        kube_lab.on_node(node, "rm", "-rf", place)


def test_it_is_deployed_in_the_cluster_and_again_with_no_write(world: World) -> None:
    code, output, seconds = world.services()
    assert code == 0, output
    NOTES.append(f"services.yml deploys OpenBao in a cluster: {seconds:.1f} s")
    client = openbao.Client(world.state)
    client.ask("POST", "secret/data/team/train", {"data": {"TOKEN": TOKEN}})
    assert not [secret for secret in client.secrets() if secret in output or secret in world.objects()]
    before = world.controller.lab.kubectl(
        "get", "statefulset,service,secret", "-n", client_namespace(world), "-o", "json"
    )
    code, output, seconds = world.services()
    assert code == 0 and "changed=0" in output.partition("PLAY RECAP")[2], output
    NOTES.append(f"services.yml for OpenBao in a cluster again: {seconds:.1f} s")
    after = world.controller.lab.kubectl(
        "get", "statefulset,service,secret", "-n", client_namespace(world), "-o", "json"
    )
    versions = [[item["metadata"]["resourceVersion"] for item in json.loads(text)["items"]] for text in (before, after)]
    assert versions[0] == versions[1], "nothing was written"


def client_namespace(world: World) -> str:
    return world.controller.team.namespace


def test_a_token_from_openbao_is_read_by_pods_and_is_nowhere_else(world: World) -> None:
    client = openbao.Client(world.state)
    ref = {"from": "openbao", "binding": "bao", "path": "secret/team/train", "key": "TOKEN"}
    refs = [{**ref, "name": "TOKEN"}, {**ref, "name": "AS_FILE", "as": "file"}]
    refs += [{"name": "MADE", "from": "openbao", "binding": "bao", "path": "auth/token/create/job"}]
    digest = hashlib.sha256(TOKEN.encode()).hexdigest()
    argv = ("/usr/bin/python3", "-c", ASKS, digest, client.binding["endpoint"])
    before = set(client.ask("LIST", "auth/token/accessors")["data"]["keys"])
    play = world.controller.start("train", command(*argv, secret_refs=refs))
    seen, made = "", set()
    while not play.ended:
        seen += world.objects()
        made |= set(client.ask("LIST", "auth/token/accessors")["data"]["keys"])
        time.sleep(0.5)
    code, output = play.wait()
    assert code == 0, output
    left = set(client.ask("LIST", "auth/token/accessors")["data"]["keys"])
    assert len(made - before) == 1 and left == before, "one was made for the run, and ended with it"
    record, _folder = world.controller.run()
    assert record["outcome"] == "succeeded"
    logs = "".join(place.read_text() for place in world.state.rglob("logs/*"))
    assert logs.count("the token is *** and ***") == 2, logs
    secrets = world.controller.lab.kubectl("get", "secrets", "-n", client_namespace(world), "-o", "name").split()
    assert secrets == ["secret/muster-bao"], "the run's own goes with it"
    kept = world.state / "services" / "bao.credentials"
    files = [item for item in world.controller.folder.rglob("*") if item.is_file() and item != kept]
    sinks = {"output": output, "objects": seen, **{str(item): item.read_text(errors="replace") for item in files}}
    for value in (TOKEN, *client.secrets()):
        for name, form in canary.encodings(value).items():
            assert not [where for where, text in sinks.items() if form.decode() in text], name


def test_a_job_that_may_not_or_names_what_is_not_there_is_refused(world: World) -> None:
    ref = {"name": "TOKEN", "from": "openbao", "binding": "bao", "path": "secret/team/none", "key": "TOKEN"}
    for changes, words in (
        ({}, "secret/team/none does not exist"),
        ({"path": "auth/token/create"}, "may not read auth/token/create"),
    ):
        code, output = world.controller.play("train", command("true", secret_refs=[{**ref, **changes}]))
        assert code != 0 and words in output, output


def test_a_private_image_is_pulled_with_a_secret_like_others(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The registry answers 401 to who does not log in; both the network test's pods and the gang's pull from it."""
    login, lab = "robot:canary-of-registry-0001", world.controller.lab
    with registry(lab, login) as private:
        home = podman.cache_home()
        image = private.copy("private", images.Archives(home, Binaries(home)).get(images.TRAINING))
        job = {**command("true", restart={"max_crashes": 0}), "image": image, "name": "private"}
        monkeypatch.setenv("PULL", login)
        job["secret_refs"] = [{"name": "PULL", "from": "env", "as": "registry"}]
        code, output = world.controller.play("train", job)
        assert code == 0, output
        names = lab.kubectl("get", "secrets", "-n", client_namespace(world), "-o", "name").split()
        assert names == ["secret/muster-bao"], "it goes with the run"
        kept = [item.read_text(errors="replace") for item in world.controller.folder.rglob("*") if item.is_file()]
        for form in canary.encodings(login).values():
            assert not [text for text in (output, world.objects(), *kept) if form.decode() in text]


def test_it_is_removed_with_its_data(world: World) -> None:
    code, output, _seconds = world.services("absent", delete_data=True)
    assert code == 0, output
    # The folder of the Node stays, and with it the keys.
    assert (world.state / "services" / "bao.credentials").exists()
    # The cluster ends the pod, and then takes its claim.
    words = ("get", "all,secrets,pvc", "-n", client_namespace(world), "-o", "name")
    assert until(lambda: "muster-bao" not in world.controller.lab.kubectl(*words), 60), world.controller.lab.kubectl(
        *words
    )
