# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From a tailnet device to a node record."""

from __future__ import annotations

import datetime
import re

from ....module_utils._model.node import NodeState
from ..node_record import ProviderHost, build_record, clean_addresses
from ..parsing import JsonObject, moment, text

PREFIX = "tailscale_"
# Where the server does not say who is connected (headscale 0.30), a device seen this long ago still counts as such.
RECENT = datetime.timedelta(minutes=10)

_SECOND = re.compile(r"-[0-9]+\Z")

_KEYS = (
    "nodeId", "name", "hostname", "addresses", "user", "os", "clientVersion", "created", "lastSeen", "expires",
    "authorized", "keyExpiryDisabled", "isExternal", "isEphemeral", "tags", "enabledRoutes", "advertisedRoutes",
    "sshEnabled", "blocksIncomingConnections", "updateAvailable", "multipleConnections", "tailnetLockError",
    "isSelf", "path",
)  # fmt: skip
_NAMES = tuple(PREFIX + re.sub(r"(?=[A-Z])", "_", key).lower() for key in _KEYS)


def parse_time(value: object) -> datetime.datetime | None:
    """Return an ISO 8601 time with its zone, None for an unset or unreadable one."""
    time = moment(value)
    if time is None:
        return None
    try:
        parsed = datetime.datetime.fromisoformat(time)
    except ValueError:
        return None
    return parsed if parsed.tzinfo else parsed.replace(tzinfo=datetime.UTC)


def is_online(device: JsonObject, now: datetime.datetime) -> bool | None:
    """Return whether the device is connected to its coordination server; None when it is unknown."""
    connected = device.get("connectedToControl")
    if isinstance(connected, bool):
        return connected
    seen = parse_time(device.get("lastSeen"))
    return None if seen is None else now - seen < RECENT


def is_expired(device: JsonObject, now: datetime.datetime) -> bool:
    """Return whether the device's key has ended, so that it cannot be reached over the mesh."""
    if isinstance(device.get("expired"), bool):
        return bool(device["expired"])
    if device.get("keyExpiryDisabled") is True:
        return False
    ends = parse_time(device.get("expires"))
    return ends is not None and ends <= now


def short_name(device: JsonObject) -> str:
    """Return the device's name: its MagicDNS label, without the number that a second device of one name gets.

    The machine that joined again under its name is ``node-1`` for MagicDNS while the dead one keeps ``node``.
    """
    hostname = text(device.get("hostname")) or ""
    ident = str(device["nodeId"])
    label = (text(device.get("name")) or hostname or ident).partition(".")[0] or ident
    if label == hostname or (hostname and _SECOND.match(label.removeprefix(hostname.lower()))):
        return hostname
    return label


def to_host(device: JsonObject, account: str, now: datetime.datetime) -> ProviderHost:
    """Return the record of one device. A tailnet does not list GPUs, memory or kind."""
    name = short_name(device)
    connected = is_online(device, now)
    has_expired = is_expired(device, now)
    is_blocked = has_expired or device.get("authorized") is False
    data = dict(zip(_NAMES, map(device.get, _KEYS), strict=True))
    data["tailscale_online"] = connected
    data["tailscale_expired"] = has_expired
    data["tailscale_reachable"] = bool(connected) and not is_blocked
    dns = (text(device.get("name")) or "").rstrip(".")
    state: NodeState = "offline" if is_blocked or connected is False else "running" if connected else "unknown"
    mesh, created = clean_addresses(device.get("addresses")), moment(device.get("created"))
    ident = str(device["nodeId"])
    record = build_record(ident, name, "tailscale", account, None, None, state, mesh=mesh, created_at=created)
    return ProviderHost(ident, name, record, data, dns if "." in dns else None)
