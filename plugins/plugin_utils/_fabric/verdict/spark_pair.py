# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The link between DGX Sparks: what their facts and a measured rate say of it. Pure rules.

Each QSFP port of a Spark is two PCIe functions behind Gen5 x4, about 100 Gb/s each: two interfaces and two RDMA devices
(domains 0000 and 0002) with one function number for each port. Both halves need an address, in subnets of
their own (NVIDIA's dgx-spark-playbooks; its pull requests 103 and 108 have the rates).
"""

from __future__ import annotations

import dataclasses
import ipaddress
import typing as t

from ....module_utils._model.node import Nic, Node
from ....module_utils._model.verdict import Cause

HALF: t.Final = "cx7_half"
DEGRADED: t.Final = "cx7_degraded"
ADDRESSES: t.Final = "cx7_addresses"
NO_ADDRESS: t.Final = "cx7_no_address"
MTU: t.Final = "cx7_mtu"
WIFI: t.Final = "bootstrap_on_wifi"
USERS: t.Final = "pair_users"
# With these no job should begin; the others cost speed.
REFUSED: t.Final = frozenset((ADDRESSES, USERS))

_PLATFORM = "dgx_spark"
_MTU = 9000
_LINK_GBPS = 200
_LANES, _GENERATION = 4, 5
# Measured: 98 Gb/s through one half, 190 through both; 13 and 24 where the link was in a bad state, and never between.
_HALF_GBPS = (70.0, 115.0)
_DEGRADED_GBPS = 30.0
# At smaller sizes latency decides the rate, not the link.
_MIN_BYTES = 16 << 20
_HALVES = 2

FIXES: t.Final = {
    HALF: "Give both interfaces of the port an address in a subnet of their own and MTU 9000 (netplan), and name both "
    "devices in NCCL_IB_HCA, as verify_fabric does",
    DEGRADED: "Update the firmware (fwupdmgr update), shut both machines down, unplug their power for a minute and "
    "reseat the cable",
    ADDRESSES: "Give each half a subnet of its own with the same half of the other machine, such as 192.168.100.0/24 "
    "and 192.168.101.0/24, and plug the cable into the same port on both",
    NO_ADDRESS: "Give both interfaces of the port a fixed address in a subnet of its own (netplan), and MTU 9000",
    MTU: "Set mtu: 9000 for both interfaces of the port in netplan, on both machines",
    WIFI: "Connect the machines by wire, or set muster_address to an address of the cable; NCCL_SOCKET_IFNAME must not "
    "name the Wi-Fi",
    USERS: "Make one user name on both machines and set it as ansible_user",
}


@dataclasses.dataclass(frozen=True, slots=True)
class Half:
    """One of the two functions of a port, with the networks of its interface."""

    nic: Nic
    networks: tuple[ipaddress.IPv4Network, ...]

    @property
    def carries(self) -> bool:
        """Return whether the half is up and has an address."""
        return self.nic.active and bool(self.networks)

    @property
    def problem(self) -> str:
        """Return why the half carries nothing."""
        return "has no fixed address" if self.nic.active else "is down"


Ports = dict[str, tuple[Half, ...]]


def is_spark(node: Node) -> bool:
    """Return whether a node is a DGX Spark."""
    return node.platform == _PLATFORM


def is_wireless(interface: str | None) -> bool:
    """Return whether an interface is a Wi-Fi by the name that systemd (wlP9s9, wlan0) gives it."""
    return (interface or "").startswith("wl")


def find_ports(node: Node) -> Ports:
    """Return the cabled ports of a Spark by their function number, each with its halves."""
    halves: dict[str, list[Half]] = {}
    for nic in node.nics:
        if nic.rdma and nic.pci:
            halves.setdefault(nic.pci.rpartition(".")[2], []).append(Half(nic, _networks(node, nic.netdev)))
    return {
        number: tuple(sorted(items, key=lambda half: half.nic.pci or ""))
        for number, items in sorted(halves.items())
        if any(half.nic.active for half in items)
    }


def _networks(node: Node, interface: str | None) -> tuple[ipaddress.IPv4Network, ...]:
    found = []
    for item in (*node.addresses.lan, *node.addresses.public):
        if interface and item.interface == interface and item.prefix is not None and ":" not in item.address:
            try:
                found.append(ipaddress.IPv4Network((item.address, item.prefix), strict=False))
            except ValueError:
                continue
    return tuple(found)


def find_pair_faults(
    nodes: t.Sequence[Node], interfaces: t.Mapping[str, str | None] | None = None
) -> tuple[Cause, ...]:
    """Return what is wrong with the link between Sparks, as their facts show it; nothing for fewer than two.

    :param interfaces: the interface that sockets of collectives use, by node.
    """
    sparks = [node for node in nodes if is_spark(node)]
    if len(sparks) < 2:
        return ()
    ports = {node.name: find_ports(node) for node in sparks}
    causes = [cause for node in sparks for cause in _find_faults(node.name, ports[node.name])]
    if len(sparks) == 2:
        causes += _find_crossings(sparks[0].name, sparks[1].name, ports)
        causes += _find_users(sparks)
    for name, interface in (interfaces or {}).items():
        if is_wireless(interface):
            causes.append(_cause(WIFI, f"ranks meet over {interface}, which is Wi-Fi", name))
    return tuple(causes)


def _cause(code: str, evidence: str, node: str | None = None) -> Cause:
    return Cause(code, evidence, FIXES[code], node)


def _find_faults(name: str, ports: Ports) -> t.Iterator[Cause]:
    """Yield the faults of one machine."""
    for number, halves in ports.items():
        idle = [half for half in halves if not half.carries]
        named = " and ".join(half.nic.name for half in halves)
        if len(idle) == len(halves):
            text = f"port {number} is cabled, and {named} have no fixed address (link-local ones are not counted)"
            yield _cause(NO_ADDRESS, text, name)
        elif idle or len(halves) < _HALVES:
            lacking = f"{idle[0].nic.name} {idle[0].problem}" if idle else f"{named} is its only device"
            yield _cause(HALF, f"port {number} shows {_rate(halves)} Gb/s and carries half of it: {lacking}", name)
        for half in halves:
            yield from _find_slow(name, half)
        networks = [network for half in halves for network in half.networks]
        shared = next((one for index, one in enumerate(networks) if one in networks[:index]), None)
        if shared:
            yield _cause(ADDRESSES, f"both halves of port {number} ({named}) are in {shared}", name)


def _find_slow(name: str, half: Half) -> t.Iterator[Cause]:
    nic = half.nic
    if not nic.active:
        return
    if nic.rate_gbps is not None and nic.rate_gbps < _LINK_GBPS:
        yield _cause(DEGRADED, f"{nic.name} is up at {nic.rate_gbps:g} of {_LINK_GBPS} Gb/s", name)
    if (nic.pci_width or _LANES) < _LANES or (nic.pci_gen or _GENERATION) < _GENERATION:
        yield _cause(DEGRADED, f"{nic.name} runs at PCIe gen {nic.pci_gen} x{nic.pci_width} instead of gen 5 x4", name)
    if nic.mtu is not None and nic.mtu < _MTU:
        yield _cause(MTU, f"{nic.netdev or nic.name} has MTU {nic.mtu} instead of {_MTU}", name)


def _rate(halves: t.Sequence[Half]) -> str:
    return f"{max((half.nic.rate_gbps or 0 for half in halves), default=0):g}"


def _find_crossings(a: str, b: str, ports: t.Mapping[str, Ports]) -> t.Iterator[Cause]:
    """Yield where the halves of two machines do not meet each other: another port, another half, or none."""
    theirs = [(number, index, half) for number, halves in ports[b].items() for index, half in enumerate(halves)]
    for number, halves in ports[a].items():
        for index, half in enumerate(halves):
            for network in half.networks:
                met = [item for item in theirs if network in item[2].networks]
                twin = next((other for item, place, other in theirs if (item, place) == (number, index)), None)
                # One without an address was named as such.
                if not met and theirs and (twin is None or twin.networks):
                    yield _cause(
                        ADDRESSES, f"{half.nic.netdev} is in {network}, where {b} has no interface of its cable", a
                    )
                elif met and all(item[0] != number for item in met):
                    other = met[0][2].nic.netdev
                    text = f"{half.nic.netdev} shares {network} with {other} of {b}: the cable joins swapped ports"
                    yield _cause(ADDRESSES, text, a)
                elif met and all(item[1] != index for item in met):
                    other = met[0][2].nic.netdev
                    text = f"{half.nic.netdev} shares {network} with the other half, {other} of {b}"
                    yield _cause(ADDRESSES, text, a)


def _find_users(sparks: t.Sequence[Node]) -> t.Iterator[Cause]:
    users = {node.ssh.user for node in sparks} - {None}
    if len(users) > 1:
        named = ", ".join(f"{node.ssh.user} on {node.name}" for node in sparks)
        yield _cause(USERS, f"the users differ: {named}")


def find_rate_cause(busbw_gb_s: float | None, size_bytes: int) -> Cause | None:
    """Return the cause that a bus bandwidth over RDMA between two Sparks has by itself; None for any other."""
    if busbw_gb_s is None or size_bytes < _MIN_BYTES:
        return None
    rate = busbw_gb_s * 8
    if rate <= _DEGRADED_GBPS:
        return _cause(DEGRADED, f"the link shows {_LINK_GBPS} Gb/s and carries {rate:.0f}")
    if _HALF_GBPS[0] <= rate <= _HALF_GBPS[1]:
        return _cause(HALF, f"the link shows {_LINK_GBPS} Gb/s and carries {rate:.0f}, what one of its halves can")
    return None
