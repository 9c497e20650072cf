# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The fourth round's faults of runs in pods: what others do to a run's object, a real API server without controllers.

Drawn from the Kubernetes documents of Jobs, finalizers, quotas and garbage collection, and from issues of SkyPilot.
"""

from __future__ import annotations

import datetime
import pathlib
import typing as t

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._kube.api.client import Client
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared.state_dir import StateHome
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.kubernetes import pending
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
    unproven,
)
from ansible_collections.muster.training.tests.kube_api.test_pod_starts import event, followed
from ansible_collections.muster.training.tests.kube_api.test_runs_in_pods import record_of
from ansible_collections.muster.training.tests.support.kube_api import ApiServer

__all__ = ["home", "unproven"]
pytestmark = pytest.mark.usefixtures("unproven")
JOB = "batch/v1/Job"


def end_job(client: Client, namespace: str, condition: str, reason: str, message: str) -> None:
    """Write the end of a Job, as its controller does."""
    now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    first = {"Complete": "SuccessCriteriaMet", "Failed": "FailureTarget"}[condition]
    conditions = [
        {"type": kind, "status": "True", "lastTransitionTime": now, "reason": reason, "message": message}
        for kind in (first, condition)
    ]
    status: Dict = {"startTime": now, "conditions": conditions, "uncountedTerminatedPods": {}}
    if condition == "Complete":
        status |= {"completionTime": now, "succeeded": 2, "completedIndexes": "0,1"}
    else:
        status |= {"failed": 1}
    client.patch(JOB, RUN, {"status": status}, namespace, subresource="status")


@pytest.mark.parametrize("change", [{"suspend": True}, {"parallelism": 0}], ids=["suspended", "no pods wanted"])
def test_a_run_that_somebody_stops_at_its_object_is_told(
    api: ApiServer,
    client: Client,
    home: StateHome,
    namespace: str,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    change: Dict,
) -> None:
    """Job, suspend and parallelism: its pods are deleted and none comes; it waits for ever without a word."""
    monkeypatch.setattr(pending, "_UNQUEUED_S", 0.5)
    with followed(api, client, home, namespace, tmp_path) as (_live, following):
        client.patch(JOB, RUN, {"spec": change}, namespace)
        if "suspend" in change:
            now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            condition = {"type": "Suspended", "status": "True", "lastTransitionTime": now, "reason": "JobSuspended"}
            client.patch(JOB, RUN, {"status": {"conditions": [condition]}}, namespace, subresource="status")
        said = "is suspended" if "suspend" in change else "spec.parallelism is 0"
        assert following.says(f"Job {namespace}/{RUN}: stopped by a user or another program: {said}"), following.lines


def test_a_cancel_that_a_finalizer_holds_up_ends_no_record(
    api: ApiServer,
    client: Client,
    home: StateHome,
    namespace: str,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Finalizers: the object is marked as deleted and stays, as long as a controller that is gone does not answer."""
    started(api, client, home, namespace, tmp_path)
    client.patch(JOB, RUN, {"metadata": {"finalizers": ["example.com/keeps"]}}, namespace)
    # With the half minute that its ranks are given.
    monkeypatch.setattr(cancel, "DELETION_S", -28)
    found = cancel.cancel(request(api, tmp_path), home, record_of(home))
    try:
        assert found["failed"] and not found["changed"], found
        assert "finalizer" in str(found["msg"]) and "example.com/keeps" in str(found["msg"])
        assert not record_of(home).is_ended
    finally:
        client.patch(JOB, RUN, {"metadata": {"finalizers": None}}, namespace)
    again = cancel.cancel(request(api, tmp_path), home, record_of(home))
    assert not again.get("failed") and record_of(home).outcome == "cancelled"


def test_somebody_elses_object_of_the_same_name_is_not_cancelled(
    api: ApiServer, client: Client, home: StateHome, namespace: str, tmp_path: pathlib.Path
) -> None:
    """Names are free once an object is gone; its uid is not the run's."""
    live = started(api, client, home, namespace, tmp_path)
    client.delete(live, RUN, namespace)
    container = {"name": "c", "image": "x"}
    pod = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    theirs: t.Any = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": RUN, "namespace": namespace}}
    client.create({**theirs, "spec": {"template": pod}})
    cancel.cancel(request(api, tmp_path), home, record_of(home))
    kept = client.get(JOB, RUN, namespace)
    assert kept is not None and "deletionTimestamp" not in kept["metadata"]
    client.delete(JOB, RUN, namespace)


def test_a_success_whose_pods_are_gone_is_no_proven_one(
    api: ApiServer, client: Client, home: StateHome, namespace: str, tmp_path: pathlib.Path
) -> None:
    """Pod garbage collection, drained nodes: the object says Complete, and nothing of its ranks was ever read."""
    started(api, client, home, namespace, tmp_path)
    end_job(client, namespace, "Complete", "CompletionsReached", "Reached expected number of succeeded pods")
    found = kubernetes_run.run(request(api, tmp_path, wait=True), home, job(namespace))
    record = record_of(home)
    assert found["failed"] and (record.outcome, record.cause) == ("failed", "attendance")
    assert "0 ranks were seen, 2 are required; no events of its ranks were received" in str(record.detail)


def test_a_deadline_that_somebody_set_is_the_cause(
    api: ApiServer, client: Client, home: StateHome, namespace: str, tmp_path: pathlib.Path
) -> None:
    """Job, activeDeadlineSeconds: a policy adds it, and the Job fails with DeadlineExceeded."""
    with followed(api, client, home, namespace, tmp_path) as (_live, following):
        end_job(client, namespace, "Failed", "DeadlineExceeded", "Job was active longer than specified deadline")
        found = following.result()
    record = record_of(home)
    assert found["failed"] and record.outcome == "failed"
    assert "DeadlineExceeded" in str(record.detail) and "longer than specified deadline" in str(record.detail)


def test_a_quota_that_lets_no_pod_in_is_told(
    api: ApiServer, client: Client, home: StateHome, namespace: str, tmp_path: pathlib.Path
) -> None:
    """ResourceQuota: the Job makes no pods, and only its events say why."""
    message = (
        'Error creating: pods "r-0" is forbidden: exceeded quota: team, requested: cpu=8, used: cpu=8, limited: cpu=8'
    )
    with followed(api, client, home, namespace, tmp_path) as (live, following):
        event(client, {**live, "apiVersion": "batch/v1", "kind": "Job"}, "FailedCreate", message)
        assert following.says("exceeded quota: team"), following.lines
