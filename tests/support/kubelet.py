# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The part of a kubelet that serves container logs, so that an API server without nodes can hand logs on.

Each request is answered from ``lines``, as a kubelet does: from ``sinceTime`` (whole seconds) on, stamped, followed by
what is added later until ``finish()``.
"""

from __future__ import annotations

import datetime
import http.server
import pathlib
import ssl
import threading
import typing as t
import urllib.parse


class Kubelet:
    """Serves the logs of one container, and of pods that have ended (``texts``); ``asked`` lists the queries that came."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.lines: list[tuple[datetime.datetime, str]] = []
        self.asked: list[dict[str, str]] = []
        # By name of a pod all that it has said.
        self.texts: dict[str, str] = {}
        self._done = False
        self._cuts = 0
        self._changed = threading.Condition()
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(folder / "server.crt", folder / "server.key")
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    def say(self, text: str) -> None:
        with self._changed:
            self.lines.append((datetime.datetime.now(datetime.UTC), text))
            self._changed.notify_all()

    def finish(self) -> None:
        with self._changed:
            self._done = True
            self._changed.notify_all()

    def cut(self) -> None:
        """End the answers that are under way, as a kubelet that is restarted does: the container prints on."""
        with self._changed:
            self._cuts += 1
            self._changed.notify_all()

    def close(self) -> None:
        self.finish()
        self._server.shutdown()
        self._server.server_close()

    def _wanted(self, query: dict[str, str]) -> list[str]:
        since = query.get("sinceTime")
        start = datetime.datetime.fromisoformat(since).replace(microsecond=0) if since else None
        chosen = [(at, text) for at, text in self.lines if start is None or at >= start]
        if query.get("tailLines"):
            chosen = chosen[-int(query["tailLines"]) :]
        stamp = query.get("timestamps") == "true"
        return [f"{at:%Y-%m-%dT%H:%M:%S.%f}000Z {text}\n" if stamp else f"{text}\n" for at, text in chosen]

    def _handler(self) -> type[http.server.BaseHTTPRequestHandler]:
        kubelet = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                parts = urllib.parse.urlsplit(self.path)
                query = dict(urllib.parse.parse_qsl(parts.query))
                kubelet.asked.append(query)
                self.send_response(200)
                self.send_header("Content-Type", "text/plain")
                self.end_headers()
                *_first, pod, _container = parts.path.split("/")
                if pod in kubelet.texts:
                    self.wfile.write(kubelet.texts[pod].encode())
                    return
                sent, cuts = 0, kubelet._cuts
                while True:
                    with kubelet._changed:
                        if kubelet._cuts != cuts:
                            return
                        lines = kubelet._wanted(query)
                        finished = kubelet._done or query.get("follow") != "true"
                        if len(lines) == sent and not finished:
                            kubelet._changed.wait(0.5)
                            continue
                    try:
                        self.wfile.write("".join(lines[sent:]).encode())
                        self.wfile.flush()
                    except OSError:
                        return
                    sent = len(lines)
                    if finished:
                        return

            def log_message(self, format: str, *args: t.Any) -> None:
                return

        return Handler
