# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Sends requests to one API server: credential, retries, waiting through outages, and statistics of the requests."""

from __future__ import annotations

import threading
import typing as t
from collections.abc import Mapping

from ....module_utils._http.client import HttpClient
from ....module_utils._http.clock import SYSTEM_CLOCK, Clock, Deadline
from ....module_utils._http.connection_pool import Exchange
from ....module_utils._http.errors import ExchangeError
from ....module_utils._http.messages import HttpRequest, HttpResponse
from ....module_utils._http.retry import RetryPolicy, Timeouts, parse_http_date
from ....module_utils._http.stream import Stream
from ....module_utils._http.urls import Origin
from ....module_utils._model.errors import TransportError
from .credentials import Credential
from .errors import KubeError, is_store_unavailable, is_webhook_unavailable, refusal_error
from .kubeconfig import ClusterAccess

# A server that never answered is given up in seconds; one that did is waited for.
FIRST = Timeouts(connect_s=5.0, read_s=30.0, total_s=20.0)
_FIRST_RETRY = RetryPolicy(attempts=3, base_s=0.3, cap_s=2.0, retry_after_cap_s=10.0)
_LATER_RETRY = RetryPolicy(attempts=10_000, base_s=0.2, cap_s=2.0, retry_after_cap_s=30.0)
# Statuses that are handled here; HttpClient handles 401, 429 and 502 to 504.
_FINAL = (400, 403, 404, 405, 406, 409, 410, 413, 415, 422, 500)
# Pauses before a request that got a 500 is sent again: an election of etcd's leader takes seconds.
_FAULT_WAITS_S = (0.5, 1.0, 2.0, 4.0)
# For some seconds after a restart the server may answer 403 until it has read its RBAC rules.
_SETTLE_S = 15.0
# What runs in the cluster's own pods (webhooks, DNS) crashes without an API server, and a kubelet restarts it five
# minutes later at most.
_RECOVERY_S = 330.0
# How long a server may refuse that has never been ready (its address may be wrong), or that is overloaded.
_REFUSING_S = 60.0
# A connection that broke once is not reported.
_REPORT_AFTER_S = 3.0
IN_FLIGHT = 8
# An admission webhook may take half of this time.
_READ_S = 60.0


def _error_detail(body: Mapping[str, object]) -> str:
    return str(body["message"]) if body.get("kind") == "Status" else ""


class StreamingExchange(Exchange, t.Protocol):
    """An exchange that can also return an answer as a stream."""

    def stream(self, origin: Origin, request: HttpRequest, deadline: Deadline) -> HttpResponse | Stream:
        """Send ``request`` and return a stream, or a response when the status is not 200."""


