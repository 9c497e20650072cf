# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A run that lives on one cluster is neither started a second time on another nor cancelled there."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import shutil
import threading
import time
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import RefusedError
from ansible_collections.muster.training.plugins.module_utils._model.job import Job, parse_job, to_yaml_names
from ansible_collections.muster.training.plugins.module_utils._model.run_record import RunRecord
from ansible_collections.muster.training.plugins.plugin_utils._kube.api.client import Client
from ansible_collections.muster.training.plugins.plugin_utils._kube.api.connect import connect
from ansible_collections.muster.training.plugins.plugin_utils._kube.api.errors import KubeError
from ansible_collections.muster.training.plugins.plugin_utils._kube.jobs.spec import (
    RUN_LABEL,
    SUPPORTING_KINDS,
    selector,
)
from ansible_collections.muster.training.plugins.plugin_utils._kube.objects.apply import apply
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared import cluster_identity, run_record
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared.request import RunRequest
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared.state_dir import StateHome, load_record
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.kubernetes import (
    network_preflight,
    submit,
)
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.kubernetes import (
    run as kubernetes_run,
)
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.kubernetes.ending import cancel
from ansible_collections.muster.training.tests.support.kube_api import ApiServer
from ansible_collections.muster.training.tests.support.run_world import Said

RUN = "moved-0a1b2c3d"
ELSEWHERE = "8a0d6f6e-0000-0000-0000-000000000000"
Dict = dict[str, t.Any]


@pytest.fixture
def home(tmp_path: pathlib.Path) -> StateHome:
    return StateHome({"path": str(tmp_path / "state")}, "default")


def job(namespace: str) -> Job:
    return parse_job(
        {
            "name": "moved",
            "nodes": 2,
            "gpus_per_node": 0,
            "image": "example/image:1",
            "script": "/train.py",
            "placement": {"backend": "kubernetes", "engine": "indexed_job", "namespace": namespace},
        }
    )


def request(api: ApiServer, base: pathlib.Path, **options: t.Any) -> RunRequest:
    usual = {"cluster": "default", "run_id": RUN, "wait": False}
    given = {"kubeconfig": str(api.kubeconfig), **usual, **options}
    return RunRequest(given, [], {}, base, False, lambda _names: pytest.fail("no host is asked"), Said())


def written(home: StateHome, namespace: str, cluster_id: str | None, state: str = "running") -> Dict:
    reference = {
        "api_version": "batch/v1",
        "kind": "Job",
        "name": RUN,
        "namespace": namespace,
        "uid": "u",
        "context": "lab",
    }
    value = run_record.new_record(RUN, to_yaml_names(job(namespace)), 1.0, backend="kubernetes", generation=1).to_dict()
    value |= {"state": state, "backend_ref": {**reference, **({"cluster_id": cluster_id} if cluster_id else {})}}
    folder = home.run_folder(RUN)
    folder.mkdir(parents=True)
    (folder / "run.json").write_text(json.dumps(value))
    return value


# Before a test replaces it.
run_preflight = network_preflight.run_preflight


@pytest.fixture
def unproven(monkeypatch: pytest.MonkeyPatch, client: Client, namespace: str) -> t.Iterator[None]:
    """Two nodes without kubelets: no pod ever runs here, so none can prove that it reaches another."""
    monkeypatch.setattr(network_preflight, "run_preflight", lambda *_args: None)
    names = [f"{namespace}-{number}" for number in range(2)]
    room = {"cpu": "64", "memory": "256Gi", "pods": "110", "ephemeral-storage": "100Gi"}
    status = {"allocatable": room, "capacity": room, "conditions": [{"type": "Ready", "status": "True"}]}
    for name in names:
        client.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
        client.patch("Node", name, {"status": status, "spec": {"taints": None}}, subresource="status")
        client.patch("Node", name, {"spec": {"taints": None}})
    yield
    for name in names:
        client.delete("Node", name)


