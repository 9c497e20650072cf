# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The parsers below gather(): known lines, and any text or bytes without an exception."""

from __future__ import annotations

import ipaddress
import json
import pathlib
import socket
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.module_utils._node import (
    facts_gpu,
    facts_host,
    facts_net,
    facts_pci,
    facts_rdma,
)
from ansible_collections.muster.training.plugins.module_utils._node.facts_source import FactsSource, clean_value
from ansible_collections.muster.training.tests.unit.plugins.module_utils._node import node_trees

LINES = st.lists(st.text(max_size=80), max_size=6)


@given(LINES)
def test_line_parsers_take_any_text(lines: list[str]) -> None:
    facts_net.parse_ipv4_routes(lines)
    facts_net.parse_ipv6_routes(lines)
    facts_host.parse_os_release(lines)
    facts_host.parse_limits(lines)


@given(st.text(max_size=200))
def test_text_parsers_take_any_text(text: str) -> None:
    facts_gpu.parse_query(text)
    facts_gpu.parse_driver(text)
    facts_gpu.parse_fabric(text)
    facts_gpu.bus_address(text)
    facts_gpu.architecture(text)
    facts_host.count_cpus(text)
    facts_rdma.parse_rate_gbps(text)
    facts_pci.generation(text)
    assert not any(ord(char) < 32 for char in clean_value(text) or "")


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


@pytest.mark.parametrize(
    ("text", "gbps"),
    [
        ("400 Gb/sec (4X NDR)", 400),
        ("2.5 Gb/sec (1X SDR)", 2.5),
        ("100 Gb/sec (4X EDR)", 100),
        ("unknown", None),
        (None, None),
    ],
)
def test_rate(text: str | None, gbps: float | None) -> None:
    assert facts_rdma.parse_rate_gbps(text) == gbps


def test_driver_flavours() -> None:
    opened = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build"
    closed = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.129.03  Thu Oct 19 18:56:32 UTC 2023"
    assert facts_gpu.parse_driver(opened) == {"version": "580.65.06", "flavour": "open"}
    assert facts_gpu.parse_driver(closed) == {"version": "535.129.03", "flavour": "proprietary"}
    assert facts_gpu.parse_driver(None) == {"version": None, "flavour": None}


def test_fabric_of_a_multi_node_nvlink_domain() -> None:
    text = (
        "    Fabric\n"
        "        State                             : Completed\n"
        "        CliqueId                          : 3\n"
        "        ClusterUUID                       : 8d1f2c9a-0000-4c1b-9f7a-1234567890ab\n"
    )
    assert facts_gpu.parse_fabric(text) == {"state": "Completed", "id": "8d1f2c9a-0000-4c1b-9f7a-1234567890ab.3"}
    assert facts_gpu.parse_fabric(text.replace("Completed", "N/A"))["state"] is None


@pytest.mark.parametrize(
    ("capability", "name"),
    [("9.0", "hopper"), ("8.9", "ada"), ("8.6", "ampere"), ("12.1", "blackwell"), ("7.5", "turing"), (None, None)],
)
def test_architecture(capability: str | None, name: str | None) -> None:
    assert facts_gpu.architecture(capability) == name


@pytest.mark.parametrize(("text", "count"), [("0-3,8", 5), ("0", 1), ("", None), ("0-x", None), (None, None)])
def test_cpu_list(text: str | None, count: int | None) -> None:
    assert facts_host.count_cpus(text) == count


@pytest.mark.parametrize("enabled", [True, False])
def test_acs_control_word(enabled: bool) -> None:
    assert facts_pci.is_acs_enabled(node_trees.acs_config(enabled)) is enabled
    # Without root only the first bytes can be read.
    assert facts_pci.is_acs_enabled(node_trees.acs_config(enabled)[:64]) is None


def test_acs_loop_of_capabilities_ends() -> None:
    loop = b"\0" * 0x100 + struct.pack("<I", 0x0001 | 0x100 << 20) + b"\0" * 16
    assert facts_pci.is_acs_enabled(loop) is None


def test_tailscale_paths() -> None:
    peers = {
        "a": {"TailscaleIPs": ["100.64.0.1"], "CurAddr": "1.2.3.4:41641", "Active": True},
        "b": {"TailscaleIPs": ["100.64.0.2"], "CurAddr": "", "Active": True, "Relay": "fra"},
        "c": {"TailscaleIPs": None},
    }
    found = facts_host.parse_tailscale(json.dumps({"BackendState": "Running", "Peer": peers}))
    assert found == {"state": "Running", "peers": {"100.64.0.1": "direct", "100.64.0.2": "relayed"}}
    assert facts_host.mesh_path({"direct", "relayed"}) == "relayed"
    assert facts_host.mesh_path({"idle"}) is None


def test_a_read_that_the_kernel_refuses_is_a_problem_only_when_it_means_something(tmp_path: pathlib.Path) -> None:
    source = FactsSource({"root": str(tmp_path)})
    assert source.text(str(tmp_path)) is None
    assert source.problems == [f"{tmp_path}: Is a directory"]
    assert source.text(str(tmp_path / "missing")) is None and len(source.problems) == 1


def test_kernel_addresses_of_this_machine() -> None:
    found = facts_net.query_kernel_addresses()
    assert ("lo", "127.0.0.1", 8) in found
