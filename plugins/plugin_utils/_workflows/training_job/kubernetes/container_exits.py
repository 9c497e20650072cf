# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ends of containers that no rank tells of: killed for their memory, or over before any rank began."""

from __future__ import annotations

import time

from ...._kube.api.kinds import Fields, KubeObject
from ...._kube.jobs import rayjob
from ...._kube.jobs.spec import CONTAINER, ROLE_LABEL

# So often the head, or all workers, of a Ray cluster may end before any rank began: KubeRay makes others for ever.
_EARLY_ENDS = 3
# 128 + SIGTERM: it was told to end.
_STOPPED = 143


class ContainerExits:
    """What was seen of such ends, by the uid of the pod. ``kind``: that of the run's object; ``nodes``: of the gang."""

    def __init__(self, kind: str, nodes: int) -> None:
        # The submitter's end is the job's, which KubeRay tells.
        self._enough = {rayjob.HEAD: _EARLY_ENDS, rayjob.WORKER: _EARLY_ENDS * nodes} if kind == "RayJob" else {}
        self._killed: dict[str, tuple[float, str, str]] = {}
        self._early: dict[str, dict[str, str]] = {}

    def of_container(self, pod: KubeObject, container: Fields, node: str, begun: bool) -> list[str]:
        """Return what is to be said of a container that has ended. ``begun``: whether any rank of the run has."""
        code = container["state"]["terminated"].get("exitCode")
        early = self.before_any_rank(pod, f"exit code {code}", begun) if code not in (None, 0, _STOPPED) else []
        return [*self._out_of_memory(pod, container, node), *early]

    def before_any_rank(self, pod: KubeObject, said: str, begun: bool) -> list[str]:
        """Return what is to be said of a pod of a Ray cluster that ended too early; KubeRay replaces it in silence."""
        meta = pod["metadata"]
        role, uid = (meta.get("labels") or {}).get(ROLE_LABEL), str(meta["uid"])
        known = self._early.setdefault(role, {}) if role in self._enough else None
        if known is None or begun or meta.get("deletionTimestamp") or uid in known:
            return []
        known[uid] = f"{meta['name']} ended before the program began: {said}"
        return [known[uid]]

    def is_new_kill(self, pod: KubeObject, container: Fields) -> bool:
        """Return whether a container was killed for its memory, which was not said yet."""
        is_known = str(pod["metadata"]["uid"]) in self._killed
        return not is_known and container["state"]["terminated"].get("reason") == "OOMKilled"

    def forget(self) -> None:
        """Begin to count anew: the run lost its place, and its pods with it."""
        self._early = {}

    def start_failure(self) -> str:
        """Return why no rank will ever begin, empty while one may."""
        enough = (known for role, known in self._early.items() if len(known) >= self._enough[role])
        return next((next(reversed(known.values())) for known in enough), "")

    def killed_since(self, moment: float) -> tuple[str, str] | None:
        """Return node and words of the last container that was killed for its memory after ``moment``."""
        return next(((node, words) for at, node, words in reversed(self._killed.values()) if at > moment), None)

    def _out_of_memory(self, pod: KubeObject, container: Fields, node: str) -> list[str]:
        uid = str(pod["metadata"]["uid"])
        # Later news of the same pod are no second end, and none of the attempt that runs by then.
        if not self.is_new_kill(pod, container):
            return []
        about: Fields = next((item for item in pod["spec"]["containers"] if item["name"] == CONTAINER), {})
        limit = ((about.get("resources") or {}).get("limits") or {}).get("memory")
        words = f"the container on {node} exceeded its memory (OOMKilled, limit {limit or 'of the node'})"
        self._killed[uid] = (time.time(), node, words)
        return [words]
