# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Addresses and link speed of one node, and the path between two nodes."""

from __future__ import annotations

import dataclasses
import ipaddress
import typing as t

from ....module_utils._model.island import NetworkPath, PairPath
from ....module_utils._model.node import Node
from ..rails import find_rails

IP = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclasses.dataclass(frozen=True, slots=True)
class LanAddresses:
    """A node's LAN addresses, parsed once: a fleet of a thousand nodes has half a million pairs."""

    hosts: frozenset[IP]
    networks: frozenset[Network]

    @classmethod
    def of(cls, node: Node) -> LanAddresses:
        """Return the addresses of ``node``; invalid ones are left out."""
        hosts: set[IP] = set()
        networks: set[Network] = set()
        for item in node.addresses.lan:
            try:
                hosts.add(ipaddress.ip_address(item.address))
                if item.prefix is not None:
                    networks.add(ipaddress.ip_network((item.address, item.prefix), strict=False))
            except ValueError:
                continue
        return cls(frozenset(hosts), frozenset(networks))

    def shares(self, other: LanAddresses) -> bool:
        """Return whether two nodes are in one network. Homes use the same private ranges: see ``separating_field``."""
        if self.networks & other.networks:
            return True
        pairs = ((self.networks, other.hosts), (other.networks, self.hosts))
        return any(host in net for nets, hosts in pairs for net in nets for host in hosts)


def separating_field(a: Node, b: Node) -> str | None:
    """Return the inventory field whose values put two nodes into different LANs, or None."""
    for key in ("fabric_hint", "site", "provider", "region"):
        left, right = getattr(a, key), getattr(b, key)
        if left is not None and right is not None and left != right:
            return key
        # The provider's own domain id decides: same id, same network.
        if key == "fabric_hint" and left is not None and left == right:
            return None
    return None


def shares_declared_lan(a: Node, b: Node) -> bool:
    """Return whether the inventory itself puts two nodes into one LAN."""
    if a.fabric_hint is not None and a.fabric_hint == b.fabric_hint:
        return True
    return bool(a.site and a.site == b.site and "lan" in a.network_types and "lan" in b.network_types)


def is_one_machine(a: Node, b: Node) -> bool:
    """Return whether two nodes are containers or namespaces under one kernel."""
    return a.boot_id is not None and a.boot_id == b.boot_id


def lan_rate_gbps(node: Node) -> float | None:
    """Return Gb/s of the interface that owns the node's LAN address; without one, of its fastest active card."""
    owners = [node.interface(address.interface) for address in node.addresses.lan]
    speeds = [item.speed_gbps for item in owners if item is not None and item.speed_gbps is not None]
    if not owners:
        speeds = [nic.rate_gbps for nic in node.nics if nic.active and nic.rate_gbps and nic.link_layer == "ethernet"]
    return max(speeds, default=None)


class Paths:
    """Nodes and the paths between them: as probed, else as facts and inventory show."""

    def __init__(self, nodes: t.Mapping[str, Node], probes: t.Iterable[PairPath]) -> None:
        self.nodes = nodes
        self.probes = {frozenset((probe.a, probe.b)): probe for probe in probes}
        self.rails = {name: find_rails(node) for name, node in nodes.items()}
        self._addresses = {name: LanAddresses.of(node) for name, node in nodes.items()}

    def path(self, a: str, b: str) -> NetworkPath:
        """Return the path between two nodes; a probe overrides the facts."""
        probe = self.probes.get(frozenset((a, b)))
        return probe.path if probe else self._infer_path(a, b)

    def within(self, *wanted: NetworkPath) -> t.Callable[[str, str], bool]:
        """Return a test whether the path between two nodes is one of ``wanted``."""
        return lambda a, b: self.path(a, b) in wanted

    def has_probe(self, a: str, b: str) -> bool:
        """Return whether this pair was probed."""
        return frozenset((a, b)) in self.probes

    def rate(self, a: str, b: str) -> float | None:
        """Return the probed rate in Gb/s between two nodes."""
        probe = self.probes.get(frozenset((a, b)))
        return probe.rate_gbps if probe else None

    def _infer_path(self, left: str, right: str) -> NetworkPath:
        a, b = self.nodes[left], self.nodes[right]
        if is_one_machine(a, b):
            return "lan"
        if not separating_field(a, b) and (
            shares_declared_lan(a, b) or self._addresses[left].shares(self._addresses[right])
        ):
            return "lan"
        if a.addresses.mesh and b.addresses.mesh and "none" not in (a.mesh_path, b.mesh_path):
            return "mesh_relayed" if "relayed" in (a.mesh_path, b.mesh_path) else "mesh_direct"
        if a.addresses.public and b.addresses.public:
            return "mesh_direct"
        return "none"
