# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Drains a node: cordons it and evicts its pods. A removal also deletes its Node and its K3s password.

A machine that is removed is taken away in any case, so pods that do not end in time are force-deleted and named. One
that only boots again is left to them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable

from ....module_utils._model.errors import RefusedError
from ..api import kinds
from ..api.client import Client
from ..api.kinds import KubeObject
from . import etcd_members, lost_pods, out_of_service

# K3s refuses a new node of the same name while the password of the old one exists.
PASSWORDS = "kube-system"
_STATIC_POD = "kubernetes.io/config.mirror"
# The taint of a node that is cordoned.
_UNSCHEDULABLE = "node.kubernetes.io/unschedulable"
# How long to wait for a change before evictions that a budget refused are repeated.
_AGAIN_S = 2.0


@dataclasses.dataclass
class NodeRemoval:
    """The result for one node; pods are named ``namespace/name``."""

    node: str
    found: bool = False
    evicted: list[str] = dataclasses.field(default_factory=list)
    forced: list[str] = dataclasses.field(default_factory=list)
    refused: dict[str, str] = dataclasses.field(default_factory=dict)
    deleted: bool = False
    password_deleted: bool = False
    cordoned: bool = False
    etcd_member_removed: bool = False

    @property
    def changed(self) -> bool:
        """Whether anything was changed."""
        return bool(self.evicted or self.forced or self.deleted or self.password_deleted or self.cordoned)


def filter_evictable(pods: Iterable[KubeObject]) -> list[KubeObject]:
    """Return the pods to evict: not those of DaemonSets, not the node's static pods, not those that have ended."""
    return [pod for pod in pods if not _is_left_alone(pod)]


def _is_left_alone(pod: KubeObject) -> bool:
    meta = pod["metadata"]
    owners = [owner.get("kind") for owner in meta.get("ownerReferences") or [] if owner.get("controller")]
    ended = (pod.get("status") or {}).get("phase") in lost_pods.FINISHED
    return ended or "DaemonSet" in owners or _STATIC_POD in (meta.get("annotations") or {})


def _comes_again(pod: KubeObject) -> bool:
    """Return whether a pod is put on a cordoned node, too, as a pinned one of the system: evicting it would not end.

    One of a run or with devices counts: the node is drained for what it uses.
    """
    spec, labels = pod.get("spec") or {}, pod["metadata"].get("labels") or {}
    resources = (item.get("resources") or {} for item in spec.get("containers") or [])
    if kinds.RUN_LABEL in labels or any("/" in name for item in resources for name in item.get("limits") or {}):
        return False
    return any(
        item.get("key") in (None, "", _UNSCHEDULABLE) and item.get("effect") in (None, "", "NoSchedule")
        for item in spec.get("tolerations") or []
        if item.get("operator") == "Exists" or item.get("key") == _UNSCHEDULABLE
    )


def set_cordon(client: Client, name: str, closed: bool, check: bool = False) -> bool:
    """Cordon or uncordon a node; return whether that changed something. A missing node changes nothing."""
    node = client.get("v1/Node", name)
    if node is None or bool((node.get("spec") or {}).get("unschedulable")) == closed:
        return False
    client.patch("v1/Node", name, {"spec": {"unschedulable": closed or None}}, dry_run=check)
    return True


def drain_node(
    client: Client, name: str, timeout_s: float, tell: Callable[[str], None], check: bool = False
) -> NodeRemoval:
    """Cordon a node and wait until its pods have ended; its Node stays. A missing node changes nothing.

    :raises RefusedError: naming the pods that have not ended in time; what this cordoned is schedulable again.
    """
    removal = NodeRemoval(name, found=client.get("v1/Node", name) is not None)
    if not removal.found:
        return removal
    removal.cordoned = set_cordon(client, name, True, check)
    if check:
        removal.evicted = [_pod_name(pod) for pod in filter_evictable(_list_pods(client, name))]
        return removal
    left = [_pod_name(pod) for pod in _evict_pods(client, removal, timeout_s, tell)]
    if left:
        if removal.cordoned:
            set_cordon(client, name, False)
        problem = (
            f"{name}: {len(left)} pods have not ended in {timeout_s:g} s, such as {left[0]}{_refusal_text(removal)}"
        )
        raise RefusedError(problem, "Cancel their run, or give them more time (drain_timeout_s)")
    return removal


