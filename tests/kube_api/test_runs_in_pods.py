# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a run in pods says when it cannot be cancelled or followed, and when its objects are deleted: a real API server."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import json
import pathlib
import time
import types
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import RefusedError
from ansible_collections.muster.training.plugins.module_utils._model.run_record import RunRecord
from ansible_collections.muster.training.plugins.plugin_utils._kube.api.client import Client
from ansible_collections.muster.training.plugins.plugin_utils._kube.jobs.spec import CANCELLED, RUN_LABEL
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared.request import RunRequest
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared.state_dir import StateHome, load_record
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job import run as training_job
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.kubernetes import (
    leader_lease,
)
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.kubernetes import (
    run as kubernetes_run,
)
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.kubernetes.ending import cancel
from ansible_collections.muster.training.tests.kube_api.test_cluster_identity import (
    RUN,
    Dict,
    home,
    job,
    request,
    started,
    supporting,
    unproven,
)
from ansible_collections.muster.training.tests.support.kube_api import ApiServer
from ansible_collections.muster.training.tests.support.run_world import Said

__all__ = ["home", "unproven"]
pytestmark = pytest.mark.usefixtures("unproven")
READER = "reader-token-0123456789"


def record_of(home: StateHome) -> RunRecord:
    found = load_record(home.run_folder(RUN))
    assert found is not None
    return found


def run_pod(client: Client, namespace: str, node: str, name: str = "r-0") -> None:
    """Put a running pod of the run on a node; no kubelet will ever end it."""
    spec = {"nodeName": node, "containers": [{"name": "node", "image": "x"}], "terminationGracePeriodSeconds": 0}
    meta = {"name": name, "namespace": namespace, "labels": {RUN_LABEL: RUN}}
    client.create({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})
    client.patch("v1/Pod", name, {"status": {"phase": "Running"}}, namespace, subresource="status")


