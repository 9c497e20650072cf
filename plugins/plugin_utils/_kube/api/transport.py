# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The line to one API server: connections, credential, retries, and a count of what was asked.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import contextlib
import threading
import typing as t
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from ....module_utils._http.client import HttpClient
from ....module_utils._http.clock import SYSTEM_CLOCK, Clock, Deadline
from ....module_utils._http.connection_pool import Exchange
from ....module_utils._http.errors import ExchangeError
from ....module_utils._http.messages import HttpRequest, HttpResponse
from ....module_utils._http.retry import RetryPolicy, Timeouts, parse_http_date
from ....module_utils._http.sockets import TimedSocket
from ....module_utils._http.stream import Stream
from ....module_utils._http.urls import Origin
from ....module_utils._model.errors import TransportError
from . import pipeline
from .credentials import Credential
from .errors import KubeError, refusal, store_away, webhook_away
from .kubeconfig import Access

# A server that never answered is known to be away in seconds; one that did is waited for.
FIRST = Timeouts(connect_s=5.0, read_s=30.0, total_s=20.0)
# So long one that never answered may be silent to what is sent together, before each is sent by itself.
_FIRST_QUIET_S = 10.0
_FIRST_RETRY = RetryPolicy(attempts=3, base_s=0.3, cap_s=2.0, retry_after_cap_s=10.0)
_LATER_RETRY = RetryPolicy(attempts=10_000, base_s=0.2, cap_s=2.0, retry_after_cap_s=30.0)
# What is looked at here; 401, 429 and 502 to 504 are the transport's to handle.
_FINAL = (400, 403, 404, 405, 406, 409, 410, 413, 415, 422, 500)
# Before a 500 is asked about again: an election of etcd's leader takes seconds, and a fault that stays is soon told.
_FAULT_WAITS_S = (0.5, 1.0, 2.0, 4.0)
# After a restart the server may refuse for a moment what it allows once it has read its rules.
_SETTLE_S = 15.0
# What runs in the cluster's own pods (webhooks, DNS) ends without an API server, and a kubelet starts again what failed
# often five minutes later at most.
_RECOVERY_S = 330.0
# How long a server may refuse that has not served yet (its address may be wrong), or that is overloaded.
_REFUSING_S = 60.0
# A connection that broke once is nothing to tell people of.
_TOLD_AFTER_S = 3.0
IN_FLIGHT = 8
# So many requests make one more connection worth its handshake.
_WORTH_A_HANDSHAKE = 8
# An admission webhook may take half of it.
_READ_S = 60.0


def _detail(body: t.Any) -> str:
    return str(body["message"]) if body.get("kind") == "Status" else ""


class StreamingExchange(Exchange, t.Protocol):
    """An exchange that also gives an answer while it comes."""

    def stream(self, origin: Origin, request: HttpRequest, deadline: Deadline) -> HttpResponse | Stream:
        """Send ``request`` and return a stream, or a response when the status is not 200."""


class Tally:
    """Counts what went over the wire; ``trouble_at`` is when the server was last out of reach.

    ``answered``: anything came from its address; ``served``: it was ready then.

    ``tell``: gets a line for people when a server that has answered is away, and when it is back.
    """

    def __init__(self, inner: StreamingExchange, clock: Clock) -> None:
        self.inner = inner
        self.tell: t.Callable[[str], None] = _unheard
        self.requests = 0
        self.writes = 0
        self.answered = False
        self.served = False
        self.trouble_at = float("-inf")
        # The Date of the last answer and when it came.
        self._dated: tuple[str, float] = ("", 0.0)
        self.refusing_since: float | None = None
        self._away_since: float | None = None
        self._away_before = 0.0
        self._told = False
        self._clock = clock
        self._lock = threading.Lock()

    def sent(self, request: HttpRequest) -> None:
        """Count a request that is about to be sent."""
        with self._lock:
            self.requests += 1
            self.writes += not request.safe

    def __call__(self, origin: Origin, request: HttpRequest, deadline: Deadline) -> HttpResponse:
        self.sent(request)
        try:
            answer = self.inner(origin, request, deadline)
        except ExchangeError as failure:
            self._failed(failure, request)
            raise
        self._dated = answer.headers.get("date", ""), self._clock.monotonic()
        # 429 to an eviction is what a disruption budget says.
        self.heard(200 if answer.status == 429 and request.path.endswith("/eviction") else answer.status)
        return answer

    def stream(self, origin: Origin, request: HttpRequest, deadline: Deadline) -> HttpResponse | Stream:
        self.sent(request)
        try:
            answer = self.inner.stream(origin, request, deadline)
        except ExchangeError as failure:
            self._failed(failure, request)
            raise
        self.heard(answer.status if isinstance(answer, HttpResponse) and not _of_kubelet(request) else 200)
        return answer

    def _failed(self, failure: ExchangeError, request: HttpRequest) -> None:
        if failure.transient and not _of_kubelet(request):
            self._trouble("does not answer")

    def heard(self, status: int) -> None:
        """Note the status of an answer."""
        self.answered = True
        if status == 429 or status >= 502:
            self._trouble(f"is not ready ({status})")
            if self.refusing_since is None:
                self.refusing_since = self.trouble_at
            return
        self.refusing_since = None
        self.served = True
        if self._away_since is not None:
            with self._lock:
                away, told = self._away(), self._told
                self._away_before, self._away_since, self._told = self._away_before + away, None, False
            if told:
                self.tell(f"the API server answers again after {away:.0f} s")

    def _away(self) -> float:
        return 0.0 if self._away_since is None else self._clock.monotonic() - self._away_since

    def up_s(self) -> float:
        """Return the seconds of a clock that stands still while a server that has answered is away."""
        with self._lock:
            return self._clock.monotonic() - self._away_before - self._away()

    def _trouble(self, how: str) -> None:
        self.trouble_at = now = self._clock.monotonic()
        if not self.answered:
            return
        with self._lock:
            if self._away_since is None:
                self._away_since = now
            due = not self._told and now - self._away_since >= _TOLD_AFTER_S
            self._told = self._told or due
        if due:
            self.tell(f"the API server {how}: waiting for it")

    def server_time(self) -> float | None:
        """Return the server's time of day as seconds since 1970, None when it does not tell it.

        What the cluster has dated is compared with this one: a controller's clock may be minutes off.
        """
        date, came = self._dated
        told = parse_http_date(date)
        return None if told is None else told + self._clock.monotonic() - came

    def may_retry(self, response: HttpResponse) -> bool:
        """Return whether a server that answers 429, 502, 503 or 504 is worth asking again."""
        if self.served and response.status != 429:
            # What stands before a server that is away may answer in its place; the call's own limit ends the wait.
            return True
        since = self.refusing_since
        return since is None or self._clock.monotonic() - since < _REFUSING_S


