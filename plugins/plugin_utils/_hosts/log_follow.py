# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Follows the logs and events of a run: one thread per node, each with one long request open, one queue for all.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import dataclasses
import json
import queue
import threading
import time
import typing as t

from ...module_utils._model.errors import MusterError
from .node_client import NodeClient

STREAMS = ("events", "metrics", "usage", "log")
_WAIT_S = 20.0
# Updates of each node that may wait in the queue.
_AHEAD = 2
_RETRY_S = (0.2, 0.5, 1.0, 2.0, 5.0)


@dataclasses.dataclass(frozen=True, slots=True)
class NodeUpdate:
    """New data of one node: new text by stream and the status of its units, or the error of the request.

    ``asked_at`` (monotonic seconds) tells an answer that describes the time before a restart from one after it.
    """

    node: str
    text: t.Mapping[str, str]
    units: t.Mapping[str, t.Any]
    offsets: t.Mapping[str, t.Any]
    asked_at: float
    error: MusterError | None = None


class LogFollow:
    """Follows a run on all its nodes. Iterate :meth:`updates`; call :meth:`close` at the end."""

    def __init__(
        self,
        remotes: t.Sequence[NodeClient],
        run_id: str,
        offsets: t.Mapping[str, t.Mapping[str, t.Any]],
        batch_s: float,
    ) -> None:
        self.run_id = run_id
        self.batch_s = batch_s
        # The controller may be slower than a thousand ranks that write: the nodes keep their files, and are asked again
        # once their updates were processed.
        self._queue: queue.Queue[NodeUpdate] = queue.Queue(max(1, _AHEAD * len(remotes)))
        self._closed = threading.Event()
        for remote in remotes:
            args = (remote, dict(offsets.get(remote.name, {})))
            threading.Thread(target=self._follow, args=args, name=f"watch-{remote.name}", daemon=True).start()

    def updates(self, idle_s: float) -> t.Iterator[NodeUpdate | None]:
        """Yield updates as they come, and None whenever ``idle_s`` seconds passed without one."""
        while not self._closed.is_set():
            try:
                yield self._queue.get(timeout=idle_s)
            except queue.Empty:
                yield None

    def close(self) -> None:
        """Stop following; open requests end by themselves."""
        self._closed.set()

    def _put(self, update: NodeUpdate) -> None:
        while not self._closed.is_set():
            try:
                self._queue.put(update, timeout=1.0)
            except queue.Full:
                continue
            return

    def _follow(self, remote: NodeClient, offsets: dict[str, t.Any]) -> None:
        digest: str | None = None
        failures = 0
        while not self._closed.is_set():
            asked_at = time.monotonic()
            try:
                # The first answer comes at once (the digest differs), so a follower sees the present state immediately.
                answer = remote.call(
                    "watch",
                    run_id=self.run_id,
                    offsets=offsets,
                    streams=list(STREAMS),
                    digest=digest,
                    wait_s=_WAIT_S,
                    batch_s=self.batch_s,
                )
            except Exception as exc:
                # Any error is reported: a thread that ends silently would leave the run followed for ever.
                known = isinstance(exc, MusterError)
                error = exc if known else MusterError(f"{remote.name}: {type(exc).__name__}: {exc}")
                self._put(NodeUpdate(remote.name, {}, {}, dict(offsets), asked_at, t.cast(MusterError, error)))
                self._closed.wait(_RETRY_S[min(failures, len(_RETRY_S) - 1)])
                failures += 1
                continue
            failures = 0
            digest, offsets = answer["digest"], answer["offsets"]
            self._put(NodeUpdate(remote.name, answer["text"], answer["units"], dict(offsets), asked_at))


def parse_json_lines(text: str) -> t.Iterator[dict[str, t.Any]]:
    """Yield the JSON objects of a piece of a JSON-lines file; a torn or foreign line is skipped."""
    for raw in text.splitlines():
        try:
            value = json.loads(raw)
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict):
            yield value


def now() -> float:
    """Return the time in Unix seconds (one place, for tests)."""
    return time.time()
