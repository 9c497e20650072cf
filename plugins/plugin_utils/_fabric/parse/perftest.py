# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read the output of perftest (``ib_write_bw`` and relatives), text and JSON (``--out_json``).

perftest prints MB/s (10^6) or MiB/s by default and Gb/s with ``--report_gbits``, and its JSON does not say which. All
values here are Gb/s (10^9 bits).
"""

from __future__ import annotations

import dataclasses
import re
import typing as t

from .json_values import finite_number

Unit = t.Literal["Gb/sec", "MB/sec", "MiB/sec"]
_TO_GBPS: dict[str, float] = {"Gb/sec": 1.0, "MB/sec": 8e-3, "MiB/sec": 8 * 2**20 / 1e9}

_TEST = re.compile(r"^\s*((?:RDMA_(?:Write|Read)|Send|Atomic\w*|Write|Read)[\w ]{0,40} Test)\s*$", re.MULTILINE)
_DEVICE = re.compile(r"\bDevice\s*:\s*(\S{1,64})")
_LINK = re.compile(r"\bLink type\s*:\s*(\S{1,20})")
_HEADER = re.compile(r"#bytes\s+#iterations\s+BW peak\[\w+/sec\]\s+BW average\[(\w+/sec)\]")
_ROW = re.compile(r"^\s*(\d{1,15})\s+(\d{1,15})\s+(\S{1,24})\s+(\S{1,24})(?:\s|$)")
_PROBLEM = re.compile(r"(?:Couldn't|Unable to|Failed|failed|Completion with error|Problems)[^\n]{0,200}")


@dataclasses.dataclass(frozen=True, slots=True)
class PerftestRow:
    """One message size in bytes and its average bandwidth in Gb/s."""

    size_bytes: int
    iterations: int
    average_gbps: float | None


@dataclasses.dataclass(frozen=True, slots=True)
class Perftest:
    """One run. ``problem`` is perftest's own message when it has no row."""

    test: str | None = None
    device: str | None = None
    link: str | None = None
    rows: tuple[PerftestRow, ...] = ()
    problem: str | None = None

    @property
    def best_gbps(self) -> float | None:
        """The highest average bandwidth of all sizes, Gb/s."""
        return max((row.average_gbps for row in self.rows if row.average_gbps is not None), default=None)


def parse_perftest(text: str) -> Perftest | None:
    """Read the text form; None when it is not perftest's. Never raises."""
    header = _HEADER.search(text)
    test = _TEST.search(text)
    if not header and not (test and _DEVICE.search(text)):
        return None
    problem = None if header else _PROBLEM.search(text)
    rows = _parse_rows(text[header.end() :], header[1]) if header else ()
    return Perftest(
        _first_group(test),
        _first_group(_DEVICE.search(text)),
        _first_group(_LINK.search(text)),
        rows,
        problem and problem[0],
    )


def parse_perftest_json(document: object, unit: Unit = "Gb/sec") -> Perftest | None:
    """Read the JSON form, whose bandwidths are in ``unit``; None when it is not perftest's. Never raises."""
    if not isinstance(document, dict) or not isinstance(document.get("test_info"), dict):
        return None
    info, results = document["test_info"], document.get("results")
    rows = []
    for result in results if isinstance(results, list) else [results]:
        if isinstance(result, dict) and "BW_average" in result:
            size = result.get("MsgSize", result.get("msg_size"))
            row = _build_row(size, result.get("n_iterations"), result["BW_average"], unit)
            rows += [row] if row else []
    return Perftest(_text(info.get("test")), _text(info.get("Device")), _text(info.get("Link_type")), tuple(rows))


def _parse_rows(text: str, average_unit: str) -> tuple[PerftestRow, ...]:
    rows: list[PerftestRow] = []
    for line in text.splitlines()[:10_000]:
        if match := _ROW.match(line):
            row = _build_row(match[1], match[2], match[4], average_unit)
            rows += [row] if row else []
        elif rows and line.lstrip().startswith("---"):
            break
    return tuple(rows)


def _build_row(size: object, count: object, average: object, average_unit: str) -> PerftestRow | None:
    size_bytes, iterations, bandwidth = finite_number(size), finite_number(count), finite_number(average)
    if size_bytes is None or bandwidth is None or average_unit not in _TO_GBPS:
        return None
    return PerftestRow(int(size_bytes), int(iterations or 0), bandwidth * _TO_GBPS[average_unit])


def _first_group(match: re.Match[str] | None) -> str | None:
    return match[1].strip() if match else None


def _text(value: object) -> str | None:
    return value[:120] if isinstance(value, str) and value else None
