# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A server of files and git repositories on this machine, over real HTTPS with an authority of its own."""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import http.server
import os
import pathlib
import ssl
import subprocess
import threading
import typing as t

from .certificates import make_certificate


@dataclasses.dataclass
class HttpsHost:
    """``files`` by path; repositories are below ``/git`` in ``root``. With ``login`` it asks for that header."""

    root: pathlib.Path
    ca: str
    url: str = ""
    login: str = ""
    files: dict[str, bytes] = dataclasses.field(default_factory=dict)
    refused: int = 0

    def require(self, user: str, password: str) -> None:
        """Ask for a user and a password."""
        self.login = "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


@contextlib.contextmanager
def https_host(root: pathlib.Path) -> t.Iterator[HttpsHost]:
    """Give a host that listens while the context is open."""
    folder = root / "authority"
    folder.mkdir(parents=True)
    certificate, key = make_certificate(folder, "127.0.0.1", -1, 30)
    made = HttpsHost(root, certificate)

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            if made.login and self.headers.get("Authorization") != made.login:
                made.refused += 1
                return self._answer(401, b"", {"WWW-Authenticate": 'Basic realm="here"'})
            if path.startswith("/git/"):
                return self._answer(*_ask_git(made.root, self))
            return self._answer(200 if path in made.files else 404, made.files.get(path, b""), {})

        do_POST = do_GET

        def _answer(self, code: int, content: bytes, headers: t.Mapping[str, str]) -> None:
            self.send_response(code)
            for name, value in {**headers, "Content-Length": str(len(content))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: t.Any) -> None:
            """Say nothing."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        server.socket = context.wrap_socket(server.socket, server_side=True)
        made.url = f"https://127.0.0.1:{server.server_port}"
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield made
        finally:
            server.shutdown()


def _ask_git(root: pathlib.Path, request: http.server.BaseHTTPRequestHandler) -> tuple[int, bytes, dict[str, str]]:
    """Return what git's own server program answers."""
    path, _mark, query = request.path.partition("?")
    size = request.headers.get("Content-Length") or "0"
    env = {
        **os.environ,
        "GIT_PROJECT_ROOT": str(root),
        "GIT_HTTP_EXPORT_ALL": "1",
        "PATH_INFO": path.removeprefix("/git"),
        "QUERY_STRING": query,
        "REQUEST_METHOD": request.command,
        "CONTENT_TYPE": request.headers.get("Content-Type") or "",
        "CONTENT_LENGTH": size,
        "HTTP_CONTENT_ENCODING": request.headers.get("Content-Encoding") or "",
        "HTTP_GIT_PROTOCOL": request.headers.get("Git-Protocol") or "",
        "GIT_PROTOCOL": request.headers.get("Git-Protocol") or "",
    }
    done = subprocess.run(
        ["git", "http-backend"], env=env, input=request.rfile.read(int(size)), capture_output=True, check=False
    )
    head, _blank, body = done.stdout.partition(b"\r\n\r\n")
    headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n") if ": " in line)
    return int(headers.pop("Status", "200").split()[0]), body, headers
