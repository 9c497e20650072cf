# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Network facts: interfaces, addresses by network, and the interface that leads to a peer."""

from __future__ import annotations

import ipaddress
import os
import re
import socket
import struct
import typing as t

from . import facts_pci
from .facts_source import FactsSource

# Interfaces of containers and virtual machines; a job that binds to one of them hangs at start.
CONTAINER_INTERFACES = re.compile(
    r"(lo|docker\d*|br-[0-9a-f]{12}|cni\d*|cni-.*|podman\d*|flannel.*|veth.*|virbr\d*|cali.*|lxc.*|lxdbr\d*"
    r"|kube-.*|nodelocaldns|cilium_.*|dummy\d*|ifb\d*|tunl\d*)\Z"
)
MESH_INTERFACES = re.compile(r"(tailscale\d*|wt\d+|wg.*|zt.*|nebula.*|nm-.*)\Z")
# Tailscale's address ranges (shared address space of RFC 6598, and a unique local prefix).
MESH_RANGES = (ipaddress.ip_network("100.64.0.0/10"), ipaddress.ip_network("fd7a:115c:a1e0::/48"))
_RTF_REJECT = 0x0200
_GETADDR, _DUMP_REQUEST, _DONE, _ERROR = 22, 0x301, 3, 2

OwnAddress = tuple[str, str, int]


class Route(t.NamedTuple):
    """One route of the main table."""

    network: t.Any
    interface: str
    metric: int


def parse_ipv4_routes(lines: t.Iterable[str]) -> list[Route]:
    """Routes of /proc/net/route: addresses are hexadecimal words in host order; unreadable lines are skipped."""
    routes = []
    for line in lines:
        fields = line.split()
        try:
            destination, mask = (struct.pack("=I", int(fields[index], 16)) for index in (1, 7))
            if not int(fields[3], 16) & _RTF_REJECT:
                prefix = bin(int.from_bytes(mask, "big")).count("1")
                network = ipaddress.ip_network((destination, prefix), strict=False)
                routes.append(Route(network, fields[0], int(fields[6])))
        except (ValueError, IndexError, struct.error):
            continue
    return routes


def parse_ipv6_routes(lines: t.Iterable[str]) -> list[Route]:
    """Routes of /proc/net/ipv6_route: destination, length, source, length, next hop, metric, …, flags, interface."""
    routes = []
    for line in lines:
        fields = line.split()
        try:
            if not int(fields[8], 16) & _RTF_REJECT and fields[9] != "lo":
                network = ipaddress.ip_network(
                    (int(fields[0], 16).to_bytes(16, "big"), int(fields[1], 16)), strict=False
                )
                routes.append(Route(network, fields[9], int(fields[5], 16)))
        except (ValueError, IndexError, OverflowError):
            continue
    return routes


def parse_addresses(data: bytes, names: t.Mapping[int, str]) -> list[OwnAddress]:
    """(interface, address, prefix) of a netlink answer to RTM_GETADDR (rtnetlink(7)); stops where it is torn."""
    found: list[OwnAddress] = []
    offset = 0
    while offset + 16 <= len(data):
        length, kind = struct.unpack_from("=IH", data, offset)
        if length < 16 or offset + length > len(data):
            break
        if kind == 20 and length >= 24:
            family, prefix, _unused, _unused, index = struct.unpack_from("=BBBBI", data, offset + 16)
            attributes = _parse_attributes(data[offset + 24 : offset + length])
            # On a point-to-point link IFA_ADDRESS is the peer's and IFA_LOCAL the own one.
            raw = attributes.get(2) or attributes.get(1) or b""
            if len(raw) == {socket.AF_INET: 4, socket.AF_INET6: 16}.get(family) and index in names:
                found.append((names[index], str(ipaddress.ip_address(raw)), prefix))
        offset += (length + 3) & ~3
    return found


def _parse_attributes(data: bytes) -> dict[int, bytes]:
    values = {}
    offset = 0
    while offset + 4 <= len(data):
        length, kind = struct.unpack_from("=HH", data, offset)
        if length < 4:
            break
        values[kind] = data[offset + 4 : offset + length]
        offset += (length + 3) & ~3
    return values


def query_kernel_addresses() -> list[OwnAddress]:
    """(interface, address, prefix) of every address of this network namespace, from the kernel itself."""
    names = dict(socket.if_nameindex())
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as link:
        link.settimeout(1.0)
        link.sendto(struct.pack("=IHHIIBBBBI", 24, _GETADDR, _DUMP_REQUEST, 1, 0, 0, 0, 0, 0, 0), (0, 0))
        found: list[OwnAddress] = []
        while True:
            data = link.recv(1 << 17)
            found += parse_addresses(data, names)
            last = struct.unpack_from("=IH", data)[1]
            if not data or last in (_DONE, _ERROR):
                return found


def network_of(interface: str, address: str) -> str | None:
    """Return ``mesh``, ``lan`` or ``public``; None for addresses that do not reach other nodes."""
    ip = ipaddress.ip_address(address)
    if ip.is_loopback or ip.is_link_local or CONTAINER_INTERFACES.match(interface):
        return None
    if MESH_INTERFACES.match(interface) or (interface.startswith("tun") and any(ip in net for net in MESH_RANGES)):
        return "mesh"
    # Carrier-grade NAT uses the same range as the mesh, on a plain interface.
    return "public" if ip.is_global else "lan"


