# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The connection of every provider's client: address, credential, TLS and proxy."""

from __future__ import annotations

import dataclasses
import functools
import typing as t

from ...module_utils._http.client import Auth, HttpClient, always_retry
from ...module_utils._http.clock import SYSTEM_CLOCK, Clock, Deadline
from ...module_utils._http.connection_pool import ConnectionPool, Exchange
from ...module_utils._http.messages import HttpResponse
from ...module_utils._http.retry import Timeouts, shared_pacer
from ...module_utils._http.server_time import ServerTime
from ...module_utils._http.tls import TlsOptions
from ...module_utils._http.urls import BaseUrl, parse_base_url
from ...module_utils._model.errors import InputError
from ...module_utils._secrets.secret import Secret

# The environment variable of a machine that holds its lease's token, where a provider has no tags.
TOKEN_VARIABLE = "MUSTER_TOKEN"


@dataclasses.dataclass(frozen=True)
class ProviderConnection:
    """One account at one API.

    ``api_url`` empty means the provider's own; ``timeout_s`` bounds one call with its retries. ``exchange`` and
    ``clock`` are replaced in tests. Plain http needs ``validate_certs`` off: it proves as little about the server.
    """

    secret: Secret | None
    api_url: str = ""
    validate_certs: bool = True
    ca_path: str = ""
    proxy: str = "env"
    timeout_s: float = 120.0
    exchange: Exchange | None = None
    clock: Clock = SYSTEM_CLOCK

    @property
    def token(self) -> Secret:
        """The credential; an ``InputError`` where there is none."""
        if self.secret is None:
            raise InputError("api_token", "is missing")
        return self.secret

    @property
    def account(self) -> str:
        """The account's fingerprint, empty without a credential."""
        return self.secret.fingerprint() if self.secret else ""

    @functools.cached_property
    def server_time(self) -> ServerTime:
        """What the API's responses say of its clock."""
        return ServerTime(self.clock)

    def listing_deadline(self) -> Deadline:
        """Return the one deadline of a listing with all its pages, from now."""
        return Deadline(self.clock, self.timeout_s)

    def base(self, default_url: str) -> BaseUrl:
        """Return the validated address of the API."""
        return parse_base_url(self.api_url or default_url, "api_url", allow_http=not self.validate_certs)

    def http(
        self,
        base: BaseUrl,
        auth: Auth | None,
        *,
        error_detail: t.Callable[[t.Any], str],
        may_retry: t.Callable[[HttpResponse], bool] = always_retry,
        advice: t.Mapping[int, str] | None = None,
        pace_s: float = 0.0,
    ) -> HttpClient:
        """Return a client for ``base``; ``pace_s`` keeps calls of this account that far apart in this process."""
        timeouts = Timeouts(total_s=self.timeout_s)
        tls = TlsOptions(verify=self.validate_certs, ca_path=self.ca_path)
        return HttpClient(
            base,
            auth=auth,
            error_detail=error_detail,
            may_retry=may_retry,
            advice=advice,
            pacer=shared_pacer(f"{base} {self.account}", pace_s) if pace_s and self.exchange is None else None,
            timeouts=timeouts,
            exchange=self.exchange or ConnectionPool(timeouts=timeouts, tls=tls, proxy=self.proxy, clock=self.clock),
            clock=self.clock,
            server_time=self.server_time,
        )
