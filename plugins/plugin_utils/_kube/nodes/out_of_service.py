# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Releases the pods of a node that is lost, so that they are started on other nodes.

A kubelet that does not answer cannot confirm that its pods have ended, and they stay ``Terminating``. The Node of a
machine that no longer exists is deleted; a Node that may come back gets the out-of-service taint, by which the cluster
deletes its pods and detaches their volumes. Both are wrong for a node whose pods may still be running.
"""

from __future__ import annotations

import typing as t

from ..api.client import Client
from ..api.errors import KubeError
from ..api.kinds import JsonObject, KubeObject, parse_time
from ..objects import status
from . import lost_pods

OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
RUN_PODS = "app.kubernetes.io/managed-by=muster.training"
_TAINT: JsonObject = {"key": OUT_OF_SERVICE, "value": "nodeshutdown", "effect": "NoExecute"}
_TRIES = 5
_CONFLICT = 409


def readiness(node: KubeObject, now: float | None) -> tuple[bool, float | None]:
    """Return whether a Node is Ready, and for how many seconds it has been silent, None where that is not known.

    :param now: the time by the server's clock, None where it is not known.
    """
    condition = status.conditions(node).get("Ready") or {}
    if condition.get("status") == "True":
        return True, 0.0
    # Unknown is set and dated by the control plane; False is set by the kubelet, which is not silent then.
    if now is None or condition.get("status") != "Unknown":
        return False, None
    silent_since = parse_time(ready_since(node))
    return False, None if silent_since is None else max(0.0, now - silent_since)


def ready_since(node: KubeObject) -> str:
    """Return when the condition Ready of a Node last changed, as text; compare it, do not measure time with it."""
    return str((status.conditions(node).get("Ready") or {}).get("lastTransitionTime") or "")


def has_taint(node: KubeObject) -> bool:
    """Return whether a Node has the taint."""
    return any(item.get("key") == OUT_OF_SERVICE for item in (node.get("spec") or {}).get("taints") or [])


def release_pods(client: Client, name: str, gone: bool) -> list[str]:
    """Delete the collection's pods of a lost node without its kubelet; return what was done.

    :param gone: whether the machine no longer exists. Its Node is deleted then; otherwise it is tainted.
    """
    node = client.get("v1/Node", name)
    actions = []
    if node is not None and gone:
        if client.delete("v1/Node", name, uid=str(node["metadata"].get("uid") or "")):
            actions.append(f"Node {name} was deleted")
    elif node is not None and _add_taint(client, name):
        actions.append(f"Node {name} is out of service")
    return [*actions, *(f"{pod} was force-deleted" for pod in _delete_pods(client, name))]


def remove_taint(client: Client, name: str) -> bool:
    """Remove the taint from a node that answers again; return whether it had one."""
    return _change_taints(client, name, lambda taints: [item for item in taints if item.get("key") != OUT_OF_SERVICE])


def _add_taint(client: Client, name: str) -> bool:
    def with_taint(taints: list[JsonObject]) -> list[JsonObject]:
        return taints if has_taint({"spec": {"taints": taints}}) else [*taints, dict(_TAINT)]

    return _change_taints(client, name, with_taint)


def _change_taints(client: Client, name: str, change: t.Callable[[list[JsonObject]], list[JsonObject]]) -> bool:
    """Change a Node's taints, which are one list; changes that others make at the same time are not overwritten."""
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


def _delete_pods(client: Client, node: str) -> t.Iterator[str]:
    """Delete the pods of runs that a lost node holds, without its kubelet; yield their names."""
    for pod in client.list("v1/Pod", None, labels=RUN_PODS, fields=f"spec.nodeName={node}").items:
        meta = pod["metadata"]
        if (pod.get("status") or {}).get("phase") in lost_pods.FINISHED and not meta.get("deletionTimestamp"):
            continue
        if lost_pods.delete_lost_pod(client, pod, node):
            yield f"{meta['namespace']}/{meta['name']}"
