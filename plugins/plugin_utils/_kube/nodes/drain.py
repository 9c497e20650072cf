# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node that leaves a cluster in order: no new pods, its pods evicted, its Node and its K3s password deleted.

The machine goes away whatever its pods say, so what does not end in time is forced off, and named.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import dataclasses
import typing as t
from collections.abc import Callable, Iterable

from ..api.client import Client
from ..api.kinds import KubeObject
from . import out_of_service

# K3s refuses a new node of the same name while the password of the old one is there.
PASSWORDS = "kube-system"
_STATIC_POD = "kubernetes.io/config.mirror"
_FINISHED = ("Succeeded", "Failed")
# How long to wait for a change before asking again for what a budget refused.
_AGAIN_S = 2.0


@dataclasses.dataclass
class NodeRemoval:
    """What became of one node; pods are named ``namespace/name``."""

    node: str
    found: bool = False
    evicted: list[str] = dataclasses.field(default_factory=list)
    forced: list[str] = dataclasses.field(default_factory=list)
    refused: dict[str, str] = dataclasses.field(default_factory=dict)
    deleted: bool = False
    password_deleted: bool = False
    cordoned: bool = False

    @property
    def changed(self) -> bool:
        """Whether anything was changed."""
        return bool(self.evicted or self.forced or self.deleted or self.password_deleted or self.cordoned)


def filter_evictable(pods: Iterable[KubeObject]) -> list[KubeObject]:
    """Return the pods that have to go: not those of DaemonSets and of the node itself, not those that have ended."""
    return [pod for pod in pods if not _is_left_alone(pod)]


def _is_left_alone(pod: KubeObject) -> bool:
    meta = pod["metadata"]
    owners = [owner.get("kind") for owner in meta.get("ownerReferences") or [] if owner.get("controller")]
    ended = (pod.get("status") or {}).get("phase") in _FINISHED
    return ended or "DaemonSet" in owners or _STATIC_POD in (meta.get("annotations") or {})


def set_cordon(client: Client, name: str, closed: bool, check: bool = False) -> bool:
    """Let a node take no new pods, or let it again; return whether that changed. A missing node is no change."""
    node = client.get("v1/Node", name)
    if node is None or bool((node.get("spec") or {}).get("unschedulable")) == closed:
        return False
    client.patch("v1/Node", name, {"spec": {"unschedulable": closed or None}}, dry_run=check)
    return True


def remove_node(
    client: Client, name: str, timeout_s: float, tell: Callable[[str], None], check: bool = False
) -> NodeRemoval:
    """Take a node out of the cluster; with ``check`` only what would be done is returned.

    :param timeout_s: how long its pods may take to end, outages of the API server not counted.
    """
    node = client.get("v1/Node", name)
    left = NodeRemoval(name, found=node is not None)
    if node is not None:
        left.cordoned = set_cordon(client, name, True, check)
        if check:
            left.evicted = [_pod_name(pod) for pod in filter_evictable(_list_pods(client, name))]
            left.deleted = True
        else:
            # A kubelet that does not answer confirms no end.
            ready, _unused = out_of_service.readiness(node, None)
            _drain(client, left, timeout_s if ready else 0.0, tell)
            left.deleted = client.delete("v1/Node", name, uid=str(node["metadata"]["uid"]))
    password = f"{name}.node-password.k3s"
    if client.get("v1/Secret", password, PASSWORDS) is not None:
        left.password_deleted = check or client.delete("v1/Secret", password, PASSWORDS)
    return left


def _drain(client: Client, left: NodeRemoval, timeout_s: float, tell: Callable[[str], None]) -> None:
    # While the server is away nobody can be asked to end, and no end can be told.
    up_s = client.transport.stats.up_s
    end = up_s() + timeout_s
    going: dict[str, KubeObject] = {}
    with client.watch("v1/Pod", None, fields=f"spec.nodeName={left.node}") as events:
        told = False
        while (remaining := end - up_s()) > 0:
            event = events.next(min(_AGAIN_S, remaining))
            if event is not None and event.object:
                _track_pod(going, event.type, event.object)
            elif event is None or event.type == "SYNCED":
                # All that is there was told, or nothing happens: ask for what is still there.
                told = True
                for pod in going.values():
                    if not pod["metadata"].get("deletionTimestamp"):
                        _evict_pod(client, left, pod)
                if going:
                    tell(f"{left.node}: {len(going)} pods to go{_refusal_text(left)}")
            if told and not going:
                return
    for pod in filter_evictable(_list_pods(client, left.node)):
        meta = pod["metadata"]
        if client.delete("v1/Pod", meta["name"], meta["namespace"], uid=str(meta["uid"]), grace_s=0):
            left.forced.append(_pod_name(pod))


def _track_pod(going: dict[str, KubeObject], change: str, pod: KubeObject) -> None:
    uid = str(pod["metadata"]["uid"])
    if change == "DELETED" or _is_left_alone(pod):
        going.pop(uid, None)
    else:
        going[uid] = pod


def _evict_pod(client: Client, left: NodeRemoval, pod: KubeObject) -> None:
    name = _pod_name(pod)
    why = client.evict(pod)
    if why:
        left.refused[name] = why
        return
    left.refused.pop(name, None)
    if name not in left.evicted:
        left.evicted.append(name)


def _refusal_text(left: NodeRemoval) -> str:
    return "".join(f"; {name}: {why}" for name, why in sorted(left.refused.items())[:1])


def _list_pods(client: Client, node: str) -> list[KubeObject]:
    return list(client.list("v1/Pod", None, fields=f"spec.nodeName={node}").items)


def _pod_name(pod: t.Mapping[str, t.Any]) -> str:
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
