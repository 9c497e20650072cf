# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Secrets in Infisical, by its public API: a machine identity logs in, reads, and ends its token at once."""

from __future__ import annotations

import contextlib
import dataclasses
import typing as t

from ...module_utils._http.client import HttpClient
from ...module_utils._http.connection_pool import ConnectionPool
from ...module_utils._http.messages import json_request
from ...module_utils._http.retry import Timeouts
from ...module_utils._http.tls import TlsOptions
from ...module_utils._http.urls import route
from ...module_utils._model.errors import ApiError, InputError, MusterError, RefusedError, TransportError
from ...module_utils._secrets.auth import bearer
from ...module_utils._secrets.secret import Secret

DEFAULT_ADDRESS: t.Final = "https://app.infisical.com"
_TIMEOUTS: t.Final = Timeouts(total_s=30.0)


@dataclasses.dataclass(frozen=True, slots=True)
class InfisicalAccess:
    """How Infisical is asked: as a machine identity (Universal Auth), or with a token that exists."""

    address: str
    client_id: Secret | None = None
    client_secret: Secret | None = None
    token: Secret | None = None
    ca: str | None = None


def read_values(access: InfisicalAccess, path: str, names: t.Collection[str], option: str) -> dict[str, bytes]:
    """Return those of the secrets ``names`` that are at ``PROJECT/ENVIRONMENT/FOLDER``.

    :raises InputError: when the path is none, or may not be read.
    :raises RefusedError: when Infisical cannot be reached.
    """
    project, _slash, rest = path.strip("/").partition("/")
    environment, _slash, folder = rest.partition("/")
    if not project or not environment:
        raise InputError(f"{option}.path", "must be PROJECT/ENVIRONMENT or PROJECT/ENVIRONMENT/FOLDER")
    found: dict[str, bytes] = {}
    with _session(access, path, option) as client:
        for name in names:
            query = [("projectId", project), ("environment", environment), ("secretPath", f"/{folder}")]
            answer = client.call(
                json_request("GET", route("/api/v4/secrets/{name}", name=name), query=query), allow=(404,)
            )
            if answer.status == 404:
                continue
            item = answer.data["secret"]
            if item.get("secretValueHidden"):
                fix = "Give it the permission to read values"
                raise InputError(option, f"the identity may see {name} and not its value", fix)
            found[name] = str(item["secretValue"]).encode()
    return found


def check_access(access: InfisicalAccess, option: str) -> None:
    """Refuse an Infisical that does not answer, or that refuses the identity."""
    with _session(access, "", option):
        pass


@contextlib.contextmanager
def _session(access: InfisicalAccess, path: str, option: str) -> t.Iterator[HttpClient]:
    tls = TlsOptions(ca_pem=access.ca) if access.ca else None
    pool = ConnectionPool(timeouts=_TIMEOUTS, tls=tls)
    made: Secret | None = None
    try:
        if access.token is None:
            made = _log_in(HttpClient(access.address, timeouts=_TIMEOUTS, exchange=pool), access, option)
        token = t.cast(Secret, access.token or made)
        client = HttpClient(access.address, auth=bearer(token), timeouts=_TIMEOUTS, exchange=pool)
        try:
            yield client
        finally:
            if made is not None:
                # It is not needed any more; where it cannot be ended it expires.
                with contextlib.suppress(MusterError):
                    body = {"accessToken": made.reveal()}
                    client.send(json_request("POST", "/api/v1/auth/token/revoke", body=body))
    except ApiError as exc:
        raise _explain(exc, access, path, option) from None
    except TransportError as exc:
        fix = "Check the address, its CA and routes"
        raise RefusedError(f"{option}: Infisical at {access.address} does not answer: {exc.message}", fix) from None


def _log_in(client: HttpClient, access: InfisicalAccess, option: str) -> Secret:
    if access.client_id is None or access.client_secret is None:
        raise InputError(option, "Infisical needs the id and the secret of a machine identity, or a token")
    body = {"clientId": access.client_id.reveal(), "clientSecret": access.client_secret.reveal()}
    answer = client.call(json_request("POST", "/api/v1/auth/universal-auth/login", body=body)).data
    return Secret(str((answer or {}).get("accessToken") or ""), f"{option} (Infisical's token)")


def _explain(exc: ApiError, access: InfisicalAccess, path: str, option: str) -> MusterError:
    if exc.status == 401:
        return InputError(option, f"the identity is refused by {access.address}", "Check its id and its secret")
    if exc.status == 403:
        return InputError(option, f"the identity may not read {path} of {access.address}", "Add it to the project")
    return RefusedError(f"{option}: {access.address} gave no secret at {path} (HTTP {exc.status})", "Check the path")