def _of_kubelet(request: HttpRequest) -> bool:
    """Return whether a kubelet gives the answer: its silence is none of the API server's."""
    return request.path.endswith("/log")


def _worth_repeating(request: HttpRequest, response: HttpResponse) -> bool:
    """Return whether a 500 may be over at once: any answer to a read, or the word of a store without a leader."""
    if response.status != 500 or webhook_away(response):
        return False
    return request.safe or (request.repeatable and store_away(response))


def _unheard(_line: str) -> None:
    """Pass a line over."""


class Lender(t.Protocol):
    """Lends connections; see :class:`Wire`."""

    def kept(self, origin: Origin) -> TimedSocket | None: ...

    def borrow(self, origin: Origin, deadline: Deadline) -> TimedSocket: ...

    def give_back(self, origin: Origin, sock: TimedSocket) -> None: ...


class Line:
    """Sends requests of one user to one server, over eight connections at most, and turns refusals into errors.

    ``patience_s``: how long a server that has answered before may be away.
    """

    def __init__(
        self,
        access: Access,
        credential: Credential,
        exchange: StreamingExchange,
        *,
        patience_s: float,
        clock: Clock = SYSTEM_CLOCK,
        rejected: t.Callable[[], str] = lambda: "the credential was rejected",
        lender: Lender | None = None,
    ) -> None:
        self.tally = Tally(exchange, clock)
        self.clock = clock
        self.patience_s = patience_s
        self.server = access.server
        self.credential = credential
        self._rejected = rejected
        self._lender = lender
        self._webhook_told = float("-inf")
        self._one_by_one = False
        self._turns = threading.BoundedSemaphore(IN_FLIGHT)
        later = Timeouts(connect_s=5.0, read_s=_READ_S, total_s=patience_s)
        common: dict[str, t.Any] = {"auth": credential, "exchange": self.tally, "clock": clock}
        common |= {"error_detail": _detail, "may_retry": self.tally.may_retry}
        self._first = HttpClient(access.server, timeouts=FIRST, retry=_FIRST_RETRY, **common)
        self._later = HttpClient(access.server, timeouts=later, retry=_LATER_RETRY, **common)

    def send(
        self, what: str, request: HttpRequest, allow: t.Collection[int] = (), *, patient: bool = True
    ) -> HttpResponse:
        """Return the answer to ``request``; an error status that is not in ``allow`` raises :class:`KubeError`.

        With ``patient`` false, an outage is raised after seconds, for those who go on by themselves.
        """
        waits = iter(_FAULT_WAITS_S if patient else ())
        while True:
            http = self._later if patient and self.tally.answered else self._first
            with self._turns:
                response = self._send(what, http, request, allow)
            if response.status < 300 or response.status in allow:
                return response
            if self._passing(what, response):
                self.clock.sleep(0.5)
                continue
            pause = next(waits, None) if _worth_repeating(request, response) else None
            if pause is None:
                raise refusal(what, response)
            self.clock.sleep(pause)

    def send_together(
        self, whats: Sequence[str], make: t.Callable[[int], HttpRequest], *, depth: int = 1
    ) -> list[HttpResponse | KubeError | None]:
        """Send a request for each of ``whats`` over all free connections at once; ``make(n)`` gives the request.

        Only requests that may be repeated; ``depth`` of them at most wait for their answers on each connection. An
        answer is a success or a refusal that repeating does not change; None stands for everything else: that request
        is to be sent by itself.
        """
        answers: list[HttpResponse | KubeError | None] = [None] * len(whats)
        if not whats or self._lender is None or self.server.origin.scheme != "https":
            return answers
        headers = {**self.credential.headers(), "Host": self.server.origin.authority}

        requests: dict[int, HttpRequest] = {}

        def message(number: int) -> bytes:
            requests[number] = request = make(number)
            return pipeline.encode(request, self.server.path, headers)

        def final(number: int, response: HttpResponse) -> bool:
            if response.status not in _FINAL or self._passing(whats[number], response):
                return False
            return not _worth_repeating(requests[number], response)

        def done(number: int, response: HttpResponse) -> bool:
            self.tally.heard(response.status)
            if response.status < 300:
                answers[number] = response
            elif final(number, response):
                answers[number] = refusal(whats[number], response)
            return answers[number] is not None

        def sent(number: int) -> None:
            self.tally.sent(requests[number])

        sending = pipeline.Burst(len(whats), message, sent, done, 1 if self._one_by_one else depth)
        quiet_s = _READ_S if self.tally.answered else _FIRST_QUIET_S
        with self._lanes(self._lender, len(whats)) as (socks, limit):
            for sock in sending.run(socks, limit, quiet_s):
                self._lender.give_back(self.server.origin, sock)
        self._one_by_one = self._one_by_one or sending.hushed
        return answers

    @contextlib.contextmanager
    def _lanes(self, lender: Lender, wanted: int) -> t.Iterator[tuple[list[TimedSocket], Deadline]]:
        """Lend the connections that nobody uses, and as many new ones as are worth their handshakes; one at least."""
        limit = Deadline(self.clock, self.patience_s)
        turns = sum(self._turns.acquire(blocking=number == 0) for number in range(min(wanted, IN_FLIGHT)))

        def lend(_number: int) -> TimedSocket | None:
            try:
                return lender.borrow(self.server.origin, limit)
            except ExchangeError:
                return None

        try:
            kept = (lender.kept(self.server.origin) for _number in range(turns))
            found = [sock for sock in kept if sock is not None]
            new = min(turns, max(1, wanted // _WORTH_A_HANDSHAKE)) - len(found)
            if new > 0:
                with ThreadPoolExecutor(new) as pool:
                    found += [sock for sock in pool.map(lend, range(new)) if sock is not None]
            yield found, limit
        finally:
            self._turns.release(turns)

    def settling(self) -> bool:
        """Return whether the server was away a moment ago, so that it may not know its own rules yet."""
        return self.clock.monotonic() - self.tally.trouble_at < _SETTLE_S

    def recovering(self) -> bool:
        """Return whether the server was away so lately that what runs in the cluster may not be back yet."""
        return self.clock.monotonic() - self.tally.trouble_at < _RECOVERY_S

    def _passing(self, what: str, response: HttpResponse) -> bool:
        """Return whether a refusal belongs to an outage that is just over; nothing was changed by its request."""
        if not webhook_away(response):
            return response.status == 403 and self.settling()
        if self.recovering() and self._webhook_told < self.tally.trouble_at:
            self._webhook_told = self.tally.trouble_at
            self.tally.tell(f"{refusal(what, response)}: waiting for it, as the API server was away")
        return self.recovering()

    def _send(self, what: str, http: HttpClient, request: HttpRequest, allow: t.Collection[int]) -> HttpResponse:
        try:
            return http.send(request, allow=(*_FINAL, *allow))
        except TransportError as error:
            status = getattr(error, "status", 0)
            if status == 401:
                raise self.unauthorized(what) from None
            if status == 429:
                message = "the API server is overloaded (429)"
                raise KubeError(what, message, "Try later", status=429, reason="TooManyRequests") from None
            raise

    def unauthorized(self, what: str) -> KubeError:
        """Return the error for a credential that was refused."""
        fix = "Log in again, or give another credential"
        return KubeError(what, f"{self._rejected()} (401)", fix, status=401, reason="Unauthorized")

    def open(self, what: str, request: HttpRequest) -> Stream:
        """Return the stream that answers ``request``, opened once: no retry but one after a 401.

        :raises WireFailure: when no answer came; :class:`KubeError` for a refusal.
        """
        for attempt in (1, 2):
            headers = {**request.headers, **self.credential.headers()}
            sent = HttpRequest(request.method, self.server.path + request.path, request.query, headers)
            limit = Deadline(self.clock, FIRST.total_s)
            answer = self.tally.stream(self.server.origin, sent, limit)
            if isinstance(answer, Stream):
                return answer
            if answer.status != 401:
                raise refusal(what, answer)
            if attempt == 2 or not self.credential.refresh():
                break
        raise self.unauthorized(what)
