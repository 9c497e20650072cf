# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The HTTP client of one API: credential, pace, retries, redirects, JSON and errors.

Example::

    client = HttpClient("https://cloud.lambda.ai/api/v1", auth=bearer(secret), pacer=shared_pacer("lambda", 1.0))
    instances = client.get("/instances")["data"]
    response = client.call(json_request("POST", "/instance-operations/launch", body=launch), allow=(400,))
"""

from __future__ import annotations

import random
import re
import typing as t
from collections.abc import Callable, Collection, Mapping

from .._model.errors import ApiError, TransportError
from .clock import SYSTEM_CLOCK, Clock, Deadline
from .connection_pool import ConnectionPool, Exchange
from .errors import ExchangeError
from .messages import HttpRequest, HttpResponse, JsonResponse, check_headers, decode_json, json_request
from .retry import TRANSIENT_STATUS, Pacer, RetryPolicy, Timeouts, parse_retry_after
from .server_time import ServerTime
from .urls import BaseUrl, Query, parse_base_url, redirect_target
from .version import USER_AGENT

_MAX_REDIRECTS = 3
_REDIRECTS = (301, 302, 303, 307, 308)
_DETAIL_CHARS = 200
_FIXES = {
    401: "The credential was rejected: check that it is whole, current and meant for this API",
    403: "The credential is valid but lacks a permission: check its scopes",
    407: "The proxy needs a credential: add it to the proxy setting",
    429: "Too many requests: wait before trying again",
}


class _PaceTooSlow(ExchangeError):
    """The API's pace leaves no time for the call before its deadline."""


class Auth(t.Protocol):
    """Gives the credential's headers. ``_secrets.auth`` has the usual kinds."""

    def headers(self) -> Mapping[str, str]:
        """Return the headers for the next request; may fetch a token."""

    def refresh(self) -> bool:
        """Called after a 401; true when :meth:`headers` now gives another credential worth one more try."""


def no_detail(_body: t.Any) -> str:
    """Show nothing of an error's body: the default, because a body may repeat what was sent."""
    return ""


def always_retry(_response: HttpResponse) -> bool:
    """Allow the retry of any response with a transient status."""
    return True


