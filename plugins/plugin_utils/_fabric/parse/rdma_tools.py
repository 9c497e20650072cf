# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read the tables of ``show_gids`` and the ports that ``ibstat`` lists.

A GID index is a position in a port's table, and each pod or network namespace may have its own table: the same address
type at different indexes on one port is why a fixed NCCL_IB_GID_INDEX fails in pods.
"""

from __future__ import annotations

import dataclasses
import re
import typing as t

MAX_ENTRIES = 20_000
_HEADER = re.compile(r"^\s*DEV\s+PORT\s+INDEX\s+GID\b")
_GID = re.compile(
    r"^\s*([A-Za-z][\w.+-]{0,120})\s+(\d{1,4})\s+(\d{1,6})\s+([0-9a-fA-F:]{2,45})\s*(?:(\d[\d.]{6,14})\s+)?"
    r"(?:RoCE\s*)?[vV]([12])\s*(\S{0,64})"
)
_KEY = re.compile(r"^\s*([A-Za-z][\w /]{0,40}?)\s*:\s*(\S.{0,120})?$")


@dataclasses.dataclass(frozen=True, slots=True)
class Gid:
    """One entry: device, port, index in the port's table, the GID, its IPv4 form or null, RoCE version, netdev."""

    device: str
    port: int
    index: int
    gid: str
    ipv4: str | None
    version: str
    netdev: str | None
    line: int


@dataclasses.dataclass(frozen=True, slots=True)
class GidTable:
    """One table as one run of show_gids prints it, in a node, a pod or a namespace."""

    entries: tuple[Gid, ...]
    line: int


def parse_show_gids(text: str) -> tuple[GidTable, ...]:
    """Return the tables, in their order; empty when the text holds none. An empty table is a table. Never raises."""
    tables: list[tuple[int, list[Gid]]] = []
    count = 0
    for line_number, line in enumerate(text.splitlines(), 1):
        if _HEADER.match(line):
            tables.append((line_number, []))
        elif tables and count < MAX_ENTRIES and (match := _GID.match(line)):
            device, port, index, gid, ipv4, version, netdev = match.groups()
            entry = Gid(device, int(port), int(index), gid, ipv4, f"v{version}", netdev or None, line_number)
            tables[-1][1].append(entry)
            count += 1
    return tuple(GidTable(tuple(entries), line) for line, entries in tables)


def find_moving_gid_index(tables: t.Sequence[GidTable]) -> tuple[Gid, Gid] | None:
    """Return two entries of one port and RoCE version whose index differs between tables, None when none does.

    Only entries with an IPv4 address are compared; tables without one of that port and version are ignored.
    """
    first: dict[tuple[str, int, str], tuple[frozenset[int], Gid]] = {}
    for table in tables:
        by_port: dict[tuple[str, int, str], list[Gid]] = {}
        for entry in table.entries:
            if entry.ipv4:
                by_port.setdefault((entry.device, entry.port, entry.version), []).append(entry)
        for key, entries in by_port.items():
            indexes = frozenset(entry.index for entry in entries)
            if key in first and not indexes & first[key][0]:
                return first[key][1], entries[0]
            first.setdefault(key, (indexes, entries[0]))
    return None


@dataclasses.dataclass(frozen=True, slots=True)
class IbPort:
    """One port of ibstat: state, rate in Gb/s (null: unknown) and link layer."""

    device: str
    port: int
    state: str | None
    rate_gbps: float | None
    link_layer: str | None


def parse_ibstat(text: str) -> tuple[IbPort, ...]:
    """Return the ports that ibstat lists, empty when the text is not ibstat's. Never raises."""
    ports: list[tuple[str, int, dict[str, str]]] = []
    device = ""
    for line in text.splitlines():
        if match := re.match(r"^\s*CA '([^'\n]{1,120})'", line):
            device = match[1]
        elif device and (match := re.match(r"^\s*Port (\d{1,4}):\s*$", line)):
            ports.append((device, int(match[1]), {}))
        elif ports and ports[-1][0] == device and (match := _KEY.match(line)):
            ports[-1][2].setdefault(match[1].lower(), (match[2] or "").strip())
        if len(ports) > MAX_ENTRIES:
            break
    return tuple(_build_port(*port) for port in ports)


def _build_port(device: str, port: int, values: dict[str, str]) -> IbPort:
    rate = values.get("rate", "")
    rate_gbps = float(rate) if re.fullmatch(r"\d{1,6}(?:\.\d{1,4})?", rate) else None
    return IbPort(
        device,
        port,
        values.get("state") or None,
        rate_gbps,
        values.get("link layer") or None,
    )
