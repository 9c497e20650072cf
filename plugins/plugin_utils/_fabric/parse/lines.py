# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Split the bytes of a log into lines, in constant memory, and a line into NCCL's records.

A log may hold lines of several ranks glued together, colours, carriage returns of progress bars, UTF-16 of a redirect,
or NUL bytes of a rotated file. No content raises an error; only reading can fail.
"""

from __future__ import annotations

import codecs
import re
import typing as t

CHUNK_BYTES = 1 << 20
MAX_LINE_BYTES = 1 << 16
EVIDENCE_CHARS = 240

# ``host:pid:tid [cudaDev] [source] NCCL LEVEL text`` (NCCL src/debug.cc); a source may be a C++ signature with spaces.
_RECORD = re.compile(
    rb"(?:([A-Za-z0-9][\w.-]*):(\d+):(\d+) )?\[(-?\d+)\] ([^\[]{0,200}?)NCCL (INFO|WARN|TRACE|ERROR|ABORT|VERSION) ?"
)
_LEVEL = re.compile(rb"NCCL (INFO|WARN|TRACE|ERROR|ABORT|VERSION) ?")
_ANSI = re.compile(rb"\x1b\[[0-9;?]*[ -/]*[@-~]")
# What launchers put before a line: mpirun --tag-output, Ray, torchrun --local-ranks-filter, kubectl --prefix and
# --timestamps, docker compose, srun -l, klog and Python logging times.
_PREFIX = re.compile(
    rb"\s*(?:\[\d+,\d+\]<(?:stdout|stderr|stddiag)>:"
    rb"|\((?:[^()\n]{0,80}?\bpid=\d+[^()\n]{0,80}?)\)"
    rb"|\[(?:default|rank|trainer)?\d+(?:\|\d+)?\]:"
    rb"|\[pod/[^\]\n]{1,250}\]"
    rb"|\[\d{4}-\d\d-\d\d[^\]\n]{0,30}\]"
    rb"|\d{4}-\d\d-\d\dT[\d:.]+(?:Z|[+-]\d\d:?\d\d)"
    rb"|\w[\w.-]{0,250}\s{1,40}\|(?=\s)"
    rb"|\d{1,6}:(?=\s)"
    rb")"
)


class NcclRecord(t.NamedTuple):
    """One NCCL record. ``host`` is empty and ``pid`` and ``tid`` are 0 when the log does not hold them."""

    host: str
    pid: int
    tid: int
    level: str
    source: str
    text: bytes


def read_blocks(stream: t.BinaryIO) -> t.Iterator[tuple[int, bytes]]:
    """Yield (number of the first line, whole lines with their ends), about a mebibyte at a time.

    A line that does not end within a block is cut to ``MAX_LINE_BYTES``. Raises the errors of ``stream.read``.
    """
    number = 1
    rest = b""
    skipping = False
    for chunk in _read_chunks(stream):
        if skipping:
            end = chunk.find(b"\n")
            if end < 0:
                continue
            chunk, skipping = chunk[end + 1 :], False
        data = rest + chunk
        end = data.rfind(b"\n") + 1
        block, rest = data[:end], data[end:]
        if len(rest) > MAX_LINE_BYTES:
            block, rest, skipping = block + rest[:MAX_LINE_BYTES] + b"\n", b"", True
        if block:
            yield number, block
            number += block.count(b"\n")
    if rest:
        yield number, rest + b"\n"


def split_lines(first: int, block: bytes) -> t.Iterator[tuple[int, bytes]]:
    """Yield (line number, line without its end) of a block; longer lines than ``MAX_LINE_BYTES`` are cut."""
    parts = block.split(b"\n")
    parts.pop()
    for number, part in enumerate(parts, first):
        yield number, part if len(part) <= MAX_LINE_BYTES else part[:MAX_LINE_BYTES]


def _read_chunks(stream: t.BinaryIO) -> t.Iterator[bytes]:
    first = stream.read(CHUNK_BYTES)
    decoder = _utf16_decoder(first)
    chunk = first
    while chunk:
        yield decoder.decode(chunk).encode("utf-8", "replace") if decoder else chunk
        chunk = stream.read(CHUNK_BYTES)


def _utf16_decoder(first: bytes) -> codecs.IncrementalDecoder | None:
    """Return a decoder when the file starts with UTF-16's byte order mark."""
    if not first.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return None
    return codecs.getincrementaldecoder("utf-16")("replace")


def strip_colours(line: bytes) -> bytes:
    """Remove terminal escape sequences."""
    return _ANSI.sub(b"", line) if b"\x1b" in line else line


def strip_prefixes(line: bytes) -> bytes:
    """Remove what launchers and log collectors put before a line, however many of them are stacked."""
    rest = strip_colours(line)
    while match := _PREFIX.match(rest):
        rest = rest[match.end() :]
    return rest


def split_records(line: bytes) -> tuple[bytes, list[bytes]]:
    """Split a line into the text before its first NCCL record and its records, each with its own header.

    Ranks that share one pipe can write in the middle of each other's lines.
    """
    starts = [match.start() for match in _RECORD.finditer(line)]
    if not starts:
        match = _LEVEL.search(line)
        return (line[: match.start()], [line[match.start() :]]) if match else (line, [])
    ends = [*starts[1:], len(line)]
    return line[: starts[0]], [line[start:end] for start, end in zip(starts, ends, strict=True)]


def parse_header(prefix: bytes) -> NcclRecord:
    """Return the record whose header is ``prefix`` (everything up to the text); its ``text`` is empty."""
    match = None
    for match in _RECORD.finditer(prefix):  # noqa: B007  the last header before the text is the text's own
        pass
    if match is None:
        level = _LEVEL.search(prefix)
        return NcclRecord("", 0, 0, level[1].decode() if level else "INFO", "", b"")
    host, pid, tid, _device, source, name = match.groups()
    return NcclRecord(
        printable(host or b""), parse_number(pid), parse_number(tid), name.decode(), printable(source).strip(), b""
    )


def parse_number(digits: bytes | None) -> int:
    """Return the number; 0 for no digits, and for more than 18, which are noise."""
    return int(digits) if digits and len(digits) <= 18 else 0


def printable(raw: bytes, limit: int = EVIDENCE_CHARS) -> str:
    """Return text that is safe to print as evidence: UTF-8 or replaced, no control characters, at most ``limit``."""
    decoded = strip_colours(raw[: 4 * limit]).decode("utf-8", "replace")
    clean = "".join(char if char.isprintable() else " " for char in decoded).strip()
    return clean if len(clean) <= limit else clean[: limit - 1] + "…"
