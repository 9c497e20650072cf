# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Watches that continue after bookmarks, closed connections, expired versions and outages of the API server."""

from __future__ import annotations

import dataclasses
import json
import typing as t

from ....module_utils._http.clock import Deadline
from ....module_utils._http.errors import ExchangeError
from ....module_utils._http.messages import HttpRequest
from ....module_utils._http.stream import Stream
from ....module_utils._http.version import USER_AGENT
from ....module_utils._model.errors import TransportError
from .errors import KubeError, error_from_status
from .kinds import KubeObject, Resource, title

if t.TYPE_CHECKING:
    from .client import Client

# The server ends a watch after this time.
_SERVER_S = 290
# A stream that the server has not ended after this time is dead: a proxy or tunnel keeps it open.
_STALE_S = 320.0
_BACKOFF_S = (0.2, 0.5, 1.0, 2.0)
# Statuses of a server that is starting, stopping or overloaded.
_TRANSIENT = (429, 500, 502, 503, 504)
_MAX_EVENT = 64 * 1024 * 1024

EventType = t.Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "SYNCED"]


@dataclasses.dataclass(frozen=True, slots=True)
class WatchEvent:
    """One change. ``SYNCED`` (without an object) follows the existing objects after each listing."""

    type: EventType
    object: KubeObject = dataclasses.field(default_factory=KubeObject)


@dataclasses.dataclass(frozen=True, slots=True)
class WatchSource:
    """What is watched."""

    client: Client
    resource: Resource
    namespace: str | None
    selectors: tuple[tuple[str, str], ...] = ()

    @property
    def what(self) -> str:
        """What errors call it."""
        return f"watching {title(self.resource.kind, self.namespace, None)}"