def remove_node(
    client: Client, name: str, timeout_s: float, tell: Callable[[str], None], check: bool = False
) -> NodeRemoval:
    """Remove a node from the cluster; with ``check`` only what would be done is returned.

    :param timeout_s: how long its pods may take to end, outages of the API server not counted.
    """
    node = client.get("v1/Node", name)
    removal = NodeRemoval(name, found=node is not None)
    if node is not None:
        etcd_members.refuse_loss(client, node)
        removal.cordoned = set_cordon(client, name, True, check)
        if check:
            removal.evicted = [_pod_name(pod) for pod in filter_evictable(_list_pods(client, name))]
            removal.deleted = True
        else:
            # A kubelet that does not answer cannot confirm that pods have ended.
            ready, _unused = out_of_service.readiness(node, None)
            _drain(client, removal, timeout_s if ready else 0.0, tell)
            removal.etcd_member_removed = etcd_members.remove_member(client, node)
            removal.deleted = client.delete("v1/Node", name, uid=str(node["metadata"]["uid"]))
    password = f"{name}.node-password.k3s"
    if client.get("v1/Secret", password, PASSWORDS) is not None:
        removal.password_deleted = check or client.delete("v1/Secret", password, PASSWORDS)
    return removal


def _drain(client: Client, removal: NodeRemoval, timeout_s: float, tell: Callable[[str], None]) -> None:
    for pod in _evict_pods(client, removal, timeout_s, tell):
        meta = pod["metadata"]
        if client.delete("v1/Pod", meta["name"], meta["namespace"], uid=str(meta["uid"]), grace_s=0):
            removal.forced.append(_pod_name(pod))


def _evict_pods(
    client: Client, removal: NodeRemoval, timeout_s: float, tell: Callable[[str], None]
) -> list[KubeObject]:
    """Evict the pods of a node, and return those that have not ended in time."""
    # An outage does not count: during one, pods can neither be evicted nor be seen ending.
    up_s = client.transport.stats.up_s
    end = up_s() + timeout_s
    pods: dict[str, KubeObject] = {}
    with client.watch("v1/Pod", None, fields=f"spec.nodeName={removal.node}") as events:
        listed = False
        while (remaining := end - up_s()) > 0:
            event = events.next(min(_AGAIN_S, remaining))
            if event is not None and event.object:
                _track_pod(pods, event.type, event.object, is_new=listed)
            elif event is None or event.type == "SYNCED":
                # All pods are listed, or nothing changes: evict those that are not terminating.
                listed = True
                for pod in pods.values():
                    if not pod["metadata"].get("deletionTimestamp"):
                        _evict_pod(client, removal, pod)
                if pods:
                    tell(f"{removal.node}: {len(pods)} pods are still running{_refusal_text(removal)}")
            if listed and not pods:
                return []
    left = filter_evictable(_list_pods(client, removal.node))
    return [pod for pod in left if str(pod["metadata"]["uid"]) in pods or not _comes_again(pod)]


def _track_pod(pods: dict[str, KubeObject], change: str, pod: KubeObject, is_new: bool) -> None:
    """Take in a change; ``is_new``: the pods that were there at first have been listed."""
    uid = str(pod["metadata"]["uid"])
    if change == "DELETED" or _is_left_alone(pod) or (is_new and uid not in pods and _comes_again(pod)):
        pods.pop(uid, None)
    else:
        pods[uid] = pod


def _evict_pod(client: Client, removal: NodeRemoval, pod: KubeObject) -> None:
    name = _pod_name(pod)
    why = client.evict(pod)
    if why:
        removal.refused[name] = why
        return
    removal.refused.pop(name, None)
    if name not in removal.evicted:
        removal.evicted.append(name)


def _refusal_text(removal: NodeRemoval) -> str:
    return "".join(f"; {name}: {why}" for name, why in sorted(removal.refused.items())[:1])


def _list_pods(client: Client, node: str) -> list[KubeObject]:
    return list(client.list("v1/Pod", None, fields=f"spec.nodeName={node}").items)


def _pod_name(pod: KubeObject) -> str:
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
