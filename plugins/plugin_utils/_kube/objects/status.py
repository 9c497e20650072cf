# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads the state of an object by its kind: done, failed with the cause, or waiting and what for. Pure."""

from __future__ import annotations

import dataclasses
import typing as t
from collections.abc import Callable, Mapping

from ..api.errors import server_text
from ..api.kinds import Condition, Fields, KubeObject

Phase = t.Literal["done", "failed", "waiting"]


@dataclasses.dataclass(frozen=True, slots=True)
class State:
    """The state of an object; ``reason`` is one line."""

    phase: Phase
    reason: str = ""


Predicate = Callable[[KubeObject], State]
# The reason of a Workload until Kueue has written why it waits.
QUEUED = "is queued"


def read_state(value: KubeObject) -> State:
    """Return the state of an object by the rule of its kind; other kinds by their condition Ready or Available."""
    rule = _RULES.get(_family(value), _any_kind)
    try:
        return rule(value)
    except (AttributeError, TypeError, ValueError):
        return State("waiting", "its status has an unknown form")


def read_start_state(value: KubeObject) -> State:
    """Return the state of a job that is done as soon as its pods are running."""
    state = read_state(value)
    started = _STARTED.get(_family(value))
    if state.phase != "waiting" or started is None:
        return state
    try:
        return State("done", "is running") if started(value) else state
    except (AttributeError, TypeError, ValueError):
        return State("waiting", "its status has an unknown form")


def _family(value: KubeObject) -> tuple[str, str]:
    return str(value.get("apiVersion") or "").rpartition("/")[0], str(value.get("kind"))


def condition_rule(kind: str, wanted: str = "True") -> Predicate:
    """Return a rule that is done when the condition ``kind`` has the status ``wanted``."""

    def rule(value: KubeObject) -> State:
        condition = conditions(value).get(kind)
        if condition is None:
            return State("waiting", f"has no condition {kind} yet")
        if condition.get("status") == wanted:
            return State("done", _condition_text(condition))
        return State("waiting", f"{kind} is {condition.get('status')}: {_condition_text(condition)}")

    return rule


def conditions(value: KubeObject) -> dict[str, Condition]:
    """Return the conditions of an object by their type."""
    listed: list[Condition] = (value.get("status") or {}).get("conditions") or []
    return {str(item.get("type")): item for item in listed if isinstance(item, dict)}


def _condition_text(condition: Mapping[str, object]) -> str:
    parts = [server_text(condition.get("reason") or ""), server_text(condition.get("message") or "", 300)]
    return ": ".join(part for part in parts if part) or str(condition.get("type") or "")


def _is_true(by_type: Mapping[str, Condition], kind: str) -> bool:
    return by_type.get(kind, {}).get("status") == "True"


def _check_observed(value: KubeObject) -> State | None:
    """Return waiting while the controller has not observed the object's present generation."""
    observed = (value.get("status") or {}).get("observedGeneration")
    if observed is None or int(observed) < int((value.get("metadata") or {}).get("generation") or 0):
        return State("waiting", "its controller has not observed it yet")
    return None


def _any_kind(value: KubeObject) -> State:
    by_type = conditions(value)
    if (value.get("status") or {}).get("observedGeneration") is not None and (waiting := _check_observed(value)):
        return waiting
    for kind in ("Ready", "Available", "Active"):
        if kind in by_type:
            return condition_rule(kind)(value)
    return State("done", "exists")


def _pod(value: KubeObject) -> State:
    status, by_type = (value.get("status") or {}), conditions(value)
    phase = status.get("phase")
    if phase == "Succeeded":
        return State("done", "succeeded")
    if phase == "Failed":
        return State("failed", _pod_end(status))
    if _is_true(by_type, "Ready"):
        return State("done", "ready")
    for container in _containers(status):
        reason = ((container.get("state") or {}).get("waiting") or {}).get("reason")
        if reason and reason not in ("ContainerCreating", "PodInitializing"):
            text = _condition_text(container["state"]["waiting"])
            return State(
                "failed" if reason == "InvalidImageName" else "waiting", f"container {container['name']}: {text}"
            )
    if by_type.get("PodScheduled", {}).get("status") == "False":
        return State("waiting", f"is not scheduled: {_condition_text(by_type['PodScheduled'])}")
    return State(
        "waiting", f"{phase or 'Pending'}: {_condition_text(by_type['Ready']) if 'Ready' in by_type else 'not started'}"
    )


