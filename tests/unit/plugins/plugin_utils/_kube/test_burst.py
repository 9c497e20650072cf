# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Many exchanges in one thread: plain answers are taken, everything else is left unanswered and costs one lane."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
import types
import typing as t

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.module_utils._http.clock import SYSTEM_CLOCK, Deadline
from ansible_collections.muster.training.plugins.module_utils._http.message import Request, Response
from ansible_collections.muster.training.plugins.module_utils._http.sockets import TimedSocket
from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError
from ansible_collections.muster.training.plugins.plugin_utils._kube.burst import Burst, answer, encode
from ansible_collections.muster.training.plugins.plugin_utils._kube.connect import connect

PLAIN = b"HTTP/1.1 201 Created\r\nContent-Length: 5\r\nX-A: b\r\n\r\nhello"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2;x=y\r\nlo\r\n0\r\n\r\n"
Answer = t.Callable[[socket.socket, int], None]


@pytest.mark.parametrize("whole", [PLAIN, CHUNKED])
def test_an_answer_is_whole_only_at_its_end(whole: bytes) -> None:
    assert [number for number in range(len(whole)) if answer(whole[:number]) is not None] == []
    found = answer(whole)
    assert found is not None and found.body == b"hello"
    with pytest.raises(ValueError, match="more than"):
        answer(whole + b"HTTP/1.1")


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.1 100 Continue\r\n\r\n",
        b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n\r\nuntil it closes",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Encoding: gzip\r\n\r\nab",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-2\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nabc",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"<html>\r\n\r\n",
        b"x" * 70_000,
    ],
)
def test_what_is_no_plain_answer_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        answer(data)


