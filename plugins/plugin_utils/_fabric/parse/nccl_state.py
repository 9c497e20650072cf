# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who is who in an NCCL log: threads, processes, nodes, communicators and their ranks.

A rank number is valid inside one communicator only, and a torch job has many; channel lines do not name theirs. So a
line is counted for the communicator that its thread, else its process, began last. A host name alone does not identify
a node either: two machines can both be called ``ubuntu``. Processes of one host name with different bootstrap addresses
are on different nodes.
"""

from __future__ import annotations

import dataclasses
import re

from .lines import parse_number
from .nccl_channels import Channel

MAX_PAIRS = 300_000
MAX_PROCESSES = 100_000
MAX_SEEN_TAILS = 20_000

_COMM = re.compile(rb"\bcomm (0x[0-9a-f]{1,16}) rank (\d{1,9}) n[rR]anks (\d{1,9})")
_COMM_ID = re.compile(rb"\bcommId (0x[0-9a-f]{1,16})")
_NODES = re.compile(rb"\bnNodes (\d{1,9})")
_MNNVL = re.compile(rb"\bMNNVL (\d)")


@dataclasses.dataclass(slots=True)
class NcclProcess:
    """One process that wrote to the log. ``address`` is that of its bootstrap, empty when unknown.

    ``doubtful``: it has two addresses, so that two processes have the same name and number, as in containers.
    """

    host: str
    pid: int
    address: str = ""
    doubtful: bool = False
    comm: str = ""
    pointers: dict[bytes, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(slots=True)
class PairCount:
    """Channels of one kind between two ranks of one communicator; ``line`` is the first of them."""

    comm: str
    channel: Channel
    line: int
    count: int = 1


@dataclasses.dataclass(slots=True)
class Communicator:
    """One communicator: rank to the processes that reported to be it."""

    key: str
    nranks: int = 0
    nnodes: int = 0
    mnnvl: bool = False
    ranks: dict[int, list[NcclProcess]] = dataclasses.field(default_factory=dict)
    started: int = 0
    completed: int = 0


@dataclasses.dataclass(slots=True)
class NcclThread:
    """One thread of a process; ``seen`` remembers its channel lines, which repeat for every channel."""

    process: NcclProcess
    comm: str = ""
    seen: dict[bytes, PairCount | None] = dataclasses.field(default_factory=dict)


class CommunicatorTables:
    """The tables of one log, all bounded: an entry that does not fit sets ``overflow``, and then nothing is proven."""

    def __init__(self) -> None:
        self.processes: dict[tuple[str, int], NcclProcess] = {}
        self.comms: dict[str, Communicator] = {}
        self.pairs: dict[tuple[object, ...], PairCount] = {}
        self.overflow = False

    def process(self, host: str, pid: int) -> NcclProcess:
        """Return the process, a new one when it is not known."""
        process = self.processes.get((host, pid))
        if process is None:
            process = NcclProcess(host, pid)
            if len(self.processes) < MAX_PROCESSES:
                self.processes[host, pid] = process
            else:
                self.overflow = True
        return process

    def extra_letters(self, host: str, pid: int) -> int:
        """Return how many letters before a known host of this pid belong to a line that ran into this one."""
        if (host, pid) in self.processes:
            return 0
        hosts = (one.host for one in self.processes.values() if one.pid == pid and one.host and host.endswith(one.host))
        return len(host) - len(next(hosts, host))

    def comm_line(self, thread: NcclThread, text: bytes) -> None:
        """Read ``comm 0x… rank R nranks N … [commId 0x…] [- Init START|COMPLETE]``."""
        match = _COMM.search(text)
        if not match:
            return
        pointer, rank, nranks = match[1], parse_number(match[2]), parse_number(match[3])
        process = thread.process
        identifier = _COMM_ID.search(text)
        key = identifier[1].decode() if identifier else process.pointers.get(pointer, "")
        if identifier and len(process.pointers) < MAX_SEEN_TAILS:
            process.pointers[pointer] = key
        comm = self._comm(key)
        comm.nranks = max(comm.nranks, nranks)
        if nodes := _NODES.search(text):
            comm.nnodes = max(comm.nnodes, parse_number(nodes[1]))
        if mnnvl := _MNNVL.search(text):
            comm.mnnvl = comm.mnnvl or mnnvl[1] != b"0"
        self._add_rank(comm, rank, process)
        if b"Init START" in text:
            comm.started += 1
            thread.comm = process.comm = key
            thread.seen.clear()
        elif b"Init COMPLETE" in text:
            comm.completed += 1

    def channel(self, thread: NcclThread, channel: Channel, line: int) -> PairCount | None:
        """Count one channel line of a thread; None when the table is full."""
        process = thread.process
        comm = self._comm(thread.comm or process.comm)
        self._add_rank(comm, channel.printed_by, process)
        key = (comm.key, channel.a, channel.b, channel.direction, channel.via)
        pair = self.pairs.get(key)
        if pair is None:
            if len(self.pairs) >= MAX_PAIRS:
                self.overflow = True
                return None
            pair = self.pairs[key] = PairCount(comm.key, channel, line, 0)
        pair.count += 1
        return pair

    def _comm(self, key: str) -> Communicator:
        comm = self.comms.get(key)
        if comm is None:
            if len(self.comms) >= MAX_PROCESSES:
                self.overflow = True
                return Communicator(key)
            comm = self.comms[key] = Communicator(key)
        return comm

    def _add_rank(self, comm: Communicator, rank: int, process: NcclProcess) -> None:
        """Record that a process reports to be this rank; two such processes are two jobs, or groups without an id."""
        processes = comm.ranks.get(rank)
        if processes is None:
            if len(comm.ranks) >= MAX_PROCESSES:
                self.overflow = True
                return
            comm.ranks[rank] = [process]
        elif process not in processes and len(processes) < 16:
            processes.append(process)

    def node_names(self) -> dict[tuple[str, int], str]:
        """Return process key to node: the host name, with the address where one name is used at several addresses."""
        addresses: dict[str, set[str]] = {}
        for process in self.processes.values():
            addresses.setdefault(process.host, set()).add(process.address)
        result = {}
        for key, process in self.processes.items():
            several = len(addresses[process.host] - {""}) > 1
            if process.host and not process.doubtful and not (several and not process.address):
                result[key] = f"{process.host}@{process.address}" if several else process.host
        return result
