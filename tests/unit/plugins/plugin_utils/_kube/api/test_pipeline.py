# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Many exchanges in one thread: plain answers are taken, everything else is left unanswered and costs one lane."""

from __future__ import annotations

import json
import socket
import threading
import time
import types
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._http.clock import SYSTEM_CLOCK, Deadline
from ansible_collections.muster.training.plugins.module_utils._http.errors import ExchangeError
from ansible_collections.muster.training.plugins.module_utils._http.messages import HttpRequest, HttpResponse
from ansible_collections.muster.training.plugins.module_utils._http.sockets import TimedSocket
from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError
from ansible_collections.muster.training.plugins.plugin_utils._kube.api import transport as module
from ansible_collections.muster.training.plugins.plugin_utils._kube.api.connect import connect
from ansible_collections.muster.training.plugins.plugin_utils._kube.api.pipeline import Burst, encode

PLAIN = b"HTTP/1.1 201 Created\r\nContent-Length: 5\r\nX-A: b\r\n\r\nhello"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2;x=y\r\nlo\r\n0\r\n\r\n"
Answer = t.Callable[[socket.socket, int], None]


def test_a_request_is_written_with_its_length() -> None:
    request = HttpRequest("PATCH", "/a", (("b", "c d"),), {"Accept": "x"}, b"{}", True)
    data = encode(request, "/base", {"Host": "h:1", "Authorization": "Bearer t"})
    head, _, body = data.partition(b"\r\n\r\n")
    assert head.split(b"\r\n")[0] == b"PATCH /base/a?b=c+d HTTP/1.1" and body == b"{}"
    assert {b"Host: h:1", b"Authorization: Bearer t", b"Content-Length: 2", b"Accept: x"} <= set(head.split(b"\r\n"))
    with pytest.raises(InputError):
        encode(request, "", {"Authorization": "a\r\nX-Evil: b"})
    assert b"Content-Length" not in encode(HttpRequest("GET", "/a"), "", {})


class Lanes:
    """Connections to servers of this test: each server answers what it gets by its own rule."""

    def __init__(self, *rules: Answer, lines: bool = True) -> None:
        self.lines = lines
        self.limit = Deadline(SYSTEM_CLOCK, 20)
        self.near: list[TimedSocket] = []
        self.seen: list[bytes] = []
        self.sent: list[int] = []
        self.hushed = False
        self.counts = [0] * len(rules)
        for lane, rule in enumerate(rules):
            near, far = socket.socketpair()
            self.near.append(TimedSocket(near, self.limit, 5))
            threading.Thread(target=self._serve, args=(far, rule, lane), daemon=True).start()

    def _serve(self, far: socket.socket, rule: Answer, lane: int) -> None:
        number = 0
        with far:
            # Requests of this test's burst are lines; one of Line's comes in one piece, as it waits for its answer.
            for data in far.makefile("rb") if self.lines else iter(lambda: far.recv(65536), b""):
                self.seen.append(data.strip())
                number += 1
                self.counts[lane] = number
                try:
                    rule(far, number)
                except OSError:
                    return

    def run(
        self, count: int, quiet_s: float = 5, stop_at: int = 999, depth: int = 1, size: int = 0
    ) -> tuple[dict[int, HttpResponse], list[TimedSocket]]:
        answers: dict[int, HttpResponse] = {}

        def done(number: int, response: HttpResponse) -> bool:
            answers[number] = response
            return len(answers) < stop_at

        burst = Burst(count, lambda number: (b"request %d" % number).ljust(size) + b"\n", self.sent.append, done, depth)
        good = burst.run(self.near, self.limit, quiet_s)
        self.hushed = burst.hushed
        return answers, good


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


