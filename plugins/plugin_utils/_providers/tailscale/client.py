# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Devices of a tailnet, from the Tailscale API or a headscale server.

Sources: Tailscale API v2 (OpenAPI 3.1, ``/tailnet/{tailnet}/devices``), headscale 0.29 API v1 (Swagger 2.0,
``/api/v1/node``), headscale 0.30 API v2 (Tailscale-compatible).
"""

from __future__ import annotations

import re
import typing as t
from collections.abc import Callable, Mapping, Sequence

from ....module_utils._http.client import HttpClient
from ....module_utils._http.clock import Clock
from ....module_utils._http.messages import json_request
from ....module_utils._model.errors import InputError
from ....module_utils._secrets.auth import bearer
from ....module_utils._secrets.secret import Secret
from ..connection import ProviderConnection
from ..listing import read_listing
from ..parsing import JsonObject, as_mapping, join_texts, number, read_items, text, unexpected_answer, unique_items

API_URL = "https://api.tailscale.com"
NAME = "Tailscale"
_NOT_FOUND = 404

# What is kept of a device. Keys of nodes and machines identify them to the coordination server and are left out.
FIELDS = (
    "nodeId", "name", "hostname", "addresses", "user", "os", "clientVersion", "created", "connectedToControl",
    "lastSeen", "keyExpiryDisabled", "expires", "authorized", "isExternal", "isEphemeral", "tags", "enabledRoutes",
    "advertisedRoutes", "blocksIncomingConnections", "updateAvailable", "sshEnabled", "multipleConnections",
    "tailnetLockError",
)  # fmt: skip

_KEPT = frozenset(FIELDS)

_ADVICE = {
    401: "The credential was refused: API tokens end after at most 90 days, OAuth clients do not",
    403: "The credential lacks the scope devices:core:read",
    404: "No such tailnet or API: check tailnet and api_url",
}


def error_detail(body: object) -> str:
    """Return the message of an error answer (Tailscale ``message``, OAuth ``error_description``, others ``detail``)."""
    error = as_mapping(body)
    return join_texts(
        error.get("message") or error.get("error_description") or error.get("detail") or error.get("error")
    )


class OAuthToken:
    """An access token fetched with a client id and secret, renewed a minute before it ends or when it is refused."""

    def __init__(self, http: HttpClient, client_id: str, secret: Secret, clock: Clock, scope: str = "") -> None:
        self._http = http
        self._form = {"client_id": client_id, "grant_type": "client_credentials", **({"scope": scope} if scope else {})}
        self._secret = secret
        self._clock = clock
        self._token: Secret | None = None
        self._ends = 0.0

    def headers(self) -> Mapping[str, str]:
        token = self._token
        if token is None or self._clock.monotonic() >= self._ends:
            token = self._token = self._fetch()
        return bearer(token).headers()

    def refresh(self) -> bool:
        self._token = None
        return True

    def _fetch(self) -> Secret:
        form = {**self._form, "client_secret": self._secret.reveal()}
        # A second token is harmless: an account may have many, and they expire.
        answer = as_mapping(self._http.call(json_request("POST", "/oauth/token", form=form, idempotent=True)).data)
        token = text(answer.get("access_token"))
        if token is None:
            raise unexpected_answer(NAME, "no access_token")
        self._ends = self._clock.monotonic() + max(0.0, (number(answer.get("expires_in")) or 3600.0) - 60.0)
        return Secret(token, "OAuth access token", token=True)


class TailscaleClient:
    """The API v2 of Tailscale, or of headscale from 0.30.

    :param access: ``secret`` is an API token, or with ``client_id`` the secret of an OAuth client.
    :param tailnet: ``-`` means the credential's own.
    """

    def __init__(self, access: ProviderConnection, *, client_id: str = "", tailnet: str = "-") -> None:
        base = access.base(API_URL).under("/api/v2", "/api/v1")
        http = access.http(base, None, error_detail=error_detail, advice=_ADVICE)
        auth = OAuthToken(http, client_id, access.token, access.clock) if client_id else bearer(access.token)
        self.http = access.http(base, auth, error_detail=error_detail, advice=_ADVICE)
        self.account = access.account
        if not re.fullmatch(r"[A-Za-z0-9.@_-]{1,253}", tailnet):
            raise InputError("tailnet", "must be the tailnet's name or '-'")
        self.tailnet = tailnet

    def devices(self, filters: Sequence[tuple[str, str]] = (), *, all_fields: bool = True) -> list[JsonObject]:
        """Return every device, whitelisted. ``filters`` go to the server, such as ``("tags", "tag:gpu")``.

        The API has no pages ("all results are returned at once").
        """
        query = [("fields", "all"), *filters] if all_fields else list(filters)
        listed, _answer = read_listing(self.http, f"/tailnet/{self.tailnet}/devices", "devices", NAME, query)
        return unique_items(map(_from_v2, listed), "nodeId", NAME)


class HeadscaleClient:
    """A headscale server: its API v2 where it has one (0.30), else v1 (0.29). There are no filters on the server."""

    def __init__(self, access: ProviderConnection, *, client_id: str = "") -> None:
        if not access.api_url:
            raise InputError("api_url", "is missing", "Give the address of the headscale server")
        self._v2 = TailscaleClient(access, client_id=client_id)
        base = access.base("").under("/api/v1", "/api/v2")
        self._v1 = access.http(base, bearer(access.token), error_detail=error_detail, advice=_ADVICE)
        self.account = access.account

    def devices(self) -> list[JsonObject]:
        """Return every node in the shape of API v2, whitelisted."""
        request = json_request("GET", "/tailnet/-/devices", query=[("fields", "all")])
        answer = self._v2.http.call(request, allow=(_NOT_FOUND,))
        if answer.status != _NOT_FOUND:
            return unique_items(map(_from_v2, read_items(answer.data, "devices", "headscale")), "nodeId", "headscale")
        return unique_items(
            map(from_v1, read_items(self._v1.get("/node"), "nodes", "headscale")), "nodeId", "headscale"
        )


class DeviceListing(t.NamedTuple):
    """How to list the devices of one tailnet; ``key`` is what decides the answer besides address and account."""

    account: str
    fetch: Callable[[], list[JsonObject]]
    key: tuple[str, ...]


def choose_listing(
    source: str,
    access: Callable[[], ProviderConnection],
    *,
    client_id: str,
    tailnet: str,
    filters: Mapping[str, t.Any],
    run_local: Callable[[], list[JsonObject]],
) -> DeviceListing:
    """Return the listing for ``source`` (tailscale, headscale or local); only ``local`` needs no access."""
    if source == "local":
        return DeviceListing("", run_local, (source,))
    if source == "headscale":
        headscale = HeadscaleClient(access(), client_id=client_id)
        return DeviceListing(headscale.account, headscale.devices, (source,))
    tailscale = TailscaleClient(access(), client_id=client_id, tailnet=tailnet)
    pairs = filter_pairs(filters)
    key = (source, tailnet, client_id, *map("=".join, pairs))
    return DeviceListing(tailscale.account, lambda: tailscale.devices(pairs), key)


def filter_pairs(filters: Mapping[str, t.Any]) -> list[tuple[str, str]]:
    """Return ``{"tags": ["tag:a", "tag:b"], "os": "linux"}`` as query pairs; keys repeat for lists."""
    pairs: list[tuple[str, str]] = []
    for name, wanted in filters.items():
        for value in wanted if isinstance(wanted, list) else [wanted]:
            if not isinstance(value, (str, bool, int)):
                raise InputError(f"server_filters.{name}", "must be text, a number, a boolean or a list of them")
            pairs.append((str(name), str(value).lower() if isinstance(value, bool) else str(value)))
    return pairs


def _from_v2(raw: JsonObject) -> JsonObject:
    """Return a device without what is not on the list; in place, as there may be ten thousand."""
    if not raw.get("nodeId"):
        raw["nodeId"] = text(raw.get("id"))
    for key in raw.keys() - _KEPT:
        del raw[key]
    return raw


def from_v1(raw: JsonObject) -> JsonObject:
    """Return a node of headscale's API v1 in the shape of a Tailscale device; what v1 does not know is absent."""
    user, key = as_mapping(raw.get("user")), as_mapping(raw.get("preAuthKey"))
    expiry = raw.get("expiry")
    return {
        "nodeId": text(raw.get("id")),
        "name": raw.get("givenName") or raw.get("name"),
        "hostname": raw.get("name"),
        "addresses": raw.get("ipAddresses"),
        "user": user.get("name"),
        "created": raw.get("createdAt"),
        "connectedToControl": raw.get("online"),
        "lastSeen": raw.get("lastSeen"),
        "keyExpiryDisabled": expiry is None,
        "expires": expiry,
        "authorized": True,
        "isEphemeral": key.get("ephemeral"),
        "tags": raw.get("tags"),
        "enabledRoutes": raw.get("approvedRoutes"),
        "advertisedRoutes": raw.get("availableRoutes"),
    }
