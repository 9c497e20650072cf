# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A member with exactly the permissions of the role team binds a registry and a tracker, and his job uses both.

The credentials are in Secrets of the team's namespace alone: this machine's environment has none, and the default
kubeconfig leads nowhere. The API server with its policies is real; pods are the stand-in's of ``test_member_buckets``.
"""

from __future__ import annotations

import base64
import json
import pathlib
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import RefusedError
from ansible_collections.muster.training.plugins.module_utils._model.job import Job, parse_job, to_yaml_names
from ansible_collections.muster.training.plugins.module_utils._model.run_record import BackendRef
from ansible_collections.muster.training.plugins.plugin_utils._kube.api.client import Client
from ansible_collections.muster.training.plugins.plugin_utils._kube.jobs.spec import secret_name
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared import run_record
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared.request import RunRequest
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared.state_dir import load_record
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job import image_pin
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.kubernetes import (
    network_preflight,
)
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.kubernetes import (
    run as kubernetes_run,
)
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.object_stores import pod_store
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job_fetch import models, pods
from ansible_collections.muster.training.tests.fakes.registry import PASSWORD, USER, FakeRegistry
from ansible_collections.muster.training.tests.fakes.trackers import TOKEN, FakeMlflow
from ansible_collections.muster.training.tests.kube_api.test_member_buckets import (
    NODE,
    Dict,
    Machines,
    Member,
    admin,
    machines,
)
from ansible_collections.muster.training.tests.support import canary
from ansible_collections.muster.training.tests.support.run_world import Said

__all__ = ["admin", "machines"]
MIRROR = "registry.mesh:5000"
IMAGE = f"{MIRROR}/team/train:1"
RUN = "work-0a1b2c3d"


@pytest.fixture
def registry() -> t.Iterator[FakeRegistry]:
    with FakeRegistry("bearer") as found:
        yield found


@pytest.fixture
def tracker() -> t.Iterator[FakeMlflow]:
    with FakeMlflow(TOKEN) as found:
        yield found


@pytest.fixture
def member(
    machines: Machines,
    tmp_path: pathlib.Path,
    client: Client,
    admin: t.Any,
    monkeypatch: pytest.MonkeyPatch,
    registry: FakeRegistry,
    tracker: FakeMlflow,
) -> Member:
    """A member who has bound both, with what the administrator gave to the team."""
    monkeypatch.setattr(network_preflight, "run_preflight", lambda *_args: None)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    for name, data in (
        ("images", {"REGISTRY_USERNAME": USER, "REGISTRY_PASSWORD": PASSWORD}),
        ("tracker", {"MLFLOW_TRACKING_TOKEN": TOKEN}),
    ):
        meta: t.Any = {"name": name, "namespace": machines.team}
        client.create({"apiVersion": "v1", "kind": "Secret", "metadata": meta, "stringData": data})
    found = Member(admin.file(machines.team), machines.team, tmp_path, "")
    about: list[Dict] = [
        {"name": "images", "kind": "registry", "endpoint": registry.url, "hosts": [MIRROR]},
        {"name": "mlflow", "kind": "tracking", "endpoint": tracker.url},
    ]
    about[0]["secret_ref"], about[1]["secret_ref"] = (
        {"from": "kubernetes", "path": name} for name in ("images", "tracker")
    )
    made = found.bind(*({**item, "mode": "bind"} for item in about))
    for binding in made["bindings"]:
        assert [(row["node"], row["vantage"], row["ok"]) for row in binding["reachable_from"]] == [(NODE, "pod", True)]
    assert machines.pods == 1, "one pod asks for both"
    assert not found.bind(*({**item, "mode": "bind"} for item in about))["changed"]
    return found


def work(team: str, **more: t.Any) -> Job:
    place = {"backend": "kubernetes", "engine": "indexed_job", "namespace": team, "queue": "main"}
    about: Dict = {"name": "work", "nodes": 2, "launcher": "command", "command": ["true"], "image": IMAGE}
    about["resources"] = {"cpu": 0.2, "memory": "64Mi"}
    about |= {"placement": place, "tracking": {"binding": "mlflow", "experiment": "llm", "log": True, "model": "net"}}
    return parse_job({**about, **more})


def run(member: Member, wanted: Job) -> tuple[Dict, Said]:
    said: t.Any = Said()
    options = {"kubeconfig": str(member.kubeconfig), "cluster": "default", "run_id": RUN, "wait": False}
    refuse: t.Any = lambda _names: pytest.fail("no host is asked")  # noqa: E731
    request = RunRequest(options, ["localhost"], {}, member.folder, False, refuse, said)
    return kubernetes_run.run(request, member.home, wanted), said


def secret(client: Client, name: str, team: str) -> dict[str, bytes]:
    live: t.Any = client.get("v1/Secret", name, team)
    return {key: base64.b64decode(value) for key, value in live["data"].items()}


def test_a_members_job_has_one_digest_its_login_and_its_tracker(
    member: Member, client: Client, registry: FakeRegistry, tracker: FakeMlflow
) -> None:
    digest = registry.add_image("team/train", "1", ("amd64", "arm64"))
    result, said = run(member, work(member.team))
    assert result["changed"] and f"image {IMAGE}: {digest}, for amd64, arm64" in said.lines
    live: t.Any = client.get("batch/v1/Job", RUN, member.team)
    assert live["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "main"
    pod = live["spec"]["template"]["spec"]
    assert [item["image"] for item in pod["containers"]] == [f"{MIRROR}/team/train@{digest}"]
    assert pod["imagePullSecrets"] == [{"name": f"{RUN}-pull"}]
    login = json.loads(secret(client, f"{RUN}-pull", member.team)[".dockerconfigjson"])["auths"][MIRROR]
    assert (login["username"], login["password"]) == (USER, PASSWORD)
    told = json.dumps([item["data"] for item in client.list("v1/ConfigMap", member.team).items])
    assert tracker.url in told and "MLFLOW_EXPERIMENT_NAME" in told
    assert secret(client, secret_name(RUN), member.team)["MLFLOW_TRACKING_TOKEN"] == TOKEN.encode()
    assert "llm" in tracker.experiments
    shown = json.dumps([live, told, result]) + "\n".join(said.lines)
    kept = b"".join(place.read_bytes() for place in member.folder.rglob("*") if place.is_file())
    for value in (PASSWORD, TOKEN):
        for name, form in canary.encodings(value).items():
            assert form.decode() not in shown and form not in kept, name


def test_an_image_that_is_not_there_leaves_nothing(member: Member, client: Client) -> None:
    with pytest.raises(RefusedError, match=r"job\.image: .*team/train.*1"):
        run(member, work(member.team))
    assert client.get("batch/v1/Job", RUN, member.team) is None
    names = [item["metadata"]["name"] for item in client.list("v1/Secret", member.team).items]
    assert sorted(names) == ["images", "store-keys", "tracker"]


def test_a_start_that_fails_after_the_network_test_leaves_no_login(
    member: Member, client: Client, registry: FakeRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The login is there for the test's pods; a bucket whose data cannot be listed then ends the start."""
    registry.add_image("team/train", "1")

    def refuse(*_args: t.Any) -> t.Any:
        raise RefusedError("the bucket is empty")

    monkeypatch.setattr(pod_store.PodStore, "values", refuse)
    with pytest.raises(RefusedError, match="the bucket is empty"):
        run(member, work(member.team))
    assert client.get("v1/Secret", f"{RUN}-pull", member.team) is None


