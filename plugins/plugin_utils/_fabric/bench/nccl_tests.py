# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""nccl-tests as a bench: its command line, and its text output as the result document of our own bench.

The JSON output of nccl-tests (``-J``) is not used: it holds the whole environment of rank 0.
"""

from __future__ import annotations

import dataclasses
import shlex
import typing as t

from ..parse.nccl_tests import NcclTests, NcclTestsRow
from .plan import BenchStage
from .result import SCHEMA, BenchResult, BenchRow, RankEvidence

# Program for each of our names; images carry the name with ``_mpi`` too (nvcr.io/nvidia/pytorch).
PROGRAMS: t.Mapping[str, str] = {
    "all_reduce": "all_reduce_perf",
    "all_gather": "all_gather_perf",
    "reduce_scatter": "reduce_scatter_perf",
    "all_to_all": "alltoall_perf",
}
ITERATIONS, WARM_UP = 20, 5


def build_command(stage: BenchStage, collective: str, folder: str | None) -> list[str]:
    """Return the command of one rank: the first of the known names that the node has, with the stage's sizes.

    :param folder: the folder of the programs; None searches PATH.
    """
    program = PROGRAMS[collective]
    names = [f"{folder.rstrip('/')}/{name}" if folder else name for name in (f"{program}_mpi", program)]
    small, large = min(stage.sizes), max(stage.sizes)
    # -f must reach the larger size in one step; -T ends it from within, the unit's own limit from without.
    words = ["-b", small, "-e", large, "-f", max(2, large // small), "-g", 1, "-n", ITERATIONS, "-w", WARM_UP, "-c", 1]
    words += ["-T", max(5, int(stage.timeout_s) - 5)]
    options = " ".join(map(str, words))
    search = " ".join(shlex.quote(name) for name in names)
    text = (
        f'for name in {search}; do if command -v "$name" >/dev/null; then exec "$name" {options}; fi; done; '
        f'echo "muster: nccl-tests is not installed: {program}" >&2; exit 127'
    )
    return ["/bin/sh", "-c", text]


def read_result(
    tests: NcclTests, text: str, collective: str, nodes: t.Mapping[int, str], rank_count: int
) -> tuple[BenchResult | None, str, tuple[str, ...]]:
    """Return the output of nccl-tests as a result document, why there is none (else empty), and notes.

    :param tests: what nccl-tests printed, as parsed from the output.
    :param text: the output itself, which says when the programs are not installed.
    :param nodes: rank -> node, as the ranks recorded it when they started.
    :param rank_count: how many ranks were started.
    """
    problem = _find_problem(tests, text)
    rows = tuple(row for row in map(_build_row, tests.rows) if row is not None)
    if problem or not rows:
        return None, problem or "nccl-tests did not print a row with a bandwidth", ()
    ranks = sorted(nodes) if nodes else sorted(tests.ranks)
    if not ranks or (tests.ranks and len(tests.ranks) != len(ranks)):
        return None, f"nccl-tests lists {len(tests.ranks)} ranks and {len(ranks)} were started", ()
    if ranks != list(range(rank_count)):
        return None, f"{len(ranks)} of {rank_count} ranks took part", ()
    places = {rank: nodes.get(rank) or tests.ranks[rank].host for rank in ranks}
    hosts = {rank: item.host for rank, item in tests.ranks.items()}
    evidence = tuple(RankEvidence(rank, hosts.get(rank), places[rank]) for rank in ranks)
    notes = ("nccl-tests: values were not checked",) if tests.wrong is None and tests.out_of_bounds is None else ()
    result = BenchResult(
        SCHEMA, collective, "nccl", len(ranks), len(set(places.values())), _add_out_of_bounds(rows, tests), evidence
    )
    return result, "", notes


def _find_problem(tests: NcclTests, text: str) -> str:
    if tests.failures:
        return f"nccl-tests failed: {next(iter(tests.failures))}"
    missing = next((line for line in text.splitlines() if "muster: nccl-tests is not installed" in line), None)
    if missing:
        return f"{missing.partition('muster: ')[2]}. Install nccl-tests or set fabric_verify_nccl_tests"
    if not tests.has_table:
        return "nccl-tests did not print a table"
    if tests.rows and tests.average_gb_s is None and tests.out_of_bounds is None and not tests.concluded:
        return "the output of nccl-tests ends before its summary"
    return "a row of the table that nccl-tests printed cannot be read" if tests.broken_rows else ""


def _build_row(row: NcclTestsRow) -> BenchRow | None:
    """Return the better half of a row; None for one without a bandwidth, such as the size 0."""
    halves = [half for half in (row.out_of_place, row.in_place) if half.busbw_gb_s is not None]
    if not halves or row.size_bytes == 0:
        return None
    best = max(halves, key=lambda half: half.busbw_gb_s or 0.0)
    counts = [half.wrong for half in (row.out_of_place, row.in_place) if half.wrong is not None]
    wrong = sum(counts) if counts else None
    time_us, algbw = best.time_us or 0.0, best.algbw_gb_s or 0.0
    return BenchRow(row.size_bytes, ITERATIONS, time_us, algbw, best.busbw_gb_s or 0.0, wrong)


def _add_out_of_bounds(rows: tuple[BenchRow, ...], tests: NcclTests) -> tuple[BenchRow, ...]:
    """Count values out of bounds where no row did: old generations print them below the table only."""
    if tests.wrong is not None or tests.out_of_bounds is None:
        return rows
    last = rows[-1]
    correct = (dataclasses.replace(row, wrong_values=0) for row in rows[:-1])
    return (*correct, dataclasses.replace(last, wrong_values=tests.out_of_bounds))