@pytest.mark.usefixtures("unproven")
def test_the_cluster_of_a_run_is_recorded(
    api: ApiServer, client: Client, home: StateHome, namespace: str, tmp_path: pathlib.Path
) -> None:
    result = kubernetes_run.run(request(api, tmp_path), home, job(namespace))
    assert result["changed"] and len(client.list("batch/v1/Job", namespace).items) == 1
    kept = json.loads((home.run_folder(RUN) / "run.json").read_text())
    assert kept["backend_ref"]["cluster_id"] == client.cluster_id()
    assert not kubernetes_run.run(request(api, tmp_path), home, job(namespace))["changed"], (
        "the same cluster is followed"
    )


@pytest.mark.usefixtures("unproven")
def test_a_run_that_lives_elsewhere_is_left_alone(
    api: ApiServer, client: Client, home: StateHome, namespace: str, tmp_path: pathlib.Path
) -> None:
    before = written(home, namespace, ELSEWHERE)
    expected = rf"run {RUN} was started on another cluster \({ELSEWHERE}\) than https.*its context was lab"
    with pytest.raises(RefusedError, match=expected):
        kubernetes_run.run(request(api, tmp_path), home, job(namespace))
    with pytest.raises(RefusedError, match=expected):
        cancel.cancel(request(api, tmp_path), home, RunRecord.from_dict(before))
    assert client.list("batch/v1/Job", namespace).items == []
    assert json.loads((home.run_folder(RUN) / "run.json").read_text()) == before


@pytest.mark.usefixtures("unproven")
def test_a_run_that_succeeded_elsewhere_starts_anew_and_its_record_stays(
    api: ApiServer, client: Client, home: StateHome, namespace: str, tmp_path: pathlib.Path
) -> None:
    """A cluster of this name was removed and made again: what trained there is not here."""
    former = {**written(home, namespace, ELSEWHERE, "ended"), "outcome": "succeeded"}
    place = home.run_folder(RUN)
    (place / "run.json").write_text(json.dumps(former))
    checked = dataclasses.replace(request(api, tmp_path), check=True)
    assert kubernetes_run.run(checked, home, job(namespace))["changed"] and place.is_dir()
    asked = request(api, tmp_path)
    assert kubernetes_run.run(asked, home, job(namespace))["changed"]
    assert len(client.list("batch/v1/Job", namespace).items) == 1
    assert json.loads((place / "run.json").read_text())["backend_ref"]["cluster_id"] == client.cluster_id()
    kept = home.run_folder(f"{RUN}-{ELSEWHERE[:8]}")
    assert json.loads((kept / "run.json").read_text()) == former
    said: t.Any = asked.progress
    assert f"run {RUN} succeeded on another cluster ({ELSEWHERE})" in "".join(said.lines)


@pytest.mark.usefixtures("unproven")
def test_a_run_that_succeeded_here_is_not_run_again(
    api: ApiServer, client: Client, home: StateHome, namespace: str, tmp_path: pathlib.Path
) -> None:
    for known in (client.cluster_id(), None):
        value = {**written(home, namespace, known, "ended"), "outcome": "succeeded"}
        (home.run_folder(RUN) / "run.json").write_text(json.dumps(value))
        assert not kubernetes_run.run(request(api, tmp_path), home, job(namespace))["changed"]
        shutil.rmtree(home.run_folder(RUN))
    assert client.list("batch/v1/Job", namespace).items == []


def test_a_cancel_of_a_run_that_has_failed_is_no_failure(
    api: ApiServer, home: StateHome, namespace: str, tmp_path: pathlib.Path
) -> None:
    """Nothing of it runs, which is what was asked for."""
    failed = {**written(home, namespace, None, "ended"), "outcome": "failed", "detail": "a rank exited with code 1"}
    (home.run_folder(RUN) / "run.json").write_text(json.dumps(failed))
    asked = request(api, tmp_path)
    done = cancel.cancel(asked, home, RunRecord.from_dict(failed))
    said: t.Any = asked.progress
    assert not done.get("failed") and not done["changed"] and done["run"]["outcome"] == "failed"
    assert f"run {RUN} had ended already (failed)" in "".join(said.lines)


def started(api: ApiServer, client: Client, home: StateHome, namespace: str, base: pathlib.Path) -> Dict:
    """Start the run and return the object that runs it."""
    kubernetes_run.run(request(api, base), home, job(namespace))
    (live,) = client.list("batch/v1/Job", namespace).items
    return live


