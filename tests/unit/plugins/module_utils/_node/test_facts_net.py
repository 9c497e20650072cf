# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Network facts: routes, addresses and interfaces."""

from __future__ import annotations

import ipaddress
import socket
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.module_utils._node import (
    facts_host,
    facts_net,
    facts_pci,
)

LINES = st.lists(st.text(max_size=80), max_size=6)


@given(LINES)
def test_line_parsers_take_any_text(lines: list[str]) -> None:
    facts_net.parse_ipv4_routes(lines)
    facts_net.parse_ipv6_routes(lines)
    facts_host.parse_os_release(lines)
    facts_host.parse_limits(lines)


@given(st.binary(max_size=600))
def test_binary_parsers_take_any_bytes(data: bytes) -> None:
    facts_net.parse_addresses(data, {1: "lo", 2: "eth0"})
    facts_pci.is_acs_enabled(b"\0" * 0x100 + data)


def _netlink(index: int, address: str, prefix: int, local: bool) -> bytes:
    ip = ipaddress.ip_address(address)
    family = socket.AF_INET if ip.version == 4 else socket.AF_INET6
    attributes = struct.pack("=HH", 4 + len(ip.packed), 1) + (b"\1" * len(ip.packed) if local else ip.packed)
    if local:
        attributes += struct.pack("=HH", 4 + len(ip.packed), 2) + ip.packed
    body = struct.pack("=BBBBI", family, prefix, 0, 0, index) + attributes
    return struct.pack("=IHHII", 16 + len(body), 20, 2, 1, 0) + body


@given(st.ip_addresses(), st.integers(0, 32), st.booleans(), st.integers(0, 40))
def test_addresses_survive_netlink_and_a_torn_end(ip: object, prefix: int, local: bool, cut: int) -> None:
    message = _netlink(2, str(ip), prefix, local)
    names = {2: "wg0"}
    assert facts_net.parse_addresses(message, names) == [("wg0", str(ip), prefix)]
    torn = facts_net.parse_addresses(message + message[: len(message) - 1 - min(cut, len(message) - 1)], names)
    assert torn == [("wg0", str(ip), prefix)]
    assert facts_net.parse_addresses(message, {3: "other"}) == []


@given(st.ip_addresses(v=4), st.integers(0, 32), st.integers(0, 1000))
def test_ipv4_routes_round_trip(ip: ipaddress.IPv4Address, prefix: int, metric: int) -> None:
    network = ipaddress.ip_network((int(ip), prefix), strict=False)
    word, mask = (struct.unpack("=I", item.packed)[0] for item in (network.network_address, network.netmask))
    line = f"eth0\t{word:08X}\t00000000\t0001\t0\t0\t{metric}\t{mask:08X}\t0\t0\t0"
    assert facts_net.parse_ipv4_routes(["Iface\tDestination", line]) == [facts_net.Route(network, "eth0", metric)]
    rejected = line.replace("\t0001\t", "\t0201\t")
    assert facts_net.parse_ipv4_routes([rejected]) == []


def _route(text: str, interface: str, metric: int = 0) -> facts_net.Route:
    return facts_net.Route(ipaddress.ip_network(text), interface, metric)


@pytest.mark.parametrize(
    ("peer", "interface"),
    [
        ("10.1.2.3", "fast"),
        ("10.9.9.9", "slow"),
        ("8.8.8.8", "gate"),
        ("100.80.0.9", "tailscale0"),
        ("fd7a:115c:a1e0::9", "tailscale0"),
        ("10.1.2.1", "lo"),
        ("127.0.0.9", "lo"),
        ("2001:db8::1", None),
        ("nonsense", None),
    ],
)
def test_interface_for_a_peer(peer: str, interface: str | None) -> None:
    routes = [
        _route("0.0.0.0/0", "gate"),
        _route("10.0.0.0/8", "slow"),
        _route("10.1.2.0/24", "spare", 200),
        _route("10.1.2.0/24", "fast", 100),
    ]
    owned = [("fast", "10.1.2.1", 24), ("tailscale0", "100.80.0.1", 32)]
    assert facts_net.interface_for(peer, routes, owned) == interface


def test_carrier_grade_nat_on_a_plain_interface_is_no_mesh() -> None:
    assert facts_net.network_of("eth0", "100.64.3.4") == "lan"
    assert facts_net.network_of("tailscale0", "100.64.3.4") == "mesh"
    assert facts_net.network_of("wg0", "10.8.0.2") == "mesh"
    assert facts_net.network_of("docker0", "172.17.0.1") is None
    assert facts_net.network_of("eth0", "fe80::1") is None


def test_kernel_addresses_of_this_machine() -> None:
    found = facts_net.query_kernel_addresses()
    assert ("lo", "127.0.0.1", 8) in found