def _containers(status: Fields) -> list[Fields]:
    return [*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])]


def _pod_end(status: Fields) -> str:
    """Return why a pod failed: its own reason, else the first container that did not exit with 0."""
    if status.get("reason"):
        return _condition_text(status)
    for entry in _containers(status):
        end = (entry.get("state") or {}).get("terminated") or {}
        if end.get("exitCode"):
            word = f" ({end['reason']})" if end.get("reason") else ""
            return f"container {entry.get('name')} exited with status {end['exitCode']}{word}"
    return "failed"


def _deployment(value: KubeObject) -> State:
    waiting = _check_observed(value)
    if waiting:
        return waiting
    status, by_type = (value.get("status") or {}), conditions(value)
    if by_type.get("Progressing", {}).get("reason") == "ProgressDeadlineExceeded":
        return State("failed", _condition_text(by_type["Progressing"]))
    wanted = _replica_count(value)
    updated, total = int(status.get("updatedReplicas") or 0), int(status.get("replicas") or 0)
    available = int(status.get("availableReplicas") or 0)
    if updated >= wanted and total <= updated and available >= updated:
        return State("done", f"{available} available")
    if _is_true(by_type, "ReplicaFailure"):
        return State("waiting", _condition_text(by_type["ReplicaFailure"]))
    return State("waiting", f"{available} of {wanted} available, {updated} updated, {total} in all")


def _replica_count(value: KubeObject) -> int:
    replicas = (value.get("spec") or {}).get("replicas")
    return 1 if replicas is None else int(replicas)


def _daemon_set(value: KubeObject) -> State:
    waiting = _check_observed(value)
    if waiting:
        return waiting
    status = value.get("status") or {}
    wanted = int(status.get("desiredNumberScheduled") or 0)
    updated, available = int(status.get("updatedNumberScheduled") or 0), int(status.get("numberAvailable") or 0)
    if updated >= wanted and available >= wanted:
        return State("done", f"{available} available")
    return State("waiting", f"{available} of {wanted} available, {updated} updated")


def _stateful_set(value: KubeObject) -> State:
    waiting = _check_observed(value)
    if waiting:
        return waiting
    status, wanted = (value.get("status") or {}), _replica_count(value)
    ready = int(status.get("readyReplicas") or 0)
    partition = (((value.get("spec") or {}).get("updateStrategy") or {}).get("rollingUpdate") or {}).get("partition")
    same = partition or status.get("updateRevision") in (None, status.get("currentRevision"))
    if ready >= wanted and (same or int(status.get("updatedReplicas") or 0) >= wanted):
        return State("done", f"{ready} ready")
    return State("waiting", f"{ready} of {wanted} ready, {int(status.get('updatedReplicas') or 0)} updated")


def _job_rule(done: tuple[str, ...], failed: tuple[str, ...], progress: Callable[[KubeObject], str]) -> Predicate:
    """Return the rule of a kind of job that ends with a condition; ``progress`` is its reason until then."""

    def rule(value: KubeObject) -> State:
        by_type = conditions(value)
        for kind in failed:
            if _is_true(by_type, kind):
                return State("failed", _condition_text(by_type[kind]))
        for kind in done:
            if _is_true(by_type, kind):
                return State("done", _condition_text(by_type[kind]))
        if _is_true(by_type, "Suspended"):
            return State("waiting", f"is suspended: {_condition_text(by_type['Suspended'])}")
        return State("waiting", progress(value))

    return rule


def _job_progress(value: KubeObject) -> str:
    status = value.get("status") or {}
    counts = [(word, int(status.get(word) or 0)) for word in ("active", "ready", "succeeded", "failed")]
    return ", ".join(f"{number} {word}" for word, number in counts if number) or "has no pods yet"


