# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""nccl-tests' output of every generation, whole and in pieces, as text and as JSON."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.plugin_utils._fabric.parse.nccl_tests import (
    TYPES,
    NcclTests,
    NcclTestsText,
)
from ansible_collections.muster.training.tests.support.nccl_text import (
    HEADER,
    PREFIXES,
    info,
    judged,
    prefixed,
    rank_line,
    row,
)

OLD_HEADER = (
    "#       size         count    type    root     time   algbw   busbw  error     time   algbw   busbw  error"
)
NO_ROOT = "#       size         count    type   redop     time   algbw   busbw  error     time   algbw   busbw  error"
SPREAD = "time   algbw   busbw  #wrong   i_min   i_max   i_p99   i_cv%"
WITH_SPREAD = f"#       size         count      type   redop    root     {SPREAD}     {SPREAD}"


def read(*lines: str) -> NcclTests:
    reader = NcclTestsText()
    for number, line in enumerate(lines, 1):
        reader.line(number, line.encode())
    return reader.finish()


@pytest.mark.parametrize("style", PREFIXES)
def test_a_table_behind_prefixes(style: str) -> None:
    if style == "pdsh":
        return
    lines = [rank_line(0, "a"), rank_line(1, "b"), *HEADER, row(1 << 20, 10.0), row(1 << 30, 350.5, second=349.0)]
    lines += ["# Out of bounds values : 0 OK", "# Avg bus bandwidth    : 180.25 "]
    found = read(*(prefixed(style, line) for line in lines))
    assert found.largest and (found.largest.size_bytes, found.largest.busbw_gb_s) == (1 << 30, 350.5)
    assert (found.wrong, found.out_of_bounds, found.average_gb_s) == (0, 0, 180.25)
    assert found.hosts == ("a", "b") and len(found.rows) == 2


@given(
    st.sampled_from(sorted(name.decode() for name in TYPES)),
    st.sampled_from(["sum", "prod", "max", "none", "avg"]),
    st.sampled_from(["-1", "0", "15"]),
    st.integers(0, 1 << 40),
    st.floats(0, 1e4),
    st.floats(0, 1e4),
    st.sampled_from(["0", "12", "N/A"]),
    st.booleans(),
)
def test_rows_with_and_without_their_header(
    dtype: str, redop: str, root: str, size: int, first: float, second: float, wrong: str, header: bool
) -> None:
    halves = [f"{size / 1e6:.2f} {rate:.2f} {rate:.2f} {wrong}" for rate in (first, second)]
    line = f"   {size}  {size // 4}  {dtype}  {redop}  {root} {halves[0]}  {halves[1]}"
    found = read(*(HEADER if header else ()), line)
    assert len(found.rows) == 1
    only = found.rows[0]
    assert (only.size_bytes, only.dtype) == (size, dtype)
    assert only.out_of_place.busbw_gb_s == float(f"{first:.2f}") and only.in_place.busbw_gb_s == float(f"{second:.2f}")
    assert only.in_place.wrong == (None if wrong == "N/A" else int(wrong))


def test_older_columns() -> None:
    found = read(
        OLD_HEADER,
        "           8             2   float       0    45.82    0.01    0.02    N/A    38.17    0.03    0.04    N/A",
    )
    assert found.rows[0].in_place.busbw_gb_s == 0.04 and found.wrong is None
    found = read(
        NO_ROOT, "  1048576  262144   float     sum    99.1   10.58   19.84  0e+00    98.0   10.70   20.06  0e+00"
    )
    assert found.rows[0].busbw_gb_s == 20.06 and found.rows[0].out_of_place.wrong is None


def test_more_columns() -> None:
    half = "113.2   18.53   18.53      0   1.0   2.0   3.0   4.5"
    found = read(WITH_SPREAD, f"  2097152  524288  float  sum  -1  {half}  {half.replace('18.53', '22.46')}")
    assert found.rows[0].busbw_gb_s == 22.46 and found.wrong == 0


