# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What carries the collectives of a node's ranks: lines of NCCL's own logs, else the established sockets of each rank.

Events of the kind ``transport`` go into the run's events, one for each rank and again when it has changed:
``lines`` (of NCCL; channel lines once for each pair of ranks) or ``sockets`` ({local, peer, interface}).
"""

# pylint: disable=ansible-bad-function  # on a node by itself, with no AnsibleModule around it
from __future__ import annotations

import contextlib
import ipaddress
import os
import pathlib
import re
import struct
import time
import typing as t

from . import files, processes
from .pod_log import Tail

# The ranks' logs are RUN_DIR/nccl.ATTEMPT.RANK.HOST.PID.log (see rank.py).
LOG_PREFIX = "nccl"
# Connections are made in the first minute: until then a rank is looked at every second, afterwards twice a minute.
_START_S, _SOON_S, _LATER_S = 60.0, 1.0, 30.0
# Of a log that much is read; one that takes more of the disk is emptied.
_READ_BYTES = 4 << 20
_DISK_BYTES = 16 << 20
_MAX_LINES, _LINE_BYTES = 96, 300
_MAX_SOCKETS = 128
_ENDS_OF_PAIR = 4
_MAX_PIDS = 64
# The state of a connection in /proc/net/tcp.
_ESTABLISHED = "01"
_START_LINE = re.compile(
    rb"NCCL version|NCCL INFO (?:Bootstrap ?:|Using (?:internal )?[Nn]etwork|Assigned NET plugin|Initialized NET plugin"
    rb"|NET/(?:IB|Socket|OFI|Plugin)|.* Init START)"
)
_CHANNEL = re.compile(rb"^(.*)(?:Channel|Ring) \d+(?:/\d+)? : (.+ via .+)$")
Event = dict[str, t.Any]


class TransportRecorder:
    """Looks at the ranks of a node now and then, and records what carries their traffic.

    :param since: how long the events were before the ranks were started; without it they are started after this.
    :ivar ranks: rank -> its newest ``worker_started`` event.
    """

    def __init__(self, run_dir: pathlib.Path, node: str, since: int | None = None) -> None:
        self.run_dir, self.node = run_dir, node
        self.events = run_dir / "events.jsonl"
        # Ranks of an earlier start of this supervisor have ended.
        self._tail = Tail(self.events, new=since is None, since=since or 0)
        self.ranks: dict[int, Event] = {}
        self._recorded: dict[int, Event] = {}
        self._due = self._started = 0.0

    def update(self, now: float | None = None, last: bool = False) -> None:
        """Record what has changed, if it is time to look; ``last``: at once, because the ranks have ended."""
        now = time.monotonic() if now is None else now
        if now < self._due and not last:
            return
        self._due = now + _SOON_S
        try:
            for line in self._tail.lines():
                self._take(line, now)
            if self.ranks and now > self._started + _START_S:
                self._due = now + _LATER_S
            for rank, started in self.ranks.items():
                self._record(rank, started)
        except (OSError, ValueError):
            # Evidence that cannot be read is none; the job runs on.
            return

    def _take(self, line: Event, now: float) -> None:
        rank = line.get("rank")
        if line.get("kind") == "worker_started" and isinstance(rank, int):
            self.ranks[rank] = line
            self._started = now

    def _record(self, rank: int, started: Event) -> None:
        attempt = started.get("attempt")
        lines = read_nccl_lines(sorted(self.run_dir.glob(f"{LOG_PREFIX}.{attempt}.{rank}.*")))
        found: Event = {"lines": lines} if lines else {"sockets": read_sockets(started)}
        key = {**found, "attempt": attempt}
        if any(found.values()) and self._recorded.get(rank) != key:
            self._recorded[rank] = key
            about = {"kind": "transport", "node": self.node, "rank": rank, "attempt": attempt}
            files.append_json(self.events, {"at": time.time(), **about, "gang": started.get("gang"), **found})


def read_nccl_lines(places: t.Sequence[pathlib.Path]) -> list[str]:
    """Return the lines of NCCL's logs that say which network it uses: start lines, and each pair of ranks once."""
    seen: dict[bytes, bytes] = {}
    for place in places:
        with open(place, "rb") as log:
            data = log.read(_READ_BYTES)
        if place.stat().st_blocks * 512 > _DISK_BYTES:
            # NCCL continues at its own offset: what it has written until now is a hole without blocks.
            os.truncate(place, 0)
        for line in data.split(b"\n"):
            channel = _CHANNEL.match(line)
            key = channel[1] + channel[2] if channel else line
            if (channel or _START_LINE.search(line)) and key not in seen and len(seen) < _MAX_LINES:
                seen[key] = line[:_LINE_BYTES]
    return [line.decode(errors="replace") for line in seen.values()]


