# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The relay that makes a server distant: everything arrives, in order, and no sooner than it may."""

from __future__ import annotations

import socket
import threading
import time

from ansible_collections.muster.training.tests.support.distance import Distance


def echo(listener: socket.socket) -> None:
    while True:
        try:
            peer, _address = listener.accept()
        except OSError:
            return
        with peer:
            while data := peer.recv(65536):
                peer.sendall(data)


def test_bytes_come_later_but_all_of_them() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=echo, args=(listener,), daemon=True).start()
        with Distance(listener.getsockname()[1], 0.05) as away:
            began = time.monotonic()
            with socket.create_connection(("127.0.0.1", away.port)) as client:
                whole = bytes(range(256)) * 2000
                threading.Thread(target=client.sendall, args=(whole,), daemon=True).start()
                found = bytearray()
                while len(found) < len(whole):
                    found += client.recv(65536)
                # The handshake, there and back.
                assert time.monotonic() - began >= 0.1 and found == whole
                again = time.monotonic()
                client.sendall(b"x")
                assert client.recv(10) == b"x" and time.monotonic() - again >= 0.05
                client.shutdown(socket.SHUT_WR)
                assert client.recv(10) == b""
            assert away.connections == 1
        listener.shutdown(socket.SHUT_RDWR)
