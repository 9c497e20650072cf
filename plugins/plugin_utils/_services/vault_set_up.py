# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A Vault that was started: set up once, unsealed with the key that is kept here, and left alone when it serves.

Vault makes a key and a first token. Both are kept before the next request: the key for good, the token until the set-up
has ended.
"""

from __future__ import annotations

import contextlib
import time
import typing as t

from ...module_utils._http.client import HttpClient
from ...module_utils._http.connection_pool import ConnectionPool
from ...module_utils._http.messages import json_request
from ...module_utils._http.retry import Timeouts
from ...module_utils._http.tls import TlsOptions
from ...module_utils._model.errors import ApiError, RefusedError, TransportError
from ...module_utils._secrets.auth import bearer
from ...module_utils._secrets.scrubber import remember
from ...module_utils._secrets.secret import Secret
from . import openbao
from .component import ROOT_TOKEN, UNSEAL_KEY, BringUp, certificate_of

_TIMEOUTS: t.Final = Timeouts(total_s=20.0)
_ACTIVE, _STANDBY, _EMPTY, _SEALED = 200, 429, 501, 503
_AGAIN_S: t.Final = 0.2
# Who holds one part of several beside the others holds the whole key: it is one.
_PARTS: t.Final = {"secret_shares": 1, "secret_threshold": 1}


def bring_up(order: BringUp) -> bool:
    """Bring a Vault that runs to where it serves; return whether that changed anything. In check mode only look.

    :raises RefusedError: when it does not answer, or is sealed and its key is not here.
    """
    try:
        with _open(order, None) as client:
            status = _status_of(client)
            if order.check or status in (_ACTIVE, _STANDBY):
                return _finish(order) or status not in (_ACTIVE, _STANDBY)
            _require_key(order, status)
            if status == _EMPTY:
                _initialise(order, client)
            _unseal(order, client)
        _finish(order)
    except ApiError as exc:
        raise RefusedError(f"{_name(order)} refused its set-up (HTTP {exc.status})") from None
    except TransportError as exc:
        fix = "The controller must reach it: check its address and routes"
        raise RefusedError(f"{_name(order)} does not answer: {exc.message}", fix) from None
    return True


def _name(order: BringUp) -> str:
    return f"{order.option}: Vault at {order.endpoint}"


def _require_key(order: BringUp, status: int) -> None:
    """Refuse a sealed Vault whose key is elsewhere, and an empty one where there was one with a key."""
    known = UNSEAL_KEY in order.credentials()
    if status == _SEALED and not known:
        raise RefusedError(
            f"{_name(order)} is sealed, and {order.place} has no {UNSEAL_KEY}",
            "Copy that file from the controller that deployed it. If a first deployment was cut off, nothing is stored "
            "yet: remove it with deploy.delete_data, and deploy it again",
        )
    if status == _EMPTY and known:
        raise RefusedError(
            f"{_name(order)} is empty, and {order.place} has the key of one that was not",
            "Bring its data back; or, to begin anew, move that file away",
        )


def _initialise(order: BringUp, client: HttpClient) -> None:
    made = client.call(json_request("POST", "/v1/sys/init", body=dict(_PARTS))).data
    order.keep({**order.credentials(), UNSEAL_KEY: made["keys_base64"][0], ROOT_TOKEN: made["root_token"]})


def _unseal(order: BringUp, client: HttpClient) -> None:
    """Give Vault its key, and wait until it serves."""
    body = {"key": order.credentials()[UNSEAL_KEY]}
    client.call(json_request("POST", "/v1/sys/unseal", body=body))
    end = time.monotonic() + order.wait_s
    while _status_of(client) != _ACTIVE:
        if time.monotonic() > end:
            raise RefusedError(f"{_name(order)} does not serve {order.wait_s} s after it got its key")
        time.sleep(_AGAIN_S)


def _finish(order: BringUp) -> bool:
    """Do what is left of the set-up, end the first token, and return whether anything was left."""
    credentials = order.credentials()
    root = credentials.get(ROOT_TOKEN)
    if root is None or order.check:
        return root is not None
    with _open(order, root) as client:
        mounts = client.call(json_request("GET", "/v1/sys/mounts")).data
        for name, path, body in openbao.list_set_up(credentials):
            is_there = f"{openbao.MOUNT}/" in mounts if name == "mount" else _has_token(client, body)
            if not is_there:
                client.call(json_request("POST", f"/v1/{path}", body=body))
        client.call(json_request("POST", "/v1/auth/token/revoke-self"))
    order.keep({name: value for name, value in credentials.items() if name != ROOT_TOKEN})
    return True


def _has_token(client: HttpClient, body: t.Mapping[str, t.Any]) -> bool:
    """Return whether a token of the set-up is there already; policies and roles are written again."""
    if "id" not in body:
        return False
    asked = json_request("POST", "/v1/auth/token/lookup", body={"token": body["id"]})
    return client.call(asked, allow=(403, 404)).status == _ACTIVE


def _status_of(client: HttpClient) -> int:
    return client.call(json_request("GET", "/v1/sys/health"), allow=(_STANDBY, _EMPTY, _SEALED)).status


@contextlib.contextmanager
def _open(order: BringUp, token: str | None) -> t.Iterator[HttpClient]:
    ca = certificate_of(order.credentials())
    pool = ConnectionPool(timeouts=_TIMEOUTS, tls=TlsOptions(ca_pem=ca) if ca else None)
    if token is not None:
        remember(token)
    auth = bearer(Secret(token, f"{order.option} (Vault's first token)")) if token else None
    yield HttpClient(order.endpoint, auth=auth, timeouts=_TIMEOUTS, exchange=pool)
