# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The node record as an inventory makes it (contract "Node record"), and what a mapping returns.

Records are plain mappings, built in one expression: ten thousand of them are made before the first task runs.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import re
import typing as t
from collections.abc import Mapping

from ...module_utils._model.lease import parse_name
from ...module_utils._model.node import Kind, NetworkType, Ownership, State

Record = dict[str, t.Any]

# Dotted or with colons, then perhaps a zone or a prefix length.
_ADDRESS = re.compile(r"\s*([0-9]{1,3}(?:\.[0-9]{1,3}){3}|[0-9a-fA-F]*:[0-9a-fA-F:.]+)(?:[%/].*)?\s*\Z")
# Several, each without zone and prefix length: the common case, seen at once.
_CLEAN = re.compile(r"[0-9]+\.[0-9]+\.[0-9]+\.[0-9]+( [0-9a-fA-F]+:[0-9a-fA-F:]+)*\Z")

CONTAINER = "an unprivileged container: no systemd, no /dev/net/tun, cgroups read-only"


class Host(t.NamedTuple):
    """One machine or cluster of a listing.

    ``name`` is the provider's name for it (not yet unique or clean). ``record`` is ``muster_node``; ``data`` holds
    variables under the provider's prefix. ``dns`` is its MagicDNS name. ``direct`` is the provider's SSH endpoint.
    """

    id: str
    name: str
    record: Record
    data: Record
    dns: str | None = None
    direct: tuple[str, int, str | None] | None = None


def address_list(addresses: tuple[str, ...]) -> list[Record]:
    """Return addresses as the record holds them; which interface owns one is known on the node only."""
    return [{"address": address, "interface": None, "prefix": None} for address in addresses]


def owner(name: str | None) -> Record:
    """Return cluster, pool and token of a machine that we rented, by its name; None each for any other."""
    found = parse_name(name) if name else None
    if found is None:
        return {"cluster": None, "pool": None, "token": None}
    return {"cluster": found.cluster, "pool": found.pool, "token": found.token}


def record(
    *,
    id: str,
    name: str,
    provider: str,
    account: str,
    ownership: Ownership | None,
    kind: Kind | None,
    state: State,
    product: str | None = None,
    region: str | None = None,
    preemptible: bool | None = None,
    user: str | None = None,
    mesh: tuple[str, ...] = (),
    lan: tuple[str, ...] = (),
    public: tuple[str, ...] = (),
    gpu: Mapping[str, t.Any] | None = None,
    cpu_count: int | None = None,
    cpu_arch: str | None = None,
    memory_gib: float | None = None,
    price_usd_per_hour: float | None = None,
    created_at: str | None = None,
    fabric_hint: str | None = None,
    k3s_capable: bool | None = None,
    k3s_reasons: tuple[str, ...] = (),
) -> Record:
    """Return one node record. ``ssh`` host and port stay open: the inventory fills in the way it was told to take.

    ``ownership`` None asks the name: machines of ours that are rented carry their lease in it.
    """
    lease = owner(name)
    networks: list[NetworkType] = []
    if mesh:
        networks.append("mesh")
    if lan:
        networks.append("lan")
    if public:
        networks.append("public")
    return {
        "id": id,
        "name": name,
        "ownership": ownership or ("rented" if lease["token"] else "owned"),
        "provider": provider,
        "account": account or None,
        "product": product,
        "kind": kind,
        "state": state,
        "region": region,
        "site": None,
        "preemptible": preemptible,
        "ssh": {"host": None, "port": None, "user": user},
        "addresses": {"mesh": address_list(mesh), "lan": address_list(lan), "public": address_list(public)},
        "network_types": networks,
        "gpu": {"model": None, "count": None, "memory_gib": None, "arch": None}
        if gpu is None
        else {**gpu, "arch": None},
        "cpu": {"count": cpu_count, "arch": cpu_arch},
        "memory_gib": memory_gib,
        "price_usd_per_hour": price_usd_per_hour,
        "owner": lease,
        "created_at": created_at,
        "fabric_hint": fabric_hint,
        "k3s": {"capable": k3s_capable, "reasons": list(k3s_reasons)},
    }


def clean_address(value: t.Any) -> str | None:
    """Return one IP address without the zone that only its own machine understands; None for what is none."""
    found = _ADDRESS.match(value) if isinstance(value, str) else None
    return None if found is None or found.group(1) in ("0.0.0.0", "::") else found.group(1)


def clean_addresses(value: t.Any) -> tuple[str, ...]:
    """Return the IP addresses in a list, without what is none."""
    if not isinstance(value, list):
        return ()
    try:
        if _CLEAN.match(" ".join(value)):
            return tuple(value)
    except TypeError:
        pass
    return tuple(filter(None, map(clean_address, value)))
