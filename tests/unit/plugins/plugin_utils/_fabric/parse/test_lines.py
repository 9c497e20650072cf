# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lines and records out of whatever bytes a log holds."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.plugin_utils._fabric.parse import lines as parse_lines
from ansible_collections.muster.training.plugins.plugin_utils._fabric.parse.lines import (
    MAX_LINE_BYTES,
    parse_header,
    printable,
    read_blocks,
    split_lines,
    split_records,
    strip_prefixes,
)
from ansible_collections.muster.training.tests.support.nccl_text import PREFIXES, info, prefixed


def read(content: bytes) -> list[tuple[int, bytes]]:
    return [item for first, block in read_blocks(io.BytesIO(content)) for item in split_lines(first, block)]


@given(st.binary(max_size=2000))
def test_short_lines_come_out_as_they_are(content: bytes) -> None:
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        return
    expected = content.split(b"\n")
    if expected[-1] == b"":
        expected.pop()
    assert read(content) == list(enumerate(expected, 1))


@given(st.lists(st.integers(0, 3 * MAX_LINE_BYTES), max_size=6), st.integers(1, 4))
def test_long_lines_are_cut_and_counted_once(sizes: list[int], chunk: int) -> None:
    content = b"".join(b"x" * size + b"\n" for size in sizes)
    before = parse_lines.CHUNK_BYTES
    parse_lines.CHUNK_BYTES = chunk * MAX_LINE_BYTES // 3 + 1
    try:
        found = read(content)
    finally:
        parse_lines.CHUNK_BYTES = before
    assert [number for number, _line in found] == list(range(1, len(sizes) + 1))
    assert [len(line) for _number, line in found] == [min(size, MAX_LINE_BYTES) for size in sizes]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
def test_utf16_of_a_redirect_is_read(encoding: str) -> None:
    text = info("Using network Socket")
    mark = b"" if encoding == "utf-16" else "\ufeff".encode(encoding)
    assert read(mark + text.encode(encoding))[0][1].replace(b"\xef\xbb\xbf", b"") == text.encode()


@pytest.mark.parametrize("style", PREFIXES)
def test_prefixes_of_launchers_are_removed(style: str) -> None:
    assert strip_prefixes(prefixed(style, "# Rank  0", 3).encode()).strip() == (
        b"# Rank  0" if style != "pdsh" else b"node-1: # Rank  0"
    )


@pytest.mark.parametrize("style", PREFIXES)
def test_the_header_is_found_behind_prefixes(style: str) -> None:
    record = parse_header(prefixed(style, info("", "gpu-7.example", 12, 3)).encode())
    assert (record.host, record.pid, record.tid, record.level) == ("gpu-7.example", 12, 13, "INFO")


def test_a_source_may_be_a_signature() -> None:
    text = "h:1:2 [0] int nccl_net_ofi_create_plugin(nccl_net_ofi_plugin_t**):259 NCCL WARN NET/OFI x"
    assert parse_header(text.encode()).source == "int nccl_net_ofi_create_plugin(nccl_net_ofi_plugin_t**):259"
    assert (
        parse_header(b"h:1:2 [0] init.cc:1141 (initTransportsRank) NCCL WARN ").source
        == "init.cc:1141 (initTransportsRank)"
    )


def test_glued_records_are_taken_apart() -> None:
    line = ("before " + info("one") + " " + info("two", "node-2", 7)).encode()
    before, records = split_records(line)
    assert before == b"before " and len(records) == 2 and records[1].startswith(b"node-2:7:8")


@given(st.binary(max_size=400))
def test_no_bytes_break_the_readers_of_a_line(raw: bytes) -> None:
    before, records = split_records(raw)
    assert before + b"".join(records) == raw
    parse_header(raw)
    assert strip_prefixes(raw) in (raw, strip_prefixes(raw))
    text = printable(raw)
    assert len(text) <= parse_lines.EVIDENCE_CHARS and all(char.isprintable() for char in text)
