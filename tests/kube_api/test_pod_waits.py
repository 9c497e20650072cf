# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a run and the readers of its files wait for, and pods that cannot have been told to end, on a real API server."""

from __future__ import annotations

import datetime
import pathlib
import time
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import UnreachableError
from ansible_collections.muster.training.plugins.module_utils._model.job import parse_job
from ansible_collections.muster.training.plugins.module_utils._model.run_record import BackendRef
from ansible_collections.muster.training.plugins.plugin_utils._kube.api.client import Client
from ansible_collections.muster.training.plugins.plugin_utils._kube.jobs.visit_job import JOB_LABEL
from ansible_collections.muster.training.plugins.plugin_utils._workflows.node_pool import run_status_kubernetes
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared.state_dir import StateHome
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.kubernetes import force_delete
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job_fetch import pods
from ansible_collections.muster.training.tests.kube_api.test_cluster_identity import RUN, Dict, home, unproven
from ansible_collections.muster.training.tests.kube_api.test_pod_starts import followed, pod_of_run
from ansible_collections.muster.training.tests.kube_api.test_runs_in_pods import record_of
from ansible_collections.muster.training.tests.support.kube_api import ApiServer
from ansible_collections.muster.training.tests.support.run_world import Said

__all__ = ["home", "unproven"]
WORDS = "0/2 nodes are available: 1 Insufficient cpu. preemption: 0/2 nodes are available: 2 No victims found."
UNPLACED: t.Any = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": WORDS}


@pytest.mark.usefixtures("unproven")
def test_a_run_without_a_machine_says_so_while_it_waits(
    api: ApiServer, client: Client, home: StateHome, namespace: str, tmp_path: pathlib.Path
) -> None:
    with followed(api, client, home, namespace, tmp_path) as (_live, following):
        pod_of_run(client, namespace)
        status: t.Any = {"status": {"phase": "Pending", "containerStatuses": [], "conditions": [UNPLACED]}}
        client.patch("v1/Pod", "r-0", status, namespace, subresource="status")
        waits = "waiting for a machine: 0/2 nodes are available: 1 Insufficient cpu"
        assert following.says(f"{waits} · ranks 0/"), following.lines
        reference = t.cast(BackendRef, record_of(home).backend_ref)
        found = run_status_kubernetes.describe_run(client, RUN, reference.to_dict())
        assert found == {"phase": "waiting", "detail": waits, "running": 0}


def make_pod(client: Client, namespace: str, name: str, status: Dict, node: str | None, **labels: str) -> Dict:
    spec: t.Any = {"containers": [{"name": "node", "image": "x"}], **({"nodeName": node} if node else {})}
    meta: t.Any = {"name": name, "namespace": namespace, "labels": labels}
    client.create({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})
    client.patch("v1/Pod", name, {"status": status}, namespace, subresource="status")
    return t.cast(Dict, client.get("v1/Pod", name, namespace))


@pytest.fixture
def nodes(client: Client, namespace: str) -> t.Iterator[None]:
    """One Node that is ready, and one that is silent."""
    for node, ready in (("up", "True"), ("silent", "Unknown")):
        client.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"{namespace}-{node}"}})
        seen: t.Any = {"status": {"conditions": [{"type": "Ready", "status": ready}]}}
        client.patch("v1/Node", f"{namespace}-{node}", seen, subresource="status")
    yield
    for node in ("up", "silent"):
        client.delete("v1/Node", f"{namespace}-{node}")


@pytest.mark.usefixtures("nodes")
def test_files_are_read_from_the_node_that_is_there(
    client: Client, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No controller makes pods here: those of the Jobs are made as each Job is."""
    monkeypatch.setattr(pods, "_PATIENCE_S", 1.0)
    make = client.create
    conditions: dict[str, Dict] = {"up": {"phase": "Running"}, "down": {"phase": "Pending", "conditions": [UNPLACED]}}

    def create(value: t.Any, **how: t.Any) -> t.Any:
        live = make(value, **how)
        if value["kind"] != "Job":
            return live
        name, kind = value["metadata"]["name"], "up" if f"{namespace}-up" in str(value) else "down"
        node = f"{namespace}-up" if kind == "up" else None
        make_pod(client, namespace, name, conditions[kind], node, **{JOB_LABEL: name})
        return live

    monkeypatch.setattr(client, "create", create)
    real = pods._find_loss
    monkeypatch.setattr(pods, "_find_loss", lambda found, node: "" if node.endswith("down") else real(found, node))

    values: Dict = {"name": "j", "image": "i", "script": "/t.py", "nodes": 3, "placement": {"backend": "kubernetes"}}
    values |= {"mounts": [{"name": "c", "path": "/c", "host_path": "/var/c"}], "checkpoints": {"path": "/c/x"}}
    record: t.Any = type("Record", (), {})()
    record.run_id, record.backend_ref = "r", BackendRef("batch/v1", "Job", "r", namespace)
    record.image = None
    record.hosts = tuple(f"{namespace}-{kind}" for kind in ("down", "silent", "up"))
    said = Said()
    with pods.open_readers(client, record, parse_job(values), said) as remotes:
        names = [item.name.removeprefix(f"{namespace}-") for item in remotes]
        assert names == ["up", "silent", "down"]
        for number, problem in ((1, "the node does not answer"), (2, "0/2 nodes are available")):
            with pytest.raises(UnreachableError, match=problem):
                remotes[number].call("info")
    assert client.list("batch/v1/Job", namespace).items == []


def test_a_pod_that_cannot_have_been_told_to_end_gets_no_more_time(
    client: Client, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server lets the time of a pod that is being deleted be made shorter, and keeps it until its node says so."""
    monkeypatch.setattr(force_delete, "_DEAF_S", 0.5)
    monkeypatch.setattr(force_delete, "_INTERVAL_S", 0.0)
    monkeypatch.setattr(force_delete.ForcedDeletions, "_node", lambda *_: "answers")
    begun = (datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=2)).strftime("%Y-%m-%dT%H:%M:%SZ")
    state = {"name": "node", "image": "x", "imageID": "", "ready": True, "restartCount": 0}
    status: Dict = {"phase": "Running", "containerStatuses": [{**state, "state": {"running": {"startedAt": begun}}}]}
    make_pod(client, namespace, "r-0", status, f"{namespace}-1")
    client.delete("v1/Pod", "r-0", namespace)
    leaving = client.get("v1/Pod", "r-0", namespace)
    assert leaving is not None and leaving["metadata"]["deletionGracePeriodSeconds"] == 30
    deletions, end = force_delete.ForcedDeletions(client, Said()), time.monotonic() + 20
    while time.monotonic() < end and leaving["metadata"]["deletionGracePeriodSeconds"] != 1:
        assert deletions.force_delete([leaving]) == []
        leaving = client.get("v1/Pod", "r-0", namespace)
        assert leaving is not None, "it is not gone before its node says so"
        time.sleep(0.2)
    assert leaving["metadata"]["deletionGracePeriodSeconds"] == 1
    client.delete("v1/Pod", "r-0", namespace, grace_s=0)
