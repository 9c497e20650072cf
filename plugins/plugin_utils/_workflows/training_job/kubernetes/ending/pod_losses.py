# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pods that a run lost, by the cluster's own word: a disruption, a node that is not ready, a deletion by force.

Ranks elsewhere fail because of such a loss, often before the cluster has noticed it. Each loss is dated by the
cluster, so that the run's history gives it to the attempt that it ended.
"""

from __future__ import annotations

import typing as t

from ......module_utils._model.run_attempt import Attempt
from ....._kube.api.kinds import KubeObject
from ....._kube.objects import status
from ....shared.progress import Progress
from ..run_events import SilentNodePod
from .last_lines import is_over

Line = t.Mapping[str, t.Any]


class RecordEvent(t.Protocol):
    """Records an event of the run, at a time or now."""

    def __call__(self, kind: str, at: float | None = None, **values: t.Any) -> None: ...


class PodLosses:
    """Records each loss once. ``nodes``: the names of the pods' nodes by uid; ``cluster_time`` of what it dated.

    ``lone``: whether a gang of one pod tells who deleted it: its own deadline does so, too.
    ``known``: events that an earlier follower has recorded. ``places``: those of the logs that it has read, by uid.
    """

    def __init__(
        self,
        nodes: t.Mapping[str, str],
        record: RecordEvent,
        cluster_time: t.Callable[[t.Any], float],
        progress: Progress,
        known: t.Iterable[Line],
        places: t.Mapping[str, Line],
        lone: bool = True,
    ) -> None:
        self._lone = lone
        self._nodes, self._record, self._cluster_time, self._progress = nodes, record, cluster_time, progress
        self._former_nodes = {uid: str(place["node"]) for uid, place in places.items() if place.get("node")}
        self._lost: set[str] = set()
        # The gang of each pod, those that are being deleted, and those that have ended.
        self._gangs: dict[str, str] = {}
        self._leaving: set[str] = set()
        self._over: set[str] = set()
        # Whether pods of the newest attempt are being deleted.
        self._stopped = False
        # Pods that left before any other one of their gang: when, their attempts and their names.
        self._first_leaving: dict[str, tuple[float, int, str]] = {}
        self._silent = {str(line.get("pod")) for line in known if line.get("kind") == "node_not_ready"}

    def node_of(self, uid: str) -> str | None:
        """Return the node of a pod of the run, also of one that an earlier follower has seen."""
        return self._nodes.get(uid) or self._former_nodes.get(uid)

    def take_pod(self, pod: KubeObject, attempt: Attempt | None, forced: t.Container[str]) -> None:
        """Note a pod that its node or the scheduler took away (no crash), or that is deleted by force.

        :param attempt: the newest one, None where none has begun or the run has ended.
        :param forced: pods that were deleted by force because their nodes were lost.
        """
        taken = status.conditions(pod).get("DisruptionTarget")
        meta, uid = pod["metadata"], pod["metadata"]["uid"]
        if uid in self._lost:
            return
        if taken and taken.get("status") == "True":
            self._lost.add(uid)
            node, at = self.node_of(uid) or meta["name"], self._cluster_time(taken.get("lastTransitionTime"))
            self._record("node_lost", at, node=node, detail=f"{taken.get('reason')}: {taken.get('message')}")
            self._progress.say(f"{node}: {meta['name']} was evicted: {taken.get('reason')}")
            return
        self._take_leaving(pod, attempt)
        # Engines, queues and the garbage collector give pods the time to end that they ask for.
        by_force = meta.get("deletionTimestamp") and meta.get("deletionGracePeriodSeconds") == 0
        if not by_force or is_over(pod) or uid in forced:
            return
        self._lost.add(uid)
        if attempt is not None and attempt.cause is None and pod["spec"].get("nodeName"):
            # Its node confirms no end, and no rank of it tells one.
            detail = f"{meta['name']} was deleted by force"
            self._record("pod_deleted", node=self.node_of(uid), pod=meta["name"], detail=detail)
            self._progress.say(f"{self.node_of(uid)}: {meta['name']} was deleted by force, and not by this collection")

    def _take_leaving(self, pod: KubeObject, attempt: Attempt | None) -> None:
        """Note a pod that is being deleted: engines delete all pods of a gang, or the others of one that failed."""
        meta, uid = pod["metadata"], pod["metadata"]["uid"]
        owner = next((owner for owner in meta.get("ownerReferences") or [] if owner.get("controller")), {})
        if owner.get("kind") != "Job":
            # Other engines delete single pods by themselves.
            return
        self._gangs[uid] = str(owner.get("uid"))
        if is_over(pod):
            self.take_end(uid)
        elif meta.get("deletionTimestamp") and uid not in self._leaving:
            self._leaving.add(uid)
            others = self._others(uid)
            # One that has failed has the others of its gang stopped.
            self._stopped = self._stopped or (attempt is not None and not others & self._over)
            alone = not others & (self._leaving | self._over)
            if alone and attempt is not None and attempt.fault is None and pod["spec"].get("nodeName"):
                self._first_leaving[uid] = self._cluster_time(None), attempt.n, meta["name"]

    def take_end(self, uid: str) -> None:
        """Note that a pod has ended or is gone. One that a user deleted ends before any other one of its gang."""
        self._over.add(uid)
        at, attempt, name = self._first_leaving.pop(uid, (0.0, 0, ""))
        if not name or uid in self._lost:
            return
        others = self._others(uid)
        if others & (self._leaving | self._over) or not (others or self._lone):
            return
        self._lost.add(uid)
        node = self.node_of(uid)
        self._record("pod_deleted", at, node=node, pod=name, attempt=attempt, detail=f"{name} was deleted")
        self._progress.say(f"{node}: {name} was deleted, and not by this collection")

    def take_attempt(self, former: Attempt | None) -> None:
        """Note that another attempt has begun. ``former``: the one before, of which all was told."""
        left, self._stopped = self._stopped, False
        if former is not None and former.cause is None and left:
            # No rank of it failed, no node was lost and its place was not taken: its objects were deleted.
            self._record("pod_deleted", attempt=former.n, detail="its pods were deleted, and none had failed")
            self._progress.say(f"the pods of attempt {former.n} were deleted, and not by this collection")

    def _others(self, uid: str) -> set[str]:
        return {other for other, gang in self._gangs.items() if gang == self._gangs.get(uid) and other != uid}

    def take_forced(self, pod: KubeObject) -> None:
        """Note a pod that was deleted by force because its node does not answer."""
        meta = pod["metadata"]
        if meta["uid"] not in self._lost:
            self._lost.add(meta["uid"])
            node = self.node_of(meta["uid"]) or meta["name"]
            self._record("node_lost", node=node, detail=f"the node of {meta['name']} does not answer")

    def take_silent_node(self, found: SilentNodePod | None) -> None:
        """Note a pod whose node is not ready; the pod itself may be gone since long."""
        if found is None or found.name in self._silent:
            return
        self._silent.add(found.name)
        at, detail = self._cluster_time(found.at), f"{found.name}: {found.words}"
        self._record("node_not_ready", at, node=self.node_of(found.uid), pod=found.name, detail=detail)
