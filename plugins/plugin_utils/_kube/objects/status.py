# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How far an object is, by its kind: done, failed with the cause, or waiting with what it waits for. Pure.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import dataclasses
import typing as t
from collections.abc import Callable, Mapping

from ..api.errors import server_text
from ..api.kinds import KubeObject

Phase = t.Literal["done", "failed", "waiting"]


@dataclasses.dataclass(frozen=True, slots=True)
class State:
    """Where an object stands; ``reason`` is one line."""

    phase: Phase
    reason: str = ""


Predicate = Callable[[KubeObject], State]
# What is known of a Workload before Kueue has said why it waits.
QUEUED = "is queued"


def read_state(value: KubeObject) -> State:
    """Return how far an object is, by the rule of its kind; kinds without one by their condition Ready or Available."""
    group = str(value.get("apiVersion") or "").rpartition("/")[0]
    rule = _RULES.get((group, str(value.get("kind"))), _any_kind)
    try:
        return rule(value)
    except (AttributeError, TypeError, ValueError):
        return State("waiting", "its status has an unknown form")


def read_start_state(value: KubeObject) -> State:
    """Return done as soon as a job's pods run, for those who want to follow it from there."""
    group = str(value.get("apiVersion") or "").rpartition("/")[0]
    now = read_state(value)
    started = _STARTED.get((group, str(value.get("kind"))))
    if now.phase != "waiting" or started is None:
        return now
    try:
        return State("done", "runs") if started(_status(value)) else now
    except (AttributeError, TypeError, ValueError):
        return State("waiting", "its status has an unknown form")


def condition_rule(kind: str, wanted: str = "True") -> Predicate:
    """Return a rule that is done when the condition ``kind`` has the status ``wanted``."""

    def rule(value: KubeObject) -> State:
        found = conditions(value).get(kind)
        if found is None:
            return State("waiting", f"has no condition {kind} yet")
        if found.get("status") == wanted:
            return State("done", _condition_text(found))
        return State("waiting", f"{kind} is {found.get('status')}: {_condition_text(found)}")

    return rule


def conditions(value: KubeObject) -> dict[str, Mapping[str, t.Any]]:
    """Return the conditions of an object by their type."""
    listed = _status(value).get("conditions") or []
    return {str(item.get("type")): item for item in listed if isinstance(item, dict)}


def _status(value: KubeObject) -> Mapping[str, t.Any]:
    return value.get("status") or {}


def _condition_text(found: Mapping[str, t.Any]) -> str:
    parts = [server_text(found.get("reason") or ""), server_text(found.get("message") or "", 300)]
    return ": ".join(part for part in parts if part) or str(found.get("type") or "")


def _is_true(known: Mapping[str, Mapping[str, t.Any]], kind: str) -> bool:
    return known.get(kind, {}).get("status") == "True"


def _check_observed(value: KubeObject) -> State | None:
    """Return waiting when the controller has not looked at the object's present form yet."""
    seen = _status(value).get("observedGeneration")
    if seen is None or int(seen) < int((value.get("metadata") or {}).get("generation") or 0):
        return State("waiting", "its controller has not seen it yet")
    return None


def _any_kind(value: KubeObject) -> State:
    known = conditions(value)
    seen = _status(value).get("observedGeneration")
    if seen is not None and int(seen) < int((value.get("metadata") or {}).get("generation") or 0):
        return State("waiting", "its controller has not seen it yet")
    for kind in ("Ready", "Available", "Active"):
        if kind in known:
            return condition_rule(kind)(value)
    return State("done", "exists")


def _pod(value: KubeObject) -> State:
    status, known = _status(value), conditions(value)
    phase = status.get("phase")
    if phase == "Succeeded":
        return State("done", "succeeded")
    if phase == "Failed":
        return State("failed", _pod_end(status))
    if _is_true(known, "Ready"):
        return State("done", "ready")
    waits = [
        (entry.get("name"), (entry.get("state") or {}).get("waiting") or {})
        for entry in [*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])]
    ]
    for name, wait in waits:
        if wait.get("reason") and wait["reason"] not in ("ContainerCreating", "PodInitializing"):
            phase_now: Phase = "failed" if wait["reason"] == "InvalidImageName" else "waiting"
            return State(phase_now, f"container {name}: {_condition_text(wait)}")
    if known.get("PodScheduled", {}).get("status") == "False":
        return State("waiting", f"is not scheduled: {_condition_text(known['PodScheduled'])}")
    return State(
        "waiting", f"{phase or 'Pending'}: {_condition_text(known['Ready']) if 'Ready' in known else 'not started'}"
    )


def _pod_end(status: Mapping[str, t.Any]) -> str:
    """Return why a pod failed: its own reason, else the first container that did not end with 0."""
    if status.get("reason"):
        return _condition_text(status)
    for entry in [*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])]:
        end = (entry.get("state") or {}).get("terminated") or {}
        if end.get("exitCode"):
            word = f" ({end['reason']})" if end.get("reason") else ""
            return f"container {entry.get('name')} ended with status {end['exitCode']}{word}"
    return "failed"


