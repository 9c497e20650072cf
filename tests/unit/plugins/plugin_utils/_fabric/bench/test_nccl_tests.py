# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""nccl-tests as a bench: the command under a real shell, and recorded outputs as results."""

from __future__ import annotations

import io
import pathlib
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.plugin_utils._fabric.bench import nccl_tests
from ansible_collections.muster.training.plugins.plugin_utils._fabric.bench.nccl_tests import PROGRAMS, build_command
from ansible_collections.muster.training.plugins.plugin_utils._fabric.bench.plan import BenchStage
from ansible_collections.muster.training.plugins.plugin_utils._fabric.bench.result import BenchResult
from ansible_collections.muster.training.plugins.plugin_utils._fabric.diagnosis.scan import scan_log

RECORDED = pathlib.Path(__file__).parents[5] / "fixtures" / "fabric"
TWO_NODES = (RECORDED / "nccltests-good-p5-2nodes-efa-mpijob.txt").read_text()
SIXTEEN = {rank: f"node-{rank // 8}" for rank in range(16)}
STAGE = BenchStage("island", (((("a", "b")),),), 8, (1 << 27, 1 << 30), 0.6, 60.0)


def read(
    text: str, collective: str, nodes: dict[int, str], rank_count: int
) -> tuple[BenchResult | None, str, tuple[str, ...]]:
    """Return the result in the output of nccl-tests."""
    tests = scan_log(io.BytesIO(text.encode("utf-8", "replace"))).tests
    return nccl_tests.read_result(tests, text, collective, nodes, rank_count)


@pytest.mark.parametrize("collective", sorted(PROGRAMS))
@pytest.mark.parametrize("suffix", ["", "_mpi"])
def test_the_program_is_found_and_gets_the_stage_s_sizes(tmp_path: pathlib.Path, collective: str, suffix: str) -> None:
    program = tmp_path / f"{PROGRAMS[collective]}{suffix}"
    program.write_text('#!/bin/sh\necho "$@"\n')
    program.chmod(0o755)
    done = subprocess.run(build_command(STAGE, collective, f"{tmp_path}/"), capture_output=True, text=True, check=True)
    assert done.stdout.split() == [
        "-b",
        "134217728",
        "-e",
        "1073741824",
        "-f",
        "8",
        "-g",
        "1",
        "-n",
        "20",
        "-w",
        "5",
        "-c",
        "1",
        "-T",
        "55",
    ]
    # Its JSON would hold every variable of the environment.
    assert "-J" not in done.stdout


def test_a_node_without_nccl_tests_says_so(tmp_path: pathlib.Path) -> None:
    done = subprocess.run(
        build_command(STAGE, "all_reduce", str(tmp_path)), capture_output=True, text=True, check=False
    )
    assert done.returncode == 127
    found, problem, _ = read(done.stderr, "all_reduce", {0: "a"}, 1)
    assert found is None
    assert problem == (
        "nccl-tests is not installed: all_reduce_perf. Install nccl-tests or set fabric_verify_nccl_tests"
    )


def test_a_recorded_output_is_a_result() -> None:
    found, problem, notes = read(TWO_NODES, "all_reduce", SIXTEEN, 16)
    assert found is not None and problem == "" and notes == ()
    assert (found.ranks, found.nodes, found.backend, found.wrong_values) == (16, 2, "nccl", 0)
    assert found.largest_row is not None and (found.largest_row.size_bytes, found.largest_row.busbw_gb_s) == (
        2147483648,
        437.89,
    )
    assert found.node_names == ("node-0", "node-1") and 0 not in {row.size_bytes for row in found.results}


def test_all_recorded_outputs_give_their_largest_row() -> None:
    for path in sorted(RECORDED.glob("nccltests-*.txt")):
        found, problem, _ = read(path.read_text(), "all_reduce", {0: "a"}, 1)
        assert (found is None) == bool(problem), path.name


@pytest.mark.parametrize("word", ["N/A", "7"])
def test_values_that_were_not_checked_or_are_wrong(word: str) -> None:
    text = TWO_NODES.replace("233.49  437.79      0", f"233.49  437.79    {word}").replace(
        "233.54  437.89      0", f"233.54  437.89    {word}"
    )
    text = text.replace(" 0 OK", " 14 FAILED") if word == "7" else text
    found, problem, _ = read(text, "all_reduce", SIXTEEN, 16)
    assert found is not None and problem == ""
    assert found.wrong_values == (14 if word == "7" else None)


def test_nothing_was_checked_at_all() -> None:
    lines = [line for line in TWO_NODES.splitlines() if "Out of bounds" not in line]
    text = "\n".join(line[:-1] + "N/A" if line.endswith("  0") else line for line in lines).replace(
        "     0  ", "   N/A "
    )
    found, _, notes = read(text, "all_reduce", SIXTEEN, 16)
    assert found is not None and found.wrong_values is None and notes == ("nccl-tests: values were not checked",)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "did not print a table"),
        (TWO_NODES[:330], "did not print a row"),
        (TWO_NODES[: TWO_NODES.index("# Out of bounds") - 14], "ends before its summary"),
        ("gpu-1: Test NCCL failure common.cu:961 'unhandled system error'\n", "nccl-tests failed: "),
        (TWO_NODES + "gpu-1: Test timeout (55s) common.cu:500\n", "nccl-tests failed: "),
    ],
)
def test_an_output_that_is_no_result_says_why(text: str, problem: str) -> None:
    found, said, _ = read(text, "all_reduce", SIXTEEN, 16)
    assert found is None and problem in said and "\n" not in said


def test_ranks_that_are_missing_are_no_result() -> None:
    found, said, _ = read(TWO_NODES, "all_reduce", dict.fromkeys(range(15), "a"), 16)
    assert found is None and said == "15 of 16 ranks took part"


@given(st.integers(0, len(TWO_NODES)), st.binary(max_size=40), st.integers(0, 20))
def test_no_text_breaks_it(cut: int, junk: bytes, asked: int) -> None:
    text = TWO_NODES[:cut] + junk.decode("latin-1") + TWO_NODES[cut:]
    found, problem, _ = read(text, "all_reduce", {}, asked)
    assert (found is None) == bool(problem) and "\n" not in problem
