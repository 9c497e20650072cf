# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The image of a job whose registry is bound: one digest a start, from a strict registry over real HTTP."""

from __future__ import annotations

import base64
import dataclasses
import json
import pathlib
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.binding import Binding
from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError, RefusedError
from ansible_collections.muster.training.plugins.module_utils._model.job import parse_job
from ansible_collections.muster.training.plugins.plugin_utils._kube.jobs import jobset
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared import bindings
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared.state_dir import StateHome
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job import image_pin as subject
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.job_secrets.values import (
    JobSecrets,
)
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.kubernetes.submit import (
    build_pull_secret,
)
from ansible_collections.muster.training.tests.fakes.registry import PASSWORD, USER, FakeRegistry, Fault
from ansible_collections.muster.training.tests.support.run_world import Said
from ansible_collections.muster.training.tests.unit.plugins.plugin_utils._kube.jobs.plans import plan

MIRROR = "registry.mesh:5000"
IMAGE = f"{MIRROR}/team/train:1"


@pytest.fixture
def server() -> t.Iterator[FakeRegistry]:
    with FakeRegistry("bearer") as made:
        yield made


@pytest.fixture
def home(tmp_path: pathlib.Path, server: FakeRegistry, monkeypatch: pytest.MonkeyPatch) -> StateHome:
    monkeypatch.setenv("REGISTRY_USERNAME", USER)
    monkeypatch.setenv("REGISTRY_PASSWORD", PASSWORD)
    made = StateHome({"path": str(tmp_path)}, "c")
    bindings.write_binding(made, bound(server))
    return made


def bound(server: FakeRegistry, **changes: t.Any) -> Binding:
    about = {"name": "images", "component": "registry", "mode": "bind", "endpoint": server.url, "hosts": [MIRROR]}
    return Binding.from_dict({**about, "secret_ref": {"from": "env"}, **changes})


def find(home: StateHome, image: str = IMAGE) -> subject.JobImage | None:
    place = {"backend": "kubernetes"}
    given = {"name": "j", "nodes": 1, "gpus_per_node": 0, "image": image, "script": "/train.py", "placement": place}
    return subject.find_image(home, parse_job(given))


def found(home: StateHome, image: str = IMAGE) -> subject.JobImage:
    image_found = find(home, image)
    assert image_found is not None
    return image_found


def node(name: str, architecture: str) -> t.Any:
    return {"metadata": {"name": name}, "status": {"nodeInfo": {"architecture": architecture}}}


def test_two_images_under_one_tag_are_one_digest_a_start(home: StateHome, server: FakeRegistry) -> None:
    first = server.add_image("team/train", "1", ("amd64", "arm64"), "first")
    progress = Said()
    pinned = found(home).pin(progress)
    second = server.add_image("team/train", "1", ("amd64", "arm64"), "second")
    assert first != second and pinned.pinned_name == f"{MIRROR}/team/train@{first}"
    assert found(home).pin(progress).digest == second and pinned.digest == first
    assert pinned.architectures == ("amd64", "arm64") and f"{first}, for amd64, arm64" in progress.lines[0]


def test_pods_run_the_digest_with_a_secret_on_nodes_of_its_architecture(home: StateHome, server: FakeRegistry) -> None:
    digest = server.add_image("team/train", "1", ("arm64",))
    image = found(home).pin(Said())
    completed = image.complete(plan())
    main = json.dumps(jobset.build(completed)[-1])
    assert f'"image": "{MIRROR}/team/train@{digest}"' in main and PASSWORD not in main
    assert json.dumps({"key": "kubernetes.io/arch", "operator": "In", "values": ["arm64"]}) in main
    assert completed.pull_secret and json.dumps([{"name": completed.pull_secret}]) in main
    (secret,) = build_pull_secret(completed, image.add_login(JobSecrets(IMAGE)))
    data: t.Any = secret
    config = json.loads(base64.b64decode(data["data"][".dockerconfigjson"]))
    assert config["auths"][MIRROR]["password"] == PASSWORD and list(config["auths"]) == [MIRROR]
    assert PASSWORD not in repr(image) and PASSWORD not in repr(image.add_login(JobSecrets(IMAGE)))


