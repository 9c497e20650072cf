# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A host's record as its inventory states it, merged with the facts that were measured on it. The only merge."""

from __future__ import annotations

import dataclasses
import ipaddress
import typing as t

from . import validators as f
from .node import Address, Addresses, Gpu, Node

# What only an inventory knows; everything else is measured better on the node itself.
STATED: t.Final = frozenset(
    {"name", "id", "ownership", "provider", "account", "product", "kind", "state", "region", "site", "preemptible"}
    | {"ssh", "network_types", "price_usd_per_hour", "owner", "created_at", "fabric_hint"}
)
# Sections of which each field is merged by itself.
_SECTIONS: t.Final = ("ssh", "cpu", "owner", "driver", "gpudirect")
_UNKNOWN: t.Final[tuple[t.Any, ...]] = (None, (), {}, "unknown")

# Tailscale's ranges (shared address space of RFC 6598, and a unique local prefix).
_MESH_RANGES: t.Final = (ipaddress.ip_network("100.64.0.0/10"), ipaddress.ip_network("fd7a:115c:a1e0::/48"))

# Paths over a mesh are asked for as many peers.
_PEERS: t.Final = 32

T = t.TypeVar("T")


def read_record(name: str, variables: t.Mapping[str, t.Any]) -> Node:
    """Return what an inventory says of the host ``name``.

    A host for which it states no address has that of ``ansible_host``, where this is an address and not a name.

    :raises InputError: naming the host and the field that cannot be read.
    """
    path = f"{name}.muster_node"
    record = Node.from_dict({**f.dictionary(variables.get("muster_node") or {}, path), "name": name}, path)
    if any((record.addresses.mesh, record.addresses.lan, record.addresses.public)):
        return record
    return dataclasses.replace(record, addresses=_address_of_host(str(variables.get("ansible_host") or "")))


def find_mesh_range(address: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    """Return the range of a mesh that an address is of, None for an address of another network."""
    ip = ipaddress.ip_address(address)
    return next((network for network in _MESH_RANGES if ip.version == network.version and ip in network), None)


def find_mesh_peers(name: str, variables: t.Mapping[str, t.Mapping[str, t.Any]]) -> list[str]:
    """Return the mesh addresses of other hosts, at most 32; of a host without one, the name under which it joins.

    :param variables: the variables of each host of the play. A machine joins the mesh under the name of its Node.
    """
    others = [host for host in variables if host != name][:_PEERS]
    records = [read_record(host, variables[host]) for host in others]
    names = [str((variables[host].get("muster_node") or {}).get("name") or host).lower() for host in others]
    return [
        record.addresses.mesh[0].address if record.addresses.mesh else named
        for record, named in zip(records, names, strict=True)
    ]


def _address_of_host(host: str) -> Addresses:
    try:
        ip = ipaddress.ip_address("127.0.0.1" if host == "localhost" else host)
    except ValueError:
        return Addresses()
    entry = (Address(str(ip)),)
    if find_mesh_range(str(ip)):
        return Addresses(mesh=entry)
    return Addresses(public=entry) if ip.is_global else Addresses(lan=entry)


def merge_facts(record: Node, facts: Node) -> Node:
    """Return the node of an inventory's ``record`` and of measured ``facts``.

    Facts win field by field, in sections such as ``gpu`` too; a field that was not measured keeps the inventory's
    value. The inventory wins in ``STATED``. ``network_types`` are those of both.
    """
    values: dict[str, t.Any] = {}
    for field in dataclasses.fields(Node):
        stated, measured = getattr(record, field.name), getattr(facts, field.name)
        first, second = (stated, measured) if field.name in STATED else (measured, stated)
        values[field.name] = _fill(first, second) if field.name in _SECTIONS else _first_known(first, second)
    values["gpu"] = _merge_gpu(record.gpu, facts.gpu)
    values["k3s"] = record.k3s if facts.k3s.capable is None else facts.k3s
    values["addresses"] = merge_addresses(record.addresses, facts.addresses)
    named = {*record.network_types, *facts.network_types}
    values["network_types"] = tuple(name for name in ("mesh", "lan", "public") if name in named)
    return Node(**values)


def merge_addresses(stated: Addresses, own: Addresses) -> Addresses:
    """Return the addresses of a node by network: where its interfaces have some, these, those that the inventory names
    first; else the inventory's.

    A provider's address that no interface has (NAT) cannot be listened on. Loopback addresses are every node's own.
    """
    owned = {item.address: item for item in (*own.mesh, *own.lan, *own.public)}

    def merge(named: tuple[Address, ...], measured: tuple[Address, ...]) -> tuple[Address, ...]:
        known = [item for item in (owned.get(entry.address) or _loopback(entry) for entry in named) if item]
        if not known and not measured:
            return named
        return tuple(dict.fromkeys((*known, *measured)))

    return Addresses(
        mesh=merge(stated.mesh, own.mesh), lan=merge(stated.lan, own.lan), public=merge(stated.public, own.public)
    )


def prefer_interface(addresses: Addresses, interface: str | None) -> Addresses:
    """Return the addresses with those of ``interface``, by which the user reaches the node, first in their network."""

    def order(items: tuple[Address, ...]) -> tuple[Address, ...]:
        return tuple(sorted(items, key=lambda item: item.interface != interface))

    if interface is None:
        return addresses
    return Addresses(mesh=order(addresses.mesh), lan=order(addresses.lan), public=order(addresses.public))


def _loopback(entry: Address) -> Address | None:
    try:
        is_loopback = ipaddress.ip_address(entry.address).is_loopback
    except ValueError:
        return None
    return dataclasses.replace(entry, interface="lo") if is_loopback else None


def _merge_gpu(stated: Gpu, measured: Gpu) -> Gpu:
    """Return the GPUs; a node on which none was found has no model either, whatever its offer said."""
    return measured if measured.count == 0 else _fill(measured, stated)


def _first_known(first: t.Any, second: t.Any) -> t.Any:
    return second if first in _UNKNOWN else first


def _fill(first: T, second: T) -> T:
    """Return ``first`` with its unknown fields taken from ``second``."""
    names = [field.name for field in dataclasses.fields(t.cast(t.Any, first))]
    values = {name: _first_known(getattr(first, name), getattr(second, name)) for name in names}
    return t.cast(T, dataclasses.replace(t.cast(t.Any, first), **values))