def group_addresses(owned: t.Iterable[OwnAddress]) -> dict[str, list[dict[str, t.Any]]]:
    """Return ``{mesh, lan, public}``: lists of ``{address, interface, prefix}``, IPv4 first."""
    found: dict[str, list[dict[str, t.Any]]] = {"mesh": [], "lan": [], "public": []}
    for interface, address, prefix in sorted(owned, key=lambda item: ":" in item[1]):
        network = network_of(interface, address)
        if network:
            found[network].append({"address": address, "interface": interface, "prefix": prefix})
    return found


def _interface_kind(source: FactsSource, base: str, name: str) -> str:
    entries = set(source.names(base))
    device_type = next((line[8:] for line in source.lines(f"{base}/uevent") if line.startswith("DEVTYPE=")), "")
    if "bonding" in entries:
        return "bond"
    if "bridge" in entries:
        return "bridge"
    if "device" in entries:
        return "physical"
    if "tun_flags" in entries or MESH_INTERFACES.match(name):
        return "tunnel"
    if device_type:
        return device_type
    iflink, ifindex = (source.number(f"{base}/{item}") for item in ("iflink", "ifindex"))
    return "veth" if iflink != ifindex else "virtual"


def _read_members(source: FactsSource, base: str, kind: str) -> list[str]:
    if kind == "bridge":
        return source.names(f"{base}/brif")
    return (source.text(f"{base}/bonding/slaves") or "").split() if kind == "bond" else []


def read_speed_gbps(source: FactsSource, name: str, kind: str) -> float | None:
    """Return an interface's rate in Gb/s. Tunnels and veth pairs report a meaningless rate: None."""
    base = os.path.join(source.sys, "class/net")
    if kind == "bridge":
        ports = [port for port in source.names(f"{base}/{name}/brif") if "device" in source.names(f"{base}/{port}")]
        return max(
            (rate for rate in (read_speed_gbps(source, port, "physical") for port in ports) if rate), default=None
        )
    if kind not in ("physical", "bond", "vlan"):
        return None
    # An unknown speed reads -1, or 4294967295 on old kernels.
    value = source.number(f"{base}/{name}/speed")
    return value / 1000 if value and value < 1 << 31 else None


def _read_interface(source: FactsSource, name: str) -> dict[str, t.Any]:
    base = os.path.join(source.sys, "class/net", name)
    kind = _interface_kind(source, base, name)
    carrier = source.number(f"{base}/carrier")
    state = {"up": "active", "down": "down"}.get(source.text(f"{base}/operstate") or "")
    return {
        "name": name,
        "kind": kind,
        "link_layer": {1: "ethernet", 32: "infiniband"}.get(source.number(f"{base}/type") or 0),
        "state": state or ("active" if carrier == 1 else None),
        "mtu": source.number(f"{base}/mtu"),
        "speed_gbps": read_speed_gbps(source, name, kind),
        "members": _read_members(source, base, kind),
        "pci": facts_pci.address_of(f"{base}/device"),
    }


def read_interfaces(source: FactsSource, owned: t.Iterable[OwnAddress]) -> list[dict[str, t.Any]]:
    """Return the interfaces with an address or a device behind them; a node's hundreds of veth ends are left out."""
    addressed = {name for name, address, _unused in owned if not ipaddress.ip_address(address).is_link_local}
    base = os.path.join(source.sys, "class/net")
    names = [
        name
        for name in source.names(base)
        if name in addressed or any(os.path.isdir(f"{base}/{name}/{item}") for item in ("device", "bonding"))
    ]
    return [_read_interface(source, name) for name in names if name != "lo"]


def interface_for(peer: str, routes: t.Iterable[Route], owned: t.Iterable[OwnAddress]) -> str | None:
    """Return the interface that packets to ``peer`` leave by, from the main routing table and the own addresses.

    The longest prefix wins, then the lowest metric. A mesh keeps its routes in a table of its own, so a mesh
    address that only the default route covers belongs to the mesh interface, if there is one.
    """
    owned = list(owned)
    try:
        ip = ipaddress.ip_address(peer.partition("%")[0])
    except ValueError:
        return None
    if ip.is_loopback or any(address == str(ip) for _name, address, _length in owned):
        return "lo"
    covering = [route for route in routes if route.network.version == ip.version and ip in route.network]
    best = max(covering, key=lambda route: (route.network.prefixlen, -route.metric), default=None)
    if best is None or best.network.prefixlen == 0:
        mesh = [name for name, _address, _length in owned if MESH_INTERFACES.match(name)]
        if mesh and any(ip.version == net.version and ip in net for net in MESH_RANGES):
            return mesh[0]
    return best.interface if best else None


def kernel_interface_for(peer: str, owned: t.Iterable[OwnAddress]) -> str | None:
    """Return the interface that the kernel itself chooses, with policy routing. No packet is sent (udp(7), connect)."""
    family = socket.AF_INET6 if ":" in peer else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect((peer, 9))
        local = probe.getsockname()[0].partition("%")[0]
    if local == peer.partition("%")[0]:
        return "lo"
    return next((name for name, address, _unused in owned if address == local), None)


def interfaces_for(source: FactsSource, peers: t.Iterable[str], owned: list[OwnAddress]) -> dict[str, str | None]:
    """Return the interface towards each peer; None, with a problem, where there is no route."""
    routes = parse_ipv4_routes(source.lines(os.path.join(source.proc, "net/route")))
    routes += parse_ipv6_routes(source.lines(os.path.join(source.proc, "net/ipv6_route")))
    found: dict[str, str | None] = {}
    # A machine that is named is looked for in the mesh only.
    for peer in filter(_is_address, peers):
        name = None
        if source.live:
            try:
                name = kernel_interface_for(peer, owned)
            except OSError:
                name = None
        found[peer] = name or interface_for(peer, routes, owned)
        if found[peer] is None:
            source.problem(f"no route to {peer}")
    return found


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return False
    return True