def _deployment(value: KubeObject) -> State:
    unseen = _check_observed(value)
    if unseen:
        return unseen
    status, known = _status(value), conditions(value)
    if known.get("Progressing", {}).get("reason") == "ProgressDeadlineExceeded":
        return State("failed", _condition_text(known["Progressing"]))
    wanted = _replica_count(value)
    updated, total = int(status.get("updatedReplicas") or 0), int(status.get("replicas") or 0)
    available = int(status.get("availableReplicas") or 0)
    if updated >= wanted and total <= updated and available >= updated:
        return State("done", f"{available} available")
    if _is_true(known, "ReplicaFailure"):
        return State("waiting", _condition_text(known["ReplicaFailure"]))
    return State("waiting", f"{available} of {wanted} available, {updated} updated, {total} in all")


def _replica_count(value: KubeObject) -> int:
    replicas = (value.get("spec") or {}).get("replicas")
    return 1 if replicas is None else int(replicas)


def _daemon_set(value: KubeObject) -> State:
    unseen = _check_observed(value)
    if unseen:
        return unseen
    status = _status(value)
    wanted = int(status.get("desiredNumberScheduled") or 0)
    updated, available = int(status.get("updatedNumberScheduled") or 0), int(status.get("numberAvailable") or 0)
    if updated >= wanted and available >= wanted:
        return State("done", f"{available} available")
    return State("waiting", f"{available} of {wanted} available, {updated} updated")


def _stateful_set(value: KubeObject) -> State:
    unseen = _check_observed(value)
    if unseen:
        return unseen
    status, wanted = _status(value), _replica_count(value)
    ready = int(status.get("readyReplicas") or 0)
    partition = (((value.get("spec") or {}).get("updateStrategy") or {}).get("rollingUpdate") or {}).get("partition")
    same = partition or status.get("updateRevision") in (None, status.get("currentRevision"))
    if ready >= wanted and (same or int(status.get("updatedReplicas") or 0) >= wanted):
        return State("done", f"{ready} ready")
    return State("waiting", f"{ready} of {wanted} ready, {int(status.get('updatedReplicas') or 0)} updated")


def _job_rule(done: tuple[str, ...], failed: tuple[str, ...], told: Callable[[KubeObject], str]) -> Predicate:
    """Return the rule of a kind of job that tells its end by conditions; ``told`` says what it does until then."""

    def rule(value: KubeObject) -> State:
        known = conditions(value)
        for kind in failed:
            if _is_true(known, kind):
                return State("failed", _condition_text(known[kind]))
        for kind in done:
            if _is_true(known, kind):
                return State("done", _condition_text(known[kind]))
        if _is_true(known, "Suspended"):
            return State("waiting", f"is suspended: {_condition_text(known['Suspended'])}")
        return State("waiting", told(value))

    return rule


def _job_progress(value: KubeObject) -> str:
    status = _status(value)
    counts = [(word, int(status.get(word) or 0)) for word in ("active", "ready", "succeeded", "failed")]
    return ", ".join(f"{number} {word}" for word, number in counts if number) or "has no pods yet"


def _jobset_progress(value: KubeObject) -> str:
    status = _status(value)
    parts = [
        f"{item.get('name')}: {_format_counts(item, ('active', 'ready', 'succeeded', 'failed', 'suspended'))}"
        for item in _jobset_parts(status)
    ]
    restarts = int(status.get("restarts") or 0)
    return "; ".join([*parts, *([f"{restarts} restarts"] if restarts else [])]) or "has no jobs yet"


def _jobset_parts(status: Mapping[str, t.Any]) -> list[Mapping[str, t.Any]]:
    """Return the counts of a JobSet's jobs; a TrainJob tells those of its JobSet by another name."""
    return status.get("replicatedJobsStatus") or status.get("jobsStatus") or []


def _format_counts(item: Mapping[str, t.Any], words: tuple[str, ...]) -> str:
    return ", ".join(f"{item[word]} {word}" for word in words if item.get(word)) or "none"


def _mpi_progress(value: KubeObject) -> str:
    roles = _status(value).get("replicaStatuses") or {}
    parts = [
        f"{role}: {_format_counts(counts, ('active', 'succeeded', 'failed'))}" for role, counts in sorted(roles.items())
    ]
    return "; ".join(parts) or "has no pods yet"


def _ray_job(value: KubeObject) -> State:
    """Return how far a RayJob is by what KubeRay decided: a driver that failed may get another Ray cluster."""
    status = _status(value)
    deployment, job = str(status.get("jobDeploymentStatus") or ""), str(status.get("jobStatus") or "")
    message = server_text(status.get("message") or status.get("reason") or "", 300)
    ended = deployment == "Complete"
    # A driver that was stopped is Complete too; what KubeRay tries again is never Failed, but Retrying.
    if deployment in ("Failed", "ValidationFailed") or (ended and job in ("FAILED", "STOPPED")):
        return State("failed", ": ".join(part for part in (job or deployment, message) if part))
    if ended:
        return State("done", job or deployment)
    return State("waiting", ", ".join(part for part in (deployment, job, message) if part) or "is not started yet")


