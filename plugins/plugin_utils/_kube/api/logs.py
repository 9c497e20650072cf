# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Logs of containers, line by line; a log continues after a broken connection.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import dataclasses
import re
import typing as t
from collections import deque

from ....module_utils._http.clock import Deadline
from ....module_utils._http.errors import ExchangeError
from ....module_utils._http.messages import HttpRequest
from ....module_utils._http.stream import Stream
from ....module_utils._http.urls import route
from ....module_utils._http.version import USER_AGENT
from ....module_utils._model.errors import TransportError
from .errors import KubeError
from .transport import ApiTransport

_BACKOFF_S = (0.2, 0.5, 1.0, 2.0)
_STAMP = re.compile(rb"([0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:]{8}(?:\.[0-9]+)?(?:Z|[+-][0-9]{2}:[0-9]{2})) ?")
_MAX_LINE = 1024 * 1024
# A kubelet that has no inotify instance left (fs.inotify.max_user_instances) writes this as a line of the log and ends
# the log although the container is running.
_NOT_FOLLOWED = b"failed to create fsnotify watcher"
# A kubelet that was behind when a log began a new file reads on in the old one, whose end it has, until the log begins
# another (it looks for new files only once it has reached the end of one). A request for the log has the newest file.
# Files have 10 MiB by default: a log that sent more than this is requested again when it is silent, and at its end.
_ROTATED_BYTES = 1 << 20
_SILENT_S = 30.0

# The timestamp of a line, and its number among the lines of this timestamp, from 1.
LogPosition = tuple[str, int]


@dataclasses.dataclass(frozen=True, slots=True)
class LogRequest:
    """Which log, and how much of it. ``after``: only lines behind this position."""

    namespace: str
    pod: str
    container: str | None = None
    follow: bool = True
    previous: bool = False
    timestamps: bool = False
    since: str | None = None
    tail: int | None = None
    after: LogPosition | None = None

    @property
    def what(self) -> str:
        """What errors call it."""
        return f"log of Pod {self.namespace}/{self.pod}"


class LogStream:
    """Iterates over lines. Timestamps are always requested: by them a log continues after a broken connection.

    ``position`` is that of the line that was returned last.
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
        # Since the log was requested last: bytes of its lines, and when something came.
        self._received = 0
        self._heard_at = 0.0
        self._ended_before = False
        self._finishing = False
        self._failures = 0
        self._away_since: float | None = None
        self._over = False
        self._closed = False

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
        follow = request.follow and not self._finishing
        query += [(key, "true") for key, wanted in (("follow", follow), ("previous", request.previous)) if wanted]
        query += [("container", request.container)] if request.container else []
        since = self._last.decode("ascii") or request.since
        query += [("sinceTime", since)] if since else []
        # After a broken connection all lines since the last one are requested.
        query += [("tailLines", str(request.tail))] if request.tail is not None and not self._last else []
        self._partial = b""
        # Lines of the last line's second come again: sinceTime has whole seconds only.
        self._skip, self._resumed = self._same, bool(self._last)
        path = route("/api/v1/namespaces/{namespace}/pods/{pod}/log", namespace=request.namespace, pod=request.pod)
        return HttpRequest("GET", path, tuple(query), {"Accept": "*/*", "User-Agent": USER_AGENT})

    def _read(self, timeout_s: float) -> None:
        stream = t.cast(Stream, self._stream)
        data, now = stream.read(timeout_s), self._clock.monotonic()
        if data is None:
            if self._received > _ROTATED_BYTES and now - self._heard_at > _SILENT_S:
                self._drop()
            return
        self._heard_at = now
        *lines, self._partial = (self._partial + data).split(b"\n")
        if not data or len(self._partial) > _MAX_LINE:
            lines, self._partial = [*lines, *([self._partial] if self._partial else [])], b""
        for line in lines:
            self._take(line)
        if not data:
            self._drop()
            if self._cut_off:
                self._cut_off = False
                raise ExchangeError("its kubelet cannot follow the log", transient=True)
            self._ended_before = True
            self._over = self._received <= _ROTATED_BYTES

    def _take(self, line: bytes) -> None:
        match = _STAMP.match(line)
        if not match and line.startswith(_NOT_FOLLOWED):
            self._cut_off = True
            return
        stamp = match.group(1) if match else b""
        if stamp and self._resumed:
            # Stamps of one log all have the same form, so that text order is time order.
            if stamp < self._last:
                return
            if stamp == self._last and self._skip:
                self._skip -= 1
                return
            self._resumed = stamp == self._last
        if stamp:
            self._same = self._same + 1 if stamp == self._last else 1
            self._last = stamp
        self._received += len(line)
        text = line if self._log.timestamps or not match else line[match.end() :]
        self._ready.append((text, (self._last.decode("ascii"), self._same)))

    def _handle_failure(self, problem: ExchangeError | KubeError, wait: Deadline) -> None:
        self._drop()
        if self._closed:
            return
        if self._ended_before and isinstance(problem, KubeError) and problem.status in (400, 404):
            # It was read to an end, and is gone with its pod since.
            self._over = True
            return
        if isinstance(problem, KubeError) and not self._is_transient(problem):
            raise problem
        now = self._clock.monotonic()
        self._away_since = now if self._away_since is None else self._away_since
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
        """Note that the container has ended: a log that has to be opened again is read to its end, not followed."""
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
