# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Logs of containers, line by line; a log continues after a broken connection."""

from __future__ import annotations

import dataclasses
import json
import re
import typing as t
from collections import deque

from ....module_utils._http.clock import Deadline
from ....module_utils._http.errors import ExchangeError
from ....module_utils._http.messages import HttpRequest
from ....module_utils._http.stream import Stream
from ....module_utils._http.urls import route
from ....module_utils._http.version import USER_AGENT
from ....module_utils._model.errors import MusterError, TransportError
from .errors import KubeError
from .kinds import Fields
from .transport import ApiTransport

_BACKOFF_S = (0.2, 0.5, 1.0, 2.0)
_STAMP = re.compile(rb"([0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:]{8}(?:\.[0-9]+)?(?:Z|[+-][0-9]{2}:[0-9]{2})) ?")
_MAX_LINE = 1024 * 1024
# A kubelet that has no inotify instance left (fs.inotify.max_user_instances) writes this as a line of the log and ends
# the log although the container is running.
_NOT_FOLLOWED = b"failed to create fsnotify watcher"
# An API server ends its answer cleanly, too, when the kubelet behind it went away, and a kubelet when its container
# runtime did. So no answer's end is the log's: a log is over once its container has ended and an answer that was
# requested after that brought nothing new. So many of them may be empty, for that may be a kubelet that went away.
_MOST_EMPTY = 3
# A kubelet that was behind when a log began a new file reads on in the old one, whose end it has, until the log begins
# another (it looks for new files only once it has reached the end of one). A request for the log has the newest file.
# Files have 10 MiB by default: a log that sent more than this is requested again when it is silent.
_ROTATED_BYTES = 1 << 20
_SILENT_S = 30.0
# So long a kubelet may deny a pod that was read before.
_STARTING_S = 10.0
# A container that has ended prints nothing more: a log that is still followed after this long is requested anew.
_CHECK_S = 5.0

# The timestamp of a line, and its number among the lines of this timestamp, from 1.
LogPosition = tuple[str, int]
_State = t.Literal["runs", "ended", "gone"]


@dataclasses.dataclass(frozen=True, slots=True)
class LogRequest:
    """Which log, and how much of it. ``after``: only lines behind this position; ``uid``: of this pod alone."""

    namespace: str
    pod: str
    container: str | None = None
    follow: bool = True
    previous: bool = False
    timestamps: bool = False
    since: str | None = None
    tail: int | None = None
    after: LogPosition | None = None
    uid: str | None = None

    @property
    def what(self) -> str:
        """What errors call it."""
        return f"log of Pod {self.namespace}/{self.pod}"


