# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The watches and log streams of a followed run: a thread for each, and one queue for what they read.

Programs print as much as they like. Lines that wait to be taken have a limited room: who reads logs waits for it, and
with it the kubelet; who watches the cluster never does.
"""

from __future__ import annotations

import queue
import threading
import typing as t

from .....module_utils._model.errors import MusterError
from ...._kube.api.client import Client
from ...._kube.api.kinds import KubeObject
from ...._kube.api.logs import LogPosition, LogStream
from ...._kube.jobs import jobset
from ...._kube.jobs.spec import CONTAINER, KubePlan, gang_selector
from ...._kube.objects import status

WatchItem = tuple[str, t.Any]
# Bytes of lines that may wait to be taken; what a line costs beside its text.
_LINE_BUDGET = 4 << 20
_LINE_COST = 256


class LineBudget:
    """Limited room for what waits in the queue."""

    def __init__(self, size: int) -> None:
        self._left = size
        self._closed = False
        self._changed = threading.Condition()

    def enter(self, size: int) -> bool:
        """Wait for room and take it; return False once the queue is closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._left > 0)
            self._left -= size
            # One that left wakes one that waits; there may be room for more of them.
            self._changed.notify()
            return not self._closed

    def leave(self, size: int) -> None:
        """Free room for other items."""
        with self._changed:
            self._left += size
            self._changed.notify()

    def close(self) -> None:
        """Wake all waiting threads; from now on none waits."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()


class ClusterWatches:
    """The threads that listen to the cluster and put what they hear into one queue."""

    def __init__(self, client: Client, plan: KubePlan, main: KubeObject) -> None:
        self.client, self.plan, self.main = client, plan, main
        self.heard: queue.Queue[WatchItem] = queue.Queue()
        self.threads: dict[str, threading.Thread] = {}
        self._room = LineBudget(_LINE_BUDGET)
        self._watches: list[t.Any] = []
        self._logs: dict[str, LogStream] = {}

    def start(self) -> None:
        """Begin with the watches."""
        self._watch("main", self.main, fields=f"metadata.name={self.main['metadata']['name']}")
        self._watch("pod", "v1/Pod", labels=gang_selector(self.plan.run_id))
        self._watch("event", "v1/Event", fields="type=Warning")
        if self.plan.queue is not None:
            self._watch("workload", "kueue.x-k8s.io/v1beta2/Workload")

    def next_item(self, timeout_s: float) -> WatchItem | None:
        """Return the next item, None when none arrived within ``timeout_s`` seconds."""
        try:
            item = self.heard.get(timeout=timeout_s)
        except queue.Empty:
            return None
        if item[0] == "line":
            self._room.leave(_line_size(item[1][2]))
        return item

    def follow_log(self, pod: KubeObject, after: LogPosition | None) -> None:
        """Read a pod's log from its beginning, or behind a line that was read before.

        Kubelets begin a new file after some megabytes, so lines cannot be counted from the first one.
        """
        meta = pod["metadata"]
        stream = self.client.stream_log(meta["namespace"], meta["name"], CONTAINER, after=after, uid=meta["uid"])
        self._logs[meta["uid"]] = stream
        self._run(f"log-{meta['uid']}", lambda: self._read_log(meta["uid"], stream))

    def container_ended(self, uid: str) -> None:
        """Let the log of a pod end with what there is."""
        if uid in self._logs:
            self._logs[uid].finish()

    def drop_log(self, uid: str) -> None:
        """End the log of a pod whose node does not answer."""
        if uid in self._logs:
            self._logs[uid].close()

    def deadline_passed(self) -> bool:
        """Return whether the gang's Job ran out of time: a JobSet only says that one of its Jobs failed."""
        if self.plan.job.timeout_s is None or self.main["kind"] not in ("JobSet", "TrainJob"):
            return False
        try:
            gang = self.client.get("batch/v1/Job", jobset.gang_job_name(self.plan.name), self.plan.namespace)
        except MusterError:
            return False
        failed = status.conditions(gang or {}).get("Failed") or {}
        return (failed.get("status"), failed.get("reason")) == ("True", "DeadlineExceeded")

    def close(self) -> None:
        """Stop listening; items that have arrived can still be taken."""
        self._room.close()
        for item in [*self._watches, *self._logs.values()]:
            item.close()

    def is_reading(self) -> bool:
        """Return whether a log is still being read."""
        return any(name.startswith("log-") and thread.is_alive() for name, thread in self.threads.items())

    def _watch(self, source: str, kind: t.Any, labels: str = "", fields: str = "") -> None:
        stream = self.client.watch(kind, self.plan.namespace, labels=labels, fields=fields)
        self._watches.append(stream)

        def listen() -> None:
            for event in stream:
                self.heard.put((source, event))

        self._run(source, listen)

    def _read_log(self, uid: str, stream: LogStream) -> None:
        for line in stream:
            if not self._room.enter(_line_size(line)):
                return
            self.heard.put(("line", (uid, stream.position, line)))
        self.heard.put(("end", (uid, stream.is_whole)))

    def _run(self, name: str, work: t.Callable[[], None]) -> None:
        def run_guarded() -> None:
            try:
                work()
            except Exception as exc:
                # A thread that ended in silence would leave the run followed for ever.
                self.heard.put(("error", (name, exc)))

        self.threads[name] = threading.Thread(target=run_guarded, name=f"cluster-{name}", daemon=True)
        self.threads[name].start()


def _line_size(line: bytes) -> int:
    return len(line) + _LINE_COST
