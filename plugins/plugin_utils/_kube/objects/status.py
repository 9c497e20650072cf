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

from ..api.errors import plain
from ..api.kinds import Object

Phase = t.Literal["done", "failed", "waiting"]


@dataclasses.dataclass(frozen=True, slots=True)
class State:
    """Where an object stands; ``reason`` is one line."""

    phase: Phase
    reason: str = ""


Predicate = Callable[[Object], State]
# What is known of a Workload before Kueue has said why it waits.
QUEUED = "is queued"


def state(value: Object) -> State:
    """Return how far an object is, by the rule of its kind; kinds without one by their condition Ready or Available."""
    group = str(value.get("apiVersion") or "").rpartition("/")[0]
    rule = _RULES.get((group, str(value.get("kind"))), _any)
    try:
        return rule(value)
    except (AttributeError, TypeError, ValueError):
        return State("waiting", "its status has an unknown form")


def running(value: Object) -> State:
    """Return done as soon as a job's pods run, for those who want to follow it from there."""
    group = str(value.get("apiVersion") or "").rpartition("/")[0]
    now = state(value)
    started = _STARTED.get((group, str(value.get("kind"))))
    if now.phase != "waiting" or started is None:
        return now
    try:
        return State("done", "runs") if started(_status(value)) else now
    except (AttributeError, TypeError, ValueError):
        return State("waiting", "its status has an unknown form")


def condition(kind: str, wanted: str = "True") -> Predicate:
    """Return a rule that is done when the condition ``kind`` has the status ``wanted``."""

    def rule(value: Object) -> State:
        found = conditions(value).get(kind)
        if found is None:
            return State("waiting", f"has no condition {kind} yet")
        if found.get("status") == wanted:
            return State("done", _said(found))
        return State("waiting", f"{kind} is {found.get('status')}: {_said(found)}")

    return rule


def conditions(value: Object) -> dict[str, Mapping[str, t.Any]]:
    """Return the conditions of an object by their type."""
    listed = _status(value).get("conditions") or []
    return {str(item.get("type")): item for item in listed if isinstance(item, dict)}


def _status(value: Object) -> Mapping[str, t.Any]:
    return value.get("status") or {}


def _said(found: Mapping[str, t.Any]) -> str:
    parts = [plain(found.get("reason") or ""), plain(found.get("message") or "", 300)]
    return ": ".join(part for part in parts if part) or str(found.get("type") or "")


def _holds(known: Mapping[str, Mapping[str, t.Any]], kind: str) -> bool:
    return known.get(kind, {}).get("status") == "True"


def _unseen(value: Object) -> State | None:
    """Return waiting when the controller has not looked at the object's present form yet."""
    seen = _status(value).get("observedGeneration")
    if seen is None or int(seen) < int((value.get("metadata") or {}).get("generation") or 0):
        return State("waiting", "its controller has not seen it yet")
    return None


def _any(value: Object) -> State:
    known = conditions(value)
    seen = _status(value).get("observedGeneration")
    if seen is not None and int(seen) < int((value.get("metadata") or {}).get("generation") or 0):
        return State("waiting", "its controller has not seen it yet")
    for kind in ("Ready", "Available", "Active"):
        if kind in known:
            return condition(kind)(value)
    return State("done", "exists")


def _pod(value: Object) -> State:
    status, known = _status(value), conditions(value)
    phase = status.get("phase")
    if phase == "Succeeded":
        return State("done", "succeeded")
    if phase == "Failed":
        return State("failed", _pod_end(status))
    if _holds(known, "Ready"):
        return State("done", "ready")
    waits = [
        (entry.get("name"), (entry.get("state") or {}).get("waiting") or {})
        for entry in [*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])]
    ]
    for name, wait in waits:
        if wait.get("reason") and wait["reason"] not in ("ContainerCreating", "PodInitializing"):
            phase_now: Phase = "failed" if wait["reason"] == "InvalidImageName" else "waiting"
            return State(phase_now, f"container {name}: {_said(wait)}")
    if known.get("PodScheduled", {}).get("status") == "False":
        return State("waiting", f"is not scheduled: {_said(known['PodScheduled'])}")
    return State("waiting", f"{phase or 'Pending'}: {_said(known['Ready']) if 'Ready' in known else 'not started'}")


