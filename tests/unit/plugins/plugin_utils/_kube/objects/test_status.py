# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How far an object is, kind by kind."""

from __future__ import annotations

import typing as t

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.plugin_utils._kube.objects import status as objects_status

Object = dict[str, t.Any]


def make(kind: str, status: Object | None = None, **more: t.Any) -> Object:
    api_version, _, name = kind.rpartition("/")
    meta = {"name": "x", "generation": 2, **more.pop("metadata", {})}
    return {"apiVersion": api_version, "kind": name, "metadata": meta, "status": status or {}, **more}


def told(kind: str, status: str = "True", reason: str = "Why", message: str = "in words") -> Object:
    return {"conditions": [{"type": kind, "status": status, "reason": reason, "message": message}]}


ROLLED = {"observedGeneration": 2, "replicas": 2, "updatedReplicas": 2, "availableReplicas": 2}
CASES: list[tuple[Object, str, str]] = [
    (make("v1/Pod", {"phase": "Succeeded"}), "done", "succeeded"),
    (make("v1/Pod", {"phase": "Running", **told("Ready")}), "done", "ready"),
    (
        make("v1/Pod", {"phase": "Failed", "reason": "Evicted", "message": "low on disk"}),
        "failed",
        "Evicted: low on disk",
    ),
    (
        make(
            "v1/Pod",
            {
                "phase": "Failed",
                "containerStatuses": [{"name": "c", "state": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}}],
            },
        ),
        "failed",
        "container c exited with status 137 (OOMKilled)",
    ),
    (
        make(
            "v1/Pod",
            {
                "phase": "Pending",
                "containerStatuses": [
                    {"name": "c", "state": {"waiting": {"reason": "ImagePullBackOff", "message": "no x"}}}
                ],
            },
        ),
        "waiting",
        "container c: ImagePullBackOff: no x",
    ),
    (
        make("v1/Pod", {"phase": "Pending", **told("PodScheduled", "False", "Unschedulable", "0/3 nodes")}),
        "waiting",
        "0/3 nodes",
    ),
    (make("v1/Pod"), "waiting", "not started"),
    (make("apps/v1/Deployment", ROLLED, spec={"replicas": 2}), "done", "2 available"),
    (
        make("apps/v1/Deployment", {**ROLLED, "observedGeneration": 1}, spec={"replicas": 2}),
        "waiting",
        "has not observed",
    ),
    (make("apps/v1/Deployment", {**ROLLED, "replicas": 3}, spec={"replicas": 2}), "waiting", "3 in all"),
    (
        make("apps/v1/Deployment", {**ROLLED, "availableReplicas": 1}, spec={"replicas": 2}),
        "waiting",
        "1 of 2 available",
    ),
    (
        make("apps/v1/Deployment", {**ROLLED, **told("Progressing", "False", "ProgressDeadlineExceeded")}),
        "failed",
        "in words",
    ),
    (
        # Said of the form before the last one.
        make(
            "apps/v1/Deployment",
            {**ROLLED, "observedGeneration": 1, **told("Progressing", "False", "ProgressDeadlineExceeded")},
        ),
        "waiting",
        "its controller has not observed it yet",
    ),
    (
        make("apps/v1/Deployment", {"observedGeneration": 2, **told("ReplicaFailure", message="exceeded quota")}),
        "waiting",
        "exceeded quota",
    ),
    (make("apps/v1/DaemonSet", {"observedGeneration": 2}), "done", "0 available"),
    (make("apps/v1/DaemonSet", {"observedGeneration": 2, "desiredNumberScheduled": 2}), "waiting", "0 of 2"),
    (make("apps/v1/DaemonSet", {}), "waiting", "has not observed"),
    (make("apps/v1/StatefulSet", {"observedGeneration": 2, "readyReplicas": 1}), "done", "1 ready"),
    (
        make(
            "apps/v1/StatefulSet",
            {"observedGeneration": 2, "readyReplicas": 1, "updateRevision": "b", "currentRevision": "a"},
        ),
        "waiting",
        "0 updated",
    ),
    (make("batch/v1/Job", told("Complete")), "done", "Why: in words"),
    (make("batch/v1/Job", told("Failed", reason="BackoffLimitExceeded")), "failed", "BackoffLimitExceeded"),
    (make("batch/v1/Job", told("Suspended")), "waiting", "is suspended"),
    (make("batch/v1/Job", {"active": 2, "ready": 1}), "waiting", "2 active, 1 ready"),
    (make("batch/v1/Job", told("Complete", "False")), "waiting", "has no pods yet"),
    (make("jobset.x-k8s.io/v1alpha2/JobSet", told("Completed")), "done", "in words"),
    (make("jobset.x-k8s.io/v1alpha2/JobSet", told("Failed", reason="FailedJobs")), "failed", "FailedJobs"),
    (
        make(
            "jobset.x-k8s.io/v1alpha2/JobSet",
            {"restarts": 1, "replicatedJobsStatus": [{"name": "node", "active": 1, "failed": 0}]},
        ),
        "waiting",
        "node: 1 active; 1 restarts",
    ),
    (make("trainer.kubeflow.org/v1alpha1/TrainJob", told("Complete")), "done", "in words"),
    (make("trainer.kubeflow.org/v1alpha1/TrainJob", told("Failed")), "failed", "in words"),
    (
        make("trainer.kubeflow.org/v1alpha1/TrainJob", {"jobsStatus": [{"name": "node", "active": 1, "ready": 1}]}),
        "waiting",
        "node: 1 active, 1 ready",
    ),
    (make("kubeflow.org/v2beta1/MPIJob", told("Succeeded")), "done", "in words"),
    (
        make("kubeflow.org/v2beta1/MPIJob", {"replicaStatuses": {"Worker": {"active": 2}}}),
        "waiting",
        "Worker: 2 active",
    ),
    (make("ray.io/v1/RayJob", {"jobStatus": "SUCCEEDED", "jobDeploymentStatus": "Complete"}), "done", "SUCCEEDED"),
    (
        make("ray.io/v1/RayJob", {"jobStatus": "FAILED", "jobDeploymentStatus": "Failed", "message": "exit 1"}),
        "failed",
        "FAILED: exit 1",
    ),
    (make("ray.io/v1/RayJob", {"jobStatus": "STOPPED", "jobDeploymentStatus": "Complete"}), "failed", "STOPPED"),
    (
        make("ray.io/v1/RayJob", {"jobDeploymentStatus": "ValidationFailed", "message": "no entrypoint"}),
        "failed",
        "ValidationFailed: no entrypoint",
    ),
    (
        make("ray.io/v1/RayJob", {"jobDeploymentStatus": "Failed", "reason": "DeadlineExceeded"}),
        "failed",
        "DeadlineExceeded",
    ),
    # KubeRay writes the driver's end down before its own decision, and a new cluster follows.
    (
        make("ray.io/v1/RayJob", {"jobStatus": "FAILED", "jobDeploymentStatus": "Running", "message": "exit 1"}),
        "waiting",
        "Running, FAILED, exit 1",
    ),
    (
        make("ray.io/v1/RayJob", {"jobStatus": "FAILED", "jobDeploymentStatus": "Retrying", "failed": 1}),
        "waiting",
        "Retrying, FAILED",
    ),
    (make("ray.io/v1/RayJob", {"jobStatus": "SUCCEEDED", "jobDeploymentStatus": "Running"}), "waiting", "SUCCEEDED"),
    (make("ray.io/v1/RayJob", {"jobDeploymentStatus": "", "failed": 1}), "waiting", "is not started yet"),
    (make("ray.io/v1/RayJob", {"jobDeploymentStatus": "Initializing"}), "waiting", "Initializing"),
    (make("batch.volcano.sh/v1alpha1/Job", {"state": {"phase": "Completed"}}), "done", "Completed"),
    (make("batch.volcano.sh/v1alpha1/Job", {"state": {"phase": "Aborted", "message": "m"}}), "failed", "Aborted: m"),
    (make("kueue.x-k8s.io/v1beta2/Workload", told("Admitted")), "done", "admitted"),
    (
        make("kueue.x-k8s.io/v1beta2/Workload", told("QuotaReserved", "False", "Pending", "insufficient quota")),
        "waiting",
        "is queued: Pending: insufficient quota",
    ),
    (make("kueue.x-k8s.io/v1beta2/Workload", {}, spec={"active": False}), "failed", "is deactivated"),
    (make("kueue.x-k8s.io/v1beta2/Workload", told("Finished", reason="Failed")), "failed", "in words"),
    (make("v1/PersistentVolumeClaim", {"phase": "Bound"}), "done", "bound"),
    (make("v1/PersistentVolumeClaim", {"phase": "Lost"}), "failed", "lost"),
    (
        make("v1/PersistentVolumeClaim", {"phase": "Pending"}, spec={"storageClassName": "nfs"}),
        "waiting",
        "storage class nfs",
    ),
    (make("v1/Node", told("Ready")), "done", "in words"),
    (make("v1/Node", told("Ready", "Unknown", "NodeStatusUnknown")), "waiting", "NodeStatusUnknown"),
    (make("v1/Namespace", {"phase": "Active"}), "done", "active"),
    (
        make("v1/Namespace", told("NamespaceContentRemaining"), metadata={"deletionTimestamp": "x"}),
        "failed",
        "is being deleted: Why: in words",
    ),
    (make("apiextensions.k8s.io/v1/CustomResourceDefinition", told("Established")), "done", "in words"),
    (
        make("apiextensions.k8s.io/v1/CustomResourceDefinition", told("NamesAccepted", "False", "Taken")),
        "failed",
        "Taken",
    ),
    (make("apiextensions.k8s.io/v1/CustomResourceDefinition"), "waiting", "no condition Established"),
    (
        make("kueue.x-k8s.io/v1beta2/ClusterQueue", told("Active", "False", "FlavorNotFound")),
        "waiting",
        "FlavorNotFound",
    ),
    (make("v1/ConfigMap"), "done", "exists"),
    (make("vendor.example/v1/Thing", {"observedGeneration": 1, **told("Ready")}), "waiting", "has not observed"),
]


