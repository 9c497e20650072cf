# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the cluster's object says of a run in pods: its phase for the user, its end for a reaper."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._provision.bill.due_rules import RunView
from ansible_collections.muster.training.plugins.plugin_utils._workflows.node_pool import (
    run_status_kubernetes as subject,
)
from ansible_collections.muster.training.tests.support.scripted_client import scripted_client
from ansible_collections.muster.training.tests.support.scripted_http import Call, Script

Dict = dict[str, t.Any]
REF = {"api_version": "batch/v1", "kind": "Job", "namespace": "team", "name": "r1", "uid": "u1", "cluster_id": "c1"}
PODS = "/api/v1/namespaces/team/pods"
PATH = "/apis/batch/v1/namespaces/team/jobs/r1"


def job(condition: str | None = None, uid: str = "u1", **status: t.Any) -> Dict:
    conditions = [{"type": condition, "status": "True", "reason": "Because"}] if condition else []
    meta = {"name": "r1", "namespace": "team", "uid": uid}
    value = {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta}
    return {**value, "status": {**status, "conditions": conditions}}


def cluster(identity: str = "c1") -> Call:
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kube-system", "uid": identity}}
    return Call("GET", "/api/v1/namespaces/kube-system", answer=namespace)


def found(value: Dict | None) -> Call:
    return Call("GET", PATH, answer=value) if value else Call("GET", PATH, 404, {"kind": "Status", "code": 404})


def pods(*states: Dict) -> Call:
    named = enumerate(states)
    items = [{"metadata": {"name": f"r1-{n}"}, "spec": {"nodeName": "node-1"}, "status": state} for n, state in named]
    return Call("GET", PODS, answer={"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": items})


def describe(*calls: Call, **changes: t.Any) -> Dict:
    with Script(*calls) as script:
        return subject.describe_run(scripted_client(script), "r1", {**REF, **changes})


def read_end(*calls: Call, **changes: t.Any) -> RunView | None:
    with Script(*calls) as script:
        return subject.read_run_end(scripted_client(script), {**REF, **changes})


@pytest.mark.parametrize(
    ("live", "phase", "detail"),
    [
        (job(active=2), "waiting", "Job team/r1: 2 active"),
        (job("Complete"), "done", "Job team/r1: Because; its end is not recorded yet: run train with muster_run_id=r1"),
        (job("Failed"), "failed", "Job team/r1: Because; its end is not recorded yet: run train with muster_run_id=r1"),
        (job(uid="u2"), "gone", "Job team/r1 no longer exists"),
        (None, "gone", "Job team/r1 no longer exists"),
    ],
)
def test_the_phase_is_that_of_the_submitted_object(live: Dict | None, phase: str, detail: str) -> None:
    state = describe(cluster(), found(live), *([pods()] if phase in ("waiting", "gone") else []))
    assert state["phase"] == phase and str(state["detail"]).startswith(detail)
    assert ("muster_run_id" in str(state["detail"])) is (phase in ("done", "failed"))


UNPLACED = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/2 nodes are available."}


@pytest.mark.parametrize(
    ("live", "pod", "detail"),
    [
        (
            job(active=1),
            {"phase": "Pending", "conditions": [UNPLACED]},
            "waiting for a machine: 0/2 nodes are available",
        ),
        (None, {"phase": "Running"}, "Job team/r1 no longer exists; still to end: 1 pod on node-1"),
        (None, {"phase": "Failed"}, "Job team/r1 no longer exists"),
    ],
)
def test_its_pods_say_what_it_waits_for_and_which_of_them_still_run(live: Dict | None, pod: Dict, detail: str) -> None:
    assert describe(cluster(), found(live), pods(pod))["detail"] == detail


def test_pods_that_run_are_counted() -> None:
    running, pending = {"phase": "Running"}, {"phase": "Pending"}
    assert describe(cluster(), found(job(active=2)), pods(running, running, pending))["running"] == 2


def test_pods_that_may_not_be_read_say_nothing() -> None:
    refused = Call("GET", PODS, 403, {"kind": "Status", "code": 403, "reason": "Forbidden"})
    assert describe(cluster(), found(job(active=2)), refused)["detail"] == "Job team/r1: 2 active"


def test_a_reference_without_a_uid_takes_the_object_of_its_name() -> None:
    assert describe(cluster(), found(job("Complete", uid="u2")), uid=None)["phase"] == "done"


def test_another_cluster_is_not_asked_about_the_run() -> None:
    state = describe(cluster("c2"))
    assert state["phase"] == "unknown" and "run r1 was started on another cluster (c1)" in str(state["detail"])


def test_an_object_that_may_not_be_read_has_an_unknown_phase() -> None:
    state = describe(cluster(), Call("GET", PATH, 403, {"kind": "Status", "code": 403, "reason": "Forbidden"}))
    assert state["phase"] == "unknown" and str(state["detail"]).startswith("the cluster cannot report its state: ")


def test_an_incomplete_reference_has_an_unknown_phase_and_no_end() -> None:
    with Script() as script:
        client = scripted_client(script)
        assert subject.describe_run(client, "r1", {"kind": "Job"})["phase"] == "unknown"
        assert subject.read_run_end(client, {"kind": "Job"}) is None


@pytest.mark.parametrize(
    ("live", "end"),
    [
        (job("Complete"), RunView("ended", "succeeded")),
        (job("Failed"), RunView("ended", "failed")),
        (job(active=1), None),
    ],
)
def test_the_end_of_a_run_is_read_from_its_object(live: Dict, end: RunView | None) -> None:
    assert read_end(found(live)) == end


@pytest.mark.parametrize("live", [None, job("Complete", uid="u2")])
def test_a_deleted_object_is_a_cancelled_run_on_its_own_cluster_only(live: Dict | None) -> None:
    assert read_end(found(live), cluster()) == RunView("ended", "cancelled")
    assert read_end(found(live), cluster("c2")) is None


def test_an_object_that_may_not_be_read_has_no_end() -> None:
    assert read_end(Call("GET", PATH, 403, {"kind": "Status", "code": 403, "reason": "Forbidden"})) is None
