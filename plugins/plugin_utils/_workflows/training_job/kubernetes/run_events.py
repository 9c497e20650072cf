# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which of a namespace's warning events are about a run: another run's name may begin with this one's."""

from __future__ import annotations

import re
import typing as t

from ...._kube.api.errors import server_text
from ...._kube.api.kinds import KubeObject
from ...._kube.api.watch import WatchEvent
from ...._kube.jobs.spec import KubePlan
from ...._kube.objects import events

_EARLY_LIMIT = 64
# The node controller says so of every pod of a node that does not answer.
_SILENT_NODE = "NodeNotReady"


class SilentNodePod(t.NamedTuple):
    """A pod of the run whose node is not ready by the cluster's word; ``at`` as the cluster wrote it."""

    uid: str
    name: str
    at: str
    words: str


class RunWarnings:
    """Takes the namespace's events and gives those of the run."""

    def __init__(self, plan: KubePlan, claims: t.Iterable[str]) -> None:
        self._name = plan.name
        self._claims = frozenset(claims)
        own, roles = re.escape(plan.name), "|".join(map(re.escape, plan.pods))
        self._pod = re.compile(rf"{own}-({roles})(-[0-9]+)*(-[a-z0-9]{{5}})?")
        # By the names that engines give to what they make.
        self._made = {
            "RayCluster": re.compile(rf"{own}((-raycluster)?-[a-z0-9]{{5}})?"),
            "PodGroup": re.compile(rf"{own}(-[0-9a-f-]{{36}})?"),
            "": re.compile(rf"{own}(-({roles})(-[0-9]+)?)?"),
        }
        # What was told of pods that were not heard of yet, by uid and words.
        self._early: dict[tuple[str, str], events.StartProblem] = {}

    def take(self, event: WatchEvent, pods: t.Container[str], main: KubeObject) -> events.StartProblem | None:
        """Return the cause that an event tells, None for one that is not about the run, is of before it or tells none.

        :param pods: the uids of the run's pods that are known.
        :param main: the object that runs the job.
        """
        if event.type == "DELETED":
            return None
        involved = event.object.get("involvedObject") or {}
        kind, name, uid = (str(involved.get(key) or "") for key in ("kind", "name", "uid"))
        found = events.parse_event(event.object)
        # A claim that gets no volume keeps its pods waiting, and says why by events of its own.
        if found is None or (kind == "PersistentVolumeClaim" and name in self._claims):
            return found
        if events.is_stale(event.object, main):
            return None
        if kind == "Pod" and uid not in pods:
            # The pod itself tells whose it is, should it come.
            if name.startswith(f"{self._name}-"):
                self._keep(uid, found)
            return None
        return found if kind == "Pod" or self._made.get(kind, self._made[""]).fullmatch(name) else None

    def pod_of_silent_node(self, event: WatchEvent, main: KubeObject) -> SilentNodePod | None:
        """Return the pod of the run whose node is not ready by an event; the pod itself may no longer exist."""
        involved = event.object.get("involvedObject") or {}
        name = str(involved.get("name") or "")
        if event.type == "DELETED" or event.object.get("reason") != _SILENT_NODE or involved.get("kind") != "Pod":
            return None
        if not self._pod.fullmatch(name) or events.is_stale(event.object, main):
            return None
        words = server_text(event.object.get("message") or _SILENT_NODE)
        return SilentNodePod(str(involved.get("uid") or ""), name, events.last_seen(event.object), words)

    def about(self, uid: str) -> list[events.StartProblem]:
        """Return the warnings about a pod that arrived before the pod itself."""
        keys = [key for key in self._early if key[0] == uid]
        return [self._early.pop(key) for key in keys]

    def _keep(self, uid: str, cause: events.StartProblem) -> None:
        self._early.setdefault((uid, cause.line), cause)
        if len(self._early) > _EARLY_LIMIT:
            del self._early[next(iter(self._early))]
