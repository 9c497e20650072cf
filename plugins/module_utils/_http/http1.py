# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One request and its answer as ``http.client`` speaks them; a body's size is not trusted, in whatever form it comes.

This is a private utility of the collection; it may change without notice.
"""

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
            raise ExchangeError("the answer was cut short", transient=True) from None
        except http.client.HTTPException:
            raise ValueError("not HTTP") from None
        if not piece:
            break
        size += len(piece)
        if size > limit:
            raise too_large(limit)
        yield piece
    if announced is not None and size < announced:
        raise ExchangeError("the answer was cut short", transient=True)


def read_body(response: http.client.HTTPResponse, limit: int) -> bytes:
    """Return the whole body of ``response``, unpacked and at most ``limit`` bytes, packed and unpacked.

    Raises :class:`WireFailure`, and ``OSError`` when the connection breaks.
    """
    encoding = (response.getheader("Content-Encoding") or "identity").strip().lower()
    if encoding == "identity":
        return b"".join(_read_pieces(response, limit))
    if encoding not in ("gzip", "x-gzip"):
        raise ExchangeError("the answer has a compression that was not asked for")
    gunzip = Gunzip(limit)
    parts = [gunzip.feed(piece) for piece in _read_pieces(response, limit)]
    # Answers without a body (HEAD, 204, 304) may still name the encoding that one would have.
    if parts:
        gunzip.finish()
    return b"".join(parts)


def send_request(
    origin: Origin, proxy: Proxy | None, request: HttpRequest, sock: TimedSocket, *, gzip: bool
) -> http.client.HTTPResponse:
    """Send ``request`` and return the answer, its body not read yet; ``proxy`` gets it in the place of ``origin``.

    Raises ``OSError`` when the connection breaks and ``ValueError`` for what is no HTTP.
    """
    line = http.client.HTTPConnection(origin.host, origin.port)
    line.sock = sock
    target = f"{origin}{request.target}" if proxy else request.target
    try:
        line.putrequest(request.method, target, skip_host=True, skip_accept_encoding=True)
        line.putheader("Host", origin.authority)
        if gzip:
            line.putheader("Accept-Encoding", "gzip")
        if proxy and proxy.credentials:
            line.putheader("Proxy-Authorization", proxy.credentials)
        for name, value in request.headers.items():
            line.putheader(name, value)
        if request.body is not None or request.method in ("POST", "PUT", "PATCH"):
            line.putheader("Content-Length", str(len(request.body or b"")))
        sock.hold()
        line.endheaders(request.body)
        sock.release()
        return line.getresponse()
    except ConnectionError:
        # One of them is an HTTPException, too.
        raise
    except http.client.HTTPException:
        raise ValueError("not HTTP") from None
