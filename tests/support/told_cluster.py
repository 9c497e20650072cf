# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""News of a cluster that a test tells, and a follower that hears them; for tests of how a run is followed."""

from __future__ import annotations

import json
import pathlib
import queue
import time
import types
import typing as t

from ansible_collections.muster.training.plugins.module_utils._model.drill import Drill
from ansible_collections.muster.training.plugins.module_utils._model.job import parse_job
from ansible_collections.muster.training.plugins.module_utils._node.pod_log import MARK
from ansible_collections.muster.training.plugins.plugin_utils._kube.api.watch import WatchEvent
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.follower import RunOutcome
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.kubernetes.follower import (
    ClusterFollower,
)
from ansible_collections.muster.training.tests.support.run_world import Said

Dict = dict[str, t.Any]
MAIN: Dict = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": "r", "uid": "main"}}


def stamped(number: int) -> tuple[str, int]:
    """Return the place of a line of a log."""
    return f"2026-11-21T10:00:{number:02}Z", 1


class Told:
    """News that a test tells instead of a cluster."""

    def __init__(self) -> None:
        self.heard: queue.Queue[tuple[str, t.Any]] = queue.Queue()
        self.main = MAIN
        self.plan = types.SimpleNamespace(name="r", namespace="n", run_id="r", queue="main", pods={"node": None})
        self.threads: dict[str, t.Any] = {}
        self.ended: list[str] = []
        self.deleted: list[str] = []
        self.dropped: list[str] = []
        self.outage, self.late = False, False
        self.reading: t.Callable[[], bool] = lambda: False
        silent = {"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}
        self.client = types.SimpleNamespace(
            delete=lambda _kind, name, *_a, **_k: not self.deleted.append(name),
            get=lambda *_a: silent,
            patch=lambda *_a, **_k: None,
            transport=types.SimpleNamespace(
                is_recovering=lambda: self.outage, stats=types.SimpleNamespace(server_time=lambda: None)
            ),
        )

    def start(self) -> None:
        """Begin to listen: what was told before are the objects that are there already."""
        self.heard.put(("pod", WatchEvent("SYNCED")))

    def close(self) -> None:
        return

    def next_item(self, timeout_s: float) -> tuple[str, t.Any] | None:
        try:
            return self.heard.get(timeout=timeout_s)
        except queue.Empty:
            return None

    def deadline_passed(self) -> bool:
        return self.late

    def is_reading(self) -> bool:
        return self.reading()

    def follow_log(self, pod: Dict, after: t.Any) -> None:
        self.threads[f"log-{pod['metadata']['uid']}"] = after

    def container_ended(self, uid: str) -> None:
        self.ended.append(uid)

    def drop_log(self, uid: str) -> None:
        self.dropped.append(uid)

    def tell_main(self, condition: str | None = None, kind: t.Any = "MODIFIED", **status: t.Any) -> None:
        conditions = [{"type": condition, "status": "True", "reason": "Because"}] if condition else []
        self.heard.put(("main", WatchEvent(kind, {**MAIN, "status": {**status, "conditions": conditions}})))

    def tell_pod(
        self,
        uid: str,
        state: str = "running",
        node: str = "node-1",
        kind: t.Any = "MODIFIED",
        leaving: bool = False,
        role: str = "node",
        grace_s: int = 30,
        **more: t.Any,
    ) -> None:
        status = {
            "phase": "Running",
            "containerStatuses": [{"name": "node", "imageID": "sha256:1", "state": {state: {}}}],
        }
        limits = {"name": "node", "resources": {"limits": {"memory": "2Gi"}}}
        spec = {"nodeName": node, "containers": [limits]}
        pod: Dict = {"metadata": {"name": f"r-{uid}", "namespace": "n", "uid": uid}, "spec": spec}
        pod["metadata"]["labels"] = {"muster.training/role": role}
        if leaving:
            pod["metadata"]["deletionTimestamp"] = "2026-11-21T10:00:00Z"
            pod["metadata"]["deletionGracePeriodSeconds"] = grace_s
        self.heard.put(("pod", WatchEvent(kind, {**pod, "status": {**status, **more}})))

    def tell_rank(self, uid: str, number: int, rank: int, kind: str = "worker_started", **values: t.Any) -> None:
        data = {"at": time.time(), "kind": kind, "rank": rank, "node": "node-1", "attempt": 1, "gang": "1/a", **values}
        line = MARK + json.dumps({"stream": "events", "pod": f"r-{uid}", "data": data})
        self.heard.put(("line", (uid, stamped(number), line.encode())))

    def tell_checkpoint(self, uid: str, number: int, step: int) -> None:
        data = {"at": time.time(), "checkpoint_step": step, "path": f"/c/{step}"}
        line = MARK + json.dumps({"stream": "metrics", "data": data})
        self.heard.put(("line", (uid, stamped(number), line.encode())))


def follower_of(
    tmp_path: pathlib.Path,
    told: Told,
    over: t.Callable[[], str] = lambda: "",
    drill: Drill | None = None,
    **job: t.Any,
) -> tuple[ClusterFollower, Said]:
    """A follower of a run of two pods, and what it will have said."""
    values: Dict = {
        "name": "r",
        "nodes": 2,
        "image": "i",
        "launcher": "command",
        "command": ["true"],
        "placement": {"backend": "kubernetes"},
        **job,
    }
    progress = Said()
    follower = ClusterFollower(
        parse_job(values), "r", tmp_path, t.cast(t.Any, told), progress, lambda _follower: None, drill, over
    )
    return follower, progress


def follow(tmp_path: pathlib.Path, told: Told, **job: t.Any) -> tuple[RunOutcome, ClusterFollower, Said]:
    """Follow a run of two pods through what was told."""
    follower, progress = follower_of(tmp_path, told, **job)
    return follower.run(), follower, progress


def warning(name: str, reason: str, message: str, kind: str = "Pod") -> Dict:
    """An event of the cluster."""
    return {
        "type": "Warning",
        "involvedObject": {"kind": kind, "name": name, "namespace": "n", "uid": name.removeprefix("r-")},
        "reason": reason,
        "message": message,
    }
