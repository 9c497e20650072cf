# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""List and delete what a rented node leaves in a tailnet: its device and the key it joined with.

Works with Tailscale and with headscale from 0.30 on (its API v2). A key's description carries the token, a device
has it in its name, because a node joins under the name it was rented by.
"""

from __future__ import annotations

import dataclasses
import re

from ....module_utils._http.messages import JsonResponse, json_request
from ....module_utils._http.urls import route
from ....module_utils._model.errors import InputError
from ....module_utils._model.lease import Instance, OrderAccepted, OrderResult, ProviderTraits, parse_instance_name
from ....module_utils._secrets.secret import Secret
from ..base import ProviderAccount, post_request, send_delete, send_order
from ..connection import ProviderConnection
from ..listing import read_listing
from ..parsing import JsonObject, as_mapping, moment, text, texts
from .client import API_URL, NAME, TailscaleClient, error_detail
from .mapping import short_name

# Documented: letters, digits, spaces and hyphens, at most 50.
_DESCRIPTION = re.compile(r"[A-Za-z0-9 -]{1,50}\Z")
_TAG = re.compile(r"tag:[A-Za-z][A-Za-z0-9-]{0,60}\Z")


@dataclasses.dataclass(frozen=True, slots=True)
class KeyOrder:
    """An auth key to create. ``name`` becomes its description; ``expiry_s`` is how long it may be used to join."""

    name: str
    tags: tuple[str, ...]
    expiry_s: int = 3600
    reusable: bool = False
    ephemeral: bool = True
    preauthorized: bool = True


@dataclasses.dataclass(frozen=True, slots=True)
class CreatedKey:
    """A key that was created. The API shows ``key`` only once."""

    id: str
    key: Secret
    expires: str | None


def parse_tags(value: tuple[str, ...], option: str = "tags") -> tuple[str, ...]:
    """Return tags of the form ``tag:name``, or raise InputError."""
    for index, tag in enumerate(value):
        if not _TAG.match(tag):
            raise InputError(f"{option}[{index}]", "must be of the form tag:name")
    return value


class TailscaleAccount(ProviderAccount):
    """One tailnet: its devices and its auth keys. The credential needs the scopes devices:core and auth_keys."""

    name = "tailscale"
    traits = ProviderTraits(list_lag_s=30.0, settle_s=120.0)

    def __init__(
        self, access: ProviderConnection, account: str = "", *, client_id: str = "", tailnet: str = "-"
    ) -> None:
        super().__init__(access, account, API_URL)
        self.client = TailscaleClient(access, client_id=client_id, tailnet=tailnet)
        self._http = self.client.http
        self._keys = f"/tailnet/{self.client.tailnet}/keys"

    def list_instances(self) -> tuple[Instance, ...]:
        """Return every own device and every auth key that still works; shared-in devices belong to others."""
        devices = [
            _parse_device(raw) for raw in self.client.devices(all_fields=False) if raw.get("isExternal") is not True
        ]
        listed, _answer = read_listing(self._http, self._keys, "keys", NAME, [("all", "true")])
        return (*devices, *(_parse_key(raw) for raw in listed if _is_usable(raw)))

    def delete(self, instance: Instance) -> bool:
        if instance.resource == "auth_key":
            path = f"{self._keys}/{route('{id}', id=instance.id)}"
        else:
            path = route("/device/{id}", id=instance.id)
        return send_delete(self._http, json_request("DELETE", path))

    def create_key(self, order: KeyOrder) -> tuple[OrderResult, CreatedKey | None]:
        """Create one auth key, in one call that is never repeated; the key itself comes with a success only."""
        if not _DESCRIPTION.match(order.name):
            raise InputError("name", "must be at most 50 letters, digits, spaces and hyphens")
        device = {
            "reusable": order.reusable,
            "ephemeral": order.ephemeral,
            "preauthorized": order.preauthorized,
            "tags": list(order.tags),
        }
        body = {
            "capabilities": {"devices": {"create": device}},
            "expirySeconds": order.expiry_s,
            "description": order.name,
        }
        created: list[CreatedKey] = []

        def read(answer: JsonResponse) -> OrderResult | None:
            if answer.status >= 400:
                return None
            data = answer.data
            key = Secret(data["key"], "the new auth key", token=True)
            created.append(CreatedKey(str(data["id"]), key, moment(data.get("expires"))))
            return OrderAccepted(created[0].id)

        answer = send_order(self._http, post_request(self._keys, body), read, error_detail, self.clock)
        return answer, created[0] if created and isinstance(answer, OrderAccepted) else None


def _is_usable(raw: JsonObject) -> bool:
    """Return whether a listed key may still let a device in: headscale keeps revoked ones with ``invalid``."""
    return (
        raw.get("keyType", "auth") == "auth" and raw.get("invalid") is not True and moment(raw.get("revoked")) is None
    )


def _parse_key(raw: JsonObject) -> Instance:
    name = text(raw.get("description")) or str(raw.get("id"))
    parts = parse_instance_name(name)
    return Instance("tailscale", str(raw.get("id")), name, parts.token if parts else None, "running", "auth_key")


def _parse_device(raw: JsonObject) -> Instance:
    # The host name is the one the node was configured with; the MagicDNS name may have a number behind it.
    parts = parse_instance_name(text(raw.get("hostname"))) or parse_instance_name(text(raw.get("name")))
    name = str(parts) if parts else short_name(raw)
    online = as_mapping(raw).get("connectedToControl")
    return Instance(
        "tailscale",
        str(raw["nodeId"]),
        name,
        parts.token if parts else None,
        "running" if online else "unknown" if online is None else "offline",
        "device",
        detail=", ".join(texts(raw.get("tags"))),
    )
