# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Build the node record ``muster_node`` of a listed machine.

Records are plain mappings, built in one expression: ten thousand of them are made before the first task runs.
"""

from __future__ import annotations

import re
import typing as t

from ...module_utils._model.lease import parse_instance_name
from ...module_utils._model.node import NodeKind, NodeState, Ownership

HostVariables = dict[str, object]
Addresses = tuple[str, ...]
Gpu = tuple[str | None, int | None, float | None]

# Dotted or with colons, then perhaps a zone or a prefix length.
_ADDRESS = re.compile(r"\s*([0-9]{1,3}(?:\.[0-9]{1,3}){3}|[0-9a-fA-F]*:[0-9a-fA-F:.]+)(?:[%/].*)?\s*\Z")
# Several, each without zone and prefix length: the common case, seen at once.
_CLEAN = re.compile(r"[0-9]+\.[0-9]+\.[0-9]+\.[0-9]+( [0-9a-fA-F]+:[0-9a-fA-F:]+)*\Z")

_DASHES = 3
# More in one machine is a misread value (the node record's own limit).
MAX_GPUS = 1024

CONTAINER = "an unprivileged container: no systemd, no /dev/net/tun, cgroups read-only"


class AddressFields(t.TypedDict):
    """One address of a node; which interface owns it is known on the node only."""

    address: str
    interface: str | None
    prefix: int | None


class OwnerFields(t.TypedDict):
    """The lease in a machine's name."""

    cluster: str | None
    pool: str | None
    token: str | None


class SshFields(t.TypedDict):
    """How to log in; None where the user's own settings decide."""

    host: str | None
    port: int | None
    user: str | None


class ProviderFacts(t.TypedDict, total=False):
    """The fields that a provider may add to the required ones of a record."""

    product: str | None
    region: str | None
    preemptible: bool | None
    memory_gib: float | None
    price_usd_per_hour: float | None
    created_at: str | None
    fabric_hint: str | None


class NodeRecord(ProviderFacts):
    """The hostvar ``muster_node`` as an inventory plugin makes it."""

    id: str
    name: str
    ownership: Ownership
    provider: str
    account: str | None
    kind: NodeKind | None
    state: NodeState
    site: str | None
    ssh: SshFields
    addresses: dict[str, list[AddressFields]]
    network_types: list[str]
    gpu: dict[str, str | int | float | None]
    cpu: dict[str, int | str | None]
    owner: OwnerFields
    k3s: dict[str, bool | list[str] | None]


class ProviderHost(t.NamedTuple):
    """One machine or cluster of a listing.

    ``name`` is the provider's name for it (not yet unique or clean). ``record`` is ``muster_node``; ``data`` holds
    variables under the provider's prefix. ``dns`` is its MagicDNS name. ``direct`` is the provider's SSH endpoint.
    """

    id: str
    name: str
    record: NodeRecord
    data: HostVariables
    dns: str | None = None
    direct: tuple[str, int, str | None] | None = None


def address_list(addresses: tuple[str, ...]) -> list[AddressFields]:
    """Return addresses as the record holds them; which interface owns one is known on the node only."""
    return [{"address": address, "interface": None, "prefix": None} for address in addresses]


def parse_owner(name: str | None) -> OwnerFields:
    """Return cluster, pool and token of a rented machine of ours, by its name; None each for any other."""
    # Our names have three dashes at least; most others need no closer look.
    parts = parse_instance_name(name) if name and name.count("-") >= _DASHES else None
    if parts is None:
        return {"cluster": None, "pool": None, "token": None}
    return {"cluster": parts.cluster, "pool": parts.pool, "token": parts.token}


def build_record(
    id: str,
    name: str,
    provider: str,
    account: str,
    ownership: Ownership | None,
    kind: NodeKind | None,
    state: NodeState,
    *,
    user: str | None = None,
    mesh: Addresses = (),
    lan: Addresses = (),
    public: Addresses = (),
    gpu: Gpu = (None, None, None),
    cpu: tuple[int | None, str | None] = (None, None),
    k3s: tuple[bool | None, tuple[str, ...]] = (None, ()),
    **facts: t.Unpack[ProviderFacts],
) -> NodeRecord:
    """Return one node record. ``ssh`` host and port stay None: the inventory fills them in by ``connect_with``.

    ``ownership`` None decides by the name: the name of a rented machine of ours carries its lease's token. ``gpu`` is
    model, count and GiB of one; ``cpu`` count and architecture; ``k3s`` whether it can run and why not.
    """
    lease = parse_owner(name)
    networks = ["mesh"] if mesh else []
    if lan:
        networks.append("lan")
    if public:
        networks.append("public")
    record: NodeRecord = {
        "id": id,
        "name": name,
        "ownership": ownership or ("rented" if lease["token"] else "owned"),
        "provider": provider,
        "account": account or None,
        "product": None,
        "kind": kind,
        "state": state,
        "region": None,
        "site": None,
        "preemptible": None,
        "ssh": {"host": None, "port": None, "user": user},
        "addresses": {
            "mesh": address_list(mesh) if mesh else [],
            "lan": address_list(lan) if lan else [],
            "public": address_list(public) if public else [],
        },
        "network_types": networks,
        "gpu": {"model": gpu[0], "count": gpu[1], "memory_gib": gpu[2], "arch": None},
        "cpu": {"count": cpu[0], "arch": cpu[1]},
        "memory_gib": None,
        "price_usd_per_hour": None,
        "owner": lease,
        "created_at": None,
        "fabric_hint": None,
        "k3s": {"capable": k3s[0], "reasons": list(k3s[1])},
    }
    record.update(t.cast(NodeRecord, facts))
    return record


def clean_address(value: object) -> str | None:
    """Return one IP address without the zone that only its own machine understands; None for anything else."""
    match = _ADDRESS.match(value) if isinstance(value, str) else None
    return None if match is None or match.group(1) in ("0.0.0.0", "::") else match.group(1)


def clean_addresses(value: object) -> tuple[str, ...]:
    """Return the IP addresses in a list, without anything else."""
    if not isinstance(value, list):
        return ()
    try:
        if _CLEAN.match(" ".join(value)):
            return tuple(value)
    except TypeError:
        pass
    return tuple(filter(None, map(clean_address, value)))
