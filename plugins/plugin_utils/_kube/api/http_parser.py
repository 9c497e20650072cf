# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""HTTP/1.1 answers out of the bytes of a connection, one after the other (RFC 9112 section 6).

Only plain answers of a length that can be told are known; everything else is a ``ValueError``.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import typing as t

from ....module_utils._http.connection_pool import MAX_BODY_BYTES
from ....module_utils._http.errors import ExchangeError
from ....module_utils._http.gunzip import Gunzip
from ....module_utils._http.messages import HttpResponse

_END = b"\r\n"
_MAX_HEAD = 64 * 1024


class _Head(t.NamedTuple):
    status: int
    headers: t.Mapping[str, str]
    # Bytes of the body, None when it comes in chunks.
    length: int | None


class Answers:
    """Takes what a server sends; :meth:`next` gives each answer once it is whole.

    Bytes are looked at once, so that an answer of many pieces costs no more than one of few.
    """

    def __init__(self) -> None:
        self._data = bytearray()
        self._head: _Head | None = None
        self._parts: list[bytes] = []
        self._size = 0

    @property
    def empty(self) -> bool:
        """Return whether nothing has come of the next answer."""
        return not self._data and self._head is None

    def feed(self, piece: bytes) -> None:
        """Take what has come."""
        self._data += piece

    def next(self) -> HttpResponse | None:
        """Return the next answer, its body unpacked; None while it is incomplete. Raises ``ValueError``."""
        if self._head is None:
            end = self._data.find(_END * 2)
            if (len(self._data) if end < 0 else end) > _MAX_HEAD:
                raise ValueError("the head is too long")
            if end < 0:
                return None
            self._head = _parsed(bytes(self._data[:end]).decode("latin-1"))
            del self._data[: end + 4]
        head = self._head
        whole = self._chunks() if head.length is None else self._piece(head.length)
        if not whole:
            return None
        body, self._head = b"".join(self._parts), None
        self._parts, self._size = [], 0
        return HttpResponse(
            head.status, head.headers, _unpacked(body, head.headers.get("content-encoding", "identity"))
        )

    def _piece(self, length: int) -> bool:
        """Take a body of ``length`` bytes; return whether it is there."""
        if length > MAX_BODY_BYTES:
            raise ValueError("the body is too long")
        if len(self._data) < length:
            return False
        self._take(0, length)
        del self._data[:length]
        return True

    def _chunks(self) -> bool:
        """Take the chunks that are there; return whether the last one is."""
        start = 0
        try:
            while (end := self._data.find(_END, start)) >= 0:
                size = int(bytes(self._data[start:end]).partition(b";")[0], 16)
                after = end + 2 + size
                if size < 0 or self._size + size > MAX_BODY_BYTES:
                    raise ValueError("a chunk of no size, or a body that is too long")
                if len(self._data) < after + 2:
                    return False
                if self._data[after : after + 2] != _END:
                    raise ValueError("a chunk does not end where it should, or there are trailers")
                self._take(end + 2, after)
                start = after + 2
                if size == 0:
                    return True
            if len(self._data) - start > _MAX_HEAD:
                raise ValueError("a chunk of no size")
            return False
        finally:
            del self._data[:start]

    def _take(self, start: int, end: int) -> None:
        self._parts.append(bytes(self._data[start:end]))
        self._size += end - start


def _parsed(text: str) -> _Head:
    first, *lines = text.split("\r\n")
    version, _unused, rest = first.partition(" ")
    if version != "HTTP/1.1" or not rest[:3].isdecimal() or rest[:1] < "2":
        raise ValueError("not a final HTTP/1.1 answer")
    pairs = (line.partition(":") for line in lines)
    headers = {name.strip().lower(): value.strip() for name, _unused, value in pairs}
    if headers.get("transfer-encoding", "").lower() == "chunked":
        return _Head(int(rest[:3]), headers, None)
    length = headers.get("content-length", "")
    if not length.isdecimal():
        raise ValueError("no length")
    return _Head(int(rest[:3]), headers, int(length))


def _unpacked(body: bytes, encoding: str) -> bytes:
    if encoding == "identity":
        return body
    if encoding != "gzip":
        raise ValueError("a compression that was not asked for")
    gunzip = Gunzip(MAX_BODY_BYTES)
    try:
        plain = gunzip.feed(body)
        gunzip.finish()
    except ExchangeError as failure:
        raise ValueError(failure.message) from None
    return plain
