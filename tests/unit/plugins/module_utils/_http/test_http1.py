# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One request and its response in HTTP/1.1."""

from __future__ import annotations

import gzip
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._http.clock import SYSTEM_CLOCK, Deadline
from ansible_collections.muster.training.plugins.module_utils._http.connection_pool import ConnectionPool
from ansible_collections.muster.training.plugins.module_utils._http.errors import ExchangeError
from ansible_collections.muster.training.plugins.module_utils._http.messages import HttpRequest
from ansible_collections.muster.training.plugins.module_utils._http.urls import Origin
from ansible_collections.muster.training.tests.support.loopback import http_answer, raw_server, reply

GET = HttpRequest("GET", "/v1/nodes")


POST = HttpRequest("POST", "/v1/nodes", body=b"{}")


def exchange(port: int, request: HttpRequest = GET, total_s: float = 10.0, **options: t.Any) -> bytes:
    wire = options.pop("wire", None) or ConnectionPool(**options)
    origin = Origin("http", "127.0.0.1", port)
    return wire(origin, request, Deadline(SYSTEM_CLOCK, total_s)).body


def test_request_on_the_wire_is_complete() -> None:
    seen: list[bytes] = []
    request = HttpRequest("POST", "/v1/nodes", (("a", "b c"),), {"X-One": "1"}, b'{"n":1}')
    with raw_server(reply(http_answer(b"{}"), seen=seen)) as port:
        assert exchange(port, request) == b"{}"
    head, _mark, body = seen[0].partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    assert lines[0] == "POST /v1/nodes?a=b+c HTTP/1.1" and body == b'{"n":1}'
    assert set(lines[1:]) == {f"Host: 127.0.0.1:{port}", "Accept-Encoding: gzip", "X-One: 1", "Content-Length: 7"}


@pytest.mark.parametrize(
    ("answer", "problem", "transient"),
    [
        (b"", "connection was lost", True),
        (http_answer(b"x" * 10)[:-4], "cut short", True),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabc", "cut short", True),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "cut short|not HTTP", True),
        (b"SSH-2.0-OpenSSH_9.9\r\n", "not HTTP", False),
        (b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 200 + b"\r\n", "not HTTP", False),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 99999\r\n\r\n", "larger than 1000 bytes", False),
        (b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 5000, "larger than 1000 bytes", False),
        (http_answer(gzip.compress(b"0" * 300_000), headers={"Content-Encoding": "gzip"}), "larger than 1000", False),
        (http_answer(gzip.compress(b"0" * 90)[:-9], headers={"Content-Encoding": "gzip"}), "cut short", True),
        (http_answer(b"not gzip", headers={"Content-Encoding": "gzip"}), "response is damaged", False),
        (http_answer(b"x", headers={"Content-Encoding": "br"}), "not requested", False),
    ],
)
def test_bad_answers(answer: bytes, problem: str, transient: bool) -> None:
    with raw_server(reply(answer)) as port, pytest.raises(ExchangeError, match=problem) as caught:
        exchange(port, POST, max_body_bytes=1000)
    assert caught.value.sent
    if problem != "cut short|not HTTP":
        assert caught.value.transient is transient
