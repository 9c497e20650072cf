# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How Ansible reaches a host: which of its addresses, and with whose host keys."""

from __future__ import annotations

import shlex
import typing as t
from collections.abc import Sequence

from .._providers.node_record import AddressFields, ProviderHost

Way = t.Literal["mesh", "magicdns", "public", "private", "ssh_direct"]
WAYS: tuple[str, ...] = t.get_args(Way)
SSH_PORT = 22
_NETWORKS = {"mesh": "mesh", "public": "public", "private": "lan"}
# Loopback and link-local addresses (RFC 3927, RFC 4291): of use on the machine or its cable only.
_NO_ADDRESS = ("::1", "::", "0.0.0.0")
_OWN_LINK = ("127.", "169.254.", "fe8", "fe9", "fea", "feb", "FE8", "FE9", "FEA", "FEB")


class Endpoint(t.NamedTuple):
    """Where SSH connects; ``user`` None leaves it to the user's own settings."""

    host: str
    port: int | None
    user: str | None


def first_usable_address(addresses: Sequence[AddressFields]) -> str | None:
    """Return the first IPv4 address, else the first IPv6 address, that other machines can use; None without one."""
    second = None
    for entry in addresses:
        address = entry["address"]
        if address.startswith(_OWN_LINK) or address in _NO_ADDRESS:
            continue
        if ":" not in address:
            return address
        second = second or address
    return second


def choose_endpoint(host: ProviderHost, ways: Sequence[str]) -> Endpoint | None:
    """Return the endpoint by the first of ``ways`` that this host has, None when it has none."""
    user = host.record["ssh"]["user"]
    for way in ways:
        if way == "ssh_direct" and host.direct:
            return Endpoint(host.direct[0], host.direct[1], host.direct[2] or user)
        if way == "magicdns" and host.dns:
            return Endpoint(host.dns, None, user)
        address = first_usable_address(host.record["addresses"][_NETWORKS[way]]) if way in _NETWORKS else None
        if address:
            # A provider may serve SSH on another port of the public address only.
            port = host.direct[1] if way == "public" and host.direct and host.direct[0] == address else None
            return Endpoint(address, None if port == SSH_PORT else port, user)
    return None


def key_arguments(folder: str, provider: str, ident: str) -> str:
    """Return SSH arguments that keep this machine's host keys in a file of its own.

    Providers reuse addresses and ports; in a shared file the next machine would look like an attack, or an attack like
    the next machine.
    """
    alias = f"{provider}-{ident}"
    return shlex.join(["-o", f"UserKnownHostsFile={folder}/{alias}", "-o", f"HostKeyAlias={alias}"])