@given(st.binary(max_size=300))
def test_any_bytes_are_an_answer_a_beginning_or_refused(data: bytes) -> None:
    for start in (b"", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"):
        with contextlib.suppress(ValueError):
            found = answer(start + data)
            assert found is None or isinstance(found, Response)


def test_a_request_is_written_with_its_length() -> None:
    request = Request("PATCH", "/a", (("b", "c d"),), {"Accept": "x"}, b"{}", True)
    data = encode(request, "/base", {"Host": "h:1", "Authorization": "Bearer t"})
    head, _, body = data.partition(b"\r\n\r\n")
    assert head.split(b"\r\n")[0] == b"PATCH /base/a?b=c+d HTTP/1.1" and body == b"{}"
    assert {b"Host: h:1", b"Authorization: Bearer t", b"Content-Length: 2", b"Accept: x"} <= set(head.split(b"\r\n"))
    with pytest.raises(InputError):
        encode(request, "", {"Authorization": "a\r\nX-Evil: b"})


class Lanes:
    """Connections to servers of this test: each server answers what it gets by its own rule."""

    def __init__(self, *rules: Answer) -> None:
        self.limit = Deadline(SYSTEM_CLOCK, 20)
        self.near: list[TimedSocket] = []
        self.seen: list[bytes] = []
        for rule in rules:
            near, far = socket.socketpair()
            self.near.append(TimedSocket(near, self.limit, 5))
            threading.Thread(target=self._serve, args=(far, rule), daemon=True).start()

    def _serve(self, far: socket.socket, rule: Answer) -> None:
        number = 0
        with far:
            while data := far.recv(65536):
                self.seen.append(data)
                number += 1
                try:
                    rule(far, number)
                except OSError:
                    return

    def run(self, count: int, quiet_s: float = 5, stop_at: int = 999) -> tuple[dict[int, Response], list[TimedSocket]]:
        answers: dict[int, Response] = {}

        def done(number: int, response: Response) -> bool:
            answers[number] = response
            return len(answers) < stop_at

        burst = Burst(count, lambda number: b"request %d" % number, done)
        return answers, burst.run(self.near, self.limit, quiet_s)


def plain(sock: socket.socket, _number: int) -> None:
    sock.sendall(PLAIN)


def in_pieces(sock: socket.socket, _number: int) -> None:
    for start in range(0, len(CHUNKED), 7):
        sock.sendall(CHUNKED[start : start + 7])
        time.sleep(0.001)


def test_all_are_answered_and_the_connections_stay() -> None:
    lanes = Lanes(plain, in_pieces, plain)
    answers, good = lanes.run(40)
    assert sorted(answers) == list(range(40)) and {item.body for item in answers.values()} == {b"hello"}
    assert len(good) == 3 and sorted(lanes.seen) == sorted(b"request %d" % number for number in range(40))


def test_more_connections_than_requests() -> None:
    answers, good = Lanes(plain, plain, plain).run(1)
    assert sorted(answers) == [0] and len(good) == 3


def closing(sock: socket.socket, number: int) -> None:
    if number == 3:
        sock.sendall(PLAIN[:20])
        raise ConnectionError("the server goes away")
    else:
        sock.sendall(PLAIN)


def last(sock: socket.socket, _number: int) -> None:
    sock.sendall(PLAIN.replace(b"X-A: b", b"Connection: close"))


def garbage(sock: socket.socket, _number: int) -> None:
    sock.sendall(b"SSH-2.0-OpenSSH\r\n\r\n")


@pytest.mark.parametrize(("rule", "lost"), [(closing, 1), (garbage, 1), (last, 0)])
def test_a_connection_that_ends_costs_its_own_request_only(rule: Answer, lost: int) -> None:
    lanes = Lanes(rule, plain)
    answers, good = lanes.run(30)
    assert len(answers) == 30 - lost and good == [lanes.near[1]]
    assert lanes.near[0].raw.fileno() == -1, "closed"


def test_silence_ends_it() -> None:
    lanes = Lanes(lambda sock, number: None, plain)
    began = time.monotonic()
    answers, good = lanes.run(10, quiet_s=0.2)
    assert len(answers) == 9 and good == [lanes.near[1]] and 0.2 <= time.monotonic() - began < 3


def test_all_connections_lost_leaves_the_rest_unsent() -> None:
    lanes = Lanes(closing, closing)
    answers, good = lanes.run(30)
    assert len(answers) == 4 and good == [] and len(lanes.seen) == 6


def test_it_stops_when_told_to() -> None:
    lanes = Lanes(plain)
    answers, good = lanes.run(30, stop_at=5)
    assert len(answers) == 5 and len(lanes.seen) == 5 and good == lanes.near


@pytest.mark.parametrize(("message", "left"), [("etcdserver: leader changed", True), ("a bug", False)])
def test_what_a_store_without_a_leader_refused_is_left_to_be_sent_by_itself(message: str, left: bool) -> None:
    def refuse(sock: socket.socket, _number: int) -> None:
        body = json.dumps({"kind": "Status", "code": 500, "message": message}).encode()
        sock.sendall(b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))

    line = connect({"host": "https://kube.example", "token": "t-0123456789"}, environ={}).line
    sock = Lanes(refuse).near.pop()
    lender: t.Any = types.SimpleNamespace(kept=lambda _: None, borrow=lambda *_: sock, give_back=lambda *_: None)
    line._lender, line.tally.answered = lender, True
    (found,) = line.send_together(["ConfigMap a"], lambda _number: Request("PATCH", "/a", (), {}, b"{}", True))
    assert (found is None) is left


@pytest.mark.parametrize(
    ("open_before", "count", "opened"),
    [(0, 1, 1), (0, 7, 1), (0, 20, 2), (0, 200, 8), (6, 50, 0), (6, 200, 2), (8, 200, 0), (3, 2, 0), (9, 200, 0)],
)
def test_connections_are_opened_where_they_are_worth_it(open_before: int, count: int, opened: int) -> None:
    line = connect({"host": "https://kube.example", "token": "t-0123456789"}, environ={}).line
    lanes = Lanes(*[plain] * (open_before + 8))
    kept, new = lanes.near[:open_before], lanes.near[open_before:]
    lender: t.Any = types.SimpleNamespace(
        kept=lambda _: kept.pop() if kept else None, borrow=lambda *_: new.pop(), give_back=lambda *_: None
    )
    line._lender, line.tally.answered = lender, True
    whats = [f"ConfigMap {number}" for number in range(count)]
    found = line.send_together(whats, lambda _number: Request("PATCH", "/a", (), {}, b"{}", True))
    assert all(isinstance(item, Response) for item in found)
    assert 8 - len(new) == opened
