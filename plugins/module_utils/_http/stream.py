# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A response that is read while it arrives, for hours if needed: watches and logs."""

from __future__ import annotations

import re
import socket
import threading
import typing as t

from .clock import Clock, Deadline
from .errors import CHUNK, ExchangeError
from .sockets import TimedSocket

if t.TYPE_CHECKING:
    import http.client

_SIZE = re.compile(rb"\s*([0-9a-fA-F]{1,8})\s*(?:;[^\r\n]*)?\r?\n")
_MAX_SIZE_LINE = 1024
# A peer that vanished without closing the connection is noticed after 10 + 3 x 5 seconds.
_KEEPALIVE = (("TCP_KEEPIDLE", 10), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3), ("TCP_USER_TIMEOUT", 25_000))


class _ChunkDecoder:
    """Removes the framing of a chunked body (RFC 9112 section 7.1), whatever pieces it arrives in.

    ``http.client`` loses its position when a read times out between two pieces; this does not.
    """

    def __init__(self) -> None:
        self._buffer = b""
        self._bytes_left = 0
        self.ended = False

    def feed(self, data: bytes) -> bytes:
        """Return the payload in ``data``; ``ended`` is true once the last chunk came."""
        self._buffer += data
        out: list[bytes] = []
        while self._buffer and not self.ended:
            if not self._bytes_left:
                if not self._read_size():
                    break
                continue
            piece, self._buffer = self._buffer[: self._bytes_left], self._buffer[self._bytes_left :]
            self._bytes_left -= len(piece)
            out.append(piece)
        return b"".join(out)

    def _read_size(self) -> bool:
        """Read the size line of the next chunk; false when it is not whole yet."""
        match = _SIZE.match(self._buffer)
        if match is None:
            if len(self._buffer) > _MAX_SIZE_LINE:
                raise ExchangeError("the response is not HTTP")
            return False
        self._bytes_left = int(match.group(1), 16)
        self._buffer = self._buffer[match.end() :]
        self.ended = self._bytes_left == 0
        return True


class Stream:
    """The body of a response, piece by piece. ``close`` may be called by another thread to end a read at once."""

    def __init__(self, response: http.client.HTTPResponse, sock: TimedSocket, clock: Clock) -> None:
        # The response would close its file when it is let go, and complain in red where that is closed already.
        self._body, t.cast(t.Any, response).fp = response.fp, None
        self._sock = sock
        self._clock = clock
        self._chunks = _ChunkDecoder() if response.chunked else None
        self._bytes_left: int | None = None if response.chunked else response.length
        self._closed = False
        self._reading = False
        self._lock = threading.Lock()
        raw = sock.raw
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _KEEPALIVE:
            if hasattr(socket, name):
                raw.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)

    def read(self, timeout_s: float) -> bytes | None:
        """Return what has come, ``b""`` at the end of the answer, None when nothing came for ``timeout_s``.

        :raises ExchangeError: when the answer broke off before its end.
        """
        with self._lock:
            if self._closed:
                return b""
            self._reading = True
        try:
            return self._read(timeout_s)
        finally:
            with self._lock:
                self._reading = False
                if self._closed:
                    self._sock.shut()

    def _read(self, timeout_s: float) -> bytes | None:
        wait = Deadline(self._clock, timeout_s)
        while not self._is_over():
            try:
                self._sock.arm(wait, timeout_s)
                piece = self._body.read1(CHUNK)
            except TimeoutError:
                if wait.seconds_left() > 0.1:
                    # Long before its time: the kernel gave up, the peer no longer answers probes.
                    raise ExchangeError("the connection was lost", transient=True) from None
                return None
            except (OSError, ValueError):
                if self._closed:
                    break
                raise ExchangeError("the connection was lost", transient=True) from None
            if not piece:
                self._check_end()
                break
            data = self._unpack(piece)
            if data:
                return data
        return b""

    def _is_over(self) -> bool:
        return self._closed or self._bytes_left == 0 or (self._chunks is not None and self._chunks.ended)

    def _unpack(self, piece: bytes) -> bytes:
        if self._chunks is not None:
            return self._chunks.feed(piece)
        if self._bytes_left is not None:
            piece = piece[: self._bytes_left]
            self._bytes_left -= len(piece)
        return piece

    def _check_end(self) -> None:
        if not self._closed and (self._chunks is not None or self._bytes_left):
            raise ExchangeError("the response was cut short", transient=True)

    def close(self) -> None:
        """Close the stream; a read in another thread returns at once."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            try:
                socket.socket.shutdown(self._sock.raw, socket.SHUT_RDWR)
            except OSError:
                pass
            # The number of a file that is closed under a reader goes to the next one that is opened, and the reader
            # would read the bytes of that one: the reader closes it.
            if not self._reading:
                self._sock.shut()

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_args: t.Any) -> None:
        self.close()