def _jobset_progress(value: KubeObject) -> str:
    status = value.get("status") or {}
    parts = [
        f"{item.get('name')}: {_format_counts(item, ('active', 'ready', 'succeeded', 'failed', 'suspended'))}"
        for item in _jobset_parts(status)
    ]
    restarts = int(status.get("restarts") or 0)
    return "; ".join([*parts, *([f"{restarts} restarts"] if restarts else [])]) or "has no jobs yet"


def _jobset_parts(status: Fields) -> list[Fields]:
    """Return the counts of a JobSet's jobs; a TrainJob has those of its JobSet under another name."""
    return status.get("replicatedJobsStatus") or status.get("jobsStatus") or []


def _format_counts(item: Mapping[str, object], words: tuple[str, ...]) -> str:
    return ", ".join(f"{item[word]} {word}" for word in words if item.get(word)) or "none"


def _mpi_progress(value: KubeObject) -> str:
    roles = (value.get("status") or {}).get("replicaStatuses") or {}
    parts = [
        f"{role}: {_format_counts(counts, ('active', 'succeeded', 'failed'))}" for role, counts in sorted(roles.items())
    ]
    return "; ".join(parts) or "has no pods yet"


def _ray_job(value: KubeObject) -> State:
    """Return the state of a RayJob by KubeRay's decision: a driver that failed may get another Ray cluster."""
    status = value.get("status") or {}
    deployment, job = str(status.get("jobDeploymentStatus") or ""), str(status.get("jobStatus") or "")
    message = server_text(status.get("message") or status.get("reason") or "", 300)
    ended = deployment == "Complete"
    # A driver that was stopped is Complete as well; a driver that KubeRay tries again is Retrying, never Failed.
    if deployment in ("Failed", "ValidationFailed") or (ended and job in ("FAILED", "STOPPED")):
        return State("failed", ": ".join(part for part in (job or deployment, message) if part))
    if ended:
        return State("done", job or deployment)
    return State("waiting", ", ".join(part for part in (deployment, job, message) if part) or "is not started yet")


def _volcano(value: KubeObject) -> State:
    state = (value.get("status") or {}).get("state") or {}
    phase = str(state.get("phase") or "")
    if phase in ("Failed", "Aborted", "Terminated"):
        return State("failed", f"{phase}: {_condition_text(state)}")
    return State("done", phase) if phase == "Completed" else State("waiting", phase or "is not started yet")


def is_suspended(job: KubeObject) -> bool:
    """Return whether a job of any kind is suspended, by its queue or by a user, so that it has no pods."""
    spec = job.get("spec") or {}
    suspend = (spec.get("suspend") or (spec.get("runPolicy") or {}).get("suspend")) is True
    return suspend or _is_true(conditions(job), "Suspended")


def end_time(job: KubeObject) -> str:
    """Return when a job of any kind ended, by its cluster's clock; empty while it is running."""
    by_type, status = conditions(job), (job.get("status") or {})
    ends = [by_type[kind] for kind in ("Completed", "Complete", "Succeeded", "Failed") if _is_true(by_type, kind)]
    dated = [str(item.get("lastTransitionTime") or "") for item in ends]
    return next(filter(None, dated), str(status.get("completionTime") or status.get("endTime") or ""))


def is_deactivated_by_kueue(workload: KubeObject) -> bool:
    """Return whether Kueue has deactivated a Workload by itself, for a limit or a check, and not a user."""
    by_type = conditions(workload)
    evicted = str((by_type.get("Evicted") or {}).get("reason") or "") if _is_true(by_type, "Evicted") else ""
    return _is_true(by_type, "DeactivationTarget") or evicted.startswith("DeactivatedDueTo")


def _workload(value: KubeObject) -> State:
    by_type = conditions(value)
    if _is_true(by_type, "Finished"):
        failed = by_type["Finished"].get("reason") in ("Failed", "OutOfSync")
        return State("failed" if failed else "done", _condition_text(by_type["Finished"]))
    if (value.get("spec") or {}).get("active") is False:
        evicted = by_type.get("Evicted") or by_type.get("DeactivationTarget")
        return State("failed", f"is deactivated{f': {_condition_text(evicted)}' if evicted else ''}")
    if _is_true(by_type, "Admitted"):
        return State("done", "admitted")
    for kind in ("QuotaReserved", "Admitted"):
        if kind in by_type:
            return State("waiting", f"{QUEUED}: {_condition_text(by_type[kind])}")
    return State("waiting", QUEUED)