def test_a_time_before_the_row() -> None:
    found = read(*HEADER, "2026-11-21 10:11:12 " + row(1 << 30, 350.0))
    assert found.largest and found.largest.busbw_gb_s == 350.0


@given(st.integers(1, 5), st.integers(1, 5))
def test_a_row_in_its_three_pieces(before: int, between: int) -> None:
    line = row(1 << 30, 350.0)
    root = line.index(" -1 ") + 3
    middle = root + (len(line) - root) // 2
    noise = [info(f"Channel 0{index}/0 : 0[0] -> 1[0] [send] via NET/IB/0") for index in range(5)]
    found = judged(*HEADER, line[:root] + noise[0], *noise[:before], line[root:middle], *noise[:between], line[middle:])
    assert found.busbw_gb_s == 350.0


def test_pieces_that_do_not_belong_together_are_broken() -> None:
    line = row(1 << 30, 350.0)
    root = line.index(" -1 ") + 3
    without_time = line[root:].split()[1:]
    found = read(*HEADER, line[:root], " ".join([*without_time, "0"]), row(1 << 20, 5.0))
    assert found.broken_rows == 1 and found.largest and found.largest.busbw_gb_s == 5.0


def test_wrong_values_fail() -> None:
    found = judged(*HEADER, row(1 << 30, 350.0, wrong="3"), "# Out of bounds values : 6 FAILED")
    assert (found.outcome, found.wrong_values) == ("fail", 6)
    assert judged(*HEADER, row(1 << 30, 350.0, wrong="3")).outcome == "fail"


def test_values_that_were_not_checked_are_unknown() -> None:
    found = judged(*HEADER, row(1 << 30, 350.0, wrong="N/A"), "# Avg bus bandwidth    : 350.0")
    assert (found.outcome, found.wrong_values) == ("unproven", None)
    assert "values were not checked" in found.notes


def test_a_minimum_that_was_missed_fails() -> None:
    found = judged(*HEADER, row(1 << 30, 3.0), "# Avg bus bandwidth    : 3.0 FAILED")
    assert found.outcome == "fail"


def test_a_failed_run_fails() -> None:
    found = judged(
        rank_line(0, "a"), "a: Test NCCL failure common.cu:958 'internal error'", " .. a pid 9: Test failure x.cu:1"
    )
    assert (found.kind, found.outcome) == ("nccl_tests", "fail")


def test_a_table_cut_in_its_head() -> None:
    found = judged(rank_line(0, "a"), *HEADER[:2])
    assert (found.kind, found.busbw_gb_s, found.outcome) == ("nccl_tests", None, "unproven")
    assert "busbw_gb_s" not in found.to_dict()


def test_the_average_is_never_the_bandwidth() -> None:
    found = judged(*HEADER, row(8, 0.01), row(1 << 31, 437.89), "# Avg bus bandwidth    : 52.9753")
    assert found.busbw_gb_s == 437.89
    only_average = judged("# Avg bus bandwidth    : 52.9753")
    assert only_average.busbw_gb_s is None and only_average.kind == "nccl_tests"


def test_two_nodes_are_remarked() -> None:
    found = judged(
        "# Collective test starting: all_reduce_perf",
        rank_line(0, "a"),
        rank_line(1, "b"),
        *HEADER,
        row(1 << 30, 480.0),
    )
    assert any("NCCL_ALGO=RING" in note for note in found.notes) and any(
        "one GPU per node" in note for note in found.notes
    )


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=20,
)


@given(st.lists(st.binary(max_size=200), max_size=12))
def test_no_bytes_break_the_reader(lines: list[bytes]) -> None:
    reader = NcclTestsText()
    for number, line in enumerate(lines, 1):
        reader.line(number, line)
        reader.line(number, b"8 2 float sum -1 " + line)
        reader.line(number, b"# size time algbw busbw " + line)
        reader.piece(number, line)
    reader.finish()
