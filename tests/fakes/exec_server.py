# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Kubernetes' exec on loopback: a WebSocket (RFC 6455) with the protocol v4.channel.k8s.io that runs the command here."""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import hashlib
import http.server
import json
import struct
import subprocess
import threading
import typing as t
import urllib.parse

_GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_CHUNK = 70_000


@dataclasses.dataclass
class ExecServer:
    """What was asked: paths and tokens. ``refuse``: statuses for the next requests; ``cut``: the connection is lost."""

    url: str = ""
    asked: list[tuple[str, dict[str, list[str]], str]] = dataclasses.field(default_factory=list)
    refuse: list[int] = dataclasses.field(default_factory=list)
    cut: bool = False


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    world: ExecServer

    def do_GET(self) -> None:
        place = urllib.parse.urlsplit(self.path)
        query = urllib.parse.parse_qs(place.query)
        self.world.asked.append((place.path, query, str(self.headers["Authorization"])))
        if self.world.refuse:
            status = self.world.refuse.pop(0)
            body = json.dumps({"kind": "Status", "code": status, "reason": "Forbidden", "message": "not you"}).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
            return
        key = hashlib.sha1(f"{self.headers['Sec-WebSocket-Key']}{_GUID}".encode()).digest()
        self.send_response(101)
        headers = {"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Protocol": "v4.channel.k8s.io"}
        for name, value in {**headers, "Sec-WebSocket-Accept": base64.b64encode(key).decode()}.items():
            self.send_header(name, value)
        self.end_headers()
        self.close_connection = True
        # A connection that is lost has no close frame.
        with contextlib.suppress(OSError):
            self.run(query["command"])

    def run(self, argv: t.Sequence[str]) -> None:
        with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            assert process.stdin and process.stdout and process.stderr
            threading.Thread(target=self.feed, args=(process.stdin,), daemon=True).start()
            while data := process.stdout.read1(_CHUNK):
                self.send(1, data)
                if self.world.cut:
                    self.connection.close()
                    return
            self.send(2, process.stderr.read())
        code = process.returncode
        details = {"causes": [{"reason": "ExitCode", "message": str(code)}]}
        failed = {"status": "Failure", "message": f"command terminated with exit code {code}", "details": details}
        self.send(3, json.dumps(failed if code else {"status": "Success"}).encode())
        self.wfile.write(bytes([0x88, 0]))

    def feed(self, target: t.IO[bytes]) -> None:
        with contextlib.suppress(OSError, struct.error, ValueError):
            while True:
                kind, size = self.rfile.read(2)
                size &= 0x7F
                if size >= 126:
                    size = int(
                        struct.unpack("!H" if size == 126 else "!Q", self.rfile.read(2 if size == 126 else 8))[0]
                    )
                mask = self.rfile.read(4)
                data = bytes(byte ^ mask[index % 4] for index, byte in enumerate(self.rfile.read(size)))
                if kind & 0x0F == 2:
                    assert data[0] == 0
                    target.write(data[1:])
                    target.flush()

    def send(self, channel: int, data: bytes) -> None:
        content = bytes([channel]) + data
        head = bytes([0x82, 126]) + struct.pack("!H", len(content)) if 126 <= len(content) < 1 << 16 else b""
        if len(content) < 126:
            head = bytes([0x82, len(content)])
        self.wfile.write((head or bytes([0x82, 127]) + struct.pack("!Q", len(content))) + content)

    def log_message(self, format: str, *args: t.Any) -> None:
        """Say nothing."""


@contextlib.contextmanager
def running() -> t.Iterator[ExecServer]:
    """Run a server."""
    world = ExecServer()
    handler = type("Handler", (_Handler,), {"world": world})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        world.url = f"http://127.0.0.1:{server.server_port}"
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield world
        server.shutdown()
