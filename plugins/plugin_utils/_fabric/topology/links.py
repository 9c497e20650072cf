# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the rules need to know of one node or of a pair: its fast NICs, its LAN speed, the path to another node.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import dataclasses
import ipaddress
import typing as t

from ....module_utils._model.island import Link, NetworkPath, PairPath
from ....module_utils._model.node import Nic, Node

IP = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclasses.dataclass(frozen=True, slots=True)
class Rails:
    """The RDMA ports of one node that carry collectives: those of the one kind with the most bandwidth together."""

    link: Link
    rate_gbps: float | None
    nics: tuple[Nic, ...]

    @property
    def count(self) -> int:
        return len(self.nics)

    def describe(self) -> str:
        """Return such as ``8 x 400 Gb/s ib``."""
        rate = f"{self.rate_gbps:g} Gb/s" if self.rate_gbps is not None else "unknown rate"
        return f"{self.count} x {rate} {self.link}"


def rails(node: Node) -> Rails | None:
    """Return the node's RDMA ports for collectives; None without an active one.

    A node often has slower RDMA ports for storage or management: they are another kind, and are not counted.
    """
    kinds: dict[tuple[Link, float | None], list[Nic]] = {}
    for nic in node.nics:
        if nic.rdma and nic.active and nic.link_layer:
            link: Link = "ib" if nic.link_layer == "infiniband" else "roce"
            kinds.setdefault((link, nic.rate_gbps), []).append(nic)
    if not kinds:
        return None
    (link, rate), nics = max(kinds.items(), key=lambda item: ((item[0][1] or 0) * len(item[1]), item[0][0]))
    return Rails(link, rate, tuple(nics))


@dataclasses.dataclass(frozen=True, slots=True)
class Place:
    """A node's LAN addresses, read once: a fleet of a thousand nodes has half a million pairs."""

    hosts: frozenset[IP]
    networks: frozenset[Network]

    @classmethod
    def of(cls, node: Node) -> Place:
        """Return the place of ``node``; what is no address is left out."""
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

    def shares(self, other: Place) -> bool:
        """Return whether the two sit in one network. Homes use the same private ranges: see ``apart``."""
        if self.networks & other.networks:
            return True
        pairs = ((self.networks, other.hosts), (other.networks, self.hosts))
        return any(host in net for nets, hosts in pairs for net in nets for host in hosts)


def apart(a: Node, b: Node) -> str | None:
    """Return what the inventory says that keeps two nodes out of one LAN, or None."""
    for key in ("fabric_hint", "site", "provider", "region"):
        left, right = getattr(a, key), getattr(b, key)
        if left is not None and right is not None and left != right:
            return key
        # The provider's own domain id settles it: same id, same network.
        if key == "fabric_hint" and left is not None and left == right:
            return None
    return None


def known_together(a: Node, b: Node) -> bool:
    """Return whether the inventory itself says that two nodes share a LAN."""
    if a.fabric_hint is not None and a.fabric_hint == b.fabric_hint:
        return True
    return bool(a.site and a.site == b.site and "lan" in a.network_types and "lan" in b.network_types)


def one_machine(a: Node, b: Node) -> bool:
    """Return whether two nodes are containers or namespaces under one kernel."""
    return a.boot_id is not None and a.boot_id == b.boot_id


def lan_rate(node: Node) -> float | None:
    """Return Gb/s of the interface that owns the node's LAN address; without one, of its fastest active card."""
    owners = [node.interface(address.interface) for address in node.addresses.lan]
    speeds = [item.speed_gbps for item in owners if item is not None and item.speed_gbps is not None]
    if not owners:
        speeds = [nic.rate_gbps for nic in node.nics if nic.active and nic.rate_gbps and nic.link_layer == "ethernet"]
    return max(speeds, default=None)


class Paths:
    """Nodes and the paths between them: what a probe found, else what facts and inventory tell."""

    def __init__(self, nodes: t.Mapping[str, Node], probes: t.Iterable[PairPath]) -> None:
        self.nodes = nodes
        self.probes = {frozenset((probe.a, probe.b)): probe for probe in probes}
        self.rails = {name: rails(node) for name, node in nodes.items()}
        self._places = {name: Place.of(node) for name, node in nodes.items()}

    def path(self, a: str, b: str) -> NetworkPath:
        """Return the path between two nodes; a probe wins over what the facts tell."""
        probe = self.probes.get(frozenset((a, b)))
        return probe.path if probe else self._inferred(a, b)

    def within(self, *wanted: NetworkPath) -> t.Callable[[str, str], bool]:
        """Return a test whether the path between two nodes is one of ``wanted``."""
        return lambda a, b: self.path(a, b) in wanted

    def probed(self, a: str, b: str) -> bool:
        """Return whether a probe has looked at this pair."""
        return frozenset((a, b)) in self.probes

    def rate(self, a: str, b: str) -> float | None:
        """Return the rate in Gb/s that a probe found between two nodes."""
        probe = self.probes.get(frozenset((a, b)))
        return probe.rate_gbps if probe else None

    def _inferred(self, left: str, right: str) -> NetworkPath:
        a, b = self.nodes[left], self.nodes[right]
        if one_machine(a, b):
            return "lan"
        if not apart(a, b) and (known_together(a, b) or self._places[left].shares(self._places[right])):
            return "lan"
        if a.addresses.mesh and b.addresses.mesh and "none" not in (a.mesh_path, b.mesh_path):
            return "mesh_relayed" if "relayed" in (a.mesh_path, b.mesh_path) else "mesh_direct"
        if a.addresses.public and b.addresses.public:
            return "mesh_direct"
        return "none"