@pytest.mark.parametrize(("value", "phase", "reason"), CASES, ids=[f"{c[0]['kind']}-{n}" for n, c in enumerate(CASES)])
def test_states(value: Object, phase: str, reason: str) -> None:
    state = objects_status.read_state(value)
    assert state.phase == phase and reason in state.reason and "\n" not in state.reason


PULLS = {"name": "a", "active": 1, "ready": 0, "succeeded": 0}
RUNS = {"name": "b", "active": 1, "ready": 1, "succeeded": 0}
OVER = {"name": "c", "active": 0, "ready": 0, "succeeded": 1}
# What each kind of job says while its pods wait, and once they run.
STARTS: dict[str, tuple[list[Object], list[Object]]] = {
    "batch/v1/Job": ([{}, {"active": 1}], [{"active": 1, "ready": 1}]),
    "jobset.x-k8s.io/v1alpha2/JobSet": (
        [{}, {"replicatedJobsStatus": [PULLS, RUNS]}],
        [{"replicatedJobsStatus": [RUNS]}, {"replicatedJobsStatus": [OVER, RUNS]}],
    ),
    "trainer.kubeflow.org/v1alpha1/TrainJob": (
        [{}, told("Suspended"), {"jobsStatus": [PULLS]}, {"jobsStatus": [OVER, PULLS]}],
        [{"jobsStatus": [RUNS]}, {"jobsStatus": [OVER, RUNS]}],
    ),
    "kubeflow.org/v2beta1/MPIJob": ([told("Created"), told("Running", "False")], [told("Running")]),
    "kubeflow.org/v1/PyTorchJob": ([told("Created"), told("Running", "False")], [told("Running")]),
    "ray.io/v1/RayJob": (
        [{"jobDeploymentStatus": "Initializing"}, {"jobDeploymentStatus": "Retrying", "jobStatus": "FAILED"}],
        [{"jobDeploymentStatus": "Running", "jobStatus": "RUNNING"}],
    ),
    "batch.volcano.sh/v1alpha1/Job": ([{}, {"state": {"phase": "Pending"}}], [{"state": {"phase": "Running"}}]),
}


