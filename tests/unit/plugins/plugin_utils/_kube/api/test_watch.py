# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Watches from told events: bookmarks, forgotten versions, cut lines, broken text."""

from __future__ import annotations

import json
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._http.errors import ExchangeError
from ansible_collections.muster.training.plugins.module_utils._http.messages import HttpResponse
from ansible_collections.muster.training.plugins.module_utils._http.stream import Stream
from ansible_collections.muster.training.plugins.module_utils._model.errors import TransportError
from ansible_collections.muster.training.plugins.plugin_utils._kube.api.connect import connect
from ansible_collections.muster.training.plugins.plugin_utils._kube.api.errors import KubeError
from ansible_collections.muster.training.plugins.plugin_utils._kube.api.watch import Watch
from ansible_collections.muster.training.tests.support.fake_clock import FakeClock

Object = dict[str, t.Any]


class Told(Stream):
    """A stream whose pieces are given; a failure among them is raised."""

    def __init__(self, *pieces: bytes | ExchangeError) -> None:
        self.pieces = list(pieces)

    def read(self, timeout_s: float) -> bytes | None:
        if not self.pieces:
            return b""
        piece = self.pieces.pop(0)
        if isinstance(piece, ExchangeError):
            raise piece
        return piece

    def close(self) -> None:
        return None


class Server:
    """Answers lists and watches in the order given; ``asked`` holds the queries."""

    def __init__(self, *answers: t.Any) -> None:
        self.answers = list(answers)
        self.asked: list[dict[str, str]] = []

    def _next(self, request: t.Any) -> t.Any:
        self.asked.append(dict(request.query))
        assert self.answers, f"unexpected {request.path} {dict(request.query)}"
        answer = self.answers.pop(0)
        if isinstance(answer, ExchangeError):
            raise answer
        return answer

    def __call__(self, origin: t.Any, request: t.Any, deadline: t.Any) -> HttpResponse:
        return HttpResponse(200, {}, json.dumps(self._next(request)).encode())

    def stream(self, origin: t.Any, request: t.Any, deadline: t.Any) -> t.Any:
        return self._next(request)


def item(name: str, version: str) -> Object:
    return {"metadata": {"name": name, "uid": name, "resourceVersion": version}}


def listing(version: str, *items: Object) -> Object:
    return {"metadata": {"resourceVersion": version}, "items": list(items)}


def line(kind: str, value: Object) -> bytes:
    return json.dumps({"type": kind, "object": value}).encode() + b"\n"


def begin(server: Server, clock: FakeClock | None = None, **options: t.Any) -> Watch:
    exchange: t.Any = server
    given = {"host": "https://kube.example", "token": "t-0123456789", "patience_s": 20}
    client = connect(given, environ={}, exchange=exchange, clock=clock or FakeClock())
    return client.watch("Pod", "team", **options)


def take(watch: Watch, count: int) -> list[tuple[str, str]]:
    events = [next(watch) for _ in range(count)]
    return [(event.type, event.object.get("metadata", {}).get("name", "")) for event in events]


def test_events_may_come_in_any_pieces() -> None:
    text = line("ADDED", item("b", "5")) + line("MODIFIED", item("b", "6")) + line("DELETED", item("a", "7"))
    for size in (1, 7, 1000):
        pieces = [text[start : start + size] for start in range(0, len(text), size)]
        watch = begin(Server(listing("4", item("a", "1")), Told(*pieces)))
        assert take(watch, 5) == [("ADDED", "a"), ("SYNCED", ""), ("ADDED", "b"), ("MODIFIED", "b"), ("DELETED", "a")]


def test_a_bookmark_moves_on_where_the_next_watch_begins() -> None:
    server = Server(
        listing("4"),
        Told(line("BOOKMARK", item("", "90"))),
        Told(line("ADDED", item("b", "91"))),
    )
    watch = begin(server)
    assert take(watch, 2) == [("SYNCED", ""), ("ADDED", "b")]
    assert [query.get("resourceVersion") for query in server.asked] == [None, "4", "90"]
    assert server.asked[1]["allowWatchBookmarks"] == "true"


def test_a_forgotten_version_is_listed_again_and_told_as_changes() -> None:
    gone = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}
    server = Server(
        listing("4", item("kept", "1"), item("lost", "2"), item("moved", "3")),
        Told(line("ERROR", gone)),
        listing("9", item("kept", "1"), item("moved", "8"), item("new", "7")),
        Told(line("DELETED", item("kept", "10"))),
    )
    watch = begin(server)
    assert take(watch, 4)[-1] == ("SYNCED", "")
    assert sorted(take(watch, 4)) == [("ADDED", "new"), ("DELETED", "lost"), ("MODIFIED", "moved"), ("SYNCED", "")]
    assert take(watch, 1) == [("DELETED", "kept")]