def _volcano(value: KubeObject) -> State:
    now = _status(value).get("state") or {}
    phase = str(now.get("phase") or "")
    if phase in ("Failed", "Aborted", "Terminated"):
        return State("failed", f"{phase}: {_condition_text(now)}")
    return State("done", phase) if phase == "Completed" else State("waiting", phase or "is not started yet")


def is_suspended(job: KubeObject) -> bool:
    """Return whether a job of any kind is told to have no pods: by its queue, or by somebody's hand."""
    spec = job.get("spec") or {}
    told = (spec.get("suspend") or (spec.get("runPolicy") or {}).get("suspend")) is True
    return told or _is_true(conditions(job), "Suspended")


def end_time(job: KubeObject) -> str:
    """Return when a job of any kind ended, as its cluster dates it; empty for one that has not."""
    known, status = conditions(job), _status(job)
    ends = [known[kind] for kind in ("Completed", "Complete", "Succeeded", "Failed") if _is_true(known, kind)]
    dated = [str(item.get("lastTransitionTime") or "") for item in ends]
    return next(filter(None, dated), str(status.get("completionTime") or status.get("endTime") or ""))


def is_deactivated_by_kueue(workload: KubeObject) -> bool:
    """Return whether Kueue has deactivated a Workload by itself: a limit or a check, and not somebody's hand."""
    known = conditions(workload)
    evicted = str((known.get("Evicted") or {}).get("reason") or "") if _is_true(known, "Evicted") else ""
    return _is_true(known, "DeactivationTarget") or evicted.startswith("DeactivatedDueTo")


def _workload(value: KubeObject) -> State:
    known = conditions(value)
    if _is_true(known, "Finished"):
        failed = known["Finished"].get("reason") in ("Failed", "OutOfSync")
        return State("failed" if failed else "done", _condition_text(known["Finished"]))
    if (value.get("spec") or {}).get("active") is False:
        evicted = known.get("Evicted") or known.get("DeactivationTarget")
        return State("failed", f"is deactivated{f': {_condition_text(evicted)}' if evicted else ''}")
    if _is_true(known, "Admitted"):
        return State("done", "admitted")
    for kind in ("QuotaReserved", "Admitted"):
        if kind in known:
            return State("waiting", f"{QUEUED}: {_condition_text(known[kind])}")
    return State("waiting", QUEUED)


def _pvc(value: KubeObject) -> State:
    phase = str(_status(value).get("phase") or "Pending")
    if phase in ("Bound", "Lost"):
        return State("done" if phase == "Bound" else "failed", phase.lower())
    named = (value.get("spec") or {}).get("storageClassName")
    return State("waiting", f"is not bound (storage class {named or 'none'})")


def _volume(value: KubeObject) -> State:
    phase = str(_status(value).get("phase") or "Pending")
    if phase == "Failed":
        return State("failed", _condition_text(_status(value)))
    return State("done" if phase in ("Available", "Bound") else "waiting", phase.lower())


def _namespace(value: KubeObject) -> State:
    if (value.get("metadata") or {}).get("deletionTimestamp"):
        said = "; ".join(_condition_text(item) for item in conditions(value).values() if item.get("status") == "True")
        return State("failed", f"is being deleted{f': {said}' if said else ''}")
    phase = str(_status(value).get("phase") or "")
    return State("done" if phase == "Active" else "waiting", phase.lower())


def _definition(value: KubeObject) -> State:
    known = conditions(value)
    if known.get("NamesAccepted", {}).get("status") == "False":
        return State("failed", _condition_text(known["NamesAccepted"]))
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


def _is_jobset_running(status: Mapping[str, t.Any]) -> bool:
    parts = _jobset_parts(status)
    return bool(parts) and all((item.get("ready") or 0) + (item.get("succeeded") or 0) > 0 for item in parts)


def _has_running_condition(status: Mapping[str, t.Any]) -> bool:
    return any(
        item.get("type") == "Running" and item.get("status") == "True" for item in status.get("conditions") or []
    )


_STARTED: t.Final[Mapping[tuple[str, str], Callable[[Mapping[str, t.Any]], bool]]] = {
    ("batch", "Job"): lambda status: bool(status.get("ready")),
    ("jobset.x-k8s.io", "JobSet"): _is_jobset_running,
    ("trainer.kubeflow.org", "TrainJob"): _is_jobset_running,
    ("kubeflow.org", "MPIJob"): _has_running_condition,
    ("kubeflow.org", "PyTorchJob"): _has_running_condition,
    ("ray.io", "RayJob"): lambda status: status.get("jobStatus") == "RUNNING",
    ("batch.volcano.sh", "Job"): lambda status: (status.get("state") or {}).get("phase") == "Running",
}
