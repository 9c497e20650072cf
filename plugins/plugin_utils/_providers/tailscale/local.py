# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Devices of a tailnet as the Tailscale client on this machine sees them: no token, but only its own peers.

Source: ``ipnstate.Status`` of the Tailscale client (``tailscale status --json``). Its format may change between
releases, so everything but the state of the client and the ids is optional.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

from ....module_utils._model.errors import TransportError
from ..client_program import ClientProgram
from ..parsing import JsonObject, as_mapping, text, unexpected_answer, unique_items

NAME = "tailscale status"
_TIMEOUT_S = 20
_COPIED = {
    "ID": "nodeId",
    "HostName": "hostname",
    "TailscaleIPs": "addresses",
    "OS": "os",
    "Created": "created",
    "Online": "connectedToControl",
    "LastSeen": "lastSeen",
    "KeyExpiry": "expires",
    "Expired": "expired",
    "Tags": "tags",
    "ShareeNode": "isExternal",
    "PrimaryRoutes": "enabledRoutes",
}
_CLIENT = ClientProgram(NAME, "Tailscale", "tailscale_binary", _TIMEOUT_S)


def run_status(binary: str) -> bytes:
    """Return what ``tailscale status --json`` prints; raise :class:`TransportError` when it fails."""
    process = _CLIENT.run(binary, ["status", "--json"], NAME, "Check that tailscaled runs")
    # A stopped client exits with 1 and still prints its state.
    if process.returncode and not process.stdout.strip():
        raise TransportError(f"{NAME}: failed with exit code {process.returncode}", "Check that tailscaled runs")
    return process.stdout


def list_devices(binary: str = "tailscale", run: Callable[[str], bytes] = run_status) -> list[JsonObject]:
    """Return this machine and its peers in the shape of a Tailscale device."""
    try:
        status = json.loads(run(binary))
    except (ValueError, RecursionError):
        raise unexpected_answer(NAME, "not JSON") from None
    return parse_status(status)


def parse_status(status: object) -> list[JsonObject]:
    """Return the devices in a decoded status, this machine first; raise unless the client is connected."""
    if not isinstance(status, Mapping):
        raise unexpected_answer(NAME, "no object")
    state = text(status.get("BackendState")) or "unknown"
    if state != "Running":
        raise TransportError(f"{NAME}: the client is {state}, not Running", "Run 'tailscale up' on this machine")
    peers = status.get("Peer")
    if not isinstance(status.get("Self"), Mapping) or not isinstance(peers, (Mapping, type(None))):
        raise unexpected_answer(NAME, "no Self or Peer")
    users = as_mapping(status.get("User"))
    devices = [{**_parse_peer(as_mapping(status["Self"]), users), "isSelf": True}]
    devices += [_parse_peer(as_mapping(peer), users) for peer in (peers or {}).values()]
    return unique_items(devices, "nodeId", NAME)


def _parse_peer(peer: Mapping[str, object], users: Mapping[str, object]) -> JsonObject:
    device: JsonObject = {name: peer.get(key) for key, name in _COPIED.items()}
    device["name"] = (text(peer.get("DNSName")) or text(peer.get("HostName")) or "").rstrip(".")
    device["user"] = as_mapping(users.get(str(peer.get("UserID")))).get("LoginName")
    device["authorized"] = True
    device["path"] = _parse_path(peer)
    return device


def _parse_path(peer: Mapping[str, object]) -> str | None:
    """Return whether traffic to a peer flows directly or by a relay; None when there is none at present.

    ``Relay`` alone is only the peer's home region: an idle peer has one too.
    """
    if text(peer.get("CurAddr")):
        return "direct"
    active = peer.get("Active") is True and (text(peer.get("PeerRelay")) or text(peer.get("Relay")))
    return "relayed" if active else None
