# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Follows the logs and events of a run: one thread per node, each with one long request open, one queue for all."""

from __future__ import annotations

import dataclasses
import queue
import threading
import time
import typing as t

from ...module_utils._model.errors import MusterError, UnreachableError
from ...module_utils._model.node_report import UnitReport
from .node_client import NodeClient

STREAMS = ("events", "metrics", "usage", "log")
_WAIT_S = 8.0
# After a request without an answer, a node is asked again over a new connection for so long before it counts as silent:
# in the longest silence that is then told 27 seconds pass, and a cut of 15 seconds is over before.
_CONFIRM_S = 9.0
# Updates of each node that may wait in the queue.
_AHEAD = 2
# Less text than a node puts into one answer is all that it had; a run that continues writes while it is read.
_WHOLE = 512 << 10
_MOST_ANSWERS = 100
_RETRY_S = (0.2, 0.5, 1.0, 2.0, 5.0)


@dataclasses.dataclass(frozen=True, slots=True)
class NodeUpdate:
    """New data of one node: new text by stream and the status of its units, or the error of the request.

    ``behind`` is the bytes that the node has left. ``holder`` is the controller that owns the run (owner, controller).
    ``asked_at`` (monotonic seconds) tells an answer that describes the time before a restart from one after it; of a
    node that does not answer, it is the time of the first question without an answer.
    """

    node: str
    text: t.Mapping[str, str]
    units: t.Mapping[str, UnitReport]
    offsets: t.Mapping[str, t.Any]
    asked_at: float
    error: MusterError | None = None
    behind: int = 0
    holder: t.Mapping[str, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass
class _Silence:
    """A node without an answer: since which question, when that was noticed, and how often it was asked in vain."""

    since: float
    noticed_at: float
    failures: int = 0

    @property
    def confirm_at(self) -> float:
        return self.noticed_at + _CONFIRM_S

    @property
    def is_confirmed(self) -> bool:
        # A deadline and the time of the last question differ by the milliseconds between two readings of the clock.
        return time.monotonic() >= self.confirm_at - 0.1


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
        silence: _Silence | None = None
        while not self._closed.is_set():
            asked_at = time.monotonic()
            try:
                answer = self._ask(remote, offsets, digest, silence)
            except Exception as exc:
                silence = silence or _Silence(asked_at, time.monotonic())
                self._report_failure(remote.name, exc, offsets, silence)
                self._closed.wait(_RETRY_S[min(silence.failures, len(_RETRY_S) - 1)])
                silence.failures += 1
                continue
            silence = None
            digest, offsets = answer["digest"], answer["offsets"]
            self._put(_build_update(remote.name, answer, asked_at))

    def _ask(
        self, remote: NodeClient, offsets: dict[str, t.Any], digest: str | None, silence: _Silence | None
    ) -> dict[str, t.Any]:
        """Ask a node for what is new; one that failed to answer is only asked whether it is there."""
        confirming = {"deadline_s": max(1.0, silence.confirm_at - time.monotonic())} if silence else {}
        # The first answer comes at once (the digest differs), so a follower sees the present state immediately.
        return remote.call(
            "watch",
            run_id=self.run_id,
            offsets=offsets,
            streams=list(STREAMS),
            digest=digest,
            wait_s=0.0 if silence else _WAIT_S,
            batch_s=self.batch_s,
            **({} if silence and silence.is_confirmed else confirming),
        )

    def _report_failure(self, node: str, exc: Exception, offsets: dict[str, t.Any], silence: _Silence) -> None:
        """Report an error, that of a connection only when the node has been asked again for a while."""
        if isinstance(exc, UnreachableError) and not silence.is_confirmed:
            return
        # Any error is reported: a thread that ends silently would leave the run followed for ever.
        error = exc if isinstance(exc, MusterError) else MusterError(f"{node}: {type(exc).__name__}: {exc}")
        self._put(NodeUpdate(node, {}, {}, dict(offsets), silence.since, error))


def _build_update(node: str, answer: t.Mapping[str, t.Any], asked_at: float) -> NodeUpdate:
    behind = int(answer.get("behind", 0))
    holder = answer.get("holder") or {}
    offsets = dict(answer["offsets"])
    units = {name: UnitReport.from_dict(unit) for name, unit in answer["units"].items()}
    return NodeUpdate(node, answer["text"], units, offsets, asked_at, behind=behind, holder=holder)


def read_new(remote: NodeClient, run_id: str, offsets: t.Mapping[str, t.Any]) -> list[NodeUpdate]:
    """Return what is new on a node now, in answers of limited size; nothing is waited for."""
    found: list[NodeUpdate] = []
    offsets = dict(offsets)
    while True:
        asked_at = time.monotonic()
        answer = remote.call(
            "watch", run_id=run_id, offsets=offsets, streams=list(STREAMS), digest=None, wait_s=0.0, batch_s=0.0
        )
        offsets = answer["offsets"]
        found.append(_build_update(remote.name, answer, asked_at))
        if sum(map(len, answer["text"].values())) < _WHOLE or len(found) == _MOST_ANSWERS:
            return found


def now() -> float:
    """Return the time in Unix seconds (one place, for tests)."""
    return time.time()