def _pod_end(status: Mapping[str, t.Any]) -> str:
    """Return why a pod failed: its own reason, else the first container that did not end with 0."""
    if status.get("reason"):
        return _said(status)
    for entry in [*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])]:
        end = (entry.get("state") or {}).get("terminated") or {}
        if end.get("exitCode"):
            word = f" ({end['reason']})" if end.get("reason") else ""
            return f"container {entry.get('name')} ended with status {end['exitCode']}{word}"
    return "failed"


def _deployment(value: Object) -> State:
    unseen = _unseen(value)
    if unseen:
        return unseen
    status, known = _status(value), conditions(value)
    if known.get("Progressing", {}).get("reason") == "ProgressDeadlineExceeded":
        return State("failed", _said(known["Progressing"]))
    wanted = _wanted(value)
    updated, total = int(status.get("updatedReplicas") or 0), int(status.get("replicas") or 0)
    available = int(status.get("availableReplicas") or 0)
    if updated >= wanted and total <= updated and available >= updated:
        return State("done", f"{available} available")
    if _holds(known, "ReplicaFailure"):
        return State("waiting", _said(known["ReplicaFailure"]))
    return State("waiting", f"{available} of {wanted} available, {updated} updated, {total} in all")


def _wanted(value: Object) -> int:
    replicas = (value.get("spec") or {}).get("replicas")
    return 1 if replicas is None else int(replicas)


def _daemon_set(value: Object) -> State:
    unseen = _unseen(value)
    if unseen:
        return unseen
    status = _status(value)
    wanted = int(status.get("desiredNumberScheduled") or 0)
    updated, available = int(status.get("updatedNumberScheduled") or 0), int(status.get("numberAvailable") or 0)
    if updated >= wanted and available >= wanted:
        return State("done", f"{available} available")
    return State("waiting", f"{available} of {wanted} available, {updated} updated")


def _stateful_set(value: Object) -> State:
    unseen = _unseen(value)
    if unseen:
        return unseen
    status, wanted = _status(value), _wanted(value)
    ready = int(status.get("readyReplicas") or 0)
    partition = (((value.get("spec") or {}).get("updateStrategy") or {}).get("rollingUpdate") or {}).get("partition")
    same = partition or status.get("updateRevision") in (None, status.get("currentRevision"))
    if ready >= wanted and (same or int(status.get("updatedReplicas") or 0) >= wanted):
        return State("done", f"{ready} ready")
    return State("waiting", f"{ready} of {wanted} ready, {int(status.get('updatedReplicas') or 0)} updated")


def _ending(done: tuple[str, ...], failed: tuple[str, ...], told: Callable[[Object], str]) -> Predicate:
    """Return the rule of a kind of job that tells its end by conditions; ``told`` says what it does until then."""

    def rule(value: Object) -> State:
        known = conditions(value)
        for kind in failed:
            if _holds(known, kind):
                return State("failed", _said(known[kind]))
        for kind in done:
            if _holds(known, kind):
                return State("done", _said(known[kind]))
        if _holds(known, "Suspended"):
            return State("waiting", f"is suspended: {_said(known['Suspended'])}")
        return State("waiting", told(value))

    return rule


def _job_told(value: Object) -> str:
    status = _status(value)
    counts = [(word, int(status.get(word) or 0)) for word in ("active", "ready", "succeeded", "failed")]
    return ", ".join(f"{number} {word}" for word, number in counts if number) or "has no pods yet"


