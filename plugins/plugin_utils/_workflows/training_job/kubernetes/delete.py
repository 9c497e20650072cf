# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Deleting a run from its cluster, pods included: afterwards no process of the run writes any more."""

from __future__ import annotations

import contextlib
import math
import time

from .....module_utils._model.errors import MusterError
from .....module_utils._model.run_record import BackendRef
from ...._kube.api.client import Client
from ...._kube.api.kinds import KubeObject
from ...._kube.jobs.spec import (
    CANCELLED,
    SUPPORTING_KINDS,
    KubePlan,
    gang_selector,
    pull_secret_name,
    secret_name,
    selector,
)
from ...._kube.nodes.lost_pods import describe_pods
from ...._kube.objects.device_claims import TEMPLATE
from ...._kube.objects.external_secrets import KIND
from ...shared.progress import Progress
from .force_delete import ForcedDeletions

# What pods may take beyond the time that they have to save.
DELETION_S = 60.0
_POLL_S = 1.0
# A wait that lasts longer than this is said.
_MOMENT_S = 3.0


def mark_cancelled(client: Client, ref: BackendRef, who: str) -> None:
    """Say at the run's object that it is deleted on purpose; followers read it.

    Who may delete it may lack the permission for that: then followers report a deletion by others.
    """
    body = {"metadata": {"annotations": {CANCELLED: who}, **({"uid": ref.uid} if ref.uid else {})}}
    with contextlib.suppress(MusterError):
        client.patch(ref.kind_name, ref.name, body, ref.namespace)


def is_cancelled(live: KubeObject) -> bool:
    """Return whether a user cancels the run of this object."""
    return CANCELLED in (live["metadata"].get("annotations") or {})


def is_terminating(client: Client, namespace: str) -> bool:
    """Return whether a namespace is being deleted, false where it may not be read."""
    with contextlib.suppress(MusterError):
        found = client.get("v1/Namespace", namespace)
        return bool(((found or {}).get("metadata") or {}).get("deletionTimestamp"))
    return False


def delete_run(client: Client, ref: BackendRef, run_id: str, within_s: float, progress: Progress) -> bool:
    """Delete the run's object and wait until its pods no longer exist; return whether there was an object.

    :param ref: the record's ``backend_ref``.
    :raises MusterError: naming the pods' run, or what holds the object, after ``within_s`` seconds.
    """
    kind = ref.kind_name
    existed = client.delete(kind, ref.name, ref.namespace, uid=ref.uid or "")
    end = _wait_until_gone(client, ref.namespace, selector(run_id), run_id, within_s, progress)
    _delete_supporting_objects(client, ref, run_id)
    while True:
        rest = client.get(kind, ref.name, ref.namespace)
        if rest is None or (ref.uid and rest["metadata"].get("uid") != ref.uid):
            return existed
        if time.monotonic() > end:
            held = ", ".join(rest["metadata"].get("finalizers") or []) or "unknown"
            problem = f"{ref.kind} {ref.name} still exists after {within_s:.0f} s, finalizers: {held}"
            raise MusterError(problem, "Check the controller that removes the finalizer")
        time.sleep(0.1)


def wait_for_pods(client: Client, namespace: str, run_id: str, within_s: float, progress: Progress) -> None:
    """Wait until no pod of the run's former start exists, whose object was deleted before.

    :raises MusterError: naming the run after ``within_s`` seconds.
    """
    labels = gang_selector(run_id)
    if client.list("v1/Pod", namespace, labels=labels).items:
        progress.say(f"run {run_id}: waiting for the pods of its previous start to end")
        _wait_until_gone(client, namespace, labels, run_id, within_s, progress)


def _wait_until_gone(
    client: Client, namespace: str, labels: str, run_id: str, within_s: float, progress: Progress
) -> float:
    """Wait until no such pod exists; return the deadline that also holds for what the caller waits for next."""
    # What may take long is the end of the pods, which begins to count once they can be seen.
    end, said_at = math.inf, math.inf
    evictions = ForcedDeletions(client, progress)
    with client.watch("v1/Pod", namespace, labels=labels) as pods:
        left: dict[str, KubeObject] = {}
        synced = False
        while left or not synced:
            if time.monotonic() > end:
                raise MusterError(
                    f"pods of run {run_id} still exist after {within_s:.0f} s", "Check that their nodes are Ready"
                )
            event = pods.next(_POLL_S)
            if event is not None and event.type == "DELETED":
                left.pop(event.object["metadata"]["uid"], None)
            elif event is not None and event.type in ("ADDED", "MODIFIED"):
                left[event.object["metadata"]["uid"]] = event.object
            if event is not None and event.type == "SYNCED" and not synced:
                synced, end, said_at = True, time.monotonic() + within_s, time.monotonic() + _MOMENT_S
            if left and time.monotonic() > said_at:
                said_at = math.inf
                what = f"waiting for {describe_pods(list(left.values()))} to end, for {within_s:.0f} s at most"
                progress.say(f"run {run_id}: {what}")
            evictions.force_delete(left.values())
    return end


def delete_secret(client: Client, plan: KubePlan, name: str | None, progress: Progress) -> None:
    """Delete a Secret of a run that has ended: its objects may stay for a day, those of some engines for ever."""
    if name is None:
        return
    try:
        client.delete("v1/Secret", name, plan.namespace)
    except MusterError as error:
        progress.say(f"warning: Secret {name} was not deleted; it is deleted with its {plan.job.engine}: {error}")


def _delete_supporting_objects(client: Client, ref: BackendRef, run_id: str) -> None:
    """Delete the run's supporting objects: they have no owner when the controller was killed while it created them."""
    namespace = ref.namespace
    for name in (secret_name(ref.name), pull_secret_name(ref.name)):
        with contextlib.suppress(MusterError):
            client.delete("v1/Secret", name, namespace)
    for kind in (*SUPPORTING_KINDS, TEMPLATE, KIND):
        with contextlib.suppress(MusterError):
            for item in client.list(kind, namespace, labels=selector(run_id)).items:
                # As the Secrets: what brings values into the cluster is not left to the cluster's own cleaning.
                if kind == KIND or not item["metadata"].get("ownerReferences"):
                    client.delete(kind, item["metadata"]["name"], namespace)
