# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read the output of iperf3, text and JSON (``-J``): how much TCP a link carried, in Gb/s (10^9 bits).

The receiver's figure is the one that counts; the sender's includes what was still in its buffers.
"""

from __future__ import annotations

import dataclasses
import re
import typing as t

from .json_values import as_items, as_mapping, finite_number

_SUMMARY = re.compile(
    r"^\[\s*(SUM|\d{1,6})\]\s+[\d.]{1,16}\s*-\s*([\d.]{1,16})\s+sec\s+[\d.]{1,16}\s+\w?Bytes\s+"
    r"([\d.]{1,16})\s+([KMGT]?)bits/sec(?:\s+(\d{1,12}))?\s+(sender|receiver)\s*$",
    re.MULTILINE,
)
_ERROR = re.compile(r"^iperf3: (?:error|interrupt) - (.{1,200})$", re.MULTILINE)
_SCALE = {"": 1e-9, "K": 1e-6, "M": 1e-3, "G": 1.0, "T": 1e3}


@dataclasses.dataclass(frozen=True, slots=True)
class Iperf3:
    """One run: Gb/s over all streams, seconds, TCP retransmissions. ``problem`` is the error that iperf3 printed."""

    sent_gbps: float | None = None
    received_gbps: float | None = None
    seconds: float | None = None
    retransmits: int | None = None
    streams: int = 0
    problem: str | None = None


def parse_iperf3(text: str) -> Iperf3 | None:
    """Read the text form; None when it is not iperf3's. Never raises."""
    rows = _SUMMARY.findall(text[:4_000_000])
    error = _ERROR.search(text)
    problem = error[1].strip() if error else None
    if not rows:
        return Iperf3(problem=problem) if error else None
    # A run with several streams prints their sums too.
    totals = [row for row in rows if row[0] == "SUM"] or rows
    retransmits = [int(row[4]) for row in totals if row[5] == "sender" and row[4]]
    return Iperf3(
        _sum_gbps(totals, "sender"),
        _sum_gbps(totals, "receiver"),
        finite_number(rows[-1][1]),
        sum(retransmits) if retransmits else None,
        len({row[0] for row in rows} - {"SUM"}),
        problem,
    )


def parse_iperf3_json(document: object) -> Iperf3 | None:
    """Read the JSON form; None when it is not iperf3's. Never raises."""
    if not isinstance(document, dict) or not isinstance(document.get("start"), dict):
        return None
    error = document.get("error")
    problem = error[:200] if isinstance(error, str) else None
    end = as_mapping(document.get("end"))
    if not {"sum_sent", "sum_received", "sum"} & end.keys():
        return Iperf3(problem=problem) if "end" in document or problem else None
    sent, received = as_mapping(end.get("sum_sent")), as_mapping(end.get("sum_received")) or as_mapping(end.get("sum"))
    retransmits = finite_number(sent.get("retransmits"))
    return Iperf3(
        _gbps(sent),
        _gbps(received),
        finite_number(received.get("seconds")),
        None if retransmits is None else int(retransmits),
        len(as_items(end.get("streams"))),
        problem,
    )


def _gbps(section: t.Mapping[str, object]) -> float | None:
    value = finite_number(section.get("bits_per_second"))
    return None if value is None else value * 1e-9


def _sum_gbps(rows: t.Sequence[tuple[str, ...]], side: str) -> float | None:
    rates = [(finite_number(row[2]) or 0.0) * _SCALE[row[3]] for row in rows if row[5] == side]
    return sum(rates) if rates else None
