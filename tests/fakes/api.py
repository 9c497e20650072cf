# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A provider's API that is not there: a server on loopback with machines, virtual time and faults on demand.

A subclass gives routes and shapes; this part serves them over real sockets, checks both directions against the
provider's document, and injects one fault at one call.
"""

from __future__ import annotations

import contextlib
import dataclasses
import http.server
import json
import re
import socket
import threading
import typing as t
import urllib.parse
from collections.abc import Callable, Iterator

from .spec import spec
from .virtual import VirtualClock

FaultKind = t.Literal[
    "none",
    "error_before",
    "error_after",
    "timeout",
    "timeout_after",
    "late_60s",
    "listing_lag",
    "flicker_404",
    "throttled_retry_after",
    "throttled",
    "status_500",
    "truncated",
    "html",
    "html_after",
    "refused_after",
    "throttled_after",
    "late_refusal",
    "strange_id",
    "no_effect",
    "partial",
    "odd_machine",
    "renamed",
    "overpriced",
    "wrong_hardware",
    "endless_pages",
    "slow",
]
FAULTS: tuple[FaultKind, ...] = t.get_args(FaultKind)[1:]
# A listing is read by these from then on, not in one call only.
LASTING: tuple[FaultKind, ...] = ("odd_machine", "renamed", "overpriced", "wrong_hardware")
LAG_S = 60.0
SLOW_S = 20.0
STRANGERS = ("training-box", "other-h100-0-1234abcd", "lab2-h100-0-0000beef")
_PAGE = b"<!doctype html><html><body>Sign in to continue</body></html>"


@dataclasses.dataclass(frozen=True)
class Fault:
    """What goes wrong: ``kind`` at the ``nth`` (from 1) call of ``operation``."""

    operation: str
    kind: FaultKind
    nth: int = 1


@dataclasses.dataclass
class Answer:
    """What a route answers; ``data`` None sends no body, ``text`` is sent as it is."""

    status: int
    data: t.Any = None
    headers: dict[str, str] = dataclasses.field(default_factory=dict)
    text: str | None = None


@dataclasses.dataclass
class Call:
    """One request as a route sees it. ``stale`` asks a listing for the world as it was a minute ago."""

    method: str
    path: str
    query: dict[str, str]
    body: t.Any
    match: re.Match[str]
    stale: bool = False
    flicker: bool = False
    partial: bool = False


@dataclasses.dataclass
class Thing:
    """Something that bills: a machine, a cluster, a device or a key. Times are Unix seconds."""

    id: str
    name: str
    made_at: float
    boot_s: float
    fields: dict[str, t.Any]
    visible_from: float
    ended_at: float | None = None
    gone_at: float | None = None
    hidden_at: float | None = None

    def exists(self, now: float) -> bool:
        """Return whether it bills."""
        return self.gone_at is None or now < self.gone_at

    def listed(self, now: float) -> bool:
        """Return whether a listing shows it."""
        end = self.hidden_at if self.hidden_at is not None else self.gone_at
        return self.visible_from <= now and (end is None or now < end)


Route = Callable[[Call], Answer]


@dataclasses.dataclass(frozen=True)
class Reply:
    """What an API answers in place of its route at calls ``first`` to ``last`` of an operation, until ``until``.

    It ``acts`` before it answers, or does nothing at all. An ``answer`` of None is silence.
    """

    operation: str
    answer: Answer | None
    acts: bool = False
    first: int = 1
    last: float = float("inf")
    until: float = float("inf")


class FakeApi:
    """One provider. ``calls`` lists (operation, method, path); ``violations`` what the document does not allow."""

    name: t.ClassVar[str]
    prefix: t.ClassVar[str] = ""
    secret_header: t.ClassVar[str] = "authorization"
    # How long the provider takes from a delete to the end of the thing.
    ending_s: t.ClassVar[float] = 0.0

    def __init__(self, clock: VirtualClock, *, boot_s: float = 60.0) -> None:
        self.clock = clock
        self.boot_s = boot_s
        self.things: dict[str, Thing] = {}
        self.calls: list[tuple[str, str, str]] = []
        self.violations: list[str] = []
        self.faults: list[Fault] = []
        self.replies: list[Reply] = []
        self.tripped = False
        self.lasting: set[FaultKind] = set()
        self.ignored: set[str] = set()
        self.rewrite: Callable[[str, Answer], Answer] = lambda _operation, answer: answer
        self.on_call: Callable[[str], None] = lambda _operation: None
        self._counts: dict[str, int] = {}
        self._made = 0
        self._lock = threading.RLock()
        self._spec = spec(self.name, self.prefix)
        self._routes = [(method, re.compile(f"{path}\\Z"), name, route) for name, method, path, route in self.routes()]

    def routes(self) -> list[tuple[str, str, str, Route]]:
        """Return (operation, method, path pattern, route) for every call that is served."""
        raise NotImplementedError

    def error(self, status: int, message: str) -> Answer:
        """Return an error answer in the provider's own shape."""
        return Answer(status, {"message": message})

    @property
    def fault(self) -> Fault | None:
        """The only fault."""
        return self.faults[0] if self.faults else None

    @fault.setter
    def fault(self, fault: Fault | None) -> None:
        self.faults = [fault] if fault else []

    def stranger(self, name: str) -> Thing:
        """Bring into being what somebody else has in the account."""
        raise NotImplementedError

    def reply(
        self,
        operation: str,
        answer: Answer | None,
        *,
        acts: bool = False,
        first: int = 1,
        last: float = float("inf"),
        for_s: float = float("inf"),
    ) -> None:
        """Answer calls of an operation otherwise, counted and timed from now on."""
        before = self._counts.get(operation, 0)
        until = self.clock.time() + for_s
        self.replies.append(Reply(operation, answer, acts, before + first, before + last, until))

    def calm(self) -> None:
        """Work as documented from now on."""
        self.faults, self.replies = [], []
        self.lasting.clear()
        self.rewrite = lambda _operation, answer: answer

    def odd(self) -> dict[str, t.Any] | None:
        """Return a listed machine of somebody else with values of other types, None where none are listed."""
        return None

    def listed_key(self, operation: str) -> str | None:
        """Return the key of an answer's machines, None for an operation that lists none."""
        return None

    def distort(self, kind: FaultKind, item: dict[str, t.Any]) -> dict[str, t.Any]:
        """Return one of our machines as a listing shows it under a lasting fault."""
        return item

    # The world.

    def make(self, name: str, **fields: t.Any) -> Thing:
        """Bring a thing into being now."""
        self._made += 1
        now = self.clock.time()
        lag = LAG_S if self._faulty("listing_lag") else 0.0
        key = self.new_id(self._made)
        self.things[key] = Thing(key, name, now, self.boot_s, fields, now + lag)
        return self.things[key]

    def new_id(self, number: int) -> str:
        """Return an id in the provider's form."""
        return f"{self.name}-{number}"

    def end(self, thing: Thing) -> None:
        """Delete a thing; it may take ``ending_s`` to be gone."""
        if self._faulty("no_effect"):
            return
        if thing.ended_at is None:
            now = self.clock.time()
            thing.ended_at = now
            thing.gone_at = now + self.ending_s
            if self._faulty("listing_lag"):
                thing.hidden_at = thing.gone_at + LAG_S

    def alive(self) -> list[Thing]:
        """Return what bills now."""
        return [item for item in self.things.values() if item.exists(self.clock.time())]

    @property
    def strangers(self) -> list[Thing]:
        """Return what somebody else has."""
        return [item for item in self.things.values() if item.name in STRANGERS]

    def visible(self, call: Call) -> list[Thing]:
        """Return what a listing shows."""
        now = self.clock.time() - (LAG_S if call.stale else 0.0)
        listed = [item for item in self.things.values() if item.listed(now) and item.made_at <= now]
        if call.partial:
            ours = [item for item in listed if item not in self.strangers]
            listed = [item for item in listed if item not in ours[::2]]
        return [] if call.flicker else listed

    def find(self, key: str) -> Thing | None:
        """Return a thing by id while the provider knows it."""
        thing = self.things.get(key)
        return thing if thing is not None and thing.exists(self.clock.time()) else None

    def ready(self, thing: Thing) -> bool:
        """Return whether a thing has booted."""
        return self.clock.time() >= thing.made_at + thing.boot_s

    def _faulty(self, kind: FaultKind) -> bool:
        return self.tripped_now == kind

    tripped_now: FaultKind | None = None

    # The wire.

    def serve(self, method: str, target: str, headers: dict[str, str], body: bytes) -> tuple[Answer | bytes, str]:
        """Return the answer, or raw bytes to send in its place, and how the connection ends (``""``, ``cut``)."""
        with self._lock:
            return self._serve(method, target, headers, body)

    def _serve(self, method: str, target: str, headers: dict[str, str], body: bytes) -> tuple[Answer | bytes, str]:
        parts = urllib.parse.urlsplit(target)
        operation, route, match = self._route(method, parts.path)
        self.on_call(operation)
        self.calls.append((operation, method, parts.path))
        if "test-token" not in headers.get(self.secret_header, ""):
            self.violations.append(f"{method} {parts.path}: no credential")
        if "python" in headers.get("user-agent", "python").lower():
            self.violations.append(f"{method} {parts.path}: the User-Agent would be banned")
        problems = self._spec.check_request(method, target, body)
        self.violations += problems
        self._counts[operation] = self._counts.get(operation, 0) + 1
        call = Call(
            method, parts.path, dict(urllib.parse.parse_qsl(parts.query)), json.loads(body) if body else None, match
        )
        number = self._counts[operation]
        fault = next((item for item in self.faults if (item.operation, item.nth) == (operation, number)), None)
        if fault:
            self.tripped = True
        if fault and fault.kind in LASTING:
            self.lasting.add(fault.kind)
        elif fault:
            return self._broken(fault.kind, call, route, target)
        reply = self._reply_to(operation, number)
        if reply is not None:
            if reply.acts:
                self._checked(call, route(call), target)
            return (reply.answer, "") if reply.answer is not None else (b"", "silent")
        return self._shown(operation, self._checked(call, route(call), target)), ""

    def _reply_to(self, operation: str, number: int) -> Reply | None:
        now = self.clock.time()
        fitting = (item for item in self.replies if item.operation == operation and item.first <= number <= item.last)
        return next((item for item in fitting if now < item.until), None)

    def _shown(self, operation: str, answer: Answer) -> Answer:
        """Return an answer as lasting faults show it; the document says nothing about those."""
        key = self.listed_key(operation)
        if key is not None and answer.status == 200 and self.lasting:
            names = {item.name for item in self.strangers}
            items = answer.data[key]
            for kind in self.lasting:
                items = [item if names & set(map(str, item.values())) else self.distort(kind, item) for item in items]
            odd = self.odd() if "odd_machine" in self.lasting else None
            answer = dataclasses.replace(answer, data={**answer.data, key: [*([odd] if odd else []), *items]})
        return self.rewrite(operation, answer)

    def _route(self, method: str, path: str) -> tuple[str, Route, re.Match[str]]:
        for known, pattern, name, route in self._routes:
            match = pattern.match(path)
            if known == method and match:
                return name, route, match
        self.violations.append(f"{method} {path}: no such route")
        anything = re.match("", "")
        assert anything is not None
        return "unknown", lambda _call: self.error(404, "no such route"), anything

    def _checked(self, call: Call, answer: Answer, target: str) -> Answer:
        self.violations += self._spec.check_answer(call.method, target, answer.status, answer.data)
        return answer

    def _apply(self, call: Call, route: Route, kind: FaultKind) -> Answer:
        """Carry a call out with the fault's own delays in force."""
        self.tripped_now = kind
        try:
            return route(call)
        finally:
            self.tripped_now = None

    def _broken(self, kind: FaultKind, call: Call, route: Route, target: str) -> tuple[Answer | bytes, str]:
        if kind in ("listing_lag", "flicker_404", "partial", "endless_pages", "slow"):
            return self._shown_otherwise(kind, call, route, target)
        if kind in ("late_60s", "late_refusal"):
            self.clock.later(LAG_S, lambda: t.cast(None, self._apply(call, route, kind)))
            return (b"", "silent") if kind == "late_60s" else (self.error(400, "bad request"), "")
        if kind in ("error_before", "status_500", "throttled", "throttled_retry_after", "timeout", "html"):
            return self._no_effect(kind)
        answer = self._checked(call, self._apply(call, route, kind), target)
        if kind == "error_after":
            return self.error(500, "internal error"), ""
        if kind in ("refused_after", "throttled_after"):
            return self.error(400 if kind == "refused_after" else 429, "refused"), ""
        if kind in ("strange_id", "no_effect"):
            return self.misnamed(answer) if kind == "strange_id" else answer, ""
        if kind == "timeout_after":
            return b"", "silent"
        if kind == "html_after":
            return _PAGE, ""
        # truncated: a body whose length fits, so that only its content tells.
        whole = json.dumps(answer.data).encode() if answer.data is not None else b'{"id": "x"}'
        return whole[: max(1, len(whole) // 2)], ""

    def _no_effect(self, kind: FaultKind) -> tuple[Answer | bytes, str]:
        if kind in ("timeout", "html"):
            return (b"", "silent") if kind == "timeout" else (_PAGE, "")
        if kind in ("error_before", "status_500"):
            return self.error(503 if kind == "error_before" else 500, "internal error"), ""
        answer = self.error(429, "too many requests")
        if kind == "throttled_retry_after":
            answer.headers["Retry-After"] = "7"
        return answer, ""

    def _shown_otherwise(self, kind: FaultKind, call: Call, route: Route, target: str) -> tuple[Answer, str]:
        if kind == "flicker_404" and not self.is_listing(call):
            # Not known for a moment, and nothing done: the next call finds it.
            return self.error(404, "not found"), ""
        call.stale = kind == "listing_lag"
        call.flicker = kind == "flicker_404"
        call.partial = kind == "partial"
        if kind == "slow":
            self.clock.sleep(SLOW_S)
        answer = self._checked(call, self._apply(call, route, kind), target)
        is_listing = kind == "endless_pages" and self.listed_key(self._route(call.method, call.path)[0]) is not None
        return self.endless(answer) if is_listing else answer, ""

    def misnamed(self, answer: Answer) -> Answer:
        """Return a create's answer with the id of a stranger's machine."""
        if not self.strangers or not isinstance(answer.data, dict):
            return answer
        return dataclasses.replace(answer, data=self.with_id(answer.data, self.strangers[0].id))

    def with_id(self, data: dict[str, t.Any], key: str) -> dict[str, t.Any]:
        """Return a create's answer with another id."""
        return {**data, "id": key}

    def endless(self, answer: Answer) -> Answer:
        """Return a listing whose next page is itself, where the API has pages."""
        return answer

    def is_listing(self, call: Call) -> bool:
        """Return whether a call only reads."""
        return call.method == "GET"

    @contextlib.contextmanager
    def loopback(self) -> Iterator[str]:
        """Serve on a free loopback port; yield the address."""
        server = _server(self)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}{self.base_path}"
        finally:
            server.shutdown()
            server.server_close()
            thread.join(5)

    base_path: t.ClassVar[str] = ""


def _server(api: FakeApi) -> http.server.ThreadingHTTPServer:
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def setup(self) -> None:
            super().setup()
            self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

        def _serve(self) -> None:
            headers = {name.lower(): value for name, value in self.headers.items()}
            body = self.rfile.read(int(headers.get("content-length", "0")))
            answer, end = api.serve(self.command, self.path, headers, body)
            if end == "silent":
                # The client's wire turns this into a time-out, without a real wait.
                answer = Answer(504, None, {"X-Fake-Silence": "1"})
            self._send(answer)

        def _send(self, answer: Answer | bytes) -> None:
            if isinstance(answer, bytes):
                status, kind, payload, extra = 200, "text/html", answer, {}
            else:
                payload = b"" if answer.data is None else json.dumps(answer.data).encode()
                status, kind, extra = answer.status, "application/json", answer.headers
                if answer.text is not None:
                    payload, kind = answer.text.encode(), "text/plain"
            head = [f"HTTP/1.1 {status} X", f"Content-Type: {kind}", f"Content-Length: {len(payload)}"]
            head += [f"{name}: {value}" for name, value in extra.items()]
            self.wfile.write("\r\n".join([*head, "", ""]).encode() + payload)

        do_GET = do_POST = do_PUT = do_DELETE = do_PATCH = _serve

        def log_message(self, *_args: t.Any) -> None:
            return None

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    return server