@pytest.mark.usefixtures("unproven")
def test_a_run_that_lives_is_not_taken_for_another_job(
    api: ApiServer, client: Client, home: StateHome, namespace: str, tmp_path: pathlib.Path
) -> None:
    """Under its old id: what differs is named, in check mode too, and nothing is changed."""
    live = started(api, client, home, namespace, tmp_path)
    before = (home.run_folder(RUN) / "run.json").read_text()
    other = dataclasses.replace(job(namespace), args=("--more",), timeout_s=60)
    for check in (False, True):
        asked = dataclasses.replace(request(api, tmp_path), check=check)
        with pytest.raises(RefusedError) as caught:
            kubernetes_run.run(asked, home, other)
        assert caught.value.message == (
            f'run {RUN} is already running with another job: args ([] recorded, ["--more"] requested), '
            "timeout_s (null recorded, 60 requested)"
        )
    assert client.list("batch/v1/Job", namespace).items[0]["metadata"]["uid"] == live["metadata"]["uid"]
    assert (home.run_folder(RUN) / "run.json").read_text() == before


@pytest.mark.usefixtures("unproven")
def test_a_run_with_another_job_starts_anew_where_that_is_asked_for(
    api: ApiServer, client: Client, home: StateHome, namespace: str, tmp_path: pathlib.Path
) -> None:
    live = started(api, client, home, namespace, tmp_path)
    other = dataclasses.replace(job(namespace), args=("--more",))
    asked = request(api, tmp_path)
    again = dataclasses.replace(asked, options={**asked.options, "recreate": True})
    # What could not take its place stops nothing, and check mode says what would be.
    with pytest.raises(RefusedError, match="nodes fit"):
        kubernetes_run.run(again, home, dataclasses.replace(other, gpus_per_node=8))
    assert kubernetes_run.run(dataclasses.replace(again, check=True), home, other)["changed"]
    assert client.list("batch/v1/Job", namespace).items[0]["metadata"]["uid"] == live["metadata"]["uid"]
    # Nobody collects garbage here.
    assert kubernetes_run.run(again, home, other)["changed"]
    (anew,) = client.list("batch/v1/Job", namespace).items
    assert anew["metadata"]["uid"] != live["metadata"]["uid"]
    record = json.loads((home.run_folder(RUN) / "run.json").read_text())
    assert (record["job"]["args"], record["generation"]) == (["--more"], 2)
    assert record["backend_ref"]["uid"] == anew["metadata"]["uid"]
    # Asked for once more it is the run that was asked for.
    assert not kubernetes_run.run(again, home, other)["changed"]


def killed_submit(api: ApiServer, home: StateHome, namespace: str, base: pathlib.Path, monkeypatch: t.Any) -> Dict:
    """Kill a controller when all is made and nothing has an owner yet; return the record that it left."""

    def killed(*_args: object, **_options: object) -> None:
        raise SystemExit(137)

    with monkeypatch.context() as patch:
        patch.setattr(submit, "set_owners", killed)
        with pytest.raises(SystemExit):
            kubernetes_run.run(request(api, base), home, job(namespace))
    return t.cast(Dict, json.loads((home.run_folder(RUN) / "run.json").read_text()))


@pytest.mark.usefixtures("unproven")
def test_a_controller_that_is_killed_while_it_submits_leaves_a_run_that_can_be_found(
    api: ApiServer, client: Client, home: StateHome, namespace: str, tmp_path: pathlib.Path, monkeypatch: t.Any
) -> None:
    """As it is when nothing could be tidied up: objects without an owner, and a record that knows where they are."""
    record = killed_submit(api, home, namespace, tmp_path, monkeypatch)
    assert (record["state"], record["backend_ref"]["uid"]) == ("starting", None)
    assert supporting(client, namespace) and not any(owners for _name, owners in supporting(client, namespace))
    assert not kubernetes_run.run(request(api, tmp_path), home, job(namespace))["changed"]
    (live,) = client.list("batch/v1/Job", namespace).items
    assert all(owners == [live["metadata"]["uid"]] for _name, owners in supporting(client, namespace))
    assert json.loads((home.run_folder(RUN) / "run.json").read_text())["backend_ref"]["uid"] == live["metadata"]["uid"]


