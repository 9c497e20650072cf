# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One request to a server with its credentials, which are in no message."""

from __future__ import annotations

import base64
import typing as t

from ...module_utils._http.client import HttpClient
from ...module_utils._http.connection_pool import ConnectionPool
from ...module_utils._http.messages import HttpRequest, HttpResponse, JsonResponse
from ...module_utils._http.retry import RetryPolicy, Timeouts
from ...module_utils._http.tls import TlsOptions
from ...module_utils._http.urls import parse_base_url
from ...module_utils._model.binding import Binding
from ...module_utils._secrets.auth import StaticAuth, header
from ...module_utils._secrets.secret import Secret

TIMEOUTS: t.Final = Timeouts(total_s=20.0)
# Credentials by what the service calls them: ``token``, or ``username`` and ``password``, or ``api_key``.
Keys = t.Mapping[str, str]


def call(binding: Binding, keys: Keys, request: HttpRequest, allow: t.Collection[int] = ()) -> JsonResponse:
    """Send a request and decode its JSON. ApiError and TransportError show no credential."""
    return _with_client(
        binding.endpoint, _trust(binding), keys, TIMEOUTS, None, lambda client: client.call(request, allow=allow)
    )


def fetch(endpoint: str, ca_path: str, keys: Keys, request: HttpRequest) -> HttpResponse:
    """Send a request to a server that is not bound. ``ca_path``: a file with its authority, empty for those known.

    Raises as :func:`call`.
    """
    tls = TlsOptions(ca_path=ca_path) if ca_path else None
    return _with_client(endpoint, tls, keys, TIMEOUTS, None, lambda client: client.send(request))


def send_once(
    binding: Binding, keys: Keys, request: HttpRequest, allow: t.Collection[int], timeouts: Timeouts
) -> HttpResponse:
    """Send a request a single time and return what answers it. Raises as :func:`call`."""
    once = RetryPolicy(attempts=1)
    return _with_client(
        binding.endpoint, _trust(binding), keys, timeouts, once, lambda client: client.send(request, allow=allow)
    )


def _trust(binding: Binding) -> TlsOptions | None:
    return TlsOptions(ca_pem=binding.ca) if binding.ca else None


def _with_client[Answer](
    endpoint: str,
    tls: TlsOptions | None,
    keys: Keys,
    timeouts: Timeouts,
    retry: RetryPolicy | None,
    ask: t.Callable[[HttpClient], Answer],
) -> Answer:
    # Addresses of a mesh or of loopback have no certificate; that such a one shows a credential is the user's choice.
    base = parse_base_url(endpoint, "endpoint", allow_http=True)
    pool = ConnectionPool(timeouts=timeouts, tls=tls)
    try:
        return ask(HttpClient(base, timeouts=timeouts, retry=retry, exchange=pool, auth=_authorise(keys)))
    finally:
        pool.close()


def _authorise(keys: Keys) -> StaticAuth | None:
    if "token" in keys:
        return header("Authorization", Secret(f"Bearer {keys['token']}", "token"))
    if not keys:
        return None
    user, password = ("api", keys["api_key"]) if "api_key" in keys else (keys["username"], keys["password"])
    packed = base64.b64encode(f"{user}:{password}".encode()).decode()
    return header("Authorization", Secret(f"Basic {packed}", "password"))
