# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ends of containers that no rank tells of: killed for their memory, or over before any rank began.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import time

from .._kube.jobs.contract import CONTAINER, Object

# So many pods of a Ray cluster may end before any rank began: KubeRay makes others for ever.
_EARLY_ENDS = 3


class Ends:
    """What was seen of such ends, by the uid of the pod. ``kind``: that of the run's object."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._killed: dict[str, tuple[float, str, str]] = {}
        self._early: dict[str, str] = {}

    def of_container(self, pod: Object, container: Object, node: str, begun: bool) -> list[str]:
        """Return what is to be said of a container that has ended. ``begun``: whether any rank of the run has."""
        code = container["state"]["terminated"].get("exitCode")
        early = self.before_any_rank(pod, f"exit code {code}", begun) if code else []
        return [*self._out_of_memory(pod, container, node), *early]

    def before_any_rank(self, pod: Object, said: str, begun: bool) -> list[str]:
        """Return what is to be said of a pod of a Ray cluster that ended too early; KubeRay replaces it in silence."""
        uid, name = str(pod["metadata"]["uid"]), pod["metadata"]["name"]
        if self._kind != "RayJob" or begun or uid in self._early:
            return []
        self._early[uid] = f"{name} ended before the program began: {said}"
        return [self._early[uid]]

    def hopeless(self) -> str:
        """Return why no rank will ever begin, empty while one may."""
        return next(reversed(self._early.values())) if len(self._early) >= _EARLY_ENDS else ""

    def killed_since(self, moment: float) -> tuple[str, str] | None:
        """Return node and words of the last container that was killed for its memory after ``moment``."""
        return next(((node, words) for at, node, words in reversed(self._killed.values()) if at > moment), None)

    def _out_of_memory(self, pod: Object, container: Object, node: str) -> list[str]:
        uid = str(pod["metadata"]["uid"])
        # Later news of the same pod are no second end, and none of the attempt that runs by then.
        if uid in self._killed or container["state"]["terminated"].get("reason") != "OOMKilled":
            return []
        about: Object = next((item for item in pod["spec"]["containers"] if item["name"] == CONTAINER), {})
        limit = ((about.get("resources") or {}).get("limits") or {}).get("memory")
        words = f"the container on {node} was killed for its memory (OOMKilled, limit {limit or 'of the node'})"
        self._killed[uid] = (time.time(), node, words)
        return [words]
