# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The agent's load balancer: 127.0.0.1:6444 leads to a server that answers, and the list of servers is kept on disk.

K3s names the servers of its list by the same file; here they are read from the Service kubernetes.
"""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time

from common import API_PORT, ask_api, log, write
from network import AGENT

PLACE = AGENT / "etc" / "k3s-agent-load-balancer.json"
_SLICES = (
    "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices?labelSelector=kubernetes.io/service-name%3Dkubernetes"
)
_CONNECT_S, _LOOK_S, _MISSED = 2.0, 1.0, 3


def known(first: str) -> list[str]:
    """Return the servers that an agent knows, the one of its options first."""
    try:
        found = json.loads(PLACE.read_text())["ServerAddresses"]
    except (OSError, ValueError, KeyError):
        found = []
    return list(dict.fromkeys([first, *found]))


def start(first: str) -> str:
    """Start the load balancer; return the address at which it listens."""
    made = Balancer(first)
    listener = socket.create_server(("127.0.0.1", API_PORT), backlog=128)
    threading.Thread(target=made.accept, args=(listener,), daemon=True).start()
    threading.Thread(target=made.look, daemon=True).start()
    return "127.0.0.1"


class Balancer:
    """Connections to the first server that answers; those to one that does not answer any more are closed."""

    def __init__(self, first: str) -> None:
        self.first = first
        self.missed: dict[str, int] = {}
        self.open: dict[socket.socket, str] = {}

    def accept(self, listener: socket.socket) -> None:
        """Take connections for ever."""
        while True:
            client, _address = listener.accept()
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def look(self) -> None:
        """Look at all servers for ever, and at which ones there are."""
        while True:
            for server in known(self.first):
                try:
                    socket.create_connection((server, API_PORT), timeout=_CONNECT_S).close()
                    self.missed[server] = 0
                except OSError:
                    self.missed[server] = self.missed.get(server, 0) + 1
                if self.missed[server] == _MISSED:
                    log("info", f"Server {server}:{API_PORT}@FAILED from failed health check")
                    for client in [item for item, at in list(self.open.items()) if at == server]:
                        _end(client)
            self._learn()
            time.sleep(_LOOK_S)

    def _learn(self) -> None:
        keys = {"certificate": f"{AGENT}/client-kube-proxy.crt", "key": f"{AGENT}/client-kube-proxy.key"}
        try:
            status, answer = ask_api("127.0.0.1", "GET", _SLICES, ca=f"{AGENT}/server-ca.crt", **keys)
        except (OSError, ValueError, http.client.HTTPException):
            return
        if status == 200:
            found = sorted(
                {at for item in answer["items"] for end in item["endpoints"] or [] for at in end["addresses"]}
            )
            text = json.dumps({"ServerURL": f"https://{self.first}:6443", "ServerAddresses": found})
            if found and (not PLACE.exists() or PLACE.read_text() != text):
                write(PLACE, text)

    def _serve(self, client: socket.socket) -> None:
        # Those that were not missed go first, in their order.
        for server in sorted(known(self.first), key=lambda at: self.missed.get(at, 0) > 0):
            try:
                behind = socket.create_connection((server, API_PORT), timeout=_CONNECT_S)
            except OSError:
                continue
            behind.settimeout(None)
            self.open[client] = server
            join(client, behind)
            self.open.pop(client, None)
            behind.close()
            break
        client.close()


def join(client: socket.socket, behind: socket.socket) -> None:
    """Pass on what comes from either side, until both have ended."""
    back = threading.Thread(target=_pump, args=(behind, client), daemon=True)
    back.start()
    _pump(client, behind)
    back.join()


def _pump(source: socket.socket, target: socket.socket) -> None:
    try:
        while data := source.recv(1 << 16):
            target.sendall(data)
    except OSError:
        pass
    for end in (source, target):
        _end(end)


def _end(end: socket.socket) -> None:
    try:
        end.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass
