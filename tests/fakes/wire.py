# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The client's side of a fake: the real wire over loopback, with time-outs that pass in virtual time."""

from __future__ import annotations

from ansible_collections.muster.training.plugins.module_utils._http.clock import Deadline
from ansible_collections.muster.training.plugins.module_utils._http.connection_pool import Wire
from ansible_collections.muster.training.plugins.module_utils._http.errors import WireFailure
from ansible_collections.muster.training.plugins.module_utils._http.messages import Request, Response
from ansible_collections.muster.training.plugins.module_utils._http.urls import Origin
from ansible_collections.muster.training.plugins.module_utils._secrets.secret import Secret
from ansible_collections.muster.training.plugins.plugin_utils._providers.connection import ProviderConnection

from .virtual import VirtualClock

READ_TIMEOUT_S = 30.0
TOKEN = "test-token-0123456789"


class FakeWire:
    """An ``Exchange`` that goes through real sockets; a server's silence becomes a read time-out."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        # The sockets live in real time: a deadline in virtual time would cut them short.
        self._wire = Wire()

    def __call__(self, origin: Origin, request: Request, deadline: Deadline) -> Response:
        response = self._wire(origin, request, _REAL)
        if response.headers.get("x-fake-silence"):
            self._clock.sleep(READ_TIMEOUT_S)
            raise WireFailure(f"no answer within {READ_TIMEOUT_S:g} s", sent=True, transient=True)
        return response


class _Endless(Deadline):
    def __init__(self) -> None:
        pass

    def remaining(self) -> float:
        return 30.0

    def within(self, seconds: float) -> float:
        return min(seconds, 30.0)

    def shorter(self, seconds: float) -> Deadline:
        return self


_REAL = _Endless()


def access(url: str, clock: VirtualClock, token: str = TOKEN) -> ProviderConnection:
    """Return the access of one account to a fake."""
    return ProviderConnection(
        secret=Secret(token, "api_token", token=True), api_url=url, exchange=FakeWire(clock), clock=clock
    )