class WatchStream:
    """Iterates over events; :meth:`next` waits a bounded time. ``outages`` counts the server's outages."""

    def __init__(self, source: WatchSource, *, since: str | None = None, timeout_s: float | None = None) -> None:
        self._source = source
        self._clock = source.client.transport.clock
        self._end = Deadline(self._clock, timeout_s) if timeout_s is not None else None
        self._version = since or ""
        self._listed = self._listed_once = since is not None
        self._objects: dict[str, KubeObject] = {}
        self._ready: list[WatchEvent] = []
        self._stream: Stream | None = None
        self._opened = 0.0
        self._partial = b""
        self._closed = False
        self._failures = 0
        self._away_since: float | None = None
        self.outages = 0

    def __iter__(self) -> WatchStream:
        return self

    def __next__(self) -> WatchEvent:
        while not self._closed:
            left = self._end.seconds_left() if self._end else 30.0
            if left <= 0:
                break
            event = self.next(min(left, 30.0))
            if event is not None and event.type != "BOOKMARK":
                return event
        self.close()
        raise StopIteration

    def next(self, timeout_s: float) -> WatchEvent | None:
        """Return the next event, None when none came for about ``timeout_s`` seconds.

        :raises TransportError: when an outage was longer than the client's patience; KubeError for an error status.
        """
        wait = Deadline(self._clock, timeout_s)
        while not self._ready and not self._closed:
            try:
                if not self._listed:
                    self._list()
                elif self._stream is None:
                    self._open()
                else:
                    self._read(wait.seconds_left())
            except (ExchangeError, TransportError) as problem:
                self._handle_failure(problem, wait)
            if wait.seconds_left() <= 0:
                break
        return self._ready.pop(0) if self._ready else None

    def _list(self) -> None:
        query = dict(self._source.selectors)
        source = self._source
        page = source.client.list(
            source.resource,
            source.namespace,
            labels=query.get("labelSelector", ""),
            fields=query.get("fieldSelector", ""),
            # The watch itself waits through outages, and stays responsive to close().
            patient=False,
        )
        objects = {_uid(item): item for item in page.items}
        self._ready += [WatchEvent("DELETED", item) for uid, item in self._objects.items() if uid not in objects]
        for uid, item in objects.items():
            before = self._objects.get(uid)
            if before is None or _version(before) != _version(item):
                self._ready.append(WatchEvent("ADDED" if before is None else "MODIFIED", item))
        self._objects = objects
        self._ready.append(WatchEvent("SYNCED"))
        self._version, self._listed, self._listed_once = page.resource_version, True, True

    def _open(self) -> None:
        query = [*self._source.selectors, ("watch", "true"), ("allowWatchBookmarks", "true")]
        query += [("resourceVersion", self._version), ("timeoutSeconds", str(_SERVER_S))]
        path = self._source.resource.path(self._source.namespace)
        headers = {"Accept": "application/json", "User-Agent": USER_AGENT}
        self._partial = b""
        self._stream = self._source.client.transport.open(
            self._source.what, HttpRequest("GET", path, tuple(query), headers)
        )
        self._opened = self._clock.monotonic()
        self._failures, self._away_since = 0, None
        if self._closed:
            self._drop()

    def _read(self, timeout_s: float) -> None:
        stream = t.cast(Stream, self._stream)
        data = stream.read(max(0.001, timeout_s))
        if data is None:
            if self._clock.monotonic() - self._opened > _STALE_S:
                self._drop()
            return
        if not data:
            self._drop()
            return
        self._partial += data
        if len(self._partial) > _MAX_EVENT:
            raise TransportError(f"{self._source.what}: an event is larger than {_MAX_EVENT >> 20} MiB")
        *lines, self._partial = self._partial.split(b"\n")
        for line in lines:
            if line.strip():
                self._take(line)

    def _take(self, line: bytes) -> None:
        try:
            value = json.loads(line)
            kind, item = value["type"], value["object"]
        except (ValueError, LookupError, TypeError):
            raise ExchangeError("an event is not JSON", transient=True) from None
        if kind == "ERROR":
            raise error_from_status(self._source.what, int(item.get("code") or 500), item)
        self._version = _version(item) or self._version
        if kind in ("ADDED", "MODIFIED"):
            self._objects[_uid(item)] = item
        elif kind == "DELETED":
            self._objects.pop(_uid(item), None)
        if kind != "BOOKMARK":
            self._ready.append(WatchEvent(kind, item))

    def _handle_failure(self, problem: Exception, wait: Deadline) -> None:
        """List again, wait before the next try, or raise ``problem``."""
        self._drop()
        if isinstance(problem, KubeError):
            if problem.status == 410 or problem.reason in ("Expired", "Gone"):
                self._listed = False
                return
            if problem.status not in _TRANSIENT and not (
                problem.status == 403 and self._source.client.transport.is_settling()
            ):
                raise problem
        elif (
            isinstance(problem, TransportError)
            and not self._listed_once
            and not self._source.client.transport.is_settling()
        ):
            # An answer came, but never a list: another server answers at this address, which is not an outage.
            raise problem
        if self._closed:
            return
        now = self._clock.monotonic()
        if self._away_since is None:
            self._away_since = now
            self.outages += 1
        patience = self._source.client.transport.patience_s
        if not self._source.client.transport.stats.answered or now - self._away_since > patience:
            if isinstance(problem, TransportError):
                raise problem
            message = problem.message if isinstance(problem, ExchangeError) else str(problem)
            raise TransportError(f"{self._source.what}: {message}", "Check that the API server is up") from None
        pause = _BACKOFF_S[min(self._failures, len(_BACKOFF_S) - 1)]
        self._failures += 1
        self._clock.sleep(min(pause, max(0.05, wait.seconds_left())))

    def _drop(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()

    def close(self) -> None:
        """End the watch; a wait in another thread returns within moments."""
        self._closed = True
        stream = self._stream
        if stream is not None:
            stream.close()

    def __enter__(self) -> WatchStream:
        return self

    def __exit__(self, *_args: object) -> None:
        self.close()


def _uid(item: KubeObject) -> str:
    meta = item.get("metadata") or {}
    return str(meta.get("uid") or f"{meta.get('namespace')}/{meta.get('name')}")


def _version(item: KubeObject) -> str:
    return str((item.get("metadata") or {}).get("resourceVersion") or "")
