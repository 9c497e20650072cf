# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Parse NCCL's channel lines, the only lines of its log that show what carries the data of a pair of ranks.

Formats of NCCL 2.4 to 2.30 (src/transport/{net,p2p,shm,coll_net}.cc) and of RCCL, which appends ``comm … nRanks …``::

    Ring 00 : 15 -> 0 [send] via NET/Socket/0
    Channel 01 : 9[101d0] -> 0[101c0] [receive] via NET/AWS Libfabric/0
    Channel 07/0 : 0[0] -> 8[0] [send] via NET/IB/3(5)/GDRDMA(PCI)/Shared
    Channel 00/0 : 4[0] -> 3[3] via P2P/MNNVL/read
"""

from __future__ import annotations

import dataclasses
import re
import typing as t

from .lines import parse_number, printable

ChannelKind = t.Literal["net", "p2p", "shm", "collnet", "other"]
NetworkClass = t.Literal["rdma", "tcp", "unknown"]

_TAIL = re.compile(
    rb"\s*(\d{1,9})(?:\[(?:0x)?([0-9a-fA-F]{1,12})\])? -> (\d{1,9})(?:\[(?:0x)?([0-9a-fA-F]{1,12})\])?"
    rb"(?: \[(send|receive)\])? via (.{1,200})",
    re.DOTALL,
)
# The name may hold a space ("AWS Libfabric"); the proxy's rank in parentheses is PXN through another rank's NIC.
_NET = re.compile(rb"NET/([^/]{1,80})/(\d{1,6})(?:\((\d{1,9})\))?(/GDRDMA)?")
_COLLNET = re.compile(rb"\s*(\d{1,9}) \[(?:send|receive)\] via COLLNET/([^/]{1,80})/(\d{1,6})(/GDRDMA)?")
_TCP_NAMES = ("socket", "fastsocket", "fastrak")
_RDMA_NAMES = ("ib", "gib", "ucx", "efa", "roce", "bnxt", "verbs")
_RDMA_PARTS = ("libfabric", "rdma", "roce", "ibext", "ainic", "spectrum", "ofi")


@dataclasses.dataclass(frozen=True, slots=True)
class Via:
    """What a channel uses. ``name`` is the network's (``IBext_v8``) or the kind of P2P (``IPC``, ``MNNVL``)."""

    kind: ChannelKind
    name: str
    gdr: bool = False
    proxy: int | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Channel:
    """One channel from rank ``a`` to rank ``b``; ``direction`` tells who printed it (None for P2P and SHM: ``a``).

    ``same_device``: both ranks name the same GPU of their node, so that they are on two nodes.
    """

    a: int
    b: int
    direction: t.Literal["send", "receive"] | None
    via: Via
    same_device: bool

    @property
    def printed_by(self) -> int:
        """The rank whose process wrote the line."""
        return self.b if self.direction == "receive" else self.a


def parse_channel(tail: bytes) -> Channel | None:
    """Parse what follows ``Channel NN/M :``; anything else (such as the ring's list of ranks) is None."""
    match = _TAIL.match(tail)
    if not match:
        return None
    first, first_device, second, second_device, direction, via = match.groups()
    same = first_device is not None and first_device == second_device
    way = t.cast("t.Literal['send', 'receive'] | None", direction.decode() if direction else None)
    return Channel(parse_number(first), parse_number(second), way, parse_via(via), same)


def parse_via(via: bytes) -> Via:
    """Parse what follows ``via``."""
    if match := _NET.match(via):
        name, _device, proxy, gdr = match.groups()
        return Via("net", printable(name), gdr is not None, parse_number(proxy) if proxy else None)
    head, _unused, rest = via.partition(b"/")
    if head == b"P2P":
        return Via("p2p", printable(re.split(rb"[/\s]", rest, maxsplit=1)[0]))
    if head == b"SHM" or via.startswith(b"direct shared memory"):
        return Via("shm", "SHM")
    return Via("other", printable(via, 40))


def parse_collnet(tail: bytes) -> Via | None:
    """Parse what follows ``CollNet NN/M :`` (in-network reduction): it names a network but no pair."""
    match = _COLLNET.match(tail)
    return Via("collnet", printable(match[2]), match[4] is not None) if match else None


def network_class(name: str) -> NetworkClass:
    """Return whether a network of this name moves data by RDMA or by TCP.

    Known names: NCCL's own (IB, Socket), HPC-X (IBext_v6…v10, UCX), aws-ofi-nccl (AWS Libfabric, Libfabric), Google's
    FastSocket, GPUDirectTCPX, FasTrak (all TCP on the wire) and gIB (RoCE). Other plugins are unknown.
    """
    lower = name.lower()
    if lower.startswith(_TCP_NAMES) or "tcp" in lower:
        return "tcp"
    if lower.startswith(_RDMA_NAMES) or any(part in lower for part in _RDMA_PARTS):
        return "rdma"
    return "unknown"