@pytest.mark.usefixtures("unproven")
def test_a_cancelled_run_leaves_nothing_of_a_killed_submit(
    api: ApiServer, client: Client, home: StateHome, namespace: str, tmp_path: pathlib.Path, monkeypatch: t.Any
) -> None:
    record = killed_submit(api, home, namespace, tmp_path, monkeypatch)
    assert cancel.cancel(request(api, tmp_path), home, RunRecord.from_dict(record))["changed"]
    assert supporting(client, namespace) == [] and not client.list("batch/v1/Job", namespace).items


def supporting(client: Client, namespace: str) -> list[tuple[str, list[str]]]:
    """Return what came with the run, each with the uids of its owners."""
    found = []
    for kind in SUPPORTING_KINDS:
        for item in client.list(kind, namespace, labels=selector(RUN)).items:
            owners = [owner["uid"] for owner in item["metadata"].get("ownerReferences", [])]
            found.append((f"{kind}/{item['metadata']['name']}", owners))
    return found


@pytest.mark.usefixtures("unproven")
def test_a_run_that_another_controller_ended_is_not_run_again(
    api: ApiServer, client: Client, home: StateHome, namespace: str, tmp_path: pathlib.Path
) -> None:
    live = started(api, client, home, namespace, tmp_path)
    times = {"startTime": "2026-01-01T00:00:00Z", "completionTime": "2026-01-01T00:01:00Z"}
    done = [{"type": kind, "status": "True"} for kind in ("SuccessCriteriaMet", "Complete")]
    status = {**times, "succeeded": 2, "completedIndexes": "0,1", "conditions": done}
    client.patch("batch/v1/Job", live["metadata"]["name"], {"status": status}, namespace, subresource="status")
    other = StateHome({"path": str(tmp_path / "other")}, "default")
    # Nobody has heard a rank: that is for the judge of attendance to say, not for a second start.
    kubernetes_run.run(request(api, tmp_path, wait=True), other, job(namespace))
    assert client.list("batch/v1/Job", namespace).items[0]["metadata"]["uid"] == live["metadata"]["uid"]
    kept = json.loads((other.run_folder(RUN) / "run.json").read_text())
    assert (kept["state"], kept["backend_ref"]["uid"]) == ("ended", live["metadata"]["uid"])


@pytest.mark.usefixtures("unproven")
def test_a_name_that_is_taken_is_not_followed(
    api: ApiServer, client: Client, home: StateHome, namespace: str, tmp_path: pathlib.Path
) -> None:
    """A run id may be given by hand: an object of another job, or of no run at all, is left as it is."""
    live = started(api, client, home, namespace, tmp_path)
    other = StateHome({"path": str(tmp_path / "other")}, "default")
    more = dataclasses.replace(job(namespace), args=("--more",))
    with pytest.raises(RefusedError, match=rf"run {RUN} was started by another controller with a different job"):
        kubernetes_run.run(request(api, tmp_path), other, more)
    assert not kubernetes_run.run(request(api, tmp_path), other, job(namespace))["changed"]
    bare = {"labels": {RUN_LABEL: "somebody-elses"}}
    client.patch("batch/v1/Job", live["metadata"]["name"], {"metadata": bare}, namespace)
    third = StateHome({"path": str(tmp_path / "third")}, "default")
    with pytest.raises(RefusedError, match=f"Job {RUN} already exists and does not belong to run {RUN}"):
        kubernetes_run.run(request(api, tmp_path), third, job(namespace))


@pytest.mark.usefixtures("unproven")
def test_a_run_whose_node_is_lost_is_followed_all_the_same(
    api: ApiServer, client: Client, home: StateHome, namespace: str, tmp_path: pathlib.Path
) -> None:
    """What runs is not judged like what is to be placed: its nodes may be busy, cordoned or gone."""
    wide = dataclasses.replace(
        job(namespace), placement=dataclasses.replace(job(namespace).placement, network_mode="host")
    )
    kubernetes_run.run(request(api, tmp_path), home, wide)
    client.patch("Node", f"{namespace}-0", {"spec": {"unschedulable": True}})
    assert not kubernetes_run.run(request(api, tmp_path), home, wide)["changed"]
    client.delete("batch/v1/Job", RUN, namespace)
    with pytest.raises(RefusedError, match="no longer exists, and its result was not recorded"):
        kubernetes_run.run(request(api, tmp_path), home, wide)
    with pytest.raises(RefusedError, match="nodes fit, 2 are needed"):
        kubernetes_run.run(request(api, tmp_path, recreate=True), home, wide)


