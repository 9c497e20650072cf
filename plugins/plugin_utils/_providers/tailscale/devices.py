# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Change devices of a tailnet: tags, enabled routes, approval; delete one by id."""

from __future__ import annotations

import dataclasses

from ....module_utils._http.messages import json_request
from ....module_utils._http.urls import route
from ..base import post_request, send_delete
from ..parsing import JsonObject, text, texts
from .client import TailscaleClient


@dataclasses.dataclass(frozen=True, slots=True)
class Device:
    """One device. ``routes`` are the enabled ones; a route works when it is advertised and enabled."""

    id: str
    name: str
    hostname: str
    online: bool | None
    authorized: bool | None
    tags: tuple[str, ...]
    routes: tuple[str, ...]
    advertised_routes: tuple[str, ...]

    def to_dict(self) -> dict[str, object]:
        """Return the device as plain data."""
        values = dataclasses.asdict(self)
        return {key: list(value) if isinstance(value, tuple) else value for key, value in values.items()}


@dataclasses.dataclass(frozen=True, slots=True)
class Changes:
    """The values to set; None leaves one as it is. Lists are complete: the API replaces them."""

    tags: tuple[str, ...] | None = None
    routes: tuple[str, ...] | None = None
    authorized: bool | None = None

    @classmethod
    def between(
        cls,
        device: Device,
        *,
        tags: tuple[str, ...] | None,
        routes: tuple[str, ...] | None,
        authorized: bool | None,
    ) -> Changes:
        """Return the requested values that the device does not have yet; order does not count."""
        return cls(
            tags=tags if tags is not None and set(tags) != set(device.tags) else None,
            routes=routes if routes is not None and set(routes) != set(device.routes) else None,
            authorized=authorized if authorized is not None and authorized != device.authorized else None,
        )

    @property
    def is_empty(self) -> bool:
        """Return whether there is nothing to do."""
        return self == Changes()

    def apply_to(self, device: Device) -> Device:
        """Return the device as it is after the changes."""
        values = {item.name: getattr(self, item.name) for item in dataclasses.fields(self)}
        return dataclasses.replace(device, **{key: value for key, value in values.items() if value is not None})


class DeviceApi:
    """Devices of the tailnet that a client is for."""

    def __init__(self, client: TailscaleClient) -> None:
        self._client = client
        self._http = client.http

    def list_devices(self) -> list[Device]:
        """Return all devices of the tailnet itself, not those that others share into it."""
        return [_parse_device(raw) for raw in self._client.devices() if raw.get("isExternal") is not True]

    def apply(self, ident: str, changes: Changes) -> None:
        """Apply the changes. Each call sets a complete value, so that it may be repeated."""
        for name in ("authorized", "tags", "routes"):
            value = getattr(changes, name)
            if value is not None:
                request = post_request(route("/device/{id}/", id=ident) + name, {name: value})
                self._http.call(request._replace(idempotent=True))

    def delete(self, ident: str) -> bool:
        """Delete one device by id: names repeat, ids do not."""
        return send_delete(self._http, json_request("DELETE", route("/device/{id}", id=ident)))


def _parse_device(raw: JsonObject) -> Device:
    connected = raw.get("connectedToControl")
    authorized = raw.get("authorized")
    return Device(
        id=str(raw["nodeId"]),
        name=(text(raw.get("name")) or "").rstrip("."),
        hostname=text(raw.get("hostname")) or "",
        online=connected if isinstance(connected, bool) else None,
        authorized=authorized if isinstance(authorized, bool) else None,
        tags=tuple(texts(raw.get("tags"))),
        routes=tuple(texts(raw.get("enabledRoutes"))),
        advertised_routes=tuple(texts(raw.get("advertisedRoutes"))),
    )
