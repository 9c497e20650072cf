# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Taking a node that is gone out of a cluster, so that its pods are started elsewhere.

A kubelet that does not answer cannot confirm that its pods have ended, and they stay ``Terminating``. A Node that its
provider has taken away is deleted; one that may come back gets the out-of-service taint, by which the cluster forces
its pods off and detaches their volumes. Both are wrong for a node whose pods may still run.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import datetime
import typing as t

from ..api.client import Client
from ..api.errors import KubeError
from ..api.kinds import KubeObject, parse_time
from ..objects import status

OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
OURS = "app.kubernetes.io/managed-by=muster.training"
_TAINT: KubeObject = {"key": OUT_OF_SERVICE, "value": "nodeshutdown", "effect": "NoExecute"}
_TRIES = 5
_CONFLICT = 409


def readiness(node: KubeObject, now: float | None) -> tuple[bool, float | None]:
    """Return whether a Node is Ready, and for how many seconds the cluster has not heard of it, None if it can't tell.

    :param now: the time by the server's clock, None where it is not known.
    """
    found = status.conditions(node).get("Ready") or {}
    if found.get("status") == "True":
        return True, 0.0
    # Unknown is the control plane's word and time; False is said and dated by the kubelet, which is not silent.
    if now is None or found.get("status") != "Unknown":
        return False, None
    silent = parse_time(ready_since(node))
    return False, None if silent is None else max(0.0, now - silent)


def ready_since(node: KubeObject) -> str:
    """Return from when on a Node is as Ready as it is, in the words of whoever dated it: no measure of time."""
    return str((status.conditions(node).get("Ready") or {}).get("lastTransitionTime") or "")


def has_taint(node: KubeObject) -> bool:
    """Return whether a Node has the taint."""
    return any(item.get("key") == OUT_OF_SERVICE for item in (node.get("spec") or {}).get("taints") or [])


def release_pods(client: Client, name: str, gone: bool) -> list[str]:
    """Force the collection's pods off a node that is lost; return what was done.

    :param gone: whether the machine exists no more. Its Node is deleted then; it is tainted otherwise.
    """
    node = client.get("v1/Node", name)
    if node is None:
        return [f"{what} was forced off" for what in _forced(client, name)]
    done = []
    if gone:
        if client.delete("v1/Node", name, uid=str(node["metadata"].get("uid") or "")):
            done.append(f"Node {name} was deleted")
    elif _add_taint(client, name):
        done.append(f"Node {name} is out of service")
    return [*done, *(f"{what} was forced off" for what in _forced(client, name))]


def remove_taint(client: Client, name: str) -> bool:
    """Take the taint of a node away that answers again; return whether it had one."""
    return _change_taints(client, name, lambda taints: [item for item in taints if item.get("key") != OUT_OF_SERVICE])


def _add_taint(client: Client, name: str) -> bool:
    def with_taint(taints: list[KubeObject]) -> list[KubeObject]:
        return taints if has_taint({"spec": {"taints": taints}}) else [*taints, dict(_TAINT)]

    return _change_taints(client, name, with_taint)


def _change_taints(client: Client, name: str, change: t.Callable[[list[KubeObject]], list[KubeObject]]) -> bool:
    """Change a Node's taints, which are one list: whoever else changed it meanwhile is not overwritten."""
    for attempt in range(_TRIES):
        node = client.get("v1/Node", name)
        if node is None:
            return False
        before = list(node["spec"].get("taints") or [])
        after = change(before)
        if after == before:
            return False
        version = node["metadata"]["resourceVersion"]
        body = {"metadata": {"resourceVersion": version}, "spec": {"taints": after or None}}
        try:
            client.patch("v1/Node", name, body)
            return True
        except KubeError as error:
            if error.status != _CONFLICT or attempt + 1 == _TRIES:
                raise
    return False


def _tell_why(client: Client, meta: KubeObject, node: str) -> None:
    """Mark a pod as taken away, as the cluster does with pods of a lost node: that is no crash of theirs."""
    now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    condition = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "NodeLost",
        "message": f"muster.training: the node {node} is lost",
        "lastTransitionTime": now,
    }
    body = {"metadata": {"uid": meta["uid"]}, "status": {"phase": "Failed", "conditions": [condition]}}
    try:
        client.patch("v1/Pod", meta["name"], body, meta["namespace"], how="strategic", subresource="status")
    except KubeError as error:
        if error.status not in (404, _CONFLICT):
            raise


def _forced(client: Client, name: str) -> t.Iterator[str]:
    """Delete the pods of runs that a node holds, without waiting for its word."""
    for pod in client.list("v1/Pod", None, labels=OURS, fields=f"spec.nodeName={name}").items:
        meta = pod["metadata"]
        if pod.get("status", {}).get("phase") in ("Succeeded", "Failed") and not meta.get("deletionTimestamp"):
            continue
        _tell_why(client, meta, name)
        if client.delete("v1/Pod", meta["name"], meta["namespace"], uid=str(meta["uid"]), grace_s=0):
            yield f"{meta['namespace']}/{meta['name']}"
