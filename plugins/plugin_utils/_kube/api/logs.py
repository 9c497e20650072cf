# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Logs of containers, line by line, over broken connections.

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
from .transport import Line

_BACKOFF_S = (0.2, 0.5, 1.0, 2.0)
_STAMP = re.compile(rb"([0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:]{8}(?:\.[0-9]+)?(?:Z|[+-][0-9]{2}:[0-9]{2})) ?")
_MAX_LINE = 1024 * 1024
# A kubelet that has no inotify instance left (fs.inotify.max_user_instances) says so as if it were a line of the log,
# and ends it although the container goes on.
_NOT_FOLLOWED = b"failed to create fsnotify watcher"


# The stamp of a line, and which of the lines of this stamp it is, from 1.
Place = tuple[str, int]


@dataclasses.dataclass(frozen=True, slots=True)
class Wish:
    """Which log, and how much of it. ``after``: only what comes behind this line, wherever the log begins by now."""

    namespace: str
    pod: str
    container: str | None = None
    follow: bool = True
    previous: bool = False
    timestamps: bool = False
    since: str | None = None
    tail: int | None = None
    after: Place | None = None

    @property
    def what(self) -> str:
        """What errors call it."""
        return f"log of Pod {self.namespace}/{self.pod}"


class LogStream:
    """Iterates over lines. Stamps are always asked for: they tell where to go on after a broken connection.

    ``place`` is that of the line that was returned last.
    """

    def __init__(self, line: Line, wish: Wish, *, timeout_s: float | None = None) -> None:
        self._line = line
        self._wish = wish
        self._clock = line.clock
        self._end = Deadline(self._clock, timeout_s) if timeout_s is not None else None
        self._stream: Stream | None = None
        self._held = b""
        self._ready: deque[tuple[bytes, Place]] = deque()
        self._last = wish.after[0].encode("ascii") if wish.after else b""
        self._same = wish.after[1] if wish.after else 0
        self.place: Place | None = wish.after
        self._skip = 0
        self._resumed = False
        self._cut_off = False
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
            if self.ended or left <= 0:
                self.close()
                raise StopIteration

    @property
    def ended(self) -> bool:
        """Whether nothing more will come."""
        return self._closed or (self._over and not self._ready)

    def next(self, timeout_s: float) -> bytes | None:
        """Return the next line, None when none came for about ``timeout_s`` seconds or the log has ended."""
        wait = Deadline(self._clock, timeout_s)
        while not self._ready and not self._over and not self._closed:
            try:
                if self._stream is None:
                    self._stream = self._line.open(self._wish.what, self._request())
                    self._failures, self._away_since = 0, None
                self._read(max(0.001, wait.seconds_left()))
            except (ExchangeError, KubeError) as problem:
                self._stumbled(problem, wait)
            if wait.seconds_left() <= 0:
                break
        if not self._ready:
            return None
        line, self.place = self._ready.popleft()
        return line

    def _request(self) -> HttpRequest:
        wish = self._wish
        query = [("timestamps", "true")]
        follow = wish.follow and not self._finishing
        query += [(key, "true") for key, wanted in (("follow", follow), ("previous", wish.previous)) if wanted]
        query += [("container", wish.container)] if wish.container else []
        since = self._last.decode("ascii") or wish.since
        query += [("sinceTime", since)] if since else []
        # After a break everything since the last line is wanted, however much that is.
        query += [("tailLines", str(wish.tail))] if wish.tail is not None and not self._last else []
        self._held = b""
        # Lines of the second of the last one come again: the server's since has no finer grain.
        self._skip, self._resumed = self._same, bool(self._last)
        path = route("/api/v1/namespaces/{namespace}/pods/{pod}/log", namespace=wish.namespace, pod=wish.pod)
        return HttpRequest("GET", path, tuple(query), {"Accept": "*/*", "User-Agent": USER_AGENT})

    def _read(self, timeout_s: float) -> None:
        stream = t.cast(Stream, self._stream)
        data = stream.read(timeout_s)
        if data is None:
            return
        *lines, self._held = (self._held + data).split(b"\n")
        if not data or len(self._held) > _MAX_LINE:
            lines, self._held = [*lines, *([self._held] if self._held else [])], b""
        for line in lines:
            self._take(line)
        if not data:
            self._drop()
            if self._cut_off:
                self._cut_off = False
                raise ExchangeError("its kubelet cannot follow it", transient=True)
            self._over = True

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
        text = line if self._wish.timestamps or not match else line[match.end() :]
        self._ready.append((text, (self._last.decode("ascii"), self._same)))

    def _stumbled(self, problem: ExchangeError | KubeError, wait: Deadline) -> None:
        self._drop()
        if self._closed:
            return
        if isinstance(problem, KubeError) and not self._passing(problem):
            raise problem
        now = self._clock.monotonic()
        self._away_since = now if self._away_since is None else self._away_since
        if not self._line.tally.answered or now - self._away_since > self._line.patience_s:
            if isinstance(problem, KubeError):
                raise problem
            fix = "Check that the API server and the node are up"
            raise TransportError(f"{self._wish.what}: {problem.message}", fix) from None
        self._clock.sleep(min(_BACKOFF_S[min(self._failures, 3)], max(0.05, wait.seconds_left())))
        self._failures += 1

    def _passing(self, problem: KubeError) -> bool:
        return problem.status in (429, 500, 502, 503, 504) or (problem.status == 403 and self._line.settling())

    def _drop(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()

    def finish(self) -> None:
        """Say that the container has ended: a log that has to be opened again is read to its end, not followed."""
        self._finishing = True

    def close(self) -> None:
        """End the log; a wait in another thread returns within moments."""
        self._closed = True
        stream = self._stream
        if stream is not None:
            stream.close()

    def __enter__(self) -> LogStream:
        return self

    def __exit__(self, *_args: t.Any) -> None:
        self.close()
