# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read what nccl-tests prints, of all generations, from a stream into which NCCL and launchers write too.

Generations (nccl-tests src/common.cu): ``error`` instead of ``#wrong`` before 2.13; no ``redop`` or no ``root`` for
some collectives; ``Group`` in the list of ranks; ``-I`` adds columns to each half, ``-S`` a time. The header says which
columns there are; a table without its header is read from its end. A row can be interrupted by lines of NCCL, because
nccl-tests prints it in three pieces.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import dataclasses
import re
import typing as t

from ....module_utils._model.quantity import parse_finite
from .lines import number, shown, strip_prefixes

MAX_ROWS = 4096
MAX_RANKS = 65_536
MAX_PENDING = 1024

TYPES = frozenset(
    b"int8 char uint8 int32 int uint32 int64 uint64 half float16 float float32 double float64 bfloat16 "
    b"fp8_e4m3 fp8_e5m2 f8e4m3 f8e5m2".split()
)
_RANK = re.compile(
    rb"#\s+Rank\s+(\d{1,9})\s+(?:Group\s+\d{1,9}\s+)?Pid\s+(\d{1,12})\s+on\s+(\S{1,255})\s+device\s+(\d{1,4})\s+"
    rb"\[([^\]]{0,40})\]\s*(.{0,120})"
)
_BOUNDS = re.compile(rb"#\s*Out of bounds values\s*:\s*(\d{1,18})\s*(OK|FAILED)?")
_AVERAGE = re.compile(rb"#\s*Avg bus bandwidth\s*:\s*(\S{1,30})\s*(OK|FAILED)?")
_STARTING = re.compile(rb"#\s*Collective test (starting|concluded):\s*(\w{1,60})")
_VERSION = re.compile(rb"#\s*nccl-tests version\s+(\S{1,40})")
_THREADS = re.compile(rb"#\s*nThread\s+\d+\s+nGpus\s+\d+\s+minBytes\s+\d+")
_FAILURE = re.compile(rb"Test (?:NCCL|CUDA|MPI) failure|: Test failure |Test timeout")
_MARKS = (b"#", b"Test ")


@dataclasses.dataclass(frozen=True, slots=True)
class Half:
    """One half of a row: time in microseconds, bandwidths in GB/s (10^9), wrong values (null: not checked)."""

    time_us: float | None
    algbw_gb_s: float | None
    busbw_gb_s: float | None
    wrong: int | None


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
    """One size: bytes, out of place and in place."""

    size_bytes: int
    dtype: str
    out_of_place: Half
    in_place: Half

    @property
    def busbw_gb_s(self) -> float | None:
        """The better half's bus bandwidth in GB/s."""
        found = [half.busbw_gb_s for half in (self.out_of_place, self.in_place) if half.busbw_gb_s is not None]
        return max(found, default=None)


@dataclasses.dataclass(frozen=True, slots=True)
class TestRank:
    """One rank of the list that nccl-tests prints first; ``device`` is the GPU's model."""

    __test__ = False
    rank: int
    pid: int
    host: str
    device: str


@dataclasses.dataclass(slots=True)
class NcclTests:
    """What was printed. ``wrong`` is the sum of wrong values, null when no row was checked.

    ``average_gb_s`` is nccl-tests' mean over all sizes: kept to be shown, never to be judged.
    """

    version: str | None = None
    collective: str | None = None
    ranks: dict[int, TestRank] = dataclasses.field(default_factory=dict)
    rows: list[Row] = dataclasses.field(default_factory=list)
    largest: Row | None = None
    largest_line: int = 0
    wrong: int | None = None
    out_of_bounds: int | None = None
    out_of_bounds_failed: bool = False
    average_gb_s: float | None = None
    average_failed: bool = False
    failures: dict[str, int] = dataclasses.field(default_factory=dict)
    concluded: bool = False
    header_lines: int = 0
    marks: int = 0
    broken_rows: int = 0

    @property
    def has_table(self) -> bool:
        """Whether a table (its header, a row or its summary) was printed."""
        return bool(self.rows or self.header_lines or self.average_gb_s is not None or self.out_of_bounds is not None)

    @property
    def hosts(self) -> tuple[str, ...]:
        """Host names of the list of ranks, sorted."""
        return tuple(sorted({rank.host for rank in self.ranks.values()}))

    def add(self, row: Row, line_number: int) -> None:
        """Take a row; rows beyond ``MAX_ROWS`` only count for the largest size and for wrong values."""
        if len(self.rows) < MAX_ROWS:
            self.rows.append(row)
        if row.busbw_gb_s is not None and (self.largest is None or row.size_bytes >= self.largest.size_bytes):
            self.largest, self.largest_line = row, line_number
        checked = [half.wrong for half in (row.out_of_place, row.in_place) if half.wrong is not None]
        if checked:
            self.wrong = (self.wrong or 0) + sum(checked)