class TransportStats:
    """Counts requests and notes outages; ``outage_at`` is when the server was last unreachable.

    ``answered``: anything has answered at its address; ``served``: it was ready then.

    ``report``: gets a line for people when a server that has answered is unreachable, and when it answers again.
    """

    def __init__(self, inner: StreamingExchange, clock: Clock) -> None:
        self.inner = inner
        self.report: t.Callable[[str], None] = _ignore
        self.requests = 0
        self.writes = 0
        self.answered = False
        self.served = False
        self.outage_at = float("-inf")
        # The Date of the last answer and when it was received.
        self._server_date: tuple[str, float] = ("", 0.0)
        self.refusing_since: float | None = None
        self._away_since: float | None = None
        self._away_before = 0.0
        self._reported = False
        self._clock = clock
        self._lock = threading.Lock()

    def count_request(self, request: HttpRequest) -> None:
        """Count a request that is about to be sent."""
        with self._lock:
            self.requests += 1
            self.writes += not request.safe

    def __call__(self, origin: Origin, request: HttpRequest, deadline: Deadline) -> HttpResponse:
        self.count_request(request)
        try:
            answer = self.inner(origin, request, deadline)
        except ExchangeError as failure:
            self._note_failure(failure, request)
            raise
        self._server_date = answer.headers.get("date", ""), self._clock.monotonic()
        # 429 to an eviction is a disruption budget's answer.
        self.note_status(200 if answer.status == 429 and request.path.endswith("/eviction") else answer.status)
        return answer

    def stream(self, origin: Origin, request: HttpRequest, deadline: Deadline) -> HttpResponse | Stream:
        self.count_request(request)
        try:
            answer = self.inner.stream(origin, request, deadline)
        except ExchangeError as failure:
            self._note_failure(failure, request)
            raise
        self.note_status(
            answer.status if isinstance(answer, HttpResponse) and not _is_answered_by_kubelet(request) else 200
        )
        return answer

    def _note_failure(self, failure: ExchangeError, request: HttpRequest) -> None:
        if failure.transient and not _is_answered_by_kubelet(request):
            self._note_outage("does not answer")

    def note_status(self, status: int) -> None:
        """Note the status of an answer."""
        self.answered = True
        if status == 429 or status >= 502:
            self._note_outage(f"is not ready ({status})")
            if self.refusing_since is None:
                self.refusing_since = self.outage_at
            return
        self.refusing_since = None
        self.served = True
        if self._away_since is not None:
            with self._lock:
                away, reported = self._away(), self._reported
                self._away_before, self._away_since, self._reported = self._away_before + away, None, False
            if reported:
                self.report(f"the API server answers again after {away:.0f} s")

    def _away(self) -> float:
        return 0.0 if self._away_since is None else self._clock.monotonic() - self._away_since

    def up_s(self) -> float:
        """Return the seconds of a clock that stops while a server that has answered is unreachable."""
        with self._lock:
            return self._clock.monotonic() - self._away_before - self._away()

    def _note_outage(self, how: str) -> None:
        self.outage_at = now = self._clock.monotonic()
        if not self.answered:
            return
        with self._lock:
            if self._away_since is None:
                self._away_since = now
            due = not self._reported and now - self._away_since >= _REPORT_AFTER_S
            self._reported = self._reported or due
        if due:
            self.report(f"the API server {how}: waiting for it")

    def server_time(self) -> float | None:
        """Return the server's time of day as seconds since 1970, None when its answers have no Date.

        Dates of the cluster's objects are compared with this time: this machine's clock may be minutes off.
        """
        date, received_at = self._server_date
        seconds = parse_http_date(date)
        return None if seconds is None else seconds + self._clock.monotonic() - received_at

    def may_retry(self, response: HttpResponse) -> bool:
        """Return whether a request that got 429, 502, 503 or 504 is worth repeating."""
        if self.served and response.status != 429:
            # A load balancer may answer for a server that is down; the call's own limit ends the wait.
            return True
        since = self.refusing_since
        return since is None or self._clock.monotonic() - since < _REFUSING_S


def _is_answered_by_kubelet(request: HttpRequest) -> bool:
    """Return whether the answer comes from a kubelet: its silence says nothing about the API server."""
    return request.path.endswith("/log")


def _is_worth_repeating(request: HttpRequest, response: HttpResponse) -> bool:
    """Return whether a 500 may be transient: to a read, or of a store without a leader."""
    if response.status != 500 or is_webhook_unavailable(response):
        return False
    return request.safe or (request.repeatable and is_store_unavailable(response))


def _ignore(_line: str) -> None:
    """Report nothing."""


