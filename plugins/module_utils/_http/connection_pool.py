# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The connection pool: sends one request over a kept-alive connection and reads its whole response."""

from __future__ import annotations

import contextlib
import os
import ssl
import threading
import typing as t

from .clock import SYSTEM_CLOCK, Clock, Deadline
from .errors import OTHER_PROTOCOL, ExchangeError
from .messages import HttpRequest, HttpResponse
from .retry import Timeouts
from .sockets import TimedSocket, connect
from .stream import Stream
from .tls import TlsOptions
from .urls import Origin, Proxy, proxy_for

MAX_BODY_BYTES = 64 * 1024 * 1024
_IDLE_S = 20.0
_MAX_IDLE = 16


class Exchange(t.Protocol):
    """Sends one request once and returns its response, whatever its status. Tests pass a script.

    Raises :class:`ExchangeError`.
    """

    def __call__(self, origin: Origin, request: HttpRequest, deadline: Deadline) -> HttpResponse:
        """Exchange ``request`` for a response before ``deadline``."""


@contextlib.contextmanager
def _exchange_errors(late: str, lost: str) -> t.Iterator[None]:
    """Name the errors of a connection: too late, lost, or of another protocol."""
    try:
        yield
    except TimeoutError:
        raise ExchangeError(late, transient=True) from None
    except (ConnectionError, ssl.SSLError):
        raise ExchangeError(lost, transient=True) from None
    except (OSError, ValueError):
        raise ExchangeError("the response is not HTTP", fix=OTHER_PROTOCOL) from None


class ConnectionPool:
    """The real exchange. Threads may share it; each call uses a connection of its own.

    ``proxy`` is ``env``, ``none``, a URL, or a :class:`Proxy` that is used for every address.
    """

    def __init__(
        self,
        *,
        timeouts: Timeouts | None = None,
        tls: TlsOptions | None = None,
        proxy: str | Proxy = "env",
        max_body_bytes: int = MAX_BODY_BYTES,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._timeouts = timeouts or Timeouts()
        self._tls = tls or TlsOptions()
        self._proxy = proxy
        self._max_body_bytes = max_body_bytes
        self._clock = clock
        self._lock = threading.Lock()
        self._idle: list[tuple[float, Origin, TimedSocket]] = []
        self._pid = os.getpid()
        self._context: ssl.SSLContext | None = None
        self._context_lock = threading.Lock()

    def _tls_context(self) -> ssl.SSLContext:
        # Reading the system's CA bundle takes milliseconds; plain http never needs it.
        with self._context_lock:
            if self._context is None:
                self._context = self._tls.context()
            return self._context

    def _take_idle(self, origin: Origin) -> TimedSocket | None:
        with self._lock:
            if self._pid != os.getpid():
                # After a fork both processes would write into the same connection.
                self._idle, self._pid = [], os.getpid()
            now = self._clock.monotonic()
            while self._idle:
                since, owner, sock = self._idle.pop()
                if owner == origin and now - since < _IDLE_S:
                    return sock
                sock.shut()
        return None

    def _keep(self, origin: Origin, sock: TimedSocket) -> None:
        with self._lock:
            if len(self._idle) < _MAX_IDLE and self._pid == os.getpid():
                self._idle.append((self._clock.monotonic(), origin, sock))
                return
        sock.shut()

    def close(self) -> None:
        """Close the connections kept for later calls."""
        with self._lock:
            for _since, _origin, sock in self._idle:
                sock.shut()
            self._idle.clear()

    def __call__(self, origin: Origin, request: HttpRequest, deadline: Deadline) -> HttpResponse:
        # An idle connection may be dead already; a call that must not be sent twice never uses one.
        idle = self._take_idle(origin) if request.repeatable else None
        if idle is not None:
            try:
                return self._exchange(origin, request, idle, deadline)
            except ExchangeError:
                if idle.received or not deadline.seconds_left():
                    raise
        return self._exchange(origin, request, self._open(origin, deadline), deadline)

    def stream(self, origin: Origin, request: HttpRequest, deadline: Deadline) -> HttpResponse | Stream:
        """Send ``request`` on a connection of its own and return its response as a stream.

        ``deadline`` is for the response's head, and for the whole response when its status is not 200: that one is
        returned as a :class:`HttpResponse`. Raises :class:`ExchangeError`.
        """
        from . import http1

        sock = self._open(origin, deadline)
        is_streaming = False
        try:
            with _exchange_errors("no response in time", "the connection was lost before a response came"):
                sock.arm(deadline, self._timeouts.read_s)
                response = http1.send_request(origin, self._hop(origin), request, sock, gzip=False)
                if response.status == 200:
                    is_streaming = True
                    return Stream(response, sock, self._clock)
                headers = {name.lower(): value for name, value in response.getheaders()}
                return HttpResponse(response.status, headers, http1.read_body(response, self._max_body_bytes))
        finally:
            if not is_streaming:
                sock.shut()

    def _proxy_for(self, origin: Origin) -> Proxy | None:
        return self._proxy if isinstance(self._proxy, Proxy) else proxy_for(origin, self._proxy, os.environ)

    def _open(self, origin: Origin, deadline: Deadline) -> TimedSocket:
        proxy = self._proxy_for(origin)
        try:
            return connect(origin, proxy, self._tls_context, deadline, self._timeouts, self._tls.server_name)
        except TimeoutError:
            raise ExchangeError("no connection in time", sent=False, transient=True) from None
        except OSError as exc:
            reason = (exc.strerror or "connection lost").lower()
            raise ExchangeError(f"no connection ({reason})", sent=False, transient=True) from None

    def _exchange(self, origin: Origin, request: HttpRequest, sock: TimedSocket, deadline: Deadline) -> HttpResponse:
        keep = False
        lost = "the connection was lost before the response was complete"
        try:
            with _exchange_errors("no complete response in time", lost):
                sock.arm(deadline, self._timeouts.read_s)
                response, keep = self._send(origin, request, sock)
        finally:
            if not keep:
                sock.shut()
        self._keep(origin, sock)
        return response

    def _send(self, origin: Origin, request: HttpRequest, sock: TimedSocket) -> tuple[HttpResponse, bool]:
        # Imported late: http.client takes milliseconds, and not every process sends a request.
        from . import http1

        response = http1.send_request(origin, self._hop(origin), request, sock, gzip=True)
        headers = {name.lower(): value for name, value in response.getheaders()}
        body = http1.read_body(response, self._max_body_bytes)
        return HttpResponse(response.status, headers, body), not response.will_close

    def _hop(self, origin: Origin) -> Proxy | None:
        """Return the proxy that gets the request in place of the server: that of plain http."""
        return self._proxy_for(origin) if origin.scheme == "http" else None