@pytest.mark.parametrize("kind", STARTS)
def test_running_jobs_are_done_for_who_wants_to_follow(kind: str) -> None:
    wait, run = (
        [objects_status.read_start_state(make(kind, status)) for status in statuses] for statuses in STARTS[kind]
    )
    assert {state.phase for state in wait} == {"waiting"}
    assert {(state.phase, state.reason) for state in run} == {("done", "is running")}
    # What runs is not at its end, for who waits for that.
    assert {objects_status.read_state(make(kind, status)).phase for status in STARTS[kind][1]} == {"waiting"}


def test_a_job_that_has_ended_need_not_run() -> None:
    assert objects_status.read_start_state(make("batch/v1/Job", told("Failed"))).phase == "failed"
    assert (
        objects_status.read_start_state(make("trainer.kubeflow.org/v1alpha1/TrainJob", told("Complete"))).phase
        == "done"
    )


def test_every_kind_of_job_can_be_waited_for_until_it_runs() -> None:
    jobs = {key for key in objects_status._RULES if key[1].endswith(("Job", "JobSet"))}
    assert jobs == set(objects_status._STARTED)


def test_a_condition_of_choice() -> None:
    rule = objects_status.condition_rule("Suspended", "False")
    assert rule(make("batch/v1/Job")).phase == "waiting"
    assert rule(make("batch/v1/Job", told("Suspended", "False"))).phase == "done"


KINDS = sorted({(value["apiVersion"], value["kind"]) for value, _, _ in CASES})
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["conditions", "phase", "type", "status", "state", "replicas", "observedGeneration", "terminated"]
            ),
            inner,
            max_size=3,
        )
    ),
    max_leaves=8,
)


@given(
    st.sampled_from(KINDS),
    st.dictionaries(st.sampled_from(["conditions", "phase", "state", "replicatedJobsStatus", "jobsStatus"]), VALUES),
)
def test_any_status_gives_a_state(kind: tuple[str, str], status: Object) -> None:
    for rule in (objects_status.read_state, objects_status.read_start_state):
        state = rule({"apiVersion": kind[0], "kind": kind[1], "metadata": {}, "status": status})
        assert state.phase in ("done", "failed", "waiting") and "\n" not in state.reason
