# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read the state of a run in pods from its cluster, for a reaper and for ``training_job_info``."""

from __future__ import annotations

import contextlib
import typing as t

from ....module_utils._model.errors import MusterError
from ..._kube.api.client import Client
from ..._kube.api.kinds import KubeObject
from ..._kube.jobs.spec import gang_selector
from ..._kube.nodes.lost_pods import FINISHED, describe_pods
from ..._kube.objects import events, status
from ..._provision.bill.due_rules import RunView
from ..shared import cluster_identity


def describe_run(client: Client, run_id: str, ref: t.Mapping[str, object]) -> dict[str, object]:
    """Return ``phase`` (waiting, done, failed, gone, unknown) and ``detail``, one line for the user.

    ``running`` counts the pods that run, of a run that waits for its end.
    """
    try:
        label = f"{ref['kind']} {ref['namespace']}/{ref['name']}"
        cluster_identity.require_same_cluster(client, {"run_id": run_id, "state": "running", "backend_ref": ref})
        live = client.get(f"{ref['api_version']}/{ref['kind']}", str(ref["name"]), str(ref["namespace"]))
    except (MusterError, LookupError) as error:
        return {"phase": "unknown", "detail": f"the cluster cannot report its state: {error}"}
    if live is None or (ref.get("uid") and live["metadata"].get("uid") != ref["uid"]):
        pods = _list_pods(client, run_id, str(ref["namespace"]))
        left = describe_pods([pod for pod in pods if (pod.get("status") or {}).get("phase") not in FINISHED])
        return {"phase": "gone", "detail": f"{label} no longer exists{f'; still to end: {left}' if left else ''}"}
    now = status.read_state(live)
    if now.phase == "waiting":
        pods = _list_pods(client, run_id, str(ref["namespace"]))
        running = sum((pod.get("status") or {}).get("phase") == "Running" for pod in pods)
        waits = events.describe_wait(pods) or f"{label}: {now.reason or now.phase}"
        return {"phase": now.phase, "detail": waits, "running": running}
    advice = f"; its end is not recorded yet: run train with muster_run_id={run_id} to record it"
    return {"phase": now.phase, "detail": f"{label}: {now.reason or now.phase}{advice}"}


def _list_pods(client: Client, run_id: str, namespace: str) -> list[KubeObject]:
    """Return the pods of a run, none where they may not be read."""
    with contextlib.suppress(MusterError):
        return client.list("v1/Pod", namespace, labels=gang_selector(run_id)).items
    return []


def read_run_end(client: Client, ref: t.Mapping[str, object]) -> RunView | None:
    """Return how a run ended by its cluster's object; None while it may be running, or when that is unknown.

    Only the object that was submitted counts: a run that was started again has another one. Its absence from
    another cluster proves nothing.
    """
    try:
        live = client.get(f"{ref['api_version']}/{ref['kind']}", str(ref["name"]), str(ref["namespace"]))
        if live is None or live["metadata"].get("uid") != ref.get("uid"):
            return None if cluster_identity.other_cluster_id(client, ref) else RunView("ended", "cancelled")
    except (MusterError, LookupError):
        return None
    phase = status.read_state(live).phase
    return {"done": RunView("ended", "succeeded"), "failed": RunView("ended", "failed")}.get(phase)
