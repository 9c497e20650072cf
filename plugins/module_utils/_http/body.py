# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reading an answer's body without trusting its size, in whatever form it comes.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import http.client
import typing as t
import zlib

CHUNK = 64 * 1024


class WireFailure(Exception):
    """A failed exchange, inside this package only; the client turns it into a ``TransportError``.

    :param message: what happened, without the address.
    :param sent: whether bytes of the request may have reached the server.
    :param transient: whether another try may end otherwise.
    """

    def __init__(self, message: str, *, fix: str = "", sent: bool = True, transient: bool = False) -> None:
        super().__init__(message)
        self.message = message
        self.fix = fix
        self.sent = sent
        self.transient = transient


def _too_large(limit: int) -> WireFailure:
    return WireFailure(f"the answer is larger than {limit} bytes")


class _Gunzip:
    """Unpacks gzip piecewise, so that a small body cannot grow past ``limit`` before it is seen."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._size = 0
        self._decoder = zlib.decompressobj(16 + zlib.MAX_WBITS)

    def feed(self, data: bytes) -> bytes:
        try:
            piece = self._decoder.decompress(data, self._limit - self._size + 1)
        except zlib.error:
            raise WireFailure("the answer's compression is broken") from None
        self._size += len(piece)
        if self._size > self._limit or self._decoder.unconsumed_tail:
            raise _too_large(self._limit)
        return piece

    def finish(self) -> None:
        if not self._decoder.eof:
            raise WireFailure("the answer was cut short", transient=True)


def _pieces(response: http.client.HTTPResponse, limit: int) -> t.Iterator[bytes]:
    """Yield the raw body; fail when it is larger than ``limit`` or ends before its announced length."""
    announced = response.length
    if announced is not None and announced > limit:
        raise _too_large(limit)
    size = 0
    while True:
        try:
            piece = response.read(CHUNK)
        except http.client.IncompleteRead:
            raise WireFailure("the answer was cut short", transient=True) from None
        if not piece:
            break
        size += len(piece)
        if size > limit:
            raise _too_large(limit)
        yield piece
    if announced is not None and size < announced:
        raise WireFailure("the answer was cut short", transient=True)


def read_body(response: http.client.HTTPResponse, limit: int) -> bytes:
    """Return the whole body of ``response``, unpacked and at most ``limit`` bytes, packed and unpacked.

    Raises :class:`WireFailure`, and ``OSError`` when the connection breaks.
    """
    encoding = (response.getheader("Content-Encoding") or "identity").strip().lower()
    if encoding == "identity":
        return b"".join(_pieces(response, limit))
    if encoding not in ("gzip", "x-gzip"):
        raise WireFailure("the answer has a compression that was not asked for")
    gunzip = _Gunzip(limit)
    parts = [gunzip.feed(piece) for piece in _pieces(response, limit)]
    # Answers without a body (HEAD, 204, 304) may still name the encoding that one would have.
    if parts:
        gunzip.finish()
    return b"".join(parts)
