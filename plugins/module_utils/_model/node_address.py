# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The address at which the nodes of a job reach a node. The only rule that chooses one."""

from __future__ import annotations

import collections
import ipaddress
import typing as t

from .node import Address, NetworkType, Node

ORDER: t.Final[tuple[NetworkType, ...]] = ("lan", "mesh", "public")


def choose_address(
    node: Node, wanted: t.Sequence[str] = (), excluded: t.Container[str] = frozenset()
) -> Address | None:
    """Return the node's address: of the asked types, else LAN, then mesh, then public; None without one.

    An address that an interface of the node is known to have comes before one that only an inventory states: a job
    listens on it. Within a network IPv4 comes first.

    :param excluded: addresses that do not tell the nodes of a job apart.
    """
    listed = [item for kind in (wanted or ORDER) for item in _usable(getattr(node.addresses, kind))]
    candidates = [item for item in listed if item.address not in excluded]
    return next((item for item in candidates if item.interface), None) or next(iter(candidates), None)


def find_shared_addresses(nodes: t.Iterable[Node]) -> frozenset[str]:
    """Return the addresses that several nodes have: of containers behind NAT, or of one machine listed twice."""
    owners = collections.Counter(
        address
        for node in nodes
        for address in {item.address for kind in ORDER for item in getattr(node.addresses, kind)}
    )
    return frozenset(address for address, count in owners.items() if count > 1)


def is_loopback(address: str) -> bool:
    """Return whether an address, or the name ``localhost``, is a machine's own loopback."""
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"


def _usable(addresses: t.Iterable[Address]) -> list[Address]:
    return sorted((item for item in addresses if not _is_useless(item.address)), key=lambda item: ":" in item.address)


def _is_useless(address: str) -> bool:
    try:
        ip = ipaddress.ip_address(address)
    except ValueError:
        return False
    return ip.is_link_local or ip.is_unspecified
