# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Taking a run off its cluster, pods included: after it nothing of the run writes any more.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import contextlib
import math
import time
import typing as t

from .....module_utils._model.errors import MusterError
from ...._kube.api.client import Client
from ...._kube.jobs.spec import SUPPORTING_KINDS, KubeObject, KubePlan, gang_selector, secret_name, selector
from ...shared.progress import Progress
from .force_delete import Evictions

# What pods may take beyond the time that they have to save.
GONE_S = 60.0
_LOOK_S = 1.0


def remove(client: Client, ref: t.Mapping[str, t.Any], run_id: str, within_s: float, progress: Progress) -> bool:
    """Delete the run's object and wait until its pods are gone; return whether there was anything.

    :param ref: the record's ``backend_ref``.
    :raises MusterError: naming the pods' run, or what holds the object, after ``within_s`` seconds.
    """
    kind = f"{ref['api_version']}/{ref['kind']}"
    existed = client.delete(kind, str(ref["name"]), str(ref["namespace"]), uid=str(ref.get("uid") or ""))
    end = _pods_gone(client, str(ref["namespace"]), selector(run_id), run_id, within_s, progress)
    _forget_companions(client, ref, run_id)
    while True:
        rest = client.get(kind, str(ref["name"]), str(ref["namespace"]))
        if rest is None or (ref.get("uid") and rest["metadata"].get("uid") != ref["uid"]):
            return existed
        if time.monotonic() > end:
            held = ", ".join(rest["metadata"].get("finalizers") or []) or "nobody says by what"
            problem = f"{ref['kind']} {ref['name']} is still there after {within_s:.0f} s: held by {held}"
            raise MusterError(problem, "Look at who has to let go of it")
        time.sleep(0.1)


def await_pods(client: Client, namespace: str, run_id: str, within_s: float, progress: Progress) -> None:
    """Wait until no pod of the run's gang is left of a former start, whose object is gone already.

    :raises MusterError: naming the run after ``within_s`` seconds.
    """
    labels = gang_selector(run_id)
    if client.list("v1/Pod", namespace, labels=labels).items:
        progress.say(f"run {run_id}: waiting for the pods of its former start")
        _pods_gone(client, namespace, labels, run_id, within_s, progress)


def _pods_gone(client: Client, namespace: str, labels: str, run_id: str, within_s: float, progress: Progress) -> float:
    """Wait until there is no such pod; return until when whoever asked may go on waiting for other things."""
    # What may take long is the end of the pods, which begins to count once they can be seen.
    end = math.inf
    evictions = Evictions(client, progress)
    with client.watch("v1/Pod", namespace, labels=labels) as pods:
        left: dict[str, KubeObject] = {}
        synced = False
        while left or not synced:
            if time.monotonic() > end:
                raise MusterError(f"pods of run {run_id} are still there after {within_s:.0f} s", "Look at their nodes")
            event = pods.next(_LOOK_S)
            if event is not None and event.type == "DELETED":
                left.pop(event.object["metadata"]["uid"], None)
            elif event is not None and event.type in ("ADDED", "MODIFIED"):
                left[event.object["metadata"]["uid"]] = event.object
            if event is not None and event.type == "SYNCED" and not synced:
                synced, end = True, time.monotonic() + within_s
            evictions.look(left.values())
    return end


def forget_secret(client: Client, made: KubePlan, progress: Progress) -> None:
    """Remove the values of a run that has ended: its objects may stay for a day, some engines' for ever."""
    if made.secret is None:
        return
    try:
        client.delete("v1/Secret", made.secret, made.namespace)
    except MusterError as error:
        progress.say(f"warning: the run's Secret stays until its {made.job.engine} is removed: {error}")


def _forget_companions(client: Client, ref: t.Mapping[str, t.Any], run_id: str) -> None:
    """Remove what came with the run, which goes with its object unless whoever made both was killed in between."""
    namespace = str(ref["namespace"])
    with contextlib.suppress(MusterError):
        client.delete("v1/Secret", secret_name(str(ref["name"])), namespace)
    for kind in SUPPORTING_KINDS:
        with contextlib.suppress(MusterError):
            for item in client.list(kind, namespace, labels=selector(run_id)).items:
                if not item["metadata"].get("ownerReferences"):
                    client.delete(kind, item["metadata"]["name"], namespace)
