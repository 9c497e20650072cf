# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Scripted HTTP: each expected call with its answer, in order; a call too many or too few fails the test."""

from __future__ import annotations

import dataclasses
import json
import typing as t
import urllib.parse
from collections.abc import Callable, Mapping

from ansible_collections.muster.training.plugins.module_utils._http.clock import Deadline
from ansible_collections.muster.training.plugins.module_utils._http.errors import ExchangeError
from ansible_collections.muster.training.plugins.module_utils._http.messages import HttpRequest, HttpResponse
from ansible_collections.muster.training.plugins.module_utils._http.urls import Origin


@dataclasses.dataclass(frozen=True)
class Call:
    """One expected request and what comes back.

    ``path`` is the whole path on the wire. ``query``, ``body`` (decoded JSON) and ``form`` are compared when given;
    ``headers`` names headers that must be sent with these values and ``without`` headers that must not be sent.
    """

    method: str
    path: str
    status: int = 200
    answer: t.Any = None
    raw: bytes | None = None
    answer_headers: Mapping[str, str] = dataclasses.field(default_factory=dict)
    failure: ExchangeError | None = None
    query: list[tuple[str, str]] | None = None
    body: t.Any = dataclasses.field(default=...)
    form: Mapping[str, str] | None = None
    headers: Mapping[str, str] = dataclasses.field(default_factory=dict)
    without: tuple[str, ...] = ()
    effect: Callable[[], None] | None = None

    def check(self, request: HttpRequest) -> None:
        """Compare the request that came with the one that was expected."""
        assert (request.method, request.path) == (self.method, self.path)
        if self.query is not None:
            assert list(request.query) == self.query
        if self.body is not ...:
            assert request.body is not None, f"{self.method} {self.path} came without a body"
            assert json.loads(request.body) == self.body
        if self.form is not None:
            assert dict(urllib.parse.parse_qsl((request.body or b"").decode())) == dict(self.form)
        sent = {name.lower(): value for name, value in request.headers.items()}
        for name, value in self.headers.items():
            assert sent.get(name.lower()) == value, f"{self.method} {self.path}: header {name}"
        for name in self.without:
            assert name.lower() not in sent, f"{self.method} {self.path}: header {name} must not be sent"

    def response(self) -> HttpResponse:
        """Return the scripted answer or raise the scripted failure."""
        if self.effect is not None:
            self.effect()
        if self.failure is not None:
            raise self.failure
        body = self.raw if self.raw is not None else b"" if self.answer is None else json.dumps(self.answer).encode()
        headers = {"content-type": "application/json", **{k.lower(): v for k, v in self.answer_headers.items()}}
        return HttpResponse(self.status, headers, body)


class Script:
    """An ``Exchange`` that plays its calls in order; as a context manager it checks that none is left."""

    def __init__(self, *calls: Call) -> None:
        self._calls = list(calls)
        self.done: list[HttpRequest] = []
        self.origins: list[Origin] = []

    def __call__(self, origin: Origin, request: HttpRequest, deadline: Deadline) -> HttpResponse:
        assert self._calls, f"unexpected call {request.method} {request.path}"
        call = self._calls.pop(0)
        call.check(request)
        self.done.append(request)
        self.origins.append(origin)
        return call.response()

    def __enter__(self) -> Script:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_rest: object) -> None:
        if kind is None:
            left = [f"{call.method} {call.path}" for call in self._calls]
            assert not left, f"calls that never came: {left}"
