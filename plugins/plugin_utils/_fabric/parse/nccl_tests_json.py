# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read the JSON that nccl-tests writes with ``-J`` (since 2.17.3; JSON_FILE_VERSION 3).

That file also holds the arguments and the whole environment of rank 0, secrets included. Neither is touched here, and
nothing of the document is kept but the fields named below. Booleans are the words ``"true"`` and ``"false"``.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import typing as t

from .lines import printable
from .nccl_tests import MAX_RANKS, NcclTests, NcclTestsHalf, NcclTestsRank, NcclTestsRow, parse_decimal


def parse_nccl_tests_json(document: t.Any) -> NcclTests | None:
    """Return what the document says, None when it is not nccl-tests'. Never raises."""
    if not isinstance(document, dict) or not isinstance(document.get("results"), list):
        return None
    config = document.get("config")
    if not isinstance(config, dict) or not ({"nccl_version", "average_bus_bandwidth"} & document.keys()):
        return None
    found = NcclTests(version=_text(document.get("version")), marks=1, header_lines=1)
    found.collective = _text(config.get("collective") or config.get("test"))
    devices = config.get("devices")
    for item in devices[:MAX_RANKS] if isinstance(devices, list) else []:
        _add_rank(found, item)
    for item in document["results"]:
        row = _parse_row(item)
        if row:
            found.add(row, 0)
    _add_summary(found, document)
    return found


def _add_rank(found: NcclTests, item: t.Any) -> None:
    rank = _integer(item.get("rank")) if isinstance(item, dict) else None
    if rank is not None:
        name = _text(item.get("device_info")) or ""
        found.ranks[rank] = NcclTestsRank(rank, _integer(item.get("pid")) or 0, _text(item.get("hostname")) or "", name)


def _parse_row(item: t.Any) -> NcclTestsRow | None:
    size = _integer(item.get("size")) if isinstance(item, dict) else None
    if size is None:
        return None
    return NcclTestsRow(
        size, _text(item.get("type")) or "", _parse_half(item.get("out_of_place")), _parse_half(item.get("in_place"))
    )


def _parse_half(item: t.Any) -> NcclTestsHalf:
    if not isinstance(item, dict):
        return NcclTestsHalf(None, None, None, None)
    time = _number(item.get("time"))
    return NcclTestsHalf(time, _number(item.get("alg_bw")), _number(item.get("bus_bw")), _integer(item.get("nwrong")))


def _add_summary(found: NcclTests, document: dict[str, t.Any]) -> None:
    bounds, average = document.get("out_of_bounds"), document.get("average_bus_bandwidth")
    if isinstance(bounds, dict):
        found.out_of_bounds = _integer(bounds.get("count"))
        found.out_of_bounds_failed = bounds.get("okay") in ("false", False)
    if isinstance(average, dict):
        found.average_gb_s = _number(average.get("bandwidth"))
        found.average_failed = average.get("okay") in ("false", False)
    errors = document.get("errors")
    for item in errors[:64] if isinstance(errors, list) else []:
        found.failures.setdefault(printable(str(item)[:400].encode("utf-8", "replace")), 0)
    found.concluded = bool(document.get("end_time"))


def _text(value: t.Any) -> str | None:
    return printable(value[:400].encode("utf-8", "replace"), 120) or None if isinstance(value, str) else None


def _number(value: t.Any) -> float | None:
    """Return a finite number; nccl-tests writes numbers, some builds text."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    return (
        parse_decimal(str(value).encode("utf-8", "replace"))
        if not isinstance(value, int) or abs(value) < 2**63
        else None
    )


def _integer(value: t.Any) -> int | None:
    number = _number(value)
    return int(number) if number is not None and 0 <= number < 2**63 else None