def _jobset_told(value: Object) -> str:
    status = _status(value)
    parts = [
        f"{item.get('name')}: {_counts(item, ('active', 'ready', 'succeeded', 'failed', 'suspended'))}"
        for item in _parts(status)
    ]
    restarts = int(status.get("restarts") or 0)
    return "; ".join([*parts, *([f"{restarts} restarts"] if restarts else [])]) or "has no jobs yet"


def _parts(status: Mapping[str, t.Any]) -> list[Mapping[str, t.Any]]:
    """Return the counts of a JobSet's jobs; a TrainJob tells those of its JobSet by another name."""
    return status.get("replicatedJobsStatus") or status.get("jobsStatus") or []


def _counts(item: Mapping[str, t.Any], words: tuple[str, ...]) -> str:
    return ", ".join(f"{item[word]} {word}" for word in words if item.get(word)) or "none"


def _mpi_told(value: Object) -> str:
    roles = _status(value).get("replicaStatuses") or {}
    parts = [f"{role}: {_counts(counts, ('active', 'succeeded', 'failed'))}" for role, counts in sorted(roles.items())]
    return "; ".join(parts) or "has no pods yet"


def _ray_job(value: Object) -> State:
    """Return how far a RayJob is by what KubeRay decided: a driver that failed may get another Ray cluster."""
    status = _status(value)
    deployment, job = str(status.get("jobDeploymentStatus") or ""), str(status.get("jobStatus") or "")
    message = plain(status.get("message") or status.get("reason") or "", 300)
    ended = deployment == "Complete"
    # A driver that was stopped is Complete too; what KubeRay tries again is never Failed, but Retrying.
    if deployment in ("Failed", "ValidationFailed") or (ended and job in ("FAILED", "STOPPED")):
        return State("failed", ": ".join(part for part in (job or deployment, message) if part))
    if ended:
        return State("done", job or deployment)
    return State("waiting", ", ".join(part for part in (deployment, job, message) if part) or "is not started yet")


def _volcano(value: Object) -> State:
    now = _status(value).get("state") or {}
    phase = str(now.get("phase") or "")
    if phase in ("Failed", "Aborted", "Terminated"):
        return State("failed", f"{phase}: {_said(now)}")
    return State("done", phase) if phase == "Completed" else State("waiting", phase or "is not started yet")


def suspended(job: Object) -> bool:
    """Return whether a job of any kind is told to have no pods: by its queue, or by somebody's hand."""
    spec = job.get("spec") or {}
    told = (spec.get("suspend") or (spec.get("runPolicy") or {}).get("suspend")) is True
    return told or _holds(conditions(job), "Suspended")


def end_time(job: Object) -> str:
    """Return when a job of any kind ended, as its cluster dates it; empty for one that has not."""
    known, status = conditions(job), _status(job)
    ends = [known[kind] for kind in ("Completed", "Complete", "Succeeded", "Failed") if _holds(known, kind)]
    dated = [str(item.get("lastTransitionTime") or "") for item in ends]
    return next(filter(None, dated), str(status.get("completionTime") or status.get("endTime") or ""))


def given_up(workload: Object) -> bool:
    """Return whether Kueue has deactivated a Workload by itself: a limit or a check, and not somebody's hand."""
    known = conditions(workload)
    evicted = str((known.get("Evicted") or {}).get("reason") or "") if _holds(known, "Evicted") else ""
    return _holds(known, "DeactivationTarget") or evicted.startswith("DeactivatedDueTo")


def _workload(value: Object) -> State:
    known = conditions(value)
    if _holds(known, "Finished"):
        failed = known["Finished"].get("reason") in ("Failed", "OutOfSync")
        return State("failed" if failed else "done", _said(known["Finished"]))
    if (value.get("spec") or {}).get("active") is False:
        evicted = known.get("Evicted") or known.get("DeactivationTarget")
        return State("failed", f"is deactivated{f': {_said(evicted)}' if evicted else ''}")
    if _holds(known, "Admitted"):
        return State("done", "admitted")
    for kind in ("QuotaReserved", "Admitted"):
        if kind in known:
            return State("waiting", f"{QUEUED}: {_said(known[kind])}")
    return State("waiting", QUEUED)