def test_what_was_left_of_the_steps_is_sent_with_the_teams_secret(
    member: Member, tracker: FakeMlflow, registry: FakeRegistry
) -> None:
    """A run that ended while the tracker was away: the same command sends the rest, and its model is found by name."""
    registry.add_image("team/train", "1")
    wanted = work(member.team)
    folder = member.home.run_folder(RUN)
    folder.mkdir(parents=True)
    reference = BackendRef("batch/v1", "Job", RUN, member.team)
    record = run_record.new_record(RUN, to_yaml_names(wanted), 1.0, backend="kubernetes", backend_ref=reference)
    values = record.to_dict() | {"state": "ended", "outcome": "succeeded", "checkpoint": {"path": "/c/a.pt", "step": 2}}
    (folder / "run.json").write_text(json.dumps(values))
    (folder / "metrics.jsonl").write_text("".join(f'{{"at": {n}, "step": {n}, "loss": 0.5}}\n' for n in (1, 2)))
    result, said = run(member, wanted)
    assert not result["changed"] and not [line for line in said.lines if "warning" in line], said.lines
    (sent,) = tracker.runs.values()
    assert (sent["status"], len(sent["rows"])) == ("FINISHED", 2)
    found = models.find_model_files(member.home, "net@trained", None, lambda: member.client)
    assert (found.run_id, found.pattern) == (RUN, "a.pt")


def test_files_of_a_run_are_read_from_a_pod_of_its_own_private_image(
    member: Member, client: Client, registry: FakeRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The login of the run went with the run: the reader has one of its own, which goes with the reader."""
    digest = registry.add_image("team/train", "1")
    claim: Dict = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}
    meta: t.Any = {"name": "p", "namespace": member.team}
    client.create({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta, "spec": claim})
    client.patch("v1/PersistentVolumeClaim", "p", {"status": {"phase": "Bound"}}, member.team, subresource="status")
    mounts = [{"name": "c", "path": "/c", "pvc": "p"}]
    wanted = work(member.team, mounts=mounts, checkpoints={"path": "/c/x"})
    run(member, wanted)
    record = load_record(member.home.run_folder(RUN))
    assert record is not None
    client.delete("v1/Secret", f"{RUN}-pull", member.team)
    seen: list[Dict] = []

    def look(starts: t.Any) -> t.Any:
        (name,), space = starts.made, member.team
        live: t.Any = client.get("batch/v1/Job", name, space)
        pod = live["spec"]["template"]["spec"]
        (pull,) = pod["imagePullSecrets"]
        entry: t.Any = client.get("v1/Secret", pull["name"], space)
        seen.append({"image": pod["containers"][0]["image"], "owners": entry["metadata"]["ownerReferences"]})
        seen[-1]["login"] = json.loads(secret(client, pull["name"], space)[".dockerconfigjson"])
        return [{"metadata": {"name": "x", "namespace": space}, "spec": {"nodeName": NODE}}], {}

    bound = image_pin.find_image(member.home, wanted, lambda: member.client)
    monkeypatch.setattr(pods._Starts, "wait", look)
    with pods.open_readers(member.client, record, wanted, t.cast("t.Any", Said()), bound):
        pass
    (item,) = seen
    assert item["image"] == f"{MIRROR}/team/train@{digest}" and item["login"]["auths"][MIRROR]["password"] == PASSWORD
    assert [owner["kind"] for owner in item["owners"]] == ["Job"]
    left = [entry["metadata"]["name"] for entry in client.list("v1/Secret", member.team).items]
    assert [name for name in left if name.startswith("muster-files")] == []
