# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read iperf3, text and JSON (``-J``): how much TCP a link carried, in Gb/s (10^9 bits).

The receiver's figure is the one that counts; the sender's includes what was still in its buffers.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import dataclasses
import re
import typing as t

from ....module_utils._model.quantity import parse_finite

_SUMMARY = re.compile(
    r"^\[\s*(SUM|\d{1,6})\]\s+[\d.]{1,16}\s*-\s*([\d.]{1,16})\s+sec\s+[\d.]{1,16}\s+\w?Bytes\s+"
    r"([\d.]{1,16})\s+([KMGT]?)bits/sec(?:\s+(\d{1,12}))?\s+(sender|receiver)\s*$",
    re.MULTILINE,
)
_ERROR = re.compile(r"^iperf3: (?:error|interrupt) - (.{1,200})$", re.MULTILINE)
_SCALE = {"": 1e-9, "K": 1e-6, "M": 1e-3, "G": 1.0, "T": 1e3}


@dataclasses.dataclass(frozen=True, slots=True)
class Iperf3:
    """One run: Gb/s sent and received over all streams, seconds, TCP retransmissions; ``problem`` is its own error."""

    sent_gbps: float | None = None
    received_gbps: float | None = None
    seconds: float | None = None
    retransmits: int | None = None
    streams: int = 0
    problem: str | None = None


def parse_iperf3(text: str) -> Iperf3 | None:
    """Read the text form; None when it is not iperf3's. Never raises."""
    found = _SUMMARY.findall(text[:4_000_000])
    error = _ERROR.search(text)
    if not found:
        return Iperf3(problem=error[1].strip()) if error else None
    totals = [item for item in found if item[0] == "SUM"]
    streams = {item[0] for item in found} - {"SUM"}
    sent = _total(totals or found, "sender")
    received = _total(totals or found, "receiver")
    lost = [int(item[4]) for item in totals or found if item[5] == "sender" and item[4]]
    seconds = _finite(found[-1][1])
    return Iperf3(
        sent, received, seconds, sum(lost) if lost else None, len(streams), error[1].strip() if error else None
    )


def parse_iperf3_json(document: t.Any) -> Iperf3 | None:
    """Read the JSON form; None when it is not iperf3's. Never raises."""
    if not isinstance(document, dict) or not isinstance(document.get("start"), dict):
        return None
    error = document.get("error")
    problem = error[:200] if isinstance(error, str) else None
    end = document.get("end")
    if not isinstance(end, dict) or not ({"sum_sent", "sum_received", "sum"} & end.keys()):
        return Iperf3(problem=problem) if "end" in document or problem else None
    sent, received = _section(end, "sum_sent"), _section(end, "sum_received") or _section(end, "sum")
    retransmits = _finite(sent.get("retransmits"))
    streams = end.get("streams")
    return Iperf3(
        _scaled(sent),
        _scaled(received),
        _finite(received.get("seconds")),
        None if retransmits is None else int(retransmits),
        len(streams) if isinstance(streams, list) else 0,
        problem,
    )


def _section(end: dict[str, t.Any], name: str) -> dict[str, t.Any]:
    value = end.get(name)
    return value if isinstance(value, dict) else {}


def _scaled(section: dict[str, t.Any]) -> float | None:
    value = _finite(section.get("bits_per_second"))
    return None if value is None else value * 1e-9


def _total(found: t.Sequence[tuple[str, ...]], side: str) -> float | None:
    values = [(_finite(item[2]) or 0.0) * _SCALE[item[3]] for item in found if item[5] == side]
    return sum(values) if values else None


def _finite(value: t.Any) -> float | None:
    """Return a finite number that is not negative, else None."""
    return parse_finite(value, minimum=0)
