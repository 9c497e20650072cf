# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read what nccl-tests prints, of all generations, from a stream into which NCCL and launchers write too.

Generations (nccl-tests src/common.cu): ``error`` instead of ``#wrong`` before 2.13; no ``redop`` or no ``root`` for
some collectives; ``Group`` in the list of ranks; ``-I`` adds columns to each half, ``-S`` a time. The header says which
columns there are; a table without its header is read from its end. Lines of NCCL can interrupt a row, because
nccl-tests prints it in three pieces.
"""

from __future__ import annotations

import dataclasses
import re
import typing as t

from ....module_utils._model.quantity import parse_finite
from .lines import parse_number, printable, strip_prefixes

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
_THREADS = re.compile(rb"#\s*nThread\s+\d+\s+nGpus\s+\d+\s+minBytes\s+\d+(?:.{0,200}\bvalidation: (\d+))?")
_FAILURE = re.compile(rb"Test (?:NCCL|CUDA|MPI) failure|: Test failure |Test timeout")
_MARKS = (b"#", b"Test ")


@dataclasses.dataclass(frozen=True, slots=True)
class NcclTestsHalf:
    """One half of a row: time in microseconds, bandwidths in GB/s (10^9), wrong values (null: not checked)."""

    time_us: float | None
    algbw_gb_s: float | None
    busbw_gb_s: float | None
    wrong: int | None


@dataclasses.dataclass(frozen=True, slots=True)
class NcclTestsRow:
    """One size: bytes, out of place and in place."""

    size_bytes: int
    dtype: str
    out_of_place: NcclTestsHalf
    in_place: NcclTestsHalf

    @property
    def busbw_gb_s(self) -> float | None:
        """The better half's bus bandwidth in GB/s."""
        rates = [half.busbw_gb_s for half in (self.out_of_place, self.in_place) if half.busbw_gb_s is not None]
        return max(rates, default=None)


@dataclasses.dataclass(frozen=True, slots=True)
class NcclTestsRank:
    """One rank of the list that nccl-tests prints first; ``device`` is the GPU's model."""

    rank: int
    pid: int
    host: str
    device: str


@dataclasses.dataclass(slots=True)
class NcclTests:
    """The output of one test. ``wrong`` is the sum of wrong values, null when no row was checked.

    ``average_gb_s`` is nccl-tests' mean over all sizes: it is shown, but never judged.
    """

    version: str | None = None
    collective: str | None = None
    ranks: dict[int, NcclTestsRank] = dataclasses.field(default_factory=dict)
    rows: list[NcclTestsRow] = dataclasses.field(default_factory=list)
    largest: NcclTestsRow | None = None
    largest_line: int = 0
    wrong: int | None = None
    out_of_bounds: int | None = None
    out_of_bounds_failed: bool = False
    unchecked: bool = False
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

    def add(self, row: NcclTestsRow, line_number: int) -> None:
        """Take a row; rows beyond ``MAX_ROWS`` only count for the largest size and for wrong values."""
        if len(self.rows) < MAX_ROWS:
            self.rows.append(row)
        if row.busbw_gb_s is not None and (self.largest is None or row.size_bytes >= self.largest.size_bytes):
            self.largest, self.largest_line = row, line_number
        checked = [half.wrong for half in (row.out_of_place, row.in_place) if half.wrong is not None]
        if checked:
            self.wrong = (self.wrong or 0) + sum(checked)