def read_sockets(started: Event) -> list[dict[str, str | None]]:
    """Return the established TCP connections of a rank, without those of the rendezvous store.

    Of the many between two addresses a few are kept, the same on both ends.
    """
    pid = started.get("pid")
    if not isinstance(pid, int):
        return []
    port = str(started.get("gang") or "").rpartition(":")[2]
    pairs: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for local, peer in _connections(pid):
        if port not in (_port(local), _port(peer)):
            pairs.setdefault((_host(local), _host(peer)), []).append((local, peer))
    kept = [end for ends in pairs.values() for end in sorted(ends, key=sorted)[:_ENDS_OF_PAIR]]
    owners = {host: _find_owner(host) for host in {_host(local) for local, _unused in kept}}
    return [{"local": local, "peer": peer, "interface": owners[_host(local)]} for local, peer in kept[:_MAX_SOCKETS]]


def _connections(pid: int) -> list[tuple[str, str]]:
    """Return (local, peer) of the established connections of a process and its descendants.

    A rank's command may be a shell that starts the program.
    """
    known = [pid, *processes.list_descendants(pid, _MAX_PIDS - 1)]
    own = {link for process in known for link in _socket_links(process)}
    found = []
    for name in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            for line in pathlib.Path(f"/proc/{pid}/net/{name}").read_text().splitlines()[1:]:
                fields = line.split()
                if len(fields) > 9 and fields[3] == _ESTABLISHED and fields[9] in own:
                    found.append((decode_address(fields[1]), decode_address(fields[2])))
    return found


def _socket_links(pid: int) -> t.Iterator[str]:
    """Yield the inodes of the sockets that a process has open."""
    folder = f"/proc/{pid}/fd"
    try:
        names = os.listdir(folder)
    except OSError:
        return
    for name in names:
        with contextlib.suppress(OSError):
            target = os.readlink(f"{folder}/{name}")
            if target.startswith("socket:["):
                yield target[8:-1]


def decode_address(text: str) -> str:
    """Return an address of /proc/net/tcp, whose 32-bit words are in host order, as ``10.0.0.1:80`` or ``[::1]:80``."""
    raw, port = text.split(":")
    words = [int(raw[start : start + 8], 16) for start in range(0, len(raw), 8)]
    address: ipaddress.IPv4Address | ipaddress.IPv6Address = ipaddress.ip_address(
        struct.pack(f"={len(words)}I", *words)
    )
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped:
        address = address.ipv4_mapped
    return f"[{address}]:{int(port, 16)}" if address.version == 6 else f"{address}:{int(port, 16)}"


def _find_owner(host: str) -> str | None:
    """Return the interface of this node that has an address."""
    if ipaddress.ip_address(host).is_loopback:
        return "lo"
    # Only now: a supervisor imports this module before its ranks run, and dataclasses take as long as all of the rest.
    from . import pod_preflight

    return pod_preflight.find_interface(host)


def _host(end: str) -> str:
    return end.rpartition(":")[0].strip("[]")


def _port(end: str) -> str:
    return end.rpartition(":")[2]