@pytest.mark.usefixtures("unproven")
def test_a_secret_of_a_killed_submit_goes_with_its_run(
    api: ApiServer, client: Client, home: StateHome, namespace: str, tmp_path: pathlib.Path, monkeypatch: t.Any
) -> None:
    monkeypatch.setenv("MUSTER_CANARY", "canary-0123456789")
    asks = {"name": "TOKEN", "from": "env", "key": "MUSTER_CANARY"}
    value = parse_job({**to_yaml_names(job(namespace)), "secret_refs": [asks]})
    kubernetes_run.run(request(api, tmp_path), home, value)
    (kept,) = [
        item for item in client.list("v1/Secret", namespace).items if item["metadata"]["name"].startswith("moved")
    ]
    assert kept["metadata"]["ownerReferences"][0]["kind"] == "Job"
    # As it is when whoever made it was killed before it said whose it is.
    client.patch("v1/Secret", kept["metadata"]["name"], {"metadata": {"ownerReferences": None}}, namespace)
    kubernetes_run.run(request(api, tmp_path), home, value)
    again = client.get("v1/Secret", kept["metadata"]["name"], namespace) or {}
    assert again["metadata"]["ownerReferences"] == kept["metadata"]["ownerReferences"] and again["data"] == kept["data"]
    client.patch("v1/Secret", kept["metadata"]["name"], {"metadata": {"ownerReferences": None}}, namespace)
    record = load_record(home.run_folder(RUN))
    assert record is not None
    cancel.cancel(request(api, tmp_path), home, record)
    assert client.get("v1/Secret", kept["metadata"]["name"], namespace) is None


