# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Connections of one process, byte counters of interfaces and RDMA ports, and NCCL's RAS, as they are now."""

from __future__ import annotations

import ipaddress
import os
import pathlib
import socket
import struct
import time
import typing as t

from . import files

_PROC = pathlib.Path("/proc")
_RDMA = pathlib.Path("/sys/class/infiniband")
# include/net/tcp_states.h
_STATES = {
    1: "established",
    2: "syn_sent",
    3: "syn_received",
    4: "fin_wait_1",
    5: "fin_wait_2",
    6: "time_wait",
    7: "closed",
    8: "close_wait",
    9: "last_ack",
    10: "listen",
    11: "closing",
}
_MAX_SOCKETS = 1024
_RAS_BYTES = 1 << 20
Counters = dict[str, tuple[int, int]]


def parse_endpoint(text: str) -> tuple[str, int]:
    """Return (address, port) of ``0100007F:1F90`` in /proc/net/tcp, each 32-bit word in host order."""
    raw, port = text.split(":")
    words = [int(raw[i : i + 8], 16) for i in range(0, len(raw), 8)]
    found: ipaddress.IPv4Address | ipaddress.IPv6Address = ipaddress.ip_address(struct.pack(f"={len(words)}I", *words))
    if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped:
        found = found.ipv4_mapped
    return str(found), int(port, 16)


def parse_tcp(text: str) -> dict[str, dict[str, t.Any]]:
    """Return inode -> connection of the text of /proc/net/tcp or tcp6; lines of another form are skipped.

    ``retransmits`` counts how often the same data was sent again without an answer (Linux, net/ipv4/tcp_ipv4.c).
    """
    found: dict[str, dict[str, t.Any]] = {}
    for line in text.splitlines()[1:]:
        fields = line.split()
        try:
            (local, local_port), (peer, peer_port) = parse_endpoint(fields[1]), parse_endpoint(fields[2])
            sending, receiving = (int(item, 16) for item in fields[4].split(":"))
            found[fields[9]] = {
                "local": local,
                "local_port": local_port,
                "peer": peer,
                "peer_port": peer_port,
                "state": _STATES.get(int(fields[3], 16), "unknown"),
                "unsent_bytes": sending,
                "unread_bytes": receiving,
                "retransmits": int(fields[6], 16),
            }
        except (ValueError, IndexError, struct.error):
            continue
    return found


def list_sockets(pid: int) -> list[dict[str, t.Any]]:
    """Return the TCP connections of a process, as its own network namespace shows them; at most 1024."""
    table: dict[str, dict[str, t.Any]] = {}
    for name in ("tcp", "tcp6"):
        table.update(parse_tcp(files.read_text(_PROC / str(pid) / "net" / name)))
    found: list[dict[str, t.Any]] = []
    try:
        names = os.listdir(_PROC / str(pid) / "fd")
    except OSError:
        return []
    for name in names:
        try:
            target = os.readlink(_PROC / str(pid) / "fd" / name)
        except OSError:
            continue
        if target.startswith("socket:[") and (item := table.get(target[8:-1])) and len(found) < _MAX_SOCKETS:
            found.append(item)
    return found


def parse_netdev(text: str) -> Counters:
    """Return interface -> (received, sent) bytes of the text of /proc/net/dev."""
    found: Counters = {}
    for line in text.splitlines()[2:]:
        name, _unused, rest = line.rpartition(":")
        fields = rest.split()
        if name and len(fields) > 8 and fields[0].isdecimal() and fields[8].isdecimal():
            found[name.strip()] = (int(fields[0]), int(fields[8]))
    return found


def parse_retransmits(text: str) -> int | None:
    """Return the segments that TCP has sent again since the machine started, from the text of /proc/net/snmp."""
    rows = [line.split() for line in text.splitlines() if line.startswith("Tcp:")]
    if len(rows) < 2 or "RetransSegs" not in rows[0] or len(rows[1]) != len(rows[0]):
        return None
    value = rows[1][rows[0].index("RetransSegs")]
    return int(value) if value.isdecimal() else None


def read_counters(pid: int | None) -> dict[str, t.Any]:
    """Return ``{netdev, rdma, retransmits}`` in the network namespace of ``pid`` (None: this process's)."""
    base = _PROC / (str(pid) if pid else "self") / "net"
    rdma: Counters = {}
    for port in sorted(_RDMA.glob("*/ports/*")):
        values = [files.read_text(port / "counters" / name).strip() for name in ("port_rcv_data", "port_xmit_data")]
        if all(value.isdecimal() for value in values):
            # The counters count words of four bytes.
            rdma[f"{port.parts[-3]}/{port.name}"] = (4 * int(values[0]), 4 * int(values[1]))
    return {
        "netdev": parse_netdev(files.read_text(base / "dev")),
        "rdma": rdma,
        "retransmits": parse_retransmits(files.read_text(base / "snmp")),
    }


def subtract_counters(before: dict[str, t.Any], after: dict[str, t.Any]) -> dict[str, t.Any]:
    """Return the differences; an interface that appeared or vanished, or a counter that was reset, is left out."""
    found: dict[str, t.Any] = {}
    for kind in ("netdev", "rdma"):
        found[kind] = {}
        for name, (received, sent) in after[kind].items():
            old = before[kind].get(name)
            if old and received >= old[0] and sent >= old[1]:
                found[kind][name] = {"rx_bytes": received - old[0], "tx_bytes": sent - old[1]}
    both = before["retransmits"] is not None and after["retransmits"] is not None
    found["retransmits"] = after["retransmits"] - before["retransmits"] if both else None
    return found


def query_ras(address: str, seconds: float) -> dict[str, t.Any] | None:
    """Ask NCCL's RAS at ``host:port`` for its verbose status: ``{address, text, problem}``; None when ``seconds`` is 0.

    NCCL 2.24 and later listen there (docs "RAS"); the answer waits for silent peers.
    """
    if seconds <= 0:
        return None
    host, _unused, port = address.rpartition(":")
    end, text = time.monotonic() + seconds, b""
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=min(2.0, seconds)) as link:
            link.sendall(b"verbose status\n")
            while len(text) < _RAS_BYTES and (left := end - time.monotonic()) > 0:
                link.settimeout(left)
                piece = link.recv(65536)
                if not piece:
                    break
                text += piece
    except (OSError, ValueError) as exc:
        problem = None if text else str(getattr(exc, "strerror", None) or exc or type(exc).__name__)
        return {"address": address, "text": text.decode(errors="replace"), "problem": problem}
    return {"address": address, "text": text.decode(errors="replace"), "problem": None}