def _claim(value: Object) -> State:
    phase = str(_status(value).get("phase") or "Pending")
    if phase in ("Bound", "Lost"):
        return State("done" if phase == "Bound" else "failed", phase.lower())
    named = (value.get("spec") or {}).get("storageClassName")
    return State("waiting", f"is not bound (storage class {named or 'none'})")


def _volume(value: Object) -> State:
    phase = str(_status(value).get("phase") or "Pending")
    if phase == "Failed":
        return State("failed", _said(_status(value)))
    return State("done" if phase in ("Available", "Bound") else "waiting", phase.lower())


def _namespace(value: Object) -> State:
    if (value.get("metadata") or {}).get("deletionTimestamp"):
        said = "; ".join(_said(item) for item in conditions(value).values() if item.get("status") == "True")
        return State("failed", f"is being deleted{f': {said}' if said else ''}")
    phase = str(_status(value).get("phase") or "")
    return State("done" if phase == "Active" else "waiting", phase.lower())


def _definition(value: Object) -> State:
    known = conditions(value)
    if known.get("NamesAccepted", {}).get("status") == "False":
        return State("failed", _said(known["NamesAccepted"]))
    return condition("Established")(value)


_RULES: t.Final[Mapping[tuple[str, str], Predicate]] = {
    ("", "Pod"): _pod,
    ("", "PersistentVolumeClaim"): _claim,
    ("", "PersistentVolume"): _volume,
    ("", "Node"): condition("Ready"),
    ("", "Namespace"): _namespace,
    ("apps", "Deployment"): _deployment,
    ("apps", "DaemonSet"): _daemon_set,
    ("apps", "StatefulSet"): _stateful_set,
    ("batch", "Job"): _ending(("Complete",), ("Failed",), _job_told),
    ("jobset.x-k8s.io", "JobSet"): _ending(("Completed",), ("Failed",), _jobset_told),
    ("trainer.kubeflow.org", "TrainJob"): _ending(("Complete",), ("Failed",), _jobset_told),
    ("kubeflow.org", "MPIJob"): _ending(("Succeeded",), ("Failed",), _mpi_told),
    ("kubeflow.org", "PyTorchJob"): _ending(("Succeeded",), ("Failed",), _mpi_told),
    ("ray.io", "RayJob"): _ray_job,
    ("batch.volcano.sh", "Job"): _volcano,
    ("kueue.x-k8s.io", "Workload"): _workload,
    ("apiextensions.k8s.io", "CustomResourceDefinition"): _definition,
    ("apiregistration.k8s.io", "APIService"): condition("Available"),
}


def _jobset_runs(status: Mapping[str, t.Any]) -> bool:
    parts = _parts(status)
    return bool(parts) and all((item.get("ready") or 0) + (item.get("succeeded") or 0) > 0 for item in parts)


def _says_running(status: Mapping[str, t.Any]) -> bool:
    return any(
        item.get("type") == "Running" and item.get("status") == "True" for item in status.get("conditions") or []
    )


_STARTED: t.Final[Mapping[tuple[str, str], Callable[[Mapping[str, t.Any]], bool]]] = {
    ("batch", "Job"): lambda status: bool(status.get("ready")),
    ("jobset.x-k8s.io", "JobSet"): _jobset_runs,
    ("trainer.kubeflow.org", "TrainJob"): _jobset_runs,
    ("kubeflow.org", "MPIJob"): _says_running,
    ("kubeflow.org", "PyTorchJob"): _says_running,
    ("ray.io", "RayJob"): lambda status: status.get("jobStatus") == "RUNNING",
    ("batch.volcano.sh", "Job"): lambda status: (status.get("state") or {}).get("phase") == "Running",
}