class NcclTestsText:
    """Streaming reader of the text form: :meth:`line` for each line that is no NCCL record."""

    def __init__(self) -> None:
        self.found = NcclTests()
        self._columns: list[bytes] = []
        self._pending = b""

    @property
    def expecting(self) -> bool:
        """Whether any next line may belong to the table: something of nccl-tests was seen, or a row is not complete."""
        return bool(self.found.marks or self._pending)

    def line(self, line_number: int, raw: bytes) -> bool:
        """Read one line; return whether it belongs to nccl-tests."""
        if b"#" in raw or b"Test " in raw:
            text = strip_prefixes(raw)
            if self._mark(line_number, text):
                return True
        return self._row_piece(line_number, raw)

    def piece(self, line_number: int, raw: bytes) -> None:
        """Read the part of a line that stood before an NCCL record."""
        self._row_piece(line_number, raw)

    def finish(self) -> NcclTests:
        """Return what was found; a row that never ended is counted as broken."""
        if self._pending:
            self.found.broken_rows += 1
            self._pending = b""
        return self.found

    def _mark(self, line_number: int, text: bytes) -> bool:
        found = self.found
        if not text.lstrip().startswith(b"#"):
            if _FAILURE.search(text):
                # Not taken as read: the message behind it can name a cause.
                found.failures.setdefault(shown(text), line_number)
                found.marks += 1
            return False
        if b"busbw" in text and b"algbw" in text:
            self._columns = text.replace(b"#wrong", b"wrong").strip(b"# \t\r").split()
            found.header_lines += 1
        elif rank := _RANK.search(text):
            self._rank(rank)
        elif not (self._summary(text) or _THREADS.search(text)):
            return False
        found.marks += 1
        return True

    def _rank(self, match: re.Match[bytes]) -> None:
        rank, pid, host, _index, _bus, device = match.groups()
        if len(self.found.ranks) < MAX_RANKS:
            self.found.ranks[number(rank)] = TestRank(number(rank), number(pid), shown(host), shown(device))

    def _summary(self, text: bytes) -> bool:
        found = self.found
        if match := _BOUNDS.search(text):
            found.out_of_bounds, found.out_of_bounds_failed = number(match[1]), match[2] == b"FAILED"
        elif match := _AVERAGE.search(text):
            found.average_gb_s, found.average_failed = decimal(match[1]), match[2] == b"FAILED"
        elif match := _STARTING.search(text):
            found.collective = shown(match[2]).removesuffix("_mpi").removesuffix("_perf")
            found.concluded = found.concluded or match[1] == b"concluded"
        elif match := _VERSION.search(text):
            found.version = shown(match[1])
        else:
            return False
        return True

    def _row_piece(self, line_number: int, raw: bytes) -> bool:
        if self._pending:
            text = strip_prefixes(raw)
            first = text.split(None, 1)[:1]
            if first and _is_value(first[0]):
                return self._try_row(line_number, self._pending + b" " + text, joined=True)
        if not _may_start_row(raw):
            return False
        if self._pending:
            self.found.broken_rows += 1
            self._pending = b""
        return self._try_row(line_number, strip_prefixes(raw))

    def _try_row(self, line_number: int, text: bytes, *, joined: bool = False) -> bool:
        tokens = text[:MAX_PENDING].split()
        start = _start(tokens)
        if start is None:
            return False
        row = _row(tokens[start:], self._columns)
        self._pending = b"" if row else text[:MAX_PENDING]
        if row and joined and not _plausible(row):
            self.found.broken_rows += 1
        elif row:
            self.found.add(row, line_number)
        return True


def _may_start_row(raw: bytes) -> bool:
    return _ROW_HINT.search(raw) is not None


_ROW_HINT = re.compile(rb"\d\s+\d{1,18}\s+(?:" + b"|".join(sorted(TYPES, reverse=True)) + rb")(?:\s|$)")


def _is_value(token: bytes) -> bool:
    return token == b"N/A" or decimal(token) is not None


def _start(tokens: t.Sequence[bytes]) -> int | None:
    """Return where ``size count type`` begins; a time (-S) may stand before it."""
    for index in range(min(len(tokens) - 2, 8)):
        if tokens[index].isdigit() and tokens[index + 1].isdigit() and tokens[index + 2] in TYPES:
            return index
    return None


def _row(tokens: t.Sequence[bytes], columns: t.Sequence[bytes]) -> Row | None:
    """Return the row, None while pieces of it are missing."""
    names = list(columns[columns.index(b"size") :]) if b"size" in columns else []
    if names and len(tokens) < len(names):
        return None
    if not names or b"time" not in names:
        names = _guess(tokens)
    if not names:
        return None
    halves: list[dict[bytes, bytes]] = []
    for name, token in zip(names, tokens, strict=False):
        if name == b"time":
            halves.append({})
        if halves:
            halves[-1].setdefault(name, token)
    if len(halves) != 2:
        return None
    return Row(number(tokens[0]), shown(tokens[2]), _half(halves[0]), _half(halves[1]))


def _plausible(row: Row) -> bool:
    """Return whether bandwidth, size and time agree, which pieces that do not belong together do not."""
    for half in (row.out_of_place, row.in_place):
        if half.time_us and half.algbw_gb_s is not None:
            calculated = row.size_bytes / half.time_us / 1e3
            if abs(calculated - half.algbw_gb_s) > 0.05 * calculated + 0.01:
                return False
    return True


def _guess(tokens: t.Sequence[bytes]) -> list[bytes]:
    """Return column names for a row whose header was not seen: redop and root at most, then two halves of four."""
    words = len(tokens) - 3 - 8
    half = [b"time", b"algbw", b"busbw", b"wrong"]
    return [b"size", b"count", b"type", *[b"word"] * words, *half, *half] if 0 <= words <= 2 else []


def _half(values: t.Mapping[bytes, bytes]) -> Half:
    wrong = values.get(b"wrong", b"N/A")
    return Half(
        decimal(values.get(b"time", b"")),
        decimal(values.get(b"algbw", b"")),
        decimal(values.get(b"busbw", b"")),
        number(wrong) if wrong.isdigit() else None,
    )


def decimal(token: bytes) -> float | None:
    """Return a finite number of at most 30 characters, else None."""
    return parse_finite(token.decode(errors="replace")) if len(token) <= 30 else None