class NcclTestsText:
    """Streaming reader of the text form: :meth:`line` for each line without an NCCL record."""

    def __init__(self) -> None:
        self.tests = NcclTests()
        self._columns: list[bytes] = []
        self._pending = b""

    @property
    def expects_lines(self) -> bool:
        """Whether any next line may belong to the table: something of nccl-tests was seen, or a row is not complete."""
        return bool(self.tests.marks or self._pending)

    def line(self, line_number: int, raw: bytes) -> bool:
        """Read one line; return whether it belongs to nccl-tests."""
        if b"#" in raw or b"Test " in raw:
            text = strip_prefixes(raw)
            if self._read_mark(line_number, text):
                return True
        return self._read_row_piece(line_number, raw)

    def piece(self, line_number: int, raw: bytes) -> None:
        """Read the part of a line that stood before an NCCL record."""
        self._read_row_piece(line_number, raw)

    def finish(self) -> NcclTests:
        """Return the tests; a row that never ended is counted as broken.

        Without a comparison (``-c 0``) the closing line of nccl-tests says 0 all the same: then nothing is known.
        """
        if self.tests.unchecked or (self.tests.rows and self.tests.wrong is None and self._columns.count(b"wrong")):
            self.tests.out_of_bounds = None
        if self._pending:
            self.tests.broken_rows += 1
            self._pending = b""
        return self.tests

    def _read_mark(self, line_number: int, text: bytes) -> bool:
        tests = self.tests
        if not text.lstrip().startswith(b"#"):
            if _FAILURE.search(text):
                # The line is also read for causes: the message behind it can name one.
                tests.failures.setdefault(printable(text), line_number)
                tests.marks += 1
            return False
        if b"busbw" in text and b"algbw" in text:
            self._columns = text.replace(b"#wrong", b"wrong").strip(b"# \t\r").split()
            tests.header_lines += 1
        elif rank := _RANK.search(text):
            self._add_rank(rank)
        elif threads := _THREADS.search(text):
            tests.unchecked = threads[1] == b"0"
        elif not self._read_summary(text):
            return False
        tests.marks += 1
        return True

    def _add_rank(self, match: re.Match[bytes]) -> None:
        rank, pid, host, _index, _bus, device = match.groups()
        if len(self.tests.ranks) < MAX_RANKS:
            self.tests.ranks[parse_number(rank)] = NcclTestsRank(
                parse_number(rank), parse_number(pid), printable(host), printable(device)
            )

    def _read_summary(self, text: bytes) -> bool:
        tests = self.tests
        if match := _BOUNDS.search(text):
            tests.out_of_bounds, tests.out_of_bounds_failed = parse_number(match[1]), match[2] == b"FAILED"
        elif match := _AVERAGE.search(text):
            tests.average_gb_s, tests.average_failed = parse_decimal(match[1]), match[2] == b"FAILED"
        elif match := _STARTING.search(text):
            tests.collective = printable(match[2]).removesuffix("_mpi").removesuffix("_perf")
            tests.concluded = tests.concluded or match[1] == b"concluded"
        elif match := _VERSION.search(text):
            tests.version = printable(match[1])
        else:
            return False
        return True

    def _read_row_piece(self, line_number: int, raw: bytes) -> bool:
        if self._pending:
            text = strip_prefixes(raw)
            first = text.split(None, 1)[:1]
            if first and _is_value(first[0]):
                return self._read_row(line_number, self._pending + b" " + text, joined=True)
        if not _may_start_row(raw):
            return False
        if self._pending:
            self.tests.broken_rows += 1
            self._pending = b""
        return self._read_row(line_number, strip_prefixes(raw))

    def _read_row(self, line_number: int, text: bytes, *, joined: bool = False) -> bool:
        tokens = text[:MAX_PENDING].split()
        start = _row_start(tokens)
        if start is None:
            return False
        row = _parse_row(tokens[start:], self._columns)
        self._pending = b"" if row else text[:MAX_PENDING]
        if row and joined and not _is_plausible(row):
            self.tests.broken_rows += 1
        elif row:
            self.tests.add(row, line_number)
        return True


def _may_start_row(raw: bytes) -> bool:
    return _ROW_HINT.search(raw) is not None


_ROW_HINT = re.compile(rb"\d\s+\d{1,18}\s+(?:" + b"|".join(sorted(TYPES, reverse=True)) + rb")(?:\s|$)")


def _is_value(token: bytes) -> bool:
    return token == b"N/A" or parse_decimal(token) is not None


def _row_start(tokens: t.Sequence[bytes]) -> int | None:
    """Return where ``size count type`` begins; a time (-S) may precede it."""
    for index in range(min(len(tokens) - 2, 8)):
        if tokens[index].isdigit() and tokens[index + 1].isdigit() and tokens[index + 2] in TYPES:
            return index
    return None


def _parse_row(tokens: t.Sequence[bytes], columns: t.Sequence[bytes]) -> NcclTestsRow | None:
    """Return the row, None while pieces of it are missing."""
    names = list(columns[columns.index(b"size") :]) if b"size" in columns else []
    if names and len(tokens) < len(names):
        return None
    if not names or b"time" not in names:
        names = _guess_columns(tokens)
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
    return NcclTestsRow(parse_number(tokens[0]), printable(tokens[2]), _parse_half(halves[0]), _parse_half(halves[1]))


def _is_plausible(row: NcclTestsRow) -> bool:
    """Return whether bandwidth, size and time agree, which pieces that do not belong together do not."""
    for half in (row.out_of_place, row.in_place):
        if half.time_us and half.algbw_gb_s is not None:
            calculated = row.size_bytes / half.time_us / 1e3
            if abs(calculated - half.algbw_gb_s) > 0.05 * calculated + 0.01:
                return False
    return True


def _guess_columns(tokens: t.Sequence[bytes]) -> list[bytes]:
    """Return column names for a row whose header was not seen: redop and root at most, then two halves of four."""
    words = len(tokens) - 3 - 8
    half = [b"time", b"algbw", b"busbw", b"wrong"]
    return [b"size", b"count", b"type", *[b"word"] * words, *half, *half] if 0 <= words <= 2 else []


def _parse_half(values: t.Mapping[bytes, bytes]) -> NcclTestsHalf:
    wrong = values.get(b"wrong", b"N/A")
    return NcclTestsHalf(
        parse_decimal(values.get(b"time", b"")),
        parse_decimal(values.get(b"algbw", b"")),
        parse_decimal(values.get(b"busbw", b"")),
        parse_number(wrong) if wrong.isdigit() else None,
    )


def parse_decimal(token: bytes) -> float | None:
    """Return a finite number of at most 30 characters, else None."""
    return parse_finite(token.decode(errors="replace")) if len(token) <= 30 else None