def test_nodes_that_cannot_run_the_image_are_left_out_or_refused(home: StateHome, server: FakeRegistry) -> None:
    server.add_image("team/train", "1")
    image = found(home).pin(Said())
    nodes = [node("a", "amd64"), node("b", "arm64"), {"metadata": {"name": "c", "labels": {}}}]
    fitting, others = image.split(nodes)
    assert ([item["metadata"]["name"] for item in fitting], others) == (["a", "c"], ["b (arm64)"])
    image.require_fitting(fitting, others)
    with pytest.raises(RefusedError, match=r"is made for amd64, and nodes are b \(arm64\).*index of both"):
        image.require_fitting(*image.split(nodes[1:2]))
    assert found(home).split(nodes) == (nodes, [])


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (Fault(404, b'{"errors": [{"code": "MANIFEST_UNKNOWN"}]}'), "job.image: .*MANIFEST_UNKNOWN.*tag"),
        (Fault(403, b'{"errors": [{"code": "DENIED"}]}'), "job.image: .*DENIED"),
    ],
)
def test_an_image_that_no_node_could_pull_is_refused(
    home: StateHome, server: FakeRegistry, fault: Fault, words: str
) -> None:
    server.faults["GET /v2/team/train/manifests/1"] = [fault]
    with pytest.raises(RefusedError, match=words):
        found(home).pin(Said())


@pytest.mark.parametrize("status", [429, 503])
def test_a_registry_that_does_not_answer_now_leaves_the_tag(home: StateHome, server: FakeRegistry, status: int) -> None:
    server.faults["GET /v2/team/train/manifests/1"] = [Fault(status)]
    progress = Said()
    image = found(home).pin(progress)
    assert image.pinned_name is None and image.complete(plan()).image == plan().job.image
    assert f"warning: image {IMAGE} has no digest" in progress.lines[0] and str(status) in progress.lines[0]


def test_a_registry_is_found_by_the_name_of_the_image(home: StateHome, server: FakeRegistry) -> None:
    assert found(home, f"{server.host}/a/b").binding.name == "images"
    assert find(home, "python:3.13") is None and find(home, "other.example.com/a:1") is None
    bindings.write_binding(home, bound(server, name="hub", hosts=["docker.io"], secret_ref=None))
    hub = found(home, "python:3.13")
    assert (hub.binding.name, hub.name.repository, hub.add_login(JobSecrets())) == (
        "hub",
        "library/python",
        JobSecrets(),
    )
    assert hub.complete(plan()).pull_secret is None
    with pytest.raises(InputError, match="job.image: 'Team/train:1' is not the name of an image"):
        find(home, f"{MIRROR}/Team/train:1")


def test_credentials_that_are_not_there_are_named(home: StateHome, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("REGISTRY_PASSWORD")
    with pytest.raises(InputError, match="muster_services.images.secret_ref: REGISTRY_PASSWORD is not in"):
        find(home)


def test_a_node_that_was_seen_not_to_reach_the_registry_is_refused(home: StateHome, server: FakeRegistry) -> None:
    rows = [{"node": "a", "vantage": "host", "ok": True}, {"node": "b", "vantage": "host", "ok": False}]
    rows[1] |= {"problem": "the name is not known here", "fix": "Check DNS"}
    bindings.write_binding(home, bound(server, reachable_from=rows))
    image = found(home)
    image.require_reachable(["a"], "")
    image.require_reachable(None, "")
    with pytest.raises(RefusedError, match=r"'images' is not reachable .* b \(host\): the name .*Check DNS"):
        image.require_reachable(["a", "b"], "")


def test_an_image_that_says_nothing_of_its_architecture_fits_all(home: StateHome, server: FakeRegistry) -> None:
    server.add_image("team/train", "1")
    for key in list(server.blobs):
        content = json.loads(server.blobs[key]) if server.blobs[key].startswith(b"{") else None
        if content:
            del server.blobs[key]
    with pytest.raises(RefusedError, match="BLOB_UNKNOWN"):
        found(home).pin(Said())
    assert dataclasses.replace(found(home), digest="sha256:0").complete(plan()).fleet == plan().fleet
