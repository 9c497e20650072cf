# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read NCCL's INFO and WARN lines, of NCCL 2.4 to 2.30, one after the other, into facts.

Facts only: :mod:`verdict.transport` decides what they prove, :mod:`diagnosis` why something failed. Most of a big log
are channel lines that repeat, so that each thread remembers those it has read.
"""

from __future__ import annotations

import dataclasses
import re
import typing as t

from .lines import NcclRecord, parse_header, printable, split_records
from .nccl_channels import parse_channel, parse_collnet
from .nccl_state import MAX_SEEN_TAILS, CommunicatorTables, NcclThread

MAX_NAMES = 256
MAX_LISTED_RING = 240

_INTERFACE = re.compile(rb"(?:\[\d+\])?([A-Za-z][\w.@-]{0,30}):([0-9A-Fa-f.:]{2,45}(?:%[\w.@-]{1,30})?)<\d+>")
_HCA = re.compile(rb"\[\d+\]([A-Za-z][\w.+-]{0,120}):\d+/(\w+)")
_OFI_PROVIDER = re.compile(rb"Selected [Pp]rovider is ([\w;.-]{1,60})")
_ENV = re.compile(rb"(NCCL_[A-Z0-9_]{1,60}) set (?:by environment )?to (.{0,200})", re.DOTALL)
_VERSION = re.compile(rb"NCCL version ([0-9][\w.+-]{1,40})")
# A row of nccl-tests that a record of NCCL interrupts ends in its root, without a separator before the host's name.
_ROW_START = re.compile(rb"\s*\d{1,15}\s+\d{1,15}\s+[a-z]\w{2,9}\s+(?:\w{1,8}\s+)?-1")
# The variables that can decide a verdict; all others are not read.
DECIDING_VARIABLES = frozenset(
    f"NCCL_{name}"
    for name in (
        *("ALGO", "COMM_ID", "IB_DISABLE", "IB_GID_INDEX", "IB_HCA", "MNNVL_ENABLE", "NET", "NET_PLUGIN"),
        *("P2P_DISABLE", "SHM_DISABLE", "SOCKET_FAMILY", "SOCKET_IFNAME"),
    )
)
# An error that is returned to the caller: ``init.cc:867 -> 5``; 0 is success and 7 is in progress.
_RETURNED = re.compile(rb"[\w/]{1,60}\.(?:cc|cu|h):\d{1,5} -> [1-68-9]\b")
_CHOSEN = (b"Using network ", b"Using internal Network ", b"Using internal network ", b"Assigned NET plugin ")

RecordListener = t.Callable[[int, NcclRecord], None]


@dataclasses.dataclass(slots=True)
class NcclFacts:
    """The facts of an NCCL log: names with the line that holds them first, at most ``MAX_NAMES`` of a kind.

    ``chosen`` are networks that NCCL reports to use (``Using network X``); ``found_plugins`` and ``hcas`` are found but
    not always used; ``interfaces`` are those of the bootstrap. ``failed_calls`` counts lines on which an error is
    returned.
    """

    records: int = 0
    warnings: int = 0
    jobs: CommunicatorTables = dataclasses.field(default_factory=CommunicatorTables)
    chosen: dict[str, int] = dataclasses.field(default_factory=dict)
    found_plugins: dict[str, int] = dataclasses.field(default_factory=dict)
    collnet: dict[str, int] = dataclasses.field(default_factory=dict)
    providers: dict[str, int] = dataclasses.field(default_factory=dict)
    hcas: dict[str, int] = dataclasses.field(default_factory=dict)
    link_layers: dict[str, int] = dataclasses.field(default_factory=dict)
    interfaces: dict[str, int] = dataclasses.field(default_factory=dict)
    socket_interfaces: dict[str, int] = dataclasses.field(default_factory=dict)
    versions: dict[str, int] = dataclasses.field(default_factory=dict)
    environment: dict[str, tuple[str, int]] = dataclasses.field(default_factory=dict)
    ready_line: int = 0
    failed_calls: int = 0
    first_warning: str = ""


class NcclLog:
    """Streaming reader: :meth:`record` for each line that holds ``NCCL ``, :meth:`version` for others that may.

    ``listener`` is called with every record whose text can name a cause (all warnings, some kinds of INFO).
    """

    def __init__(self, listener: RecordListener) -> None:
        self.facts = NcclFacts()
        self._listener = listener
        self._threads: dict[bytes, NcclThread] = {}
        self._handlers = self._handler_table()

    def record(self, line_number: int, line: bytes, at: int) -> bytes:
        """Read a line with ``NCCL `` at position ``at``. Returns the text before the record that is not its header."""
        if line[at + 5 : at + 10] != b"INFO " or b"NCCL " in line[at + 10 :]:
            return self._read_mixed_line(line_number, line)
        prefix = line[:at]
        thread = self._threads.get(prefix)
        before = b""
        if thread is None:
            before, thread = self._find_thread(prefix)
        self._read_info(line_number, thread, prefix, line[at + 10 :])
        return before

    def version(self, line_number: int, line: bytes) -> bool:
        """Note a bare ``NCCL version X`` line; return whether it was one."""
        match = _VERSION.search(line)
        if match:
            _note_first_line(self.facts.versions, match[1], line_number)
        return match is not None

    def _find_thread(self, prefix: bytes) -> tuple[bytes, NcclThread]:
        before = _ROW_START.match(prefix)
        record = parse_header((prefix[before.end() :] if before else prefix) + b"NCCL INFO ")
        thread = NcclThread(self.facts.jobs.process(record.host, record.pid))
        if before is None:
            if len(self._threads) >= MAX_SEEN_TAILS:
                # Prefixes with a time stamp never repeat; clearing only loses which communicator a thread began.
                self._threads.clear()
            self._threads[prefix] = thread
        return (before[0] if before else b""), thread

    def _read_mixed_line(self, line_number: int, line: bytes) -> bytes:
        """Read warnings, other levels and lines that hold several records."""
        row = _ROW_START.match(line)
        before, records = split_records(line[row.end() :] if row else line)
        if not records:
            self.version(line_number, line)
            return line
        for raw in self._split_glued_names(records):
            at = raw.find(b"NCCL ")
            level, _unused, text = raw[at + 5 :].partition(b" ")
            prefix = raw[:at]
            thread = self._threads.get(prefix) or self._find_thread(prefix)[1]
            if level == b"INFO":
                self._read_info(line_number, thread, prefix, text)
            elif level == b"version":
                self.version(line_number, raw)
            else:
                self.facts.records += 1
                self.facts.warnings += 1
                self.facts.first_warning = self.facts.first_warning or printable(text)
                self._listener(line_number, parse_header(raw[: at + 6 + len(level)])._replace(text=text))
        return row[0] if row else before

    def _split_glued_names(self, records: list[bytes]) -> list[bytes]:
        """Move letters before a known host's name to the end of the record before, to which they belong."""
        result = records[:1]
        for raw in records[1:]:
            own = parse_header(raw)
            extra = self.facts.jobs.extra_letters(own.host, own.pid)
            result[-1] += raw[:extra]
            result.append(raw[extra:])
        return result

    def _read_info(self, line_number: int, thread: NcclThread, prefix: bytes, text: bytes) -> None:
        self.facts.records += 1
        if text.startswith(b"[Rank "):
            # NCCL 2.31 writes the rank before some texts.
            text = text.partition(b"] ")[2]
        if text.startswith((b"Channel ", b"Ring ")):
            self._read_channel(line_number, thread, text)
            return
        word = text.split(b" ", 1)[0]
        handler = self._handlers.get(word)
        if handler is None:
            if not word.startswith(b"NCCL_"):
                if b"." in word and _RETURNED.match(text):
                    self.facts.failed_calls += 1
                return
            handler = self._read_variable
        if handler(line_number, thread, text):
            self._listener(line_number, parse_header(prefix + b"NCCL INFO ")._replace(text=text))

    def _read_channel(self, line_number: int, thread: NcclThread, text: bytes) -> None:
        tail = text.partition(b" : ")[2]
        if tail in thread.seen:
            pair = thread.seen[tail]
            if pair is not None:
                pair.count += 1
            return
        channel = parse_channel(tail)
        if channel is None and len(tail) > MAX_LISTED_RING:
            return
        if len(thread.seen) >= MAX_SEEN_TAILS:
            thread.seen.clear()
        thread.seen[tail] = self.facts.jobs.channel(thread, channel, line_number) if channel else None

    def _handler_table(self) -> dict[bytes, t.Callable[[int, NcclThread, bytes], bool]]:
        """Return first word of an INFO text -> its reader, which returns whether the text can also name a cause."""
        comm, network, pass_on = self._read_communicator, self._read_network, self._pass_on
        return {
            b"comm": comm,
            b"ncclCommInitRank": comm,
            b"ncclCommInitRankConfig": comm,
            b"ncclCommInitRankScalable": comm,
            b"ncclCommInitAll": comm,
            b"ncclCommSplit": comm,
            b"ncclCommShrink": comm,
            b"Bootstrap": self._read_bootstrap,
            b"Bootstrap:": self._read_bootstrap,
            b"NET/Socket": self._read_net_socket,
            b"NET/Socket:": self._read_net_socket,
            b"NET/IB": self._read_net_ib,
            b"NET/IB:": self._read_net_ib,
            b"NET/OFI": self._read_net_ofi,
            b"NET/FastSocket": self._read_plugin,
            b"NET/Plugin": pass_on,
            b"NET/Plugin:": pass_on,
            b"Using": network,
            b"Initialized": network,
            b"Assigned": network,
            b"Failed": pass_on,
            b"Connected": self._read_connected,
            b"Coll": self._read_collnet,
            b"CollNet": self._read_collnet,
            b"NCCL": self._read_version,
            b"RAS": pass_on,
            b"Call": pass_on,
            b"Detected": pass_on,
            b"socketPollConnect:": pass_on,
            b"socketStartConnect:": pass_on,
            b"ncclOsSocketPollConnect:": pass_on,
            b"ncclOsSocketStartConnect:": pass_on,
        }

    def _pass_on(self, line_number: int, thread: NcclThread, text: bytes) -> bool:
        return True

    def _read_communicator(self, line_number: int, thread: NcclThread, text: bytes) -> bool:
        self.facts.jobs.comm_line(thread, text)
        if b"Init COMPLETE" in text:
            self.facts.ready_line = line_number
        return False

    def _read_connected(self, line_number: int, thread: NcclThread, text: bytes) -> bool:
        if text.startswith((b"Connected all rings", b"Connected all trees")):
            self.facts.ready_line = line_number
        return False

    def _read_bootstrap(self, line_number: int, thread: NcclThread, text: bytes) -> bool:
        ends = _INTERFACE.findall(text)
        for name, _address in ends:
            _note_first_line(self.facts.interfaces, name, line_number)
        if ends:
            process, address = thread.process, printable(ends[0][1])
            process.doubtful = process.doubtful or process.address not in ("", address)
            process.address = process.address or address
        return True

    def _read_net_socket(self, line_number: int, thread: NcclThread, text: bytes) -> bool:
        if b"Using" in text:
            for name, _address in _INTERFACE.findall(text):
                _note_first_line(self.facts.socket_interfaces, name, line_number)
        return False

    def _read_net_ib(self, line_number: int, thread: NcclThread, text: bytes) -> bool:
        if b": Using" in text:
            for name, layer in _HCA.findall(text):
                _note_first_line(self.facts.hcas, name, line_number)
                _note_first_line(self.facts.link_layers, layer, line_number)
        return True

    def _read_net_ofi(self, line_number: int, thread: NcclThread, text: bytes) -> bool:
        if provider := _OFI_PROVIDER.search(text):
            _note_first_line(self.facts.providers, provider[1], line_number)
        return True

    def _read_plugin(self, line_number: int, thread: NcclThread, text: bytes) -> bool:
        """Read ``NET/FastSocket plugin initialized``: the plugin itself reports that it is used."""
        name = text.partition(b"/")[2].split(b" ", 1)[0]
        target = self.facts.chosen if b"plugin initialized" in text else self.facts.found_plugins
        _note_first_line(target, name, line_number)
        return False

    def _read_network(self, line_number: int, thread: NcclThread, text: bytes) -> bool:
        for start in _CHOSEN:
            if text.startswith(start):
                _note_first_line(self.facts.chosen, text[len(start) :].partition(b" to comm")[0].strip(), line_number)
        if text.startswith(b"Initialized NET plugin "):
            _note_first_line(self.facts.found_plugins, text[23:].strip(), line_number)
        return False

    def _read_collnet(self, line_number: int, thread: NcclThread, text: bytes) -> bool:
        via = parse_collnet(text.partition(b" : ")[2])
        if via:
            _note_first_line(self.facts.collnet, via.name.encode(), line_number)
        return False

    def _read_version(self, line_number: int, thread: NcclThread, text: bytes) -> bool:
        self.version(line_number, text)
        return False

    def _read_variable(self, line_number: int, thread: NcclThread, text: bytes) -> bool:
        match = _ENV.match(text)
        if match and match[1].decode() in DECIDING_VARIABLES:
            value = printable(match[2]).rstrip(".") if match[2].rstrip().endswith(b".") else printable(match[2])
            self.facts.environment.setdefault(match[1].decode(), (value, line_number))
        return False


def _note_first_line(table: dict[str, int], name: bytes, line_number: int) -> None:
    """Remember the first line of a name."""
    key = printable(name, 120)
    if key and key not in table and len(table) < MAX_NAMES:
        table[key] = line_number
