# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read the JSON that nccl-tests writes with ``-J`` (since 2.17.3; JSON_FILE_VERSION 3).

That file also holds the arguments and the whole environment of rank 0, secrets included. They are not read: only the
fields named below are taken over. Booleans are the words ``"true"`` and ``"false"``.
"""

from __future__ import annotations

import typing as t

from .json_values import as_items, as_mapping, finite_number, whole_number
from .lines import printable
from .nccl_tests import MAX_RANKS, NcclTests, NcclTestsHalf, NcclTestsRank, NcclTestsRow

_MAX_ERRORS = 64


def parse_nccl_tests_json(document: object) -> NcclTests | None:
    """Return the tests in the document, None when it is not nccl-tests'. Never raises."""
    if not isinstance(document, dict) or not isinstance(document.get("results"), list):
        return None
    config = document.get("config")
    if not isinstance(config, dict) or not ({"nccl_version", "average_bus_bandwidth"} & document.keys()):
        return None
    tests = NcclTests(version=_text(document.get("version")), marks=1, header_lines=1)
    tests.collective = _text(config.get("collective") or config.get("test"))
    for device in as_items(config.get("devices"))[:MAX_RANKS]:
        _add_rank(tests, as_mapping(device))
    for result in document["results"]:
        row = _parse_row(as_mapping(result))
        if row:
            tests.add(row, 0)
    _add_summary(tests, document)
    return tests


def _add_rank(tests: NcclTests, device: t.Mapping[str, object]) -> None:
    rank = whole_number(device.get("rank"))
    if rank is not None:
        host, model = _text(device.get("hostname")) or "", _text(device.get("device_info")) or ""
        tests.ranks[rank] = NcclTestsRank(rank, whole_number(device.get("pid")) or 0, host, model)


def _parse_row(result: t.Mapping[str, object]) -> NcclTestsRow | None:
    size = whole_number(result.get("size"))
    if size is None:
        return None
    halves = (_parse_half(as_mapping(result.get(key))) for key in ("out_of_place", "in_place"))
    return NcclTestsRow(size, _text(result.get("type")) or "", *halves)


def _parse_half(half: t.Mapping[str, object]) -> NcclTestsHalf:
    time, algbw, busbw = (finite_number(half.get(key)) for key in ("time", "alg_bw", "bus_bw"))
    return NcclTestsHalf(time, algbw, busbw, whole_number(half.get("nwrong")))


def _add_summary(tests: NcclTests, document: t.Mapping[str, object]) -> None:
    bounds, average = document.get("out_of_bounds"), document.get("average_bus_bandwidth")
    if isinstance(bounds, dict):
        # Without a comparison no row has a number, and the sum is 0 all the same.
        compared = tests.wrong is not None or not tests.rows
        tests.out_of_bounds = whole_number(bounds.get("count")) if compared else None
        tests.out_of_bounds_failed = bounds.get("okay") in ("false", False)
    if isinstance(average, dict):
        tests.average_gb_s = finite_number(average.get("bandwidth"))
        tests.average_failed = average.get("okay") in ("false", False)
    for error in as_items(document.get("errors"))[:_MAX_ERRORS]:
        tests.failures.setdefault(printable(str(error)[:400].encode("utf-8", "replace")), 0)
    tests.concluded = bool(document.get("end_time"))


def _text(value: object) -> str | None:
    return printable(value[:400].encode("utf-8", "replace"), 120) or None if isinstance(value, str) else None
