# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Connects to an API server: ``connect({"kubeconfig": path, "context": name})`` returns a client."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping

from ....module_utils._http.clock import SYSTEM_CLOCK, Clock, Deadline
from ....module_utils._http.connection_pool import ConnectionPool
from ....module_utils._http.messages import HttpRequest, HttpResponse
from ....module_utils._http.retry import Timeouts
from ....module_utils._http.stream import Stream
from ....module_utils._http.tls import TlsOptions
from ....module_utils._http.urls import Origin
from . import discovery, kubeconfig
from .client import Client
from .credentials import Credential, describe_rejection
from .kubeconfig import ClusterAccess
from .transport import FIRST, ApiTransport, StreamingExchange

# An outage of five minutes, and the time that a server needs to start.
PATIENCE_S = 360.0


class _RenewableWire:
    """A wire whose client certificate an exec plugin may replace."""

    def __init__(self, access: ClusterAccess, clock: Clock) -> None:
        self._access = access
        self._clock = clock
        self._wire = self._make(access.user.client_pem)

    def _make(self, client_pem: str) -> ConnectionPool:
        access = self._access
        tls = TlsOptions(
            verify=access.verify, ca_pem=access.ca_pem, client_pem=client_pem, server_name=access.server_name
        )
        return ConnectionPool(
            timeouts=Timeouts(FIRST.connect_s, 60.0, 120.0), tls=tls, proxy=access.proxy, clock=self._clock
        )

    def renew(self, client_pem: str) -> None:
        """Use another client certificate from the next connection on."""
        self._wire = self._make(client_pem)

    def __call__(self, origin: Origin, request: HttpRequest, deadline: Deadline) -> HttpResponse:
        return self._wire(origin, request, deadline)

    def stream(self, origin: Origin, request: HttpRequest, deadline: Deadline) -> HttpResponse | Stream:
        """Stream as :meth:`Wire.stream` does."""
        return self._wire.stream(origin, request, deadline)


def connect(
    options: Mapping[str, object],
    *,
    environ: Mapping[str, str] | None = None,
    exchange: StreamingExchange | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> Client:
    """Return a client for the API server that ``options`` describe; nothing is sent yet.

    Options, all optional: ``kubeconfig`` (path, or mapping), ``context``, or ``host`` with ``token`` or ``token_file``
    or ``client_cert`` and ``client_key``; ``ca_path``, ``validate_certs``, ``server_name``, ``proxy``; ``patience_s``:
    how long the server may be away once it has answered (360); ``cluster_id``: refuse any other cluster. Without any,
    the rules of kubectl: ``KUBECONFIG``, ``~/.kube/config``, the service account of this pod. ``exchange`` and
    ``clock`` are for tests.

    Raises :class:`InputError` in one line for what is missing, misspelt or not supported.
    """
    environ = os.environ if environ is None else environ
    access = kubeconfig.load_access(options, environ)
    if access.user.other:
        from . import auth_provider

        access = auth_provider.resolve(access, options, environ)
    credential = Credential(access.user, clock)
    credential.cluster = access.cluster
    wire: StreamingExchange
    if exchange is None:
        wire = changing = _RenewableWire(access, clock)
        credential.new_certificate = changing.renew
    else:
        wire = exchange

    def describe_credential() -> str:
        user = access.user._replace(client_pem=credential.client_pem)
        return describe_rejection(access._replace(user=user))

    patience = float(str(options.get("patience_s") or PATIENCE_S))
    transport = ApiTransport(
        access, credential, wire, patience_s=patience, clock=clock, describe_credential=describe_credential
    )
    authority = hashlib.sha256(access.ca_pem.encode()).hexdigest() if access.ca_pem else ""
    client = Client(transport, namespace=access.namespace, authority=authority)
    if exchange is None:
        client.catalog = discovery.shared_catalog(f"{access.server} {access.user.name}", client.discover)
    if options.get("cluster_id"):
        client.expect_cluster(str(options["cluster_id"]))
    return client