def test_a_lost_connection_is_taken_up_where_it_broke() -> None:
    lost = ExchangeError("the connection was lost", transient=True)
    server = Server(
        listing("4"),
        Told(line("ADDED", item("a", "5")), lost),
        lost,
        lost,
        Told(line("ADDED", item("b", "6"))),
    )
    watch = begin(server)
    assert take(watch, 3) == [("SYNCED", ""), ("ADDED", "a"), ("ADDED", "b")]
    assert server.asked[-1]["resourceVersion"] == "5" and watch.outages == 1


def test_an_event_that_is_no_event_breaks_off_and_begins_again() -> None:
    server = Server(listing("4"), Told(b'{"type": "ADDED"\n'), Told(line("ADDED", item("b", "6"))))
    assert take(begin(server), 2) == [("SYNCED", ""), ("ADDED", "b")]


def test_patience_ends_in_one_line() -> None:
    lost = ExchangeError("no connection to kube.example", sent=False, transient=True)
    watch = begin(Server(listing("4"), *[lost] * 100))
    assert take(watch, 1) == [("SYNCED", "")]
    with pytest.raises(TransportError, match="watching Pod in team: no connection to kube.example"):
        next(watch)


def test_a_refusal_is_raised() -> None:
    refused = HttpResponse(403, {}, json.dumps({"kind": "Status", "reason": "Forbidden", "message": "no"}).encode())
    watch = begin(Server(listing("4"), refused))
    take(watch, 1)
    with pytest.raises(KubeError, match="watching Pod in team: no"):
        next(watch)


def test_a_listing_during_an_outage_does_not_hold_who_waits_a_moment() -> None:
    clock = FakeClock()
    lost = ExchangeError("no connection", sent=False, transient=True)
    gone = {"kind": "Status", "code": 410, "message": "too old"}
    watch = begin(Server(listing("4"), Told(line("ERROR", gone)), *[lost] * 9, listing("9", item("a", "9"))), clock)
    assert take(watch, 1) == [("SYNCED", "")]
    began = clock.now
    assert watch.next(0.5) is None and clock.now - began < 6
    assert take(watch, 2) == [("ADDED", "a"), ("SYNCED", "")] and watch.outages == 1


class Quiet(Told):
    """A stream that stays open and says nothing after its pieces, as behind a tunnel whose other side is gone."""

    def __init__(self, clock: FakeClock, *pieces: bytes) -> None:
        super().__init__(*pieces)
        self.clock = clock
        self.closed = False

    def read(self, timeout_s: float) -> bytes | None:
        if self.pieces:
            return super().read(timeout_s)
        assert self.clock.now < 5000, "nobody gives this stream up"
        self.clock.sleep(timeout_s)
        return None

    def close(self) -> None:
        self.closed = True


def test_a_stream_that_the_server_should_have_ended_is_opened_anew_where_it_was() -> None:
    clock = FakeClock()
    first = Quiet(clock, line("ADDED", item("a", "5")), line("ADDED", item("b", "6"))[:-9])
    second = Quiet(clock, line("ADDED", item("b", "6")))
    server = Server(listing("4"), first, second)
    watch = begin(server, clock)
    began = clock.now
    assert take(watch, 3) == [("SYNCED", ""), ("ADDED", "a"), ("ADDED", "b")]
    assert 300 < clock.now - began < 360 and first.closed and watch.outages == 0
    assert [query.get("resourceVersion") for query in server.asked] == [None, "4", "5"]


def test_what_came_while_nobody_asked_is_taken_before_a_stream_is_given_up() -> None:
    clock = FakeClock()
    watch = begin(
        Server(listing("4"), Quiet(clock, line("ADDED", item("a", "5")), line("ADDED", item("b", "6")))), clock
    )
    assert take(watch, 2) == [("SYNCED", ""), ("ADDED", "a")]
    clock.sleep(1000)
    assert take(watch, 1) == [("ADDED", "b")]


def test_a_server_behind_a_tunnel_that_stays_silent_ends_the_patience() -> None:
    clock = FakeClock()
    lost = ExchangeError("no answer from kube.example", transient=True)
    watch = begin(Server(listing("4"), Quiet(clock), *[lost] * 99), clock)
    assert take(watch, 1) == [("SYNCED", "")]
    with pytest.raises(TransportError, match="watching Pod in team: no answer from kube.example"):
        next(watch)
    assert clock.now - 1000 < 400
