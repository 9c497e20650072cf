# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Deletes a pod whose node is lost: its kubelet can neither end it nor report how it ended.

Before the deletion the pod gets the end that its kubelet cannot report: phase Failed and the condition
DisruptionTarget, as Kubernetes' own pod garbage collector sets them. By the condition the pod failure policy of a Job,
and so its JobSet, tells a lost node from a crash.
"""

from __future__ import annotations

import datetime
import typing as t

from ..api.client import Client
from ..api.errors import KubeError
from ..api.kinds import KubeObject

FINISHED = ("Succeeded", "Failed")
_REASON = "NodeLost"


def delete_lost_pod(client: Client, pod: KubeObject, node: str) -> bool:
    """Mark a pod of a lost node as disrupted and delete it at once; false when it does not exist any more.

    :raises KubeError: when it may not be deleted.
    """
    meta = pod["metadata"]
    if (pod.get("status") or {}).get("phase") not in FINISHED:
        _mark_disrupted(client, pod, f"muster.training: the node {node} is lost")
    return client.delete("v1/Pod", meta["name"], meta["namespace"], uid=str(meta["uid"]), grace_s=0)


def _mark_disrupted(client: Client, pod: KubeObject, message: str) -> None:
    now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    condition = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": _REASON,
        "message": message,
        "lastTransitionTime": now,
    }
    status = {"phase": "Failed", "reason": _REASON, "message": message, "conditions": [condition]}
    meta = pod["metadata"]
    body = {"metadata": {"uid": meta["uid"]}, "status": status}
    try:
        client.patch("v1/Pod", meta["name"], body, meta["namespace"], how="strategic", subresource="status")
    except KubeError as error:
        # It is deleted all the same when the user may not write its status: its loss then counts as a crash.
        if error.status >= 500 or error.status == 429:
            raise


def is_unready(pod: KubeObject) -> bool:
    """Return whether a pod is said not to be ready: one without probes is, until its node gives no sign of life."""
    conditions: t.Any = (pod.get("status") or {}).get("conditions") or ()
    return any(item.get("type") == "Ready" and item.get("status") == "False" for item in conditions)


def describe_pods(pods: t.Sequence[KubeObject]) -> str:
    """Return ``2 pods on gpu-1, gpu-2``, empty without pods; of one that has no node, its number alone."""
    nodes = sorted({str(pod["spec"].get("nodeName")) for pod in pods if pod["spec"].get("nodeName")})
    count = f"{len(pods)} pod{'' if len(pods) == 1 else 's'}" if pods else ""
    return count + (f" on {', '.join(nodes)}" if nodes else "")
