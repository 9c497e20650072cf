# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An API server that is away for a while, on a clock of the test's own."""

from __future__ import annotations

import json
import time
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._http.errors import ExchangeError
from ansible_collections.muster.training.plugins.module_utils._http.messages import HttpResponse
from ansible_collections.muster.training.plugins.module_utils._http.stream import Stream
from ansible_collections.muster.training.plugins.plugin_utils._kube.api.client import Client
from ansible_collections.muster.training.plugins.plugin_utils._kube.api.connect import connect
from ansible_collections.muster.training.tests.support.fake_clock import FakeClock

Object = dict[str, t.Any]

META = {"name": "late", "namespace": "team", "uid": "u", "resourceVersion": "9"}


LATE = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": META}


MISSING = {"kind": "Status", "code": 404, "reason": "NotFound", "message": "not found"}


STARTING = HttpResponse(503, {"retry-after": "1"}, b"starting")


NO_BACKEND = HttpResponse(503, {"content-type": "text/html"}, b"<html>no backend</html>")


FRONTS = pytest.mark.parametrize("front", [None, NO_BACKEND], ids=["silent", "load_balancer"])


class Cluster:
    """An API server with one ConfigMap, created by another client while the server is away for ``seconds`` from 10 s on.

    ``asked`` counts the requests of the outage. ``front``: what a load balancer answers in its place, if one does.
    """

    def __init__(self, clock: FakeClock, seconds: float, front: HttpResponse | None = None) -> None:
        self.front = front
        self.clock = clock
        self.begin = clock.now + 10
        self.end = self.begin + seconds
        self.asked = 0
        self.stored: Object | None = None

    def client(self, **options: t.Any) -> Client:
        """Return a client of it."""
        exchange: t.Any = self
        given = {"host": "https://kube.example", "token": "t-0123456789", **options}
        return connect(given, environ={}, exchange=exchange, clock=self.clock)

    def check(self) -> HttpResponse | None:
        """Fail as a server does that is away; return what it says while it starts."""
        if self.clock.now < self.begin or self.clock.now >= self.end:
            return None
        self.asked += 1
        if self.clock.now > self.end - 1:
            return STARTING
        if self.front is not None:
            return self.front
        raise ExchangeError("no connection to kube.example", sent=False, transient=True)

    def __call__(self, origin: t.Any, request: t.Any, deadline: t.Any) -> HttpResponse:
        refused = self.check()
        if refused is not None:
            return refused
        if request.method == "PATCH":
            self.stored = json.loads(request.body)
            return HttpResponse(201, {}, json.dumps({**LATE, **t.cast(Object, self.stored)}).encode())
        if request.path.endswith("/configmaps/late"):
            # The outage begins when the first answer is told.
            self.clock.now = self.begin
            return HttpResponse(404, {}, json.dumps(MISSING).encode())
        items = [LATE] if self.clock.now >= self.end else []
        return HttpResponse(200, {}, json.dumps({"metadata": {"resourceVersion": "5"}, "items": items}).encode())

    def stream(self, origin: t.Any, request: t.Any, deadline: t.Any) -> HttpResponse | Stream:
        """Answer a watch."""
        return self.check() or Feed(self)


class Feed(Stream):
    """A watch's answer: cut when the server goes away, with the new object after it came back."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.told = False

    def read(self, timeout_s: float) -> bytes | None:
        """Return the event of the new object, once it is there."""
        if self.cluster.begin <= self.cluster.clock.now < self.cluster.end:
            raise ExchangeError("the connection was lost", transient=True)
        if self.cluster.clock.now >= self.cluster.end and not self.told:
            self.told = True
            return json.dumps({"type": "ADDED", "object": LATE}).encode() + b"\n"
        if self.told:
            # The one who waits is another thread, and runs in real time.
            time.sleep(0.05)
        else:
            self.cluster.clock.sleep(min(timeout_s, 1.0))
        return None

    def close(self) -> None:
        """Do nothing."""