def _pvc(value: KubeObject) -> State:
    phase = str((value.get("status") or {}).get("phase") or "Pending")
    if phase in ("Bound", "Lost"):
        return State("done" if phase == "Bound" else "failed", phase.lower())
    named = (value.get("spec") or {}).get("storageClassName")
    return State("waiting", f"is not bound (storage class {named or 'none'})")


def _volume(value: KubeObject) -> State:
    phase = str((value.get("status") or {}).get("phase") or "Pending")
    if phase == "Failed":
        return State("failed", _condition_text(value.get("status") or {}))
    return State("done" if phase in ("Available", "Bound") else "waiting", phase.lower())


def _namespace(value: KubeObject) -> State:
    if (value.get("metadata") or {}).get("deletionTimestamp"):
        blockers = "; ".join(
            _condition_text(item) for item in conditions(value).values() if item.get("status") == "True"
        )
        return State("failed", f"is being deleted{f': {blockers}' if blockers else ''}")
    phase = str((value.get("status") or {}).get("phase") or "")
    return State("done" if phase == "Active" else "waiting", phase.lower())


def _definition(value: KubeObject) -> State:
    by_type = conditions(value)
    if by_type.get("NamesAccepted", {}).get("status") == "False":
        return State("failed", _condition_text(by_type["NamesAccepted"]))
    return condition_rule("Established")(value)


_RULES: t.Final[Mapping[tuple[str, str], Predicate]] = {
    ("", "Pod"): _pod,
    ("", "PersistentVolumeClaim"): _pvc,
    ("", "PersistentVolume"): _volume,
    ("", "Node"): condition_rule("Ready"),
    ("", "Namespace"): _namespace,
    ("apps", "Deployment"): _deployment,
    ("apps", "DaemonSet"): _daemon_set,
    ("apps", "StatefulSet"): _stateful_set,
    ("batch", "Job"): _job_rule(("Complete",), ("Failed",), _job_progress),
    ("jobset.x-k8s.io", "JobSet"): _job_rule(("Completed",), ("Failed",), _jobset_progress),
    ("trainer.kubeflow.org", "TrainJob"): _job_rule(("Complete",), ("Failed",), _jobset_progress),
    ("kubeflow.org", "MPIJob"): _job_rule(("Succeeded",), ("Failed",), _mpi_progress),
    ("kubeflow.org", "PyTorchJob"): _job_rule(("Succeeded",), ("Failed",), _mpi_progress),
    ("ray.io", "RayJob"): _ray_job,
    ("batch.volcano.sh", "Job"): _volcano,
    ("kueue.x-k8s.io", "Workload"): _workload,
    ("apiextensions.k8s.io", "CustomResourceDefinition"): _definition,
    ("apiregistration.k8s.io", "APIService"): condition_rule("Available"),
}


def _is_jobset_running(value: KubeObject) -> bool:
    parts = _jobset_parts(value.get("status") or {})
    return bool(parts) and all((item.get("ready") or 0) + (item.get("succeeded") or 0) > 0 for item in parts)


def _has_running_condition(value: KubeObject) -> bool:
    return _is_true(conditions(value), "Running")


_STARTED: t.Final[Mapping[tuple[str, str], Callable[[KubeObject], bool]]] = {
    ("batch", "Job"): lambda job: bool((job.get("status") or {}).get("ready")),
    ("jobset.x-k8s.io", "JobSet"): _is_jobset_running,
    ("trainer.kubeflow.org", "TrainJob"): _is_jobset_running,
    ("kubeflow.org", "MPIJob"): _has_running_condition,
    ("kubeflow.org", "PyTorchJob"): _has_running_condition,
    ("ray.io", "RayJob"): lambda job: (job.get("status") or {}).get("jobStatus") == "RUNNING",
    ("batch.volcano.sh", "Job"): lambda job: ((job.get("status") or {}).get("state") or {}).get("phase") == "Running",
}