@pytest.fixture
def reader(api: ApiServer, client: Client) -> t.Iterator[Dict]:
    """The options of a user who may read everything and delete nothing, until the test ends."""
    access = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": "reads"}}
    rules = [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list", "watch"]}]
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "reads"}
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "reader"}
    client.create({**access, "kind": "ClusterRole", "rules": rules})
    client.create({**access, "kind": "ClusterRoleBinding", "roleRef": role, "subjects": [subject]})
    cluster = {"server": api.url, "certificate-authority": str(api.root / "ca.crt")}
    config = {
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": {"token": READER}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    yield {"kubeconfig": config}
    # Others try what this user may not read.
    for kind in ("ClusterRoleBinding", "ClusterRole"):
        client.delete(f"rbac.authorization.k8s.io/v1/{kind}", "reads")


def test_a_cancel_that_is_forbidden_ends_no_record(
    api: ApiServer, client: Client, home: StateHome, namespace: str, tmp_path: pathlib.Path, reader: Dict
) -> None:
    """The run goes on, its record says so, and the answer names what there still is."""
    live = started(api, client, home, namespace, tmp_path)
    run_pod(client, namespace, f"{namespace}-1")
    before = (home.run_folder(RUN) / "run.json").read_bytes()
    checked = dataclasses.replace(request(api, tmp_path, **reader), check=True)
    assert cancel.cancel(checked, home, record_of(home)) == {"changed": True, "run_id": RUN}
    there = f"there still are Job {namespace}/{RUN} and 1 pod on {namespace}-1"
    assert t.cast(Said, checked.progress).lines == [f"run {RUN} would be stopped: {there}; nothing was changed"]
    found = cancel.cancel(request(api, tmp_path, **reader), home, record_of(home))
    assert found["failed"] and not found["changed"] and (found["run_id"], found["folder"])
    said = f"run {RUN} was not cancelled, there still are Job {namespace}/{RUN} and 1 pod on {namespace}-1: "
    assert str(found["msg"]).startswith(said) and "forbidden" in str(found["msg"])
    assert (home.run_folder(RUN) / "run.json").read_bytes() == before
    assert "cancelled" not in (home.run_folder(RUN) / "events.jsonl").read_text()
    assert client.get(live, RUN, namespace) is not None
    # Here no controller deletes it with its Job.
    client.delete("v1/Pod", "r-0", namespace, grace_s=0)
    again = cancel.cancel(request(api, tmp_path), home, record_of(home))
    assert again["changed"] and not again.get("failed")
    assert (record_of(home).outcome, client.get(live, RUN, namespace)) == ("cancelled", None)


def test_an_api_server_that_is_away_cancels_nothing(
    api: ApiServer, client: Client, home: StateHome, namespace: str, tmp_path: pathlib.Path
) -> None:
    started(api, client, home, namespace, tmp_path)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        wait = request(api, tmp_path, wait=True, patience_s=1)
        following = pool.submit(kubernetes_run.run, wait, home, job(namespace))
        until(lambda: "already running, following it" in "".join(wait.progress.lines))
        until(lambda: (home.run_folder(RUN) / "offsets.json").exists() or following.done(), 3)
        api.stop_api()
        try:
            unfollowed = following.result(90)
            found = cancel.cancel(request(api, tmp_path, patience_s=1), home, record_of(home))
        finally:
            api.start_api()
    said = f"run {RUN} is no longer followed; it keeps running, and the same command follows it: "
    assert unfollowed["failed"] and str(unfollowed["msg"]).startswith(said) and unfollowed["run_id"] == RUN
    assert unfollowed["folder"] == str(home.run_folder(RUN)) and "outcome" in t.cast(Dict, unfollowed["run"])
    told = str(found["msg"])
    assert found["failed"] and f"run {RUN} was not cancelled, it is not known what of it still runs: " in told
    assert told.endswith(
        f"Then cancel it again: ansible-playbook -i INVENTORY muster.training.cancel -e muster_run_id={RUN}"
    )
    assert not record_of(home).is_ended
    assert cancel.cancel(request(api, tmp_path), home, record_of(home))["changed"] and record_of(home).is_ended


def until(holds: t.Callable[[], bool], limit_s: float = 30.0) -> bool:
    """Wait for what another thread brings about."""
    end = time.monotonic() + limit_s
    while not holds() and time.monotonic() < end:
        time.sleep(0.05)
    return holds()


@pytest.mark.parametrize("by_cancel", [True, False])
def test_a_run_whose_object_goes_fails_whoever_waits_for_it(
    api: ApiServer, client: Client, home: StateHome, namespace: str, tmp_path: pathlib.Path, by_cancel: bool
) -> None:
    """Another controller follows it: cancel leaves its mark at the object, a deletion by hand does not."""
    live = started(api, client, home, namespace, tmp_path)
    elsewhere: Dict = {"state_home": {"path": str(tmp_path / "other")}, "cluster": "default", "state": "present"}
    values = {**elsewhere, "wait": True, "job": to_yaml(namespace), "template_paths": []}
    follows: RunRequest = request(api, tmp_path, **values)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        following = pool.submit(training_job.run, follows)
        other = StateHome(elsewhere["state_home"], "default").run_folder(RUN)
        # Written once something was heard of the run's objects.
        assert until((other / "offsets.json").exists)
        if by_cancel:
            cancel.cancel(request(api, tmp_path), home, record_of(home))
        else:
            client.delete(live, RUN, namespace)
        found = following.result(60)
    assert found["failed"], found
    run = found["run"]
    if by_cancel:
        assert (run["outcome"], run["cause"]) == ("cancelled", "cancelled") and record_of(home).outcome == "cancelled"
        assert found["msg"].startswith(f"run {RUN} cancelled: the run was cancelled")
    else:
        assert (run["outcome"], run["cause"]) == ("failed", "deleted")
        assert run["detail"] == f"Job {namespace}/{RUN} was deleted, and not by cancel"


def to_yaml(namespace: str) -> Dict:
    place = {"backend": "kubernetes", "engine": "indexed_job", "namespace": namespace}
    return {
        "name": "moved", "nodes": 2, "gpus_per_node": 0, "image": "example/image:1", "script": "/train.py",
        "placement": place,
    }  # fmt: skip


@pytest.mark.parametrize("another", [False, True])
def test_what_somebody_deleted_of_a_run_is_put_back_when_it_is_followed(
    api: ApiServer, client: Client, home: StateHome, namespace: str, tmp_path: pathlib.Path, another: bool
) -> None:
    """As it was, under its name; another controller can do so once it has seen them."""
    started(api, client, home, namespace, tmp_path)
    place = StateHome({"path": str(tmp_path / "other")}, "default") if another else home
    if another:
        kubernetes_run.run(request(api, tmp_path), place, job(namespace))
    before = supporting(client, namespace)
    maps = {
        item["metadata"]["name"]: item
        for item in client.list("v1/ConfigMap", namespace, labels=f"{RUN_LABEL}={RUN}").items
    }
    assert maps
    for name in maps:
        client.delete("v1/ConfigMap", name, namespace)
    asked = request(api, tmp_path)
    kubernetes_run.run(asked, place, job(namespace))
    assert supporting(client, namespace) == before and all(owners for _name, owners in before)
    for name, item in maps.items():
        again = client.get("v1/ConfigMap", name, namespace) or {}
        assert (again["data"], again["immutable"]) == (item["data"], True)
        assert f"ConfigMap {name} of the run was deleted: it was created again" in asked.progress.lines
    lines = len(asked.progress.lines)
    kubernetes_run.run(asked, place, job(namespace))
    assert not any("created again" in line for line in asked.progress.lines[lines:])


def test_the_mark_of_a_cancel_is_at_the_object(
    api: ApiServer, client: Client, home: StateHome, namespace: str, tmp_path: pathlib.Path
) -> None:
    live = started(api, client, home, namespace, tmp_path)
    client.patch(live, RUN, {"metadata": {"finalizers": ["example.org/held"]}}, namespace)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cancel, "DELETION_S", 1.0)
        value = json.loads((home.run_folder(RUN) / "run.json").read_text())
        value["job"]["checkpoints"]["grace_s"] = 0
        found = cancel.cancel(request(api, tmp_path), home, RunRecord.from_dict(value))
    assert found["failed"] and "finalizers: example.org/held" in str(found["msg"])
    kept = client.get(live, RUN, namespace) or {}
    assert kept["metadata"]["annotations"][CANCELLED].endswith(str(home.root))
    assert not record_of(home).is_ended
    client.patch(live, RUN, {"metadata": {"finalizers": None}}, namespace)


