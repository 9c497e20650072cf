# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A proxy between a node and a store, for figures of bytes on their way."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
import urllib.parse


class CountingProxy:
    """Passes connections on to a store; counts the bytes that it sends (at a limited speed) and those it receives."""

    def __init__(self, endpoint: str, mb_per_s: float = 0.0) -> None:
        self._store, self._mb_per_s = urllib.parse.urlsplit(endpoint), mb_per_s
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.sent = self.received = 0
        self._lock = threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _address = self._listener.accept()
                client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 16 << 10)
                server = socket.create_connection((str(self._store.hostname), int(self._store.port or 80)))
                for work in ((client, server, False), (server, client, True)):
                    threading.Thread(target=self._pass_on, args=work, daemon=True).start()

    def _pass_on(self, source: socket.socket, target: socket.socket, counts: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(16 << 10):
                with self._lock:
                    if not counts:
                        self.received += len(data)
                    else:
                        self.sent += len(data)
                        time.sleep(len(data) / (self._mb_per_s * 1e6) if self._mb_per_s else 0)
                target.sendall(data)
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
