# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Answers that are read while they come, over real sockets."""

from __future__ import annotations

import http.client
import socket
import threading
import time
import typing as t

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.module_utils._http import http1
from ansible_collections.muster.training.plugins.module_utils._http.clock import SYSTEM_CLOCK, Deadline
from ansible_collections.muster.training.plugins.module_utils._http.connection_pool import ConnectionPool
from ansible_collections.muster.training.plugins.module_utils._http.errors import ExchangeError
from ansible_collections.muster.training.plugins.module_utils._http.messages import HttpRequest, HttpResponse
from ansible_collections.muster.training.plugins.module_utils._http.stream import Stream, _ChunkDecoder
from ansible_collections.muster.training.plugins.module_utils._http.urls import Origin
from ansible_collections.muster.training.tests.support.loopback import raw_server

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def read_head(sock: socket.socket) -> bytes:
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        head += sock.recv(1)
    return head


def begins_only(sock: socket.socket) -> None:
    """Answer with one piece, and go."""
    read_head(sock)
    sock.sendall(CHUNKED + b"5\r\nfirst\r\n")


def begin(port: int) -> HttpResponse | Stream:
    wire = ConnectionPool(proxy="none")
    return wire.stream(Origin("http", "127.0.0.1", port), HttpRequest("GET", "/w"), Deadline(SYSTEM_CLOCK, 5))


@given(st.lists(st.binary(min_size=1, max_size=40), max_size=8), st.integers(1, 9))
def test_chunks_in_any_pieces_give_the_same(chunks: list[bytes], size: int) -> None:
    text = b"".join(b"%x;ext=1\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks) + b"0\r\n\r\n"
    parser = _ChunkDecoder()
    got = b"".join(parser.feed(text[start : start + size]) for start in range(0, len(text), size))
    assert got == b"".join(chunks) and parser.ended


def test_a_size_that_is_none_is_refused() -> None:
    with pytest.raises(ExchangeError, match="not HTTP"):
        _ChunkDecoder().feed(b"x" * 2000)


def test_pieces_come_as_they_are_sent_and_waiting_has_an_end() -> None:
    go = threading.Event()

    def talk(sock: socket.socket) -> None:
        read_head(sock)
        sock.sendall(CHUNKED + b"5\r\nfirst\r\n6\r\nsec")
        go.wait(5)
        sock.sendall(b"ond\r\n0\r\n\r\n")

    with raw_server(talk) as port:
        stream = begin(port)
        assert isinstance(stream, Stream)
        assert stream.read(2) == b"firstsec"
        began = time.monotonic()
        assert stream.read(0.2) is None and 0.1 < time.monotonic() - began < 2
        go.set()
        assert stream.read(2) == b"ond" and stream.read(2) == b"" and stream.read(2) == b""


def test_an_answer_that_is_let_go_after_its_file_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python's collector ends what refers to each other in any order, and a complaint would go to the user."""
    answers: list[http.client.HTTPResponse] = []
    real = http1.send_request

    def ask(*args: t.Any, **more: t.Any) -> http.client.HTTPResponse:
        answers.append(real(*args, **more))
        return answers[-1]

    monkeypatch.setattr(http1, "send_request", ask)
    with raw_server(begins_only) as port:
        stream = begin(port)
        assert isinstance(stream, Stream) and stream.read(2) == b"first"
        stream._body.close()
        answers[0].close()


def test_an_answer_that_breaks_off_is_no_end() -> None:
    with raw_server(begins_only) as port:
        stream = begin(port)
        assert isinstance(stream, Stream) and stream.read(2) == b"first"
        with pytest.raises(ExchangeError, match="cut short|lost"):
            stream.read(2)


def test_another_thread_ends_a_read() -> None:
    held = threading.Event()

    def talk(sock: socket.socket) -> None:
        read_head(sock)
        sock.sendall(CHUNKED)
        held.wait(10)

    with raw_server(talk) as port:
        stream = begin(port)
        assert isinstance(stream, Stream)
        threading.Timer(0.2, stream.close).start()
        began = time.monotonic()
        assert stream.read(10) == b"" and time.monotonic() - began < 5
        held.set()


def test_the_socket_is_closed_by_who_reads_it() -> None:
    held = threading.Event()

    def talk(sock: socket.socket) -> None:
        read_head(sock)
        sock.sendall(CHUNKED)
        held.wait(10)

    with raw_server(talk) as port:
        stream = begin(port)
        assert isinstance(stream, Stream)
        closers: list[int] = []
        shut = stream._sock.shut

        def noted() -> None:
            closers.append(threading.get_ident())
            shut()

        stream._sock.shut = noted  # type: ignore[method-assign]
        threading.Timer(0.2, stream.close).start()
        assert stream.read(10) == b"" and closers == [threading.get_ident()]
        assert stream._sock.raw.fileno() == -1
        held.set()


def test_a_refusal_is_a_whole_answer() -> None:
    def talk(sock: socket.socket) -> None:
        assert b"Accept-Encoding" not in read_head(sock)
        sock.sendall(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno")

    with raw_server(talk) as port:
        answer = begin(port)
        assert isinstance(answer, HttpResponse) and (answer.status, answer.body) == (403, b"no")


def test_a_body_of_announced_length_and_one_until_the_end() -> None:
    def announced(sock: socket.socket) -> None:
        read_head(sock)
        sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbodyrest")

    def until_end(sock: socket.socket) -> None:
        read_head(sock)
        sock.sendall(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nbody")

    with raw_server(announced, until_end) as port:
        for _ in range(2):
            stream = begin(port)
            assert isinstance(stream, Stream) and stream.read(2) == b"body" and stream.read(2) == b""