class ApiTransport:
    """Sends requests of one user to one server, over eight connections at most, and raises error statuses.

    ``patience_s``: how long a server that has answered before may be unreachable.
    """

    def __init__(
        self,
        access: ClusterAccess,
        credential: Credential,
        exchange: StreamingExchange,
        *,
        patience_s: float,
        clock: Clock = SYSTEM_CLOCK,
        describe_credential: t.Callable[[], str] = lambda: "the credential was rejected",
    ) -> None:
        self.stats = TransportStats(exchange, clock)
        self.clock = clock
        self.patience_s = patience_s
        self.server = access.server
        self.access = access
        self.credential = credential
        self._describe_credential = describe_credential
        self._webhook_reported_at = float("-inf")
        self._turns = threading.BoundedSemaphore(IN_FLIGHT)
        later = Timeouts(connect_s=5.0, read_s=_READ_S, total_s=patience_s)
        common: dict[str, t.Any] = {"auth": credential, "exchange": self.stats, "clock": clock}
        common |= {"error_detail": _error_detail, "may_retry": self.stats.may_retry}
        self._first = HttpClient(access.server, timeouts=FIRST, retry=_FIRST_RETRY, **common)
        self._later = HttpClient(access.server, timeouts=later, retry=_LATER_RETRY, **common)

    def send(
        self, what: str, request: HttpRequest, allow: t.Collection[int] = (), *, patient: bool = True
    ) -> HttpResponse:
        """Return the answer to ``request``; an error status that is not in ``allow`` raises :class:`KubeError`.

        With ``patient`` false, an outage is raised after seconds, for callers that have their own retries.
        """
        waits = iter(_FAULT_WAITS_S if patient else ())
        while True:
            http = self._later if patient and self.stats.answered else self._first
            with self._turns:
                response = self._send(what, http, request, allow)
            if response.status < 300 or response.status in allow:
                return response
            if self._is_transient(what, response):
                self.clock.sleep(0.5)
                continue
            pause = next(waits, None) if _is_worth_repeating(request, response) else None
            if pause is None:
                raise refusal_error(what, response)
            self.clock.sleep(pause)

    def is_settling(self) -> bool:
        """Return whether the server was unreachable seconds ago, so that it may not have read its RBAC rules yet."""
        return self.clock.monotonic() - self.stats.outage_at < _SETTLE_S

    def is_recovering(self) -> bool:
        """Return whether the server was unreachable minutes ago: pods of the cluster may still be restarting."""
        return self.clock.monotonic() - self.stats.outage_at < _RECOVERY_S

    def _is_transient(self, what: str, response: HttpResponse) -> bool:
        """Return whether an error belongs to an outage that has just ended; the request changed nothing."""
        if not is_webhook_unavailable(response):
            return response.status == 403 and self.is_settling()
        if self.is_recovering() and self._webhook_reported_at < self.stats.outage_at:
            self._webhook_reported_at = self.stats.outage_at
            self.stats.report(
                f"{refusal_error(what, response)}: waiting for it, because the API server was unreachable"
            )
        return self.is_recovering()

    def _send(self, what: str, http: HttpClient, request: HttpRequest, allow: t.Collection[int]) -> HttpResponse:
        try:
            return http.send(request, allow=(*_FINAL, *allow))
        except TransportError as error:
            status = getattr(error, "status", 0)
            if status == 401:
                raise self.unauthorized_error(what) from None
            if status == 429:
                message = "the API server is overloaded (429)"
                raise KubeError(what, message, "Try later", status=429, reason="TooManyRequests") from None
            raise

    def unauthorized_error(self, what: str) -> KubeError:
        """Return the error for a credential that was rejected."""
        fix = "Log in again, or give another credential; a team's token is renewed by the playbook team"
        return KubeError(what, f"{self._describe_credential()} (401)", fix, status=401, reason="Unauthorized")

    def open(self, what: str, request: HttpRequest) -> Stream:
        """Return the stream that answers ``request``; it is repeated only after a 401.

        :raises WireFailure: when no answer came; :class:`KubeError` for an error status.
        """
        for attempt in (1, 2):
            headers = {**request.headers, **self.credential.headers()}
            sent = HttpRequest(request.method, self.server.path + request.path, request.query, headers)
            limit = Deadline(self.clock, FIRST.total_s)
            answer = self.stats.stream(self.server.origin, sent, limit)
            if isinstance(answer, Stream):
                return answer
            if answer.status != 401:
                raise refusal_error(what, answer)
            if attempt == 2 or not self.credential.refresh():
                break
        raise self.unauthorized_error(what)
