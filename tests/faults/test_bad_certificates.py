# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An API behind a certificate that proves nothing: no key is sent, nothing is ordered, and what bills is named."""

from __future__ import annotations

import contextlib
import pathlib
import ssl
import threading
import typing as t
from collections.abc import Iterator

import pytest

from ansible_collections.muster.training.plugins.module_utils._http.connection_pool import ConnectionPool
from ansible_collections.muster.training.plugins.module_utils._http.tls import TlsOptions
from ansible_collections.muster.training.plugins.module_utils._model.errors import MusterError, TransportError
from ansible_collections.muster.training.plugins.module_utils._model.lease import Instance, OrderRefused
from ansible_collections.muster.training.plugins.module_utils._model.offer import Candidate, OfferQuery, Order
from ansible_collections.muster.training.plugins.module_utils._secrets.secret import Secret
from ansible_collections.muster.training.plugins.plugin_utils._providers.connection import ProviderConnection
from ansible_collections.muster.training.plugins.plugin_utils._provision.create import Terms, create_pool
from ansible_collections.muster.training.plugins.plugin_utils._provision.create_state import PoolRequest
from ansible_collections.muster.training.plugins.plugin_utils._provision.delete import delete_leases
from ansible_collections.muster.training.plugins.plugin_utils._provision.delete_state import DeleteRequest
from ansible_collections.muster.training.plugins.plugin_utils._provision.ledger.ledger_session import LedgerSession
from ansible_collections.muster.training.tests.fakes.api import _server
from ansible_collections.muster.training.tests.fakes.cycle import KEY, PRODUCTS
from ansible_collections.muster.training.tests.fakes.pool_world import Lines
from ansible_collections.muster.training.tests.fakes.sim_provider import SimProber, h100
from ansible_collections.muster.training.tests.fakes.virtual import InlineScheduler, VirtualClock
from ansible_collections.muster.training.tests.fakes.wire import TOKEN
from ansible_collections.muster.training.tests.support.certificates import make_certificate

PROVIDERS = ["lambda", "runpod", "vastai", "shadeform"]
LOOPBACK = "127.0.0.1"
# The address in the certificate, its first and last day from today, and whether the client trusts who signed it.
CERTIFICATES = {
    "signed by itself": (LOOPBACK, -1, 1, False),
    "of an unknown authority": (LOOPBACK, -1, 1, False),
    "expired": (LOOPBACK, -9, -1, True),
    "not valid yet": (LOOPBACK, 1, 9, True),
    "of another host": ("192.0.2.9", -1, 1, True),
}


@contextlib.contextmanager
def over_tls(api: t.Any, paths: tuple[str, str]) -> Iterator[str]:
    server = _server(api)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*paths)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    # A client that hangs up is what this is about.
    server.handle_error = lambda *_args: None  # type: ignore[method-assign]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield f"https://{LOOPBACK}:{server.server_address[1]}{api.base_path}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)


@pytest.mark.parametrize("kind", CERTIFICATES)
@pytest.mark.parametrize("name", PROVIDERS)
def test_no_call_reaches_an_api_that_proves_nothing(tmp_path: pathlib.Path, name: str, kind: str) -> None:
    address, first, last, is_trusted = CERTIFICATES[kind]
    paths = make_certificate(tmp_path, address, first, last, has_authority="authority" in kind)
    clock = VirtualClock()
    api = PRODUCTS[name].fake(clock)
    mine = api.stranger("lab-h100-0-0000abcd")
    with over_tls(api, paths) as url:
        secret = Secret(TOKEN, "api_token", token=True)
        # The exchange that a connection makes by itself, without the pace of an API that is not reached.
        tls = TlsOptions(verify=True, ca_path=paths[0] if is_trusted else "")
        access = ProviderConnection(secret, api_url=url, exchange=ConnectionPool(tls=tls, proxy="none"))
        provider = PRODUCTS[name].client(access)
        offer = h100(name, ref={"cloud": "SECURE", "ask": 9000})
        order = Order("0000abcd", mine.name, offer, "lab", "h100", ssh_public_key=KEY, image="ubuntu")
        calls = [
            provider.list_instances,
            lambda: provider.offers(OfferQuery(gpu_model="H100")),
            lambda: provider.delete(Instance(name, mine.id, mine.name, "0000abcd", "running")),
        ]
        for call in calls:
            with pytest.raises(TransportError, match="certificate was refused"):
                call()
        assert isinstance(provider.create(order), OrderRefused)
        _rent_and_end(provider, name, mine, clock)
    assert api.calls == [] and api.alive() == [mine]


def _rent_and_end(provider: t.Any, name: str, mine: t.Any, clock: VirtualClock) -> None:
    """Neither orders anything, and an ending names what it could not see."""
    lines, scheduler = Lines(), InlineScheduler(clock)
    request = PoolRequest("lab", "h100", 1, (Candidate(provider=name),), clock.time() + 600)
    with pytest.raises(MusterError, match="certificate was refused"):
        create_pool(
            request, {name: provider}, LedgerSession([], lines), scheduler, prober=SimProber(), terms=Terms(KEY)
        )
    assert lines.events == []
    session = LedgerSession([], lines)
    proof = delete_leases(
        DeleteRequest("lab", clock.time() + 60, whole=True), lambda _: True, {name: provider}, session, scheduler
    )
    assert not proof.clean and "certificate was refused" in str(proof.billing)