class LogStream:
    """Iterates over lines. Timestamps are always requested: by them a log continues after a broken connection.

    ``position`` is that of the line that was returned last. ``is_whole``: all that the container printed was read.
    """

    def __init__(self, transport: ApiTransport, request: LogRequest, *, timeout_s: float | None = None) -> None:
        self._transport = transport
        self._log = request
        self._clock = transport.clock
        self._end = Deadline(self._clock, timeout_s) if timeout_s is not None else None
        self._stream: Stream | None = None
        self._partial = b""
        self._ready: deque[tuple[bytes, LogPosition]] = deque()
        self._last = request.after[0].encode("ascii") if request.after else b""
        self._same = request.after[1] if request.after else 0
        self.position: LogPosition | None = request.after
        self._skip = 0
        self._resumed = False
        self._cut_off = False
        # What the kubelet itself said last, and the piece without an end that the last answer ended with.
        self._words = self._torn = b""
        # Whether the line that was taken last continues in the next piece.
        self._is_long = False
        # Since the log was requested last: bytes of its lines, when something came, whether a line was new, whether
        # one was known, and whether the container had ended by then.
        self._received = 0
        self._heard_at = 0.0
        self._is_new = self._is_known = self._is_final = False
        self._empty = 0
        self._was_open = self._ended_before = False
        self._finishing = False
        self._failures = 0
        self._away_since: float | None = None
        self._over = False
        self._closed = False
        self.is_whole = False

    def __iter__(self) -> LogStream:
        return self

    def __next__(self) -> bytes:
        while True:
            left = self._end.seconds_left() if self._end else 30.0
            line = self.next(min(left, 30.0))
            if line is not None:
                return line
            if self.has_ended or left <= 0:
                self.close()
                raise StopIteration

    @property
    def has_ended(self) -> bool:
        """Whether nothing more will come."""
        return self._closed or (self._over and not self._ready)

    def next(self, timeout_s: float) -> bytes | None:
        """Return the next line, None when none came for about ``timeout_s`` seconds or the log has ended."""
        wait = Deadline(self._clock, timeout_s)
        while not self._ready and not self._over and not self._closed:
            try:
                if self._stream is None:
                    self._stream = self._transport.open(self._log.what, self._request())
                    self._was_open = True
                    self._received, self._heard_at = 0, self._clock.monotonic()
                    self._failures, self._away_since = 0, None
                self._read(max(0.001, wait.seconds_left()))
            except (ExchangeError, KubeError) as problem:
                self._handle_failure(problem, wait)
            if wait.seconds_left() <= 0:
                break
        if not self._ready:
            return None
        line, self.position = self._ready.popleft()
        return line

    def _request(self) -> HttpRequest:
        request = self._log
        query = [("timestamps", "true")]
        self._is_final = not request.follow or request.previous or self._finishing
        self._is_new = self._is_known = self._is_long = False
        follow = not self._is_final
        query += [(key, "true") for key, wanted in (("follow", follow), ("previous", request.previous)) if wanted]
        query += [("container", request.container)] if request.container else []
        since = self._last.decode("ascii") or request.since
        query += [("sinceTime", since)] if since else []
        # After a broken connection all lines since the last one are requested.
        query += [("tailLines", str(request.tail))] if request.tail is not None and not self._last else []
        self._partial = b""
        # Lines of the last line's second come again: sinceTime has whole seconds only.
        self._skip, self._resumed = self._same, bool(self._last)
        return HttpRequest("GET", f"{self._path()}/log", tuple(query), {"Accept": "*/*", "User-Agent": USER_AGENT})

    def _path(self) -> str:
        return route("/api/v1/namespaces/{namespace}/pods/{pod}", namespace=self._log.namespace, pod=self._log.pod)

    def _read(self, timeout_s: float) -> None:
        stream = t.cast(Stream, self._stream)
        data, now = stream.read(min(timeout_s, _CHECK_S)), self._clock.monotonic()
        if self._closed:
            return
        if data is None:
            silent_s = now - self._heard_at
            if (self._received > _ROTATED_BYTES and silent_s > _SILENT_S) or (
                self._finishing and not self._is_final and silent_s > _CHECK_S
            ):
                self._drop()
            return
        self._heard_at = now
        *lines, self._partial = (self._partial + data).split(b"\n")
        for line in lines:
            self._take(line)
            self._is_long = False
        if len(self._partial) > _MAX_LINE:
            self._take(self._partial)
            self._partial, self._is_long = b"", True
        if not data:
            self._drop()
            self._take_end(timeout_s)

    def _take_end(self, timeout_s: float) -> None:
        """Judge the end of an answer: whether it is that of the log."""
        # Half a line is read again as a whole; a program may end without the end of its last one.
        torn, self._partial = self._partial, b""
        is_same, self._torn = torn == self._torn, torn
        self._is_new = self._is_new or not is_same
        if self._cut_off:
            self._cut_off = False
            raise ExchangeError("its kubelet cannot follow the log", transient=True)
        self._ended_before = True
        self._empty = 0 if self._is_new else self._empty + 1
        if self._is_final:
            known = self._is_known or bool(torn) or not self._log.follow
            self._over = not self._is_new and (known or self._empty >= _MOST_EMPTY)
        else:
            state = self._find_state()
            self._over, self._finishing = state == "gone", self._finishing or state == "ended"
        self.is_whole = self._over
        if self._over and torn:
            self._take(torn)
        elif self._empty and not self._over and not (self._finishing and not self._is_final):
            self._clock.sleep(min(_BACKOFF_S[min(self._empty, len(_BACKOFF_S)) - 1], max(0.05, timeout_s)))

    def _find_state(self) -> _State:
        """Return whether the container may print more: it ``runs`` also where that cannot be found out now."""
        request = HttpRequest("GET", self._path(), (), {"Accept": "application/json", "User-Agent": USER_AGENT})
        try:
            answer = self._transport.send(f"Pod {self._log.namespace}/{self._log.pod}", request, (404,), patient=False)
            pod = json.loads(answer.body) if answer.status == 200 else {}
        except (MusterError, ValueError):
            return "runs"
        # A pod of the same name may have taken its place.
        if not pod or self._log.uid not in (None, pod["metadata"]["uid"]):
            return "gone"
        return "ended" if _is_over(pod.get("status") or {}, self._log.container) else "runs"

    def _take(self, line: bytes) -> None:
        match = None if self._is_long else _STAMP.match(line)
        if not match and not self._is_long:
            self._take_words(line)
            return
        if match and not self._is_behind(match.group(1)):
            return
        self._is_new = True
        self._received += len(line)
        text = line if self._log.timestamps or not match else line[match.end() :]
        self._ready.append((text, (self._last.decode("ascii"), self._same)))

    def _take_words(self, line: bytes) -> None:
        """Take what the kubelet says itself, once: each line of a log has its time."""
        if line.startswith(_NOT_FOLLOWED):
            self._cut_off = True
        elif line not in (b"", self._words):
            self._words = line
            self._ready.append((line, (self._last.decode("ascii"), self._same)))

    def _is_behind(self, stamp: bytes) -> bool:
        """Return whether the line of this time is new: it comes behind those that were read."""
        if self._resumed:
            # Stamps of one log all have the same form, so that text order is time order.
            if stamp < self._last or (stamp == self._last and self._skip):
                self._skip -= stamp == self._last
                self._is_known = True
                return False
            self._resumed = stamp == self._last
        self._same = self._same + 1 if stamp == self._last else 1
        self._last = stamp
        return True

    def _handle_failure(self, problem: ExchangeError | KubeError, wait: Deadline) -> None:
        self._drop()
        if self._closed:
            return
        now = self._clock.monotonic()
        self._away_since = now if self._away_since is None else self._away_since
        if self._was_open and isinstance(problem, KubeError) and problem.status in (400, 404):
            if self._find_state() != "gone" and now - self._away_since < _STARTING_S:
                # A kubelet that has just started does not know its pods yet.
                problem = ExchangeError(problem.message, transient=True)
            elif self._ended_before:
                # It was read to an end, and is gone with its pod since: all of it, unless its kubelet was away first.
                self._over, self.is_whole = True, self._away_since == now
                return
        if isinstance(problem, KubeError) and not self._is_transient(problem):
            raise problem
        if not self._transport.stats.answered or now - self._away_since > self._transport.patience_s:
            if isinstance(problem, KubeError):
                raise problem
            fix = "Check that the API server and the node are up"
            raise TransportError(f"{self._log.what}: {problem.message}", fix) from None
        self._clock.sleep(min(_BACKOFF_S[min(self._failures, 3)], max(0.05, wait.seconds_left())))
        self._failures += 1

    def _is_transient(self, problem: KubeError) -> bool:
        return problem.status in (429, 500, 502, 503, 504) or (problem.status == 403 and self._transport.is_settling())

    def _drop(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()

    def finish(self) -> None:
        """Note that the container has ended: the log is over with what there is of it."""
        self._finishing = True

    def close(self) -> None:
        """End the log; a wait in another thread returns within moments."""
        self._closed = True
        stream = self._stream
        if stream is not None:
            stream.close()

    def __enter__(self) -> LogStream:
        return self

    def __exit__(self, *_args: object) -> None:
        self.close()


def _is_over(status: Fields, container: str | None) -> bool:
    """Return whether a pod's container, or the pod, has ended."""
    named = [item for item in status.get("containerStatuses") or () if container in (None, item.get("name"))]
    ended = [("terminated" in (item.get("state") or {})) for item in named]
    return status.get("phase") in ("Succeeded", "Failed") or (bool(ended) and all(ended))
