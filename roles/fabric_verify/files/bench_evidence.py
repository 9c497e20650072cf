# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Evidence of the network of one process, read from /proc: its TCP sockets, counters of interfaces and RDMA ports.

Part of ``allreduce_bench.py`` and copied beside it; standard library only. gloo prints no channel lines, so these
sockets and counters are the proof of the path that a collective took.
"""

from __future__ import annotations

import array
import fcntl
import ipaddress
import os
import socket
import struct
import typing as t
from pathlib import Path

SIOCGIFCONF = 0x8912
TCP_INFO = 11
Key = tuple[str, str]
Pair = list[int]


def read_text(path: str | Path) -> str:
    """A file's text; empty when it cannot be read."""
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return ""


def decode_address(text: str) -> str:
    """``0100007F:1F90`` of /proc/net/tcp (each 32-bit word in host order) as ``127.0.0.1:8080``."""
    raw, port = text.split(":")
    words = [int(raw[i : i + 8], 16) for i in range(0, len(raw), 8)]
    packed = struct.pack(f"={len(words)}I", *words)
    address: ipaddress.IPv4Address | ipaddress.IPv6Address = ipaddress.ip_address(packed)
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped:
        address = address.ipv4_mapped
    return f"[{address}]:{int(port, 16)}" if address.version == 6 else f"{address}:{int(port, 16)}"


def _host(endpoint: str) -> str:
    return endpoint.rpartition(":")[0].strip("[]")


def _established() -> dict[str, Key]:
    """Inode of every established TCP socket of this network namespace, with its (local, peer)."""
    found: dict[str, Key] = {}
    for name in ("tcp", "tcp6"):
        for line in read_text(f"/proc/self/net/{name}").splitlines()[1:]:
            fields = line.split()
            if len(fields) > 9 and fields[3] == "01":
                found[fields[9]] = (decode_address(fields[1]), decode_address(fields[2]))
    return found


def _socket_bytes(fd: int) -> tuple[int, int] | None:
    """Bytes (acknowledged, received) of a TCP socket: struct tcp_info in linux/tcp.h, u64 at 120 and 128."""
    try:
        with socket.socket(fileno=os.dup(fd)) as sock:
            info = sock.getsockopt(socket.IPPROTO_TCP, TCP_INFO, 256)
    except OSError:
        return None
    return struct.unpack_from("=QQ", info, 120) if len(info) >= 136 else None


def own_sockets() -> dict[Key, tuple[int, int] | None]:
    """Established TCP sockets of this very process: (local, peer) to bytes (sent, received)."""
    established = _established()
    found: dict[Key, tuple[int, int] | None] = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{name}")
        except OSError:
            continue
        if target.startswith("socket:[") and (key := established.get(target[8:-1])):
            found[key] = _socket_bytes(int(name))
    return found


def interface_addresses() -> dict[str, str]:
    """Address to the interface that owns it: SIOCGIFCONF (netdevice(7)) and /proc/net/if_inet6."""
    block = array.array("B", bytes(40 * 1024))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        filled = fcntl.ioctl(sock, SIOCGIFCONF, struct.pack("iL", len(block), block.buffer_info()[0]))
    data = block.tobytes()[: struct.unpack("iL", filled)[0]]
    owners: dict[str, str] = {}
    for start in range(0, len(data) - 39, 40):
        label = data[start : start + 16].split(b"\0", 1)[0].decode()
        owners[socket.inet_ntoa(data[start + 20 : start + 24])] = label.partition(":")[0]
    for line in read_text("/proc/self/net/if_inet6").splitlines():
        fields = line.split()
        owners[str(ipaddress.IPv6Address(int(fields[0], 16)))] = fields[-1]
    return owners


def netdev_bytes() -> dict[str, tuple[int, int]]:
    """Interface to bytes (received, sent), from /proc/net/dev."""
    counters: dict[str, tuple[int, int]] = {}
    for line in read_text("/proc/self/net/dev").splitlines()[2:]:
        name, _unused, rest = line.partition(":")
        fields = rest.split()
        counters[name.strip()] = (int(fields[0]), int(fields[8]))
    return counters


def rdma_bytes() -> dict[str, tuple[int, int]]:
    """RDMA port such as ``mlx5_0/1`` to bytes (received, sent); the counters count words of 4 bytes."""
    counters: dict[str, tuple[int, int]] = {}
    for port in Path("/sys/class/infiniband").glob("*/ports/*"):
        values = [read_text(port / "counters" / name).strip() for name in ("port_rcv_data", "port_xmit_data")]
        if all(value.isdecimal() for value in values):
            counters[f"{port.parts[-3]}/{port.name}"] = (4 * int(values[0]), 4 * int(values[1]))
    return counters


class Snapshot(t.NamedTuple):
    """Counters at one moment; the sockets' are None where the kernel has no byte counts."""

    sockets: dict[Key, tuple[int, int] | None]
    netdev: dict[str, tuple[int, int]]
    rdma: dict[str, tuple[int, int]]

    @classmethod
    def take(cls) -> Snapshot:
        return cls(own_sockets(), netdev_bytes(), rdma_bytes())


def _deltas(before: dict[str, tuple[int, int]], after: dict[str, tuple[int, int]]) -> dict[str, dict[str, Pair]]:
    return {
        name: {"rx_bytes": [before[name][0], rx], "tx_bytes": [before[name][1], tx]}
        for name, (rx, tx) in sorted(after.items())
        if name in before
    }


def evidence(rank: int, node: str, before: Snapshot, after: Snapshot) -> dict[str, t.Any]:
    """This rank's part of the proof, before the sockets of other programs are left out (see ``keep_peers``)."""
    owners = interface_addresses()
    sockets = []
    for (local, peer), counts in sorted(after.sockets.items()):
        entry: dict[str, t.Any] = {
            "local": local,
            "peer": peer,
            "interface": owners.get(_host(local).partition("%")[0]),
        }
        if counts is not None:
            first = before.sockets.get((local, peer)) or (0, 0)
            entry["tx_bytes"], entry["rx_bytes"] = [first[0], counts[0]], [first[1], counts[1]]
        sockets.append(entry)
    used = {name for address, name in owners.items() if name != "lo" and not address.startswith("fe80:")}
    used |= {"lo" for _unused, peer in after.sockets if _host(peer) in owners}
    netdev = {name: delta for name, delta in _deltas(before.netdev, after.netdev).items() if name in used}
    rdma = _deltas(before.rdma, after.rdma)
    host = socket.gethostname()
    identity = {"rank": rank, "host": host, "node": node, "pid": os.getpid()}
    return {**identity, "sockets": sockets, "netdev": netdev, "rdma": rdma}


def keep_peers(ranks: list[dict[str, t.Any]], store_port: str) -> list[dict[str, t.Any]]:
    """Keep the sockets whose other end is a socket of another rank, and name that rank.

    A socket of the rendezvous store moves no tensor and may sit on another interface than the collectives do.
    """
    ends = {(e["local"], e["peer"]): rank["rank"] for rank in ranks for e in rank["sockets"]}
    for rank in ranks:
        peers = []
        for entry in rank["sockets"]:
            other = ends.get((entry["peer"], entry["local"]))
            control = store_port in (entry["local"].rpartition(":")[2], entry["peer"].rpartition(":")[2])
            if other is not None and other != rank["rank"] and not control:
                peers.append({**entry, "peer_rank": other})
        rank["sockets"] = peers
    return ranks
