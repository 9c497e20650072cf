# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Force-deleting pods of lost nodes: they are being deleted, and no kubelet is left to confirm it.

Kubernetes keeps such a pod for ever: its gang is not started again, and its resources stay in use. A pod is deleted by
force only when it is being deleted already (by the node's taint, the engine or a user) and its node does not answer.
Without permission to read nodes, the pod's own deadline and a margin have to pass.

A node that only lost its network or its kubelet still runs the pod's program. That stops by itself where attempts
share their checkpoints: ``_node/pod_fence.py``.
"""

from __future__ import annotations

import contextlib
import time
import typing as t

from .....module_utils._model.errors import MusterError
from ...._kube.api.client import Client
from ...._kube.api.errors import KubeError
from ...._kube.api.kinds import KubeObject, parse_time
from ...._kube.nodes import lost_pods
from ...._kube.objects import status
from ...shared.progress import Progress
from .timestamps import cluster_time

_INTERVAL_S = 2.0
# Without a word on the node: so long after the time that the pod had to end.
_LATE_S = 30.0
# A pod's program sets its handler of signals within this time after its start, under load as well; what Linux gave it
# before was dropped. It has nothing to save then, and a program that was reached has ended so long after it was asked.
_DEAF_S = 5.0
# By which the Job controller counts the ends of pods.
_OWN_FINALIZERS = "batch.kubernetes.io/"
NodeState = t.Literal["answers", "silent", "gone", "unknown"]


class ForcedDeletions:
    """Force-deletes pods of lost nodes. One of them for a run; it reads nodes only while pods are being deleted."""

    def __init__(self, client: Client, progress: Progress) -> None:
        self._client, self._progress = client, progress
        self._asked_at = 0.0
        self.forced: set[str] = set()
        # Pods that have ended and are kept by finalizers, which were reported.
        self._kept: set[str] = set()
        # Pods whose time to end was made shorter.
        self._shortened: set[str] = set()

    def force_delete(self, pods: t.Iterable[KubeObject]) -> list[str]:
        """Force-delete the pods that are due and return their uids. Call it at every turn: it reads nodes seldom."""
        # One without a node waits for a controller to let go of it, and for no kubelet.
        leaving = [pod for pod in pods if pod["metadata"].get("deletionTimestamp") and pod["spec"].get("nodeName")]
        leaving = [pod for pod in leaving if pod["metadata"]["uid"] not in self.forced]
        if not leaving or time.monotonic() - self._asked_at < _INTERVAL_S:
            return []
        self._asked_at = time.monotonic()
        states: dict[str, NodeState] = {}
        taken = []
        now = cluster_time(time.time(), self._client.transport.stats.server_time())
        for pod in leaving:
            self._report_kept(pod, now)
            self._shorten(pod, now)
            name = str(pod["spec"]["nodeName"])
            if name not in states:
                states[name] = self._node(name)
            if is_due(pod, states[name], now) and self._delete_now(pod, name):
                taken.append(str(pod["metadata"]["uid"]))
        return taken

    def _shorten(self, pod: KubeObject, now: float) -> None:
        """Take the rest of its time from a pod that cannot have been told to end: it would run through all of it."""
        meta = pod["metadata"]
        if is_deaf(pod, now) and meta["uid"] not in self._shortened:
            self._shortened.add(meta["uid"])
            with contextlib.suppress(MusterError):
                self._client.delete("v1/Pod", meta["name"], meta["namespace"], uid=meta["uid"], grace_s=1)

    def _report_kept(self, pod: KubeObject, now: float) -> None:
        """Report a pod that finalizers of others keep: its gang does not start again before it is gone."""
        meta, finalizers = pod["metadata"], pod["metadata"].get("finalizers") or []
        held = [name for name in finalizers if not name.startswith(_OWN_FINALIZERS)]
        late = now > (parse_time(meta["deletionTimestamp"]) or now) + _LATE_S
        if held and late and meta["uid"] not in self._kept:
            self._kept.add(meta["uid"])
            advice = "check the controller that removes them"
            self._progress.say(f"{meta['name']} was deleted and still exists, finalizers: {', '.join(held)}; {advice}")

    def _node(self, name: str) -> NodeState:
        try:
            found = self._client.get("v1/Node", name)
        except KubeError as exc:
            return "unknown" if exc.is_forbidden else "answers"
        except MusterError:
            return "answers"
        return node_state(found)

    def _delete_now(self, pod: KubeObject, node: str) -> bool:
        meta = pod["metadata"]
        try:
            lost_pods.delete_lost_pod(self._client, pod, node)
        except MusterError as exc:
            self._progress.say(f"{meta['name']} could not be deleted from {node}: {exc.message}")
            return False
        self.forced.add(meta["uid"])
        self._progress.say(f"{node} does not answer: {meta['name']} was force-deleted")
        return True


def node_state(node: KubeObject | None) -> NodeState:
    """Return what is known of a Node object, None for one that is not there."""
    if node is None:
        return "gone"
    ready = status.conditions(node).get("Ready") or {}
    # False was reported by the kubelet itself: it is running and may still end the pod.
    return "silent" if ready.get("status") == "Unknown" else "answers"


def is_deaf(pod: KubeObject, now: float) -> bool:
    """Return whether a leaving pod runs on that was asked to end before its program could be reached by that."""
    grace_s = int(pod["metadata"].get("deletionGracePeriodSeconds") or 0)
    asked_at = (parse_time(pod["metadata"]["deletionTimestamp"]) or now) - grace_s
    states = [item.get("state") or {} for item in (pod.get("status") or {}).get("containerStatuses") or ()]
    begun = [parse_time((state.get("running") or {}).get("startedAt")) for state in states]
    known = [at for at in begun if at is not None]
    return grace_s > 1 and bool(known) and max(known) > asked_at - _DEAF_S and now > max(*known, asked_at) + _DEAF_S


def is_due(pod: KubeObject, node: NodeState, now: float) -> bool:
    """Return whether a leaving pod is to be taken off its node by force."""
    if node in ("gone", "silent"):
        return True
    if node == "answers" or now < (parse_time(pod["metadata"]["deletionTimestamp"]) or now) + _LATE_S:
        return False
    # The node controller says so of all pods of a node that does not answer.
    ready = status.conditions(pod).get("Ready") or {}
    running = any("running" in (item.get("state") or {}) for item in pod["status"].get("containerStatuses") or ())
    return ready.get("status") == "False" and running
