# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The wire against real sockets on loopback: sizes, times, compression, TLS, proxies, kept connections."""

from __future__ import annotations

import socket
import threading
import time
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._http.clock import SYSTEM_CLOCK, Deadline
from ansible_collections.muster.training.plugins.module_utils._http.connection_pool import ConnectionPool
from ansible_collections.muster.training.plugins.module_utils._http.errors import ExchangeError
from ansible_collections.muster.training.plugins.module_utils._http.messages import HttpRequest
from ansible_collections.muster.training.plugins.module_utils._http.retry import Timeouts
from ansible_collections.muster.training.plugins.module_utils._http.urls import Origin
from ansible_collections.muster.training.tests.support.loopback import http_answer, raw_server, read_request, reply

GET = HttpRequest("GET", "/v1/nodes")


POST = HttpRequest("POST", "/v1/nodes", body=b"{}")


def exchange(port: int, request: HttpRequest = GET, total_s: float = 10.0, **options: t.Any) -> bytes:
    wire = options.pop("wire", None) or ConnectionPool(**options)
    origin = Origin("http", "127.0.0.1", port)
    return wire(origin, request, Deadline(SYSTEM_CLOCK, total_s)).body


def test_connection_is_kept_for_reads_and_fresh_for_creates() -> None:
    def go_on(sock: socket.socket) -> None:
        while read_request(sock):
            sock.sendall(http_answer(b"1"))

    wire = ConnectionPool()
    with raw_server(go_on, reply(http_answer(b"2"))) as port:
        assert [exchange(port, request, wire=wire) for request in (GET, GET, POST)] == [b"1", b"1", b"2"]
    wire.close()


def test_a_kept_connection_that_died_is_replaced_unseen() -> None:
    wire = ConnectionPool()
    with raw_server(reply(http_answer(b"1")), reply(http_answer(b"2"))) as port:
        assert exchange(port, wire=wire) == b"1"
        time.sleep(0.05)
        assert exchange(port, wire=wire) == b"2"


@pytest.mark.parametrize("part", [b"HTTP/1.1 200 OK\r\nX: ", b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n"])
def test_a_byte_now_and_then_does_not_outlive_the_deadline(part: bytes) -> None:
    stop = threading.Event()

    def drip(sock: socket.socket) -> None:
        read_request(sock)
        sock.sendall(part)
        while not stop.wait(0.02):
            sock.sendall(b"x")

    started = time.monotonic()
    with raw_server(drip) as port, pytest.raises(ExchangeError, match="in time"):
        exchange(port, total_s=0.4)
    stop.set()
    assert 0.3 < time.monotonic() - started < 2.0


def test_silence_ends_with_the_read_timeout() -> None:
    def silent(sock: socket.socket) -> None:
        read_request(sock)
        sock.recv(1)

    with raw_server(silent) as port, pytest.raises(ExchangeError, match="in time") as caught:
        exchange(port, timeouts=Timeouts(read_s=0.2))
    assert caught.value.transient and caught.value.sent


def test_plain_http_goes_through_the_proxy_in_absolute_form(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bytes] = []
    with raw_server(reply(http_answer(b"1"), seen=seen)) as port:
        wire = ConnectionPool(proxy=f"http://user:p%40ss@127.0.0.1:{port}")
        assert wire(Origin("http", "api.example.com", 80), GET, Deadline(SYSTEM_CLOCK, 5)).body == b"1"
    assert seen[0].startswith(b"GET http://api.example.com/v1/nodes HTTP/1.1\r\nHost: api.example.com\r\n")
    assert b"Proxy-Authorization: Basic dXNlcjpwQHNz\r\n" in seen[0]
