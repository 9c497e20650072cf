# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A door before a real store that fails as stores do: full, refused, forbidden, slow, torn, gone and back again."""

from __future__ import annotations

import contextlib
import http.client
import http.server
import socket
import threading
import time
import typing as t
import urllib.parse

_PIECE = 16 << 10


class FaultyStore:
    """Passes requests on to a store until a fault is set.

    ``full_after`` and ``torn_after`` count the bytes of bodies that were written from the moment they are set.
    """

    def __init__(self, endpoint: str, address: str = "127.0.0.1") -> None:
        store = urllib.parse.urlsplit(endpoint)
        self.address = address
        self.place = (str(store.hostname), int(store.port or 80))
        self.written = 0
        self.full_after: int | None = None
        self.full_status = 507
        self.torn_after: int | None = None
        self.forbidden = False
        self.bytes_per_s = 0.0
        self.refusals = 0
        self.is_open = True
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._server = self._listen(0)
        self.port = self._server.server_address[1]
        self.url = f"http://{address}:{self.port}"

    def fill(self, after_bytes: int = 0, status: int = 507) -> None:
        """Refuse what is written beyond so many more bytes: 507 as WebDAV's stores say it, 500 as SeaweedFS does."""
        self.full_after, self.full_status = self.written + after_bytes, status

    def tear(self, after_bytes: int) -> None:
        """Close connections in the middle of what is written beyond so many more bytes."""
        self.torn_after = self.written + after_bytes

    def shut(self) -> None:
        """Refuse connections, and end those that are open."""
        self.is_open = False
        self._server.shutdown()
        self._server.server_close()
        with self._lock:
            for connection in self._open:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

    def reopen(self) -> None:
        """Be there again under the same address, without any fault."""
        self.full_after = self.torn_after = None
        self.forbidden, self.bytes_per_s = False, 0.0
        self._server = self._listen(self.port)
        self.is_open = True

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.shut()

    def answer(self, asked: http.server.BaseHTTPRequestHandler) -> None:
        """Answer one request."""
        size = int(asked.headers.get("Content-Length") or 0)
        writes = asked.command in ("PUT", "POST")
        if self.forbidden and writes:
            self._refuse(asked, 403, "AccessDenied", size)
        elif writes and self.full_after is not None and self.written + size > self.full_after:
            self._refuse(asked, self.full_status, "InsufficientStorage", size)
        elif writes and self.torn_after is not None and self.written + size > self.torn_after:
            self.refusals += 1
            asked.rfile.read(size // 2)
            asked.close_connection = True
            with contextlib.suppress(OSError):
                asked.connection.shutdown(socket.SHUT_RDWR)
        else:
            self._pass_on(asked, size, writes)

    def _refuse(self, asked: http.server.BaseHTTPRequestHandler, status: int, code: str, size: int) -> None:
        self.refusals += 1
        self._read(asked.rfile, size)
        body = f'<?xml version="1.0"?><Error><Code>{code}</Code><Message>refused</Message></Error>'.encode()
        asked.send_response(status)
        asked.send_header("Content-Type", "application/xml")
        asked.send_header("Content-Length", str(len(body)))
        asked.end_headers()
        if asked.command != "HEAD":
            asked.wfile.write(body)

    def _read(self, source: t.BinaryIO | t.Any, size: int) -> bytes:
        found = bytearray()
        while len(found) < size and (piece := source.read(min(_PIECE, size - len(found)))):
            found += piece
            if self.bytes_per_s:
                time.sleep(len(piece) / self.bytes_per_s)
        return bytes(found)

    def _pass_on(self, asked: http.server.BaseHTTPRequestHandler, size: int, writes: bool) -> None:
        body = self._read(asked.rfile, size)
        server = http.client.HTTPConnection(*self.place, timeout=30)
        server.putrequest(asked.command, asked.path, skip_host=True, skip_accept_encoding=True)
        for name, value in asked.headers.items():
            if name.lower() not in ("connection", "expect"):
                server.putheader(name, value)
        server.endheaders(body)
        answer = server.getresponse()
        data = answer.read()
        server.close()
        if writes and answer.status < 300:
            with self._lock:
                self.written += size
        asked.send_response_only(answer.status, answer.reason)
        for name, value in answer.getheaders():
            if name.lower() not in ("connection", "transfer-encoding", "content-length"):
                asked.send_header(name, value)
        length = str(len(data)) if asked.command != "HEAD" else answer.getheader("Content-Length", "0")
        asked.send_header("Content-Length", length)
        asked.end_headers()
        if asked.command != "HEAD":
            asked.wfile.write(data)

    def _listen(self, port: int) -> http.server.ThreadingHTTPServer:
        door = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self) -> None:
                super().setup()
                with door._lock:
                    door._open.add(self.connection)

            def finish(self) -> None:
                with contextlib.suppress(OSError):
                    super().finish()
                with door._lock:
                    door._open.discard(self.connection)

            def do_any(self) -> None:
                with contextlib.suppress(OSError, http.client.HTTPException):
                    door.answer(self)
                    return
                self.close_connection = True

            do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = do_any

            def log_message(self, *args: t.Any) -> None:
                """Say nothing: what happened is in the counters."""

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads = True
            allow_reuse_address = True

            def handle_error(self, *args: t.Any) -> None:
                """A client that goes away is no news."""

        found = Server((self.address, port), Handler)
        threading.Thread(target=found.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return found