def together(waiting: int, count: int) -> Answer:
    """Return a rule that says nothing before so many of ``count`` requests wait, then answers each with its number."""
    held: list[int] = []

    def rule(sock: socket.socket, number: int) -> None:
        held.append(number - 1)
        if len(held) == waiting or number == count:
            sock.sendall(b"".join(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n%02d" % item for item in held))
            held.clear()

    return rule


@pytest.mark.parametrize(("depth", "waiting"), [(16, 9), (4, 4), (4, 1)])
def test_requests_wait_together_and_each_gets_its_own_answer(depth: int, waiting: int) -> None:
    lanes = Lanes(together(waiting, 9))
    answers, good = lanes.run(9, depth=depth)
    assert {number: item.body for number, item in answers.items()} == {n: b"%02d" % n for n in range(9)}
    assert good == lanes.near


@pytest.mark.parametrize(
    ("depth", "size", "most"), [(4, 0, 4), (8, 20_000, 1), (8, 6_000, 2)], ids=["depth", "each large", "large together"]
)
def test_no_more_wait_than_may_and_no_more_bytes_than_fit(depth: int, size: int, most: int) -> None:
    # Two that write much to each other and do not read would wait for ever.
    lanes = Lanes(together(most + 1, 20))
    answers, good = lanes.run(20, depth=depth, size=size, quiet_s=0.2)
    assert answers == {} and good == [] and len(lanes.seen) == len(lanes.sent) == most
    assert lanes.hushed is (most > 1), "what lies between may not know that several may wait"
    answers, good = Lanes(together(1, 20)).run(20, depth=depth, size=size)
    assert len(answers) == 20 and len(good) == 1


def test_few_are_spread_over_all_connections() -> None:
    def silent(_sock: socket.socket, _number: int) -> None:
        return None

    lanes = Lanes(*[silent] * 6)
    lanes.run(8, depth=4, quiet_s=0.3)
    assert sorted(lanes.counts) == [1, 1, 1, 1, 2, 2]


def test_a_connection_that_is_lost_leaves_what_waited_on_it_unanswered() -> None:
    def rule(sock: socket.socket, number: int) -> None:
        if number == 3:
            raise ConnectionError("the server goes away")
        sock.sendall(PLAIN)

    answers, good = Lanes(rule).run(6, depth=16)
    assert sorted(answers) == [0, 1] and good == []


def unasked(sock: socket.socket, _number: int) -> None:
    sock.sendall(PLAIN + PLAIN)


def test_more_answers_than_requests_end_the_connection() -> None:
    answers, good = Lanes(unasked).run(1)
    assert sorted(answers) == [0] and good == []


def test_an_answer_before_the_end_of_a_connection_counts() -> None:
    def bye(sock: socket.socket, _number: int) -> None:
        sock.sendall(PLAIN)
        raise ConnectionError("the server goes away")

    answers, good = Lanes(bye).run(1)
    assert sorted(answers) == [0] and len(good) <= 1


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
    sock = Lanes(refuse, lines=False).near.pop()
    lender: t.Any = types.SimpleNamespace(kept=lambda _: None, borrow=lambda *_: sock, give_back=lambda *_: None)
    line._lender, line.tally.answered = lender, True
    (found,) = line.send_together(["ConfigMap a"], lambda _number: HttpRequest("PATCH", "/a", (), {}, b"{}", True))
    assert (found is None) is left


@pytest.mark.parametrize(
    ("open_before", "count", "opened"),
    [(0, 1, 1), (0, 7, 1), (0, 20, 2), (0, 200, 8), (6, 50, 0), (6, 200, 2), (8, 200, 0), (3, 2, 0), (9, 200, 0)],
)
def test_connections_are_opened_where_they_are_worth_it(open_before: int, count: int, opened: int) -> None:
    line = connect({"host": "https://kube.example", "token": "t-0123456789"}, environ={}).line
    lanes = Lanes(*[plain] * (open_before + 8), lines=False)
    kept, new = lanes.near[:open_before], lanes.near[open_before:]
    lender: t.Any = types.SimpleNamespace(
        kept=lambda _: kept.pop() if kept else None, borrow=lambda *_: new.pop(), give_back=lambda *_: None
    )
    line._lender, line.tally.answered = lender, True
    whats = [f"ConfigMap {number}" for number in range(count)]
    found = line.send_together(whats, lambda _number: HttpRequest("PATCH", "/a", (), {}, b"{}", True))
    assert all(isinstance(item, HttpResponse) for item in found)
    assert 8 - len(new) == opened


def lender_of(lanes: Lanes) -> t.Any:
    free = list(lanes.near)
    return types.SimpleNamespace(kept=lambda _: None, borrow=lambda *_: free.pop(0), give_back=lambda *_: None)


def test_nothing_is_asked_for_nothing() -> None:
    line = connect({"host": "https://kube.example", "token": "t-0123456789"}, environ={}).line
    line._lender = lender_of(Lanes())
    assert line.send_together([], lambda _number: HttpRequest("GET", "/a")) == []


def test_where_several_may_not_wait_they_are_sent_one_by_one_from_then_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy that forgets what it has when more comes behind an open request."""
    monkeypatch.setattr(module, "_FIRST_QUIET_S", 0.2)

    line = connect({"host": "https://kube.example", "token": "t-0123456789"}, environ={}).line
    line._lender = lender_of(Lanes(lambda *_: None, plain, lines=False))
    asked = HttpRequest("GET", "/a", (), {}, None, True)
    assert line.send_together(["A", "B"], lambda _number: asked, depth=8) == [None, None]
    assert all(line.send_together(["A", "B"], lambda _number: asked, depth=8))
    assert line.tally.requests == 4


def test_a_server_that_never_answered_is_not_listened_to_for_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is asked together first may be asked of a wrong address; the error is the patient way's to find."""
    heard: list[float] = []
    real = Burst.run
    monkeypatch.setattr(Burst, "run", lambda *given: heard.append(given[3]) or real(*given))

    def borrow(*_unused: t.Any) -> TimedSocket:
        raise ExchangeError("no connection", sent=False, transient=True)

    line = connect({"host": "https://kube.example", "token": "t-0123456789"}, environ={}).line
    lender: t.Any = types.SimpleNamespace(kept=lambda _: None, borrow=borrow, give_back=lambda *_: None)
    line._lender = lender
    asked = HttpRequest("GET", "/a", (), {}, None, True)
    assert line.send_together(["ConfigMap a", "Secret a"], lambda _number: asked, depth=8) == [None, None]
    line.tally.answered = True
    assert line.send_together(["ConfigMap a"], lambda _number: asked) == [None]
    assert heard == [10.0, 60.0] and line.tally.requests == 0
