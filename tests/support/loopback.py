# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Real sockets on loopback: servers that answer what a test says, byte by byte if need be."""

from __future__ import annotations

import contextlib
import http.server
import json
import socket
import socketserver
import threading
import typing as t
import urllib.parse
from collections.abc import Callable, Iterator, Mapping

Conversation = Callable[[socket.socket], None]


@contextlib.contextmanager
def raw_server(*conversations: Conversation, family: socket.AddressFamily = socket.AF_INET) -> Iterator[int]:
    """Listen on a free loopback port and give each accepted connection to the next conversation; yield the port."""
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.bind(("::1" if family == socket.AF_INET6 else "127.0.0.1", 0))
    listener.listen(8)
    opened: list[socket.socket] = []

    def talk(sock: socket.socket, conversation: Conversation) -> None:
        with contextlib.suppress(OSError):
            conversation(sock)
        with contextlib.suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)
        sock.close()

    def serve() -> None:
        for conversation in conversations:
            try:
                sock, _peer = listener.accept()
            except OSError:
                return
            opened.append(sock)
            sock.settimeout(10)
            threading.Thread(target=talk, args=(sock, conversation), daemon=True).start()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        # Shutting down wakes an accept that closing alone would leave asleep.
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        for sock in opened:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        thread.join(5)


def read_request(sock: socket.socket) -> bytes:
    """Read one request with its body from ``sock``; empty when the peer has closed."""
    data = b""
    while b"\r\n\r\n" not in data:
        piece = sock.recv(65536)
        if not piece:
            return data
        data += piece
    head, _mark, body = data.partition(b"\r\n\r\n")
    length = next(
        (int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")), 0
    )
    while len(body) < length:
        body += sock.recv(65536)
    return head + b"\r\n\r\n" + body


def reply(*pieces: bytes, seen: list[bytes] | None = None) -> Conversation:
    """Return a conversation that reads one request and sends ``pieces``."""

    def converse(sock: socket.socket) -> None:
        request = read_request(sock)
        if seen is not None:
            seen.append(request)
        for piece in pieces:
            sock.sendall(piece)

    return converse


def http_answer(body: bytes, status: str = "200 OK", headers: Mapping[str, str] | None = None) -> bytes:
    """Return one well-formed HTTP/1.1 answer."""
    lines = {"Content-Type": "application/json", "Content-Length": str(len(body)), **(headers or {})}
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"HTTP/1.1 {status}\r\n{head}\r\n".encode() + body


class Api:
    """A JSON API on loopback for tests that start other processes: ``routes`` maps ``"GET /path"`` to a handler.

    A handler takes (query pairs, headers, body) and returns (status, data or bytes, headers). ``requests`` lists what
    came: (method, path, query, headers, body).
    """

    def __init__(self, routes: Mapping[str, Callable[..., tuple[int, t.Any, Mapping[str, str]]]]) -> None:
        self.requests: list[tuple[str, str, list[tuple[str, str]], dict[str, str], bytes]] = []
        api = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _serve(self) -> None:
                parts = urllib.parse.urlsplit(self.path)
                query = urllib.parse.parse_qsl(parts.query, keep_blank_values=True)
                headers = {name.lower(): value for name, value in self.headers.items()}
                body = self.rfile.read(int(headers.get("content-length", "0")))
                api.requests.append((self.command, parts.path, query, headers, body))
                handler = routes.get(f"{self.command} {parts.path}")
                status, data, extra = handler(query, headers, body) if handler else (404, {"message": "no route"}, {})
                payload = data if isinstance(data, bytes) else json.dumps(data).encode()
                self.send_response(status)
                for name, value in {"Content-Type": "application/json", **extra}.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(payload)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(payload)

            do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = do_PATCH = _serve

            def log_message(self, *_args: t.Any) -> None:
                return None

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> t.Self:
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._server.shutdown()
        self._server.server_close()


@contextlib.contextmanager
def reachable(url: str, address: str) -> Iterator[str]:
    """Pass what comes to ``address`` on to a server on loopback; yield the URL that machines of a lab use."""
    port = int(url.rpartition(":")[2].partition("/")[0])

    class Pass(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with socket.create_connection(("127.0.0.1", port)) as inner:
                back = threading.Thread(target=_copy, args=(inner, self.request), daemon=True)
                back.start()
                _copy(self.request, inner)
                back.join(10)

    with socketserver.ThreadingTCPServer((address, 0), Pass) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield url.replace(f"127.0.0.1:{port}", f"{address}:{server.server_address[1]}")
        server.shutdown()


def _copy(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
