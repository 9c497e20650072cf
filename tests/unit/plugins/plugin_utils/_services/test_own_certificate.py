# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A certificate that is its own authority: two programs with it speak to each other, a stranger does not."""

from __future__ import annotations

import pathlib
import socket
import ssl
import threading

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._services import own_certificate


def connect(folder: pathlib.Path, client: ssl.SSLContext) -> bytes:
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(folder / "crt", folder / "key")
    server.load_verify_locations(folder / "crt")
    server.verify_mode = ssl.CERT_REQUIRED
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        try:
            with server.wrap_socket(listener.accept()[0], server_side=True) as stream:
                stream.sendall(b"hello")
        except OSError:
            return

    threading.Thread(target=serve, daemon=True).start()
    with (
        listener,
        socket.create_connection(listener.getsockname(), timeout=5) as plain,
        client.wrap_socket(plain, server_hostname="127.0.0.1") as stream,
    ):
        return stream.recv(10)


def test_who_has_the_key_is_let_in_and_no_one_else(tmp_path: pathlib.Path) -> None:
    key, certificate = own_certificate.make("seaweedfs")
    (tmp_path / "key").write_text(key)
    (tmp_path / "crt").write_text(certificate)
    client = ssl.create_default_context(cadata=certificate)
    with pytest.raises(OSError, match=r"(?i)certificate required|reset|broken pipe|alert"):
        connect(tmp_path, client)
    client.load_cert_chain(tmp_path / "crt", tmp_path / "key")
    assert connect(tmp_path, client) == b"hello"
    assert own_certificate.make("seaweedfs")[0] != key
