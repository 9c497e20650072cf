# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One HTTP/1.1 request and its response by ``http.client``, with a limit on the size of the body."""

from __future__ import annotations

import http.client
import typing as t

from .errors import CHUNK, ExchangeError
from .gunzip import Gunzip, too_large
from .messages import HttpRequest
from .sockets import TimedSocket
from .urls import Origin, Proxy


def _read_pieces(response: http.client.HTTPResponse, limit: int) -> t.Iterator[bytes]:
    """Yield the raw body; fail when it is larger than ``limit`` or ends before its announced length."""
    announced = response.length
    if announced is not None and announced > limit:
        raise too_large(limit)
    size = 0
    while True:
        try:
            piece = response.read(CHUNK)
        except http.client.IncompleteRead:
            raise ExchangeError("the response was cut short", transient=True) from None
        except http.client.HTTPException:
            raise ValueError("not HTTP") from None
        if not piece:
            break
        size += len(piece)
        if size > limit:
            raise too_large(limit)
        yield piece
    if announced is not None and size < announced:
        raise ExchangeError("the response was cut short", transient=True)


def read_body(response: http.client.HTTPResponse, limit: int) -> bytes:
    """Return the whole body of ``response``, unpacked and at most ``limit`` bytes, packed and unpacked.

    Raises :class:`ExchangeError`, and ``OSError`` when the connection breaks.
    """
    encoding = (response.getheader("Content-Encoding") or "identity").strip().lower()
    if encoding == "identity":
        return b"".join(_read_pieces(response, limit))
    if encoding not in ("gzip", "x-gzip"):
        raise ExchangeError("the response has a compression that was not requested")
    gunzip = Gunzip(limit)
    parts = [gunzip.feed(piece) for piece in _read_pieces(response, limit)]
    # Responses without a body (HEAD, 204, 304) may still name an encoding.
    if parts:
        gunzip.finish()
    return b"".join(parts)


def send_request(
    origin: Origin, proxy: Proxy | None, request: HttpRequest, sock: TimedSocket, *, gzip: bool
) -> http.client.HTTPResponse:
    """Send ``request`` and return the response, its body not read yet; ``proxy`` gets it in place of ``origin``.

    Raises ``OSError`` when the connection breaks and ``ValueError`` when the response is not HTTP.
    """
    connection = http.client.HTTPConnection(origin.host, origin.port)
    connection.sock = sock
    target = f"{origin}{request.target}" if proxy else request.target
    try:
        connection.putrequest(request.method, target, skip_host=True, skip_accept_encoding=True)
        connection.putheader("Host", origin.authority)
        if gzip:
            connection.putheader("Accept-Encoding", "gzip")
        if proxy and proxy.credentials:
            connection.putheader("Proxy-Authorization", proxy.credentials)
        for name, value in request.headers.items():
            connection.putheader(name, value)
        if request.body is not None or request.method in ("POST", "PUT", "PATCH"):
            connection.putheader("Content-Length", str(len(request.body or b"")))
        sock.hold()
        connection.endheaders(request.body)
        sock.release()
        return connection.getresponse()
    except ConnectionError:
        # One of them is an HTTPException, too.
        raise
    except http.client.HTTPException:
        raise ValueError("not HTTP") from None