@pytest.mark.usefixtures("unproven")
def test_of_a_job_that_is_refused_nothing_is_made(
    api: ApiServer, client: Client, home: StateHome, namespace: str, tmp_path: pathlib.Path
) -> None:
    """The server is asked about all of it first."""
    none = {"count/jobs.batch": "0"}
    meta = {"name": "none", "namespace": namespace}
    client.create({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": meta, "spec": {"hard": none}})
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        seen = client.get("v1/ResourceQuota", "none", namespace) or {}
        if (seen.get("status") or {}).get("hard"):
            break
        counted = {"status": {"hard": none, "used": none}}
        client.patch("v1/ResourceQuota", "none", counted, namespace, subresource="status")
    with pytest.raises(KubeError, match="exceeded quota"):
        kubernetes_run.run(request(api, tmp_path), home, job(namespace))
    for kind in ("v1/Service", "v1/ConfigMap", "networking.k8s.io/v1/NetworkPolicy"):
        names = [item["metadata"]["name"] for item in client.list(kind, namespace).items]
        assert [name for name in names if name.startswith("moved")] == [], kind


@pytest.mark.usefixtures("unproven")
def test_what_was_there_before_survives_a_submit_that_fails(
    api: ApiServer, client: Client, home: StateHome, namespace: str, tmp_path: pathlib.Path, monkeypatch: t.Any
) -> None:
    """What the submit made goes away again, what somebody else made stays, though it bears the run's name."""
    before: list[Dict] = []
    done: list[str] = []

    def fails(client: Client, objects: t.Any, **more: t.Any) -> t.Any:
        if not before:
            # With another content the dry run would refuse it.
            before.append(client.create(next(item for item in objects if item["kind"] == "Service")))
        if not more.get("check"):
            done.extend(item["kind"] for item in objects)
            if done[-1] == "Job":
                raise KubeError("Job x", "the server is full", status=507)
        return apply(client, objects, **more)

    monkeypatch.setattr(submit, "apply", fails)
    with pytest.raises(KubeError, match="the server is full"):
        kubernetes_run.run(request(api, tmp_path), home, job(namespace))
    assert {"Service", "ConfigMap", "NetworkPolicy"} <= set(done)
    left = client.list("v1/Service", namespace).items
    assert [item["metadata"]["uid"] for item in left] == [before[0]["metadata"]["uid"]]
    for kind in ("v1/ConfigMap", "networking.k8s.io/v1/NetworkPolicy"):
        names = [item["metadata"]["name"] for item in client.list(kind, namespace).items]
        assert [name for name in names if name.startswith("moved")] == [], kind


def test_what_has_ended_or_was_never_told_apart_is_not_refused(client: Client, home: StateHome, namespace: str) -> None:
    cluster_identity.require_same_cluster(client, None)
    value = written(home, namespace, ELSEWHERE, "ended")
    cluster_identity.require_same_cluster(client, value)
    with pytest.raises(RefusedError, match=f"run {RUN} was started on another cluster"):
        cluster_identity.require_same_cluster(client, value, ended=True)
    cluster_identity.require_same_cluster(client, {**value, "state": "running", "backend_ref": None})
    cluster_identity.require_same_cluster(
        client, {**value, "state": "running", "backend_ref": {"cluster_id": client.cluster_id()}}
    )


def test_who_may_not_read_the_id_is_not_held_up(api: ApiServer, home: StateHome, namespace: str) -> None:
    limited = connect({"kubeconfig": api.config({"token": "nobody-token-0123456789"})})
    # By the CA, which says nothing of a run whose cluster was recorded by its uid.
    assert limited.cluster_id() == f"ca:{limited.authority}" and limited.authority
    cluster_identity.require_same_cluster(limited, written(home, namespace, ELSEWHERE))


@pytest.mark.usefixtures("unproven")
@pytest.mark.parametrize("moment", ["rehearsal", "companions", "main", "owners"])
def test_an_outage_during_a_submit_is_waited_for(
    api: ApiServer,
    client: Client,
    home: StateHome,
    namespace: str,
    tmp_path: pathlib.Path,
    monkeypatch: t.Any,
    moment: str,
) -> None:
    """Just before each of its steps the API server is killed, and comes back after three seconds."""
    steps = ["rehearsal", "companions", "main", "owners"]
    back = threading.Timer(3.0, api.start_api)

    def away() -> None:
        api.stop_api()
        back.start()

    def struck(client: Client, objects: t.Any, **more: t.Any) -> t.Any:
        if steps.pop(0) == moment:
            away()
        return apply(client, objects, **more)

    monkeypatch.setattr(submit, "apply", struck)
    assert kubernetes_run.run(request(api, tmp_path), home, job(namespace))["changed"]
    back.join()
    (live,) = client.list("batch/v1/Job", namespace).items
    assert all(owners == [live["metadata"]["uid"]] for _name, owners in supporting(client, namespace))
    assert not kubernetes_run.run(request(api, tmp_path), home, job(namespace))["changed"]


def test_what_a_network_test_needs_goes_with_its_job(
    api: ApiServer,
    client: Client,
    home: StateHome,
    namespace: str,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    unproven: None,
) -> None:
    """A controller that is killed meanwhile cleans nothing up: the cluster deletes the Job, and with it the rest."""
    owners: Dict = {}

    def look(_client: t.Any, _plan: t.Any, main: Dict, _progress: t.Any) -> str:
        for kind in ("v1/Service", "v1/ConfigMap", "networking.k8s.io/v1/NetworkPolicy"):
            for item in client.list(kind, namespace).items:
                if item["metadata"]["name"] != "kube-root-ca.crt":
                    owners[kind] = [owner["uid"] for owner in item["metadata"].get("ownerReferences") or ()]
        owners["Job"] = main["metadata"]["uid"]
        return ""

    monkeypatch.setattr(network_preflight, "run_preflight", run_preflight)
    monkeypatch.setattr(network_preflight, "_wait_for_pods", look)
    assert kubernetes_run.run(request(api, tmp_path), home, job(namespace))["changed"]
    uid = owners.pop("Job")
    assert {"v1/Service", "v1/ConfigMap"} <= set(owners) and all(item == [uid] for item in owners.values()), owners