class HttpClient:
    """Calls one API. Threads may share it.

    :param base_url: such as ``https://api.example.com/v1``, or a :class:`BaseUrl` checked before.
    :param auth: gives the credential; None for none. A redirect to another host is refused, never followed.
    :param error_detail: picks the human-readable part (``message``, ``code``) out of a decoded error body.
    :param may_retry: false for an error response that waiting does not change, such as a daily quota.
    :param advice: what the user can do, one line for each status.
    :param pacer: the pace of the whole API; a call may add one of its own.
    :param exchange: sends one request; tests pass a script.
    :param server_time: notes what each response says of its time.

    Errors: :class:`TransportError` (``ambiguous`` when a write may have happened) and :class:`ApiError`. Messages
    name method, address and path, never the query, headers or bodies.
    """

    def __init__(
        self,
        base_url: str | BaseUrl,
        *,
        auth: Auth | None = None,
        error_detail: Callable[[t.Any], str] = no_detail,
        may_retry: Callable[[HttpResponse], bool] = always_retry,
        advice: Mapping[int, str] | None = None,
        pacer: Pacer | None = None,
        timeouts: Timeouts | None = None,
        retry: RetryPolicy | None = None,
        exchange: Exchange | None = None,
        clock: Clock = SYSTEM_CLOCK,
        rng: random.Random | None = None,
        server_time: ServerTime | None = None,
    ) -> None:
        self.base = base_url if isinstance(base_url, BaseUrl) else parse_base_url(base_url, "api_url")
        self._auth = auth
        self._error_detail = error_detail
        self._may_retry = may_retry
        self._advice = {**_FIXES, **(advice or {})}
        self._pacer = pacer
        self._timeouts = timeouts or Timeouts()
        self._retry = retry or RetryPolicy()
        self._exchange = exchange or ConnectionPool(timeouts=self._timeouts, clock=clock)
        self._clock = clock
        self._rng = rng or random.Random()
        self._server_time = server_time or ServerTime(clock)

    def get(self, path: str, query: Query = ()) -> t.Any:
        """Return the decoded JSON of a GET that succeeded."""
        return self.call(json_request("GET", path, query=query)).data

    def call(self, request: HttpRequest, *, allow: Collection[int] = (), pacer: Pacer | None = None) -> JsonResponse:
        """Send ``request`` and decode its JSON response.

        Statuses in ``allow`` are returned like a success (their data is None where the body is not JSON); any other
        non-2xx raises :class:`ApiError`, a 2xx that is not JSON :class:`TransportError`.
        """
        response = self.send(request, allow=allow, pacer=pacer)
        try:
            data = decode_json(response.body)
        except ValueError:
            if response.status in allow:
                return JsonResponse(response.status, None, response.headers)
            raise self.unexpected_response_error(request, response) from None
        return JsonResponse(response.status, data, response.headers)

    def send(self, request: HttpRequest, *, allow: Collection[int] = (), pacer: Pacer | None = None) -> HttpResponse:
        """Send ``request``, with retries where these are harmless, and return the response with its raw body."""
        deadline = Deadline(self._clock, self._timeouts.total_s)
        attempt, refreshed = 0, False
        last_error: TransportError | None = None
        while True:
            attempt += 1
            try:
                response = self._once(request, deadline, pacer)
            except ExchangeError as failure:
                problem = self._exchange_error(request, failure)
                if isinstance(failure, _PaceTooSlow):
                    # The error of an earlier attempt tells the user more.
                    raise (last_error or problem) from None
                if not (failure.transient and request.repeatable and self._pause(attempt, None, deadline)):
                    raise problem from None
                last_error = problem
                continue
            if 200 <= response.status < 300 or response.status in allow:
                return response
            if response.status == 401 and self._auth and not refreshed and self._auth.refresh():
                refreshed = True
                continue
            last_error = self.status_error(request, response)
            retry_after = parse_retry_after(response.headers.get("retry-after"), self._clock.time())
            if not (self._is_worth_retry(request, response) and self._pause(attempt, retry_after, deadline)):
                raise last_error

    def unexpected_response_error(self, request: HttpRequest, response: HttpResponse) -> TransportError:
        """Return the error for a response of another shape than the API documents (HTML, cut JSON, wrong type)."""
        return TransportError(
            f"{self._name(request)}: unexpected answer ({len(response.body)} bytes, {response.content_type()})",
            "Check the API address, and whether a proxy or login page responds in its place",
            ambiguous=not request.safe,
        )

    def _once(self, request: HttpRequest, deadline: Deadline, pacer: Pacer | None) -> HttpResponse:
        """Send the request one time, following redirects that stay on the same server."""
        step = request._replace(path=self.base.path + request.path)
        for _hop in range(_MAX_REDIRECTS + 1):
            response = self._exchange_one(step, deadline, pacer)
            if response.status not in _REDIRECTS or not request.safe:
                return response
            target = redirect_target(self.base.origin, step.target, response.headers.get("location", ""))
            if target is None:
                return response
            step = request._replace(path=target[0], query=target[1])
        raise ExchangeError("too many redirects")

    def _exchange_one(self, request: HttpRequest, deadline: Deadline, pacer: Pacer | None) -> HttpResponse:
        credential = self._auth.headers() if self._auth else {}
        headers = {"User-Agent": USER_AGENT, **request.headers, **credential}
        check_headers(headers)
        try:
            for each_pacer in (self._pacer, pacer):
                if each_pacer is not None:
                    each_pacer.wait(deadline)
        except TimeoutError:
            raise _PaceTooSlow(
                f"the API's rate limit left no time for the call within {self._timeouts.total_s:g} s", sent=False
            ) from None
        response = self._exchange(self.base.origin, request._replace(headers=headers), deadline)
        self._server_time.note(response.headers)
        return response

    def _pause(self, attempt: int, retry_after: float | None, deadline: Deadline) -> bool:
        """Sleep before the next attempt; false when no attempt or no time is left."""
        if attempt >= self._retry.attempts:
            return False
        delay = self._retry.delay(attempt, retry_after, self._rng)
        if delay >= deadline.seconds_left():
            return False
        self._clock.sleep(delay)
        return True

    def _is_worth_retry(self, request: HttpRequest, response: HttpResponse) -> bool:
        status = response.status
        transient = status in TRANSIENT_STATUS or (status == 500 and request.safe)
        # A 429 says that nothing was done: even a create may be sent again.
        return (status == 429 or (transient and request.repeatable)) and self._may_retry(response)

    def _name(self, request: HttpRequest) -> str:
        return f"{request.method} {self.base}{request.path}"

    def _exchange_error(self, request: HttpRequest, failure: ExchangeError) -> TransportError:
        ambiguous = failure.sent and not request.safe
        return TransportError(f"{self._name(request)}: {failure.message}", failure.fix, ambiguous=ambiguous)

    def status_error(self, request: HttpRequest, response: HttpResponse) -> ApiError:
        """Return the error for a response with an error status, with what its body says."""
        path, status = f"{self.base}{request.path}", response.status
        if 300 <= status < 400:
            fix = "Redirects to another address are not followed; set the API address to the new one"
            return ApiError(request.method, path, status, "redirect", fix=fix)
        fix = self._advice.get(status, "")
        return ApiError(request.method, path, status, self._detail(response), request_id=response.request_id(), fix=fix)

    def _detail(self, response: HttpResponse) -> str:
        # Cloudflare bans by User-Agent or address with this bare line, which looks like a permission error.
        if response.body[:20].startswith(b"error code: 10"):
            return f"blocked by Cloudflare ({response.body[:16].decode('ascii', 'replace')})"
        try:
            detail = self._error_detail(decode_json(response.body))
        except (ValueError, LookupError, TypeError, AttributeError):
            return ""
        return re.sub(r"[\x00-\x1f\x7f-\x9f\s]+", " ", str(detail)).strip()[:_DETAIL_CHARS]