def test_the_lease_of_a_run_goes_with_its_object(
    api: ApiServer, client: Client, home: StateHome, namespace: str, tmp_path: pathlib.Path
) -> None:
    """Should its follower be killed, the collector of garbage deletes the Lease with the run, and not before."""
    live = started(api, client, home, namespace, tmp_path)
    kind, state = "coordination.k8s.io/v1/Lease", home.run_folder(RUN) / "offsets.json"
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        following = pool.submit(kubernetes_run.run, request(api, tmp_path, wait=True), home, job(namespace))
        assert until(lambda: state.exists() or following.done())
        lease = client.get(kind, RUN, namespace) or {}
        owners = [(item["kind"], item["uid"]) for item in lease["metadata"].get("ownerReferences") or []]
        cancel.cancel(request(api, tmp_path), home, record_of(home))
        following.result(60)
    assert owners == [("Job", live["metadata"]["uid"])]
    assert client.get(kind, RUN, namespace) is None
    # As a killed one has left it: the next holder is not of that object.
    meta = {"name": RUN, "namespace": namespace, "ownerReferences": lease["metadata"]["ownerReferences"]}
    spec = {**lease["spec"], "holderIdentity": ""}
    client.create({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": meta, "spec": spec})
    plan = types.SimpleNamespace(name=RUN, namespace=namespace, labels={}, run_id=RUN)
    mine = leader_lease.LeaderLease(client, t.cast(t.Any, plan), "me", request(api, tmp_path).progress)
    mine.take(False)
    assert "ownerReferences" not in (client.get(kind, RUN, namespace) or {})["metadata"]
    mine.release()


def test_a_namespace_that_is_being_deleted_is_named(
    api: ApiServer, client: Client, home: StateHome, namespace: str, tmp_path: pathlib.Path
) -> None:
    """Neither a missing right nor a missing namespace; and a run that goes with it says so."""
    live = started(api, client, home, namespace, tmp_path)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        following = pool.submit(kubernetes_run.run, request(api, tmp_path, wait=True), home, job(namespace))
        assert until(lambda: (home.run_folder(RUN) / "offsets.json").exists() or following.done())
        client.delete("v1/Namespace", namespace)
        client.delete(live, RUN, namespace)
        found = following.result(60)
    assert found["run"]["detail"] == f"Job {namespace}/{RUN} was deleted, with the namespace {namespace}"
    asked = request(api, tmp_path, run_id="another")
    with pytest.raises(RefusedError, match=f"namespace {namespace} is being deleted"):
        kubernetes_run.run(asked, home, job(namespace))
    assert not any("permission" in line for line in asked.progress.lines)
    assert not home.run_folder("another").exists()
