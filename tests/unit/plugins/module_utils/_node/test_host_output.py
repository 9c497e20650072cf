# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The output of a unit: metrics out of printed lines, and logs that do not fill the disk."""

from __future__ import annotations

import json
import os
import pathlib
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._node import host_output

STEP = {"step": "step (?P<step>[0-9]+)", "resumed_from_step": "resumed (?P<step>[0-9]+)"}


def metrics(run: pathlib.Path) -> list[dict[str, t.Any]]:
    place = run / "metrics.jsonl"
    return [json.loads(line) for line in place.read_text().splitlines()] if place.exists() else []


def test_printed_lines_become_metrics_once(tmp_path: pathlib.Path) -> None:
    log = tmp_path / "log"
    log.write_text("step 1 of an earlier start\n")
    output = host_output.UnitOutput(log, tmp_path, STEP)
    with open(log, "a") as handle:
        handle.write("resumed 4\nstep 5\nstep 6")
        handle.flush()
        output.read_new()
        assert [line.get("step") for line in metrics(tmp_path)] == [None, 5], "a line without its end is not read"
        handle.write("0\nnoise\nlast: step 61")
    output.read_new()
    output.close()
    found = metrics(tmp_path)
    assert [line.get("step", line.get("resumed_from_step")) for line in found] == [4, 5, 60, 61]
    assert all(line["printed"] is True and line["at"] > 1e9 for line in found)


def test_a_lot_of_output_is_parsed_to_its_last_line(tmp_path: pathlib.Path) -> None:
    log = tmp_path / "log"
    output = host_output.UnitOutput(log, tmp_path, STEP)
    with open(log, "w") as handle:
        for number in range(200):
            handle.write("x" * 79 + "\n")
            handle.write(f"step {number} {'y' * 40_000}\n")
    output.close()
    assert [line["step"] for line in metrics(tmp_path)] == list(range(200))


def allocated(place: pathlib.Path) -> int:
    return place.stat().st_blocks * 512


@pytest.fixture
def keep(monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(host_output, "KEEP_BYTES", 1 << 20)
    return 1 << 20


def test_a_log_keeps_its_end_while_it_is_written(tmp_path: pathlib.Path, keep: int) -> None:
    """Offsets stay what they are, and the writer notices nothing."""
    log = tmp_path / "log"
    output = host_output.UnitOutput(log, tmp_path, {})
    with open(log, "ab", 0) as handle:
        for number in range(40):
            handle.write(b"%07d\n" % number * 16_384)
            output.read_new(ended=True)
            assert allocated(log) < 3 * keep
    assert log.stat().st_size == 40 * 131_072
    assert log.read_bytes()[-keep:] == b"".join(b"%07d\n" % number * 16_384 for number in range(32, 40))


def test_what_was_not_read_is_kept(tmp_path: pathlib.Path) -> None:
    """A hole would be zeros to its reader."""
    log = tmp_path / "log"
    log.write_bytes(os.urandom(4 << 20))
    assert host_output.bound_log(log, 1 << 20, 1 << 18) == 1 << 20
    assert host_output.bound_log(log, None, 1 << 18) == (4 << 20) - (1 << 18)
    assert host_output.bound_log(log, None, 1 << 18) == 0 and host_output.bound_log(tmp_path / "none", None, 1) == 0


def test_the_files_of_ranks_become_metrics_and_are_released(tmp_path: pathlib.Path) -> None:
    """One copy of what a rank printed, and its last line, which has no end."""
    rank = tmp_path / "ranks" / "none_x" / "attempt_0" / "0" / "stdout.log"
    output = host_output.UnitOutput(tmp_path / "log", tmp_path, STEP)
    rank.parent.mkdir(parents=True)
    rank.write_text("".join(f"step {number} {'y' * 40_000}\n" for number in range(200)) + "step 200")
    output.close()
    assert [line["step"] for line in metrics(tmp_path)] == list(range(201))
    assert allocated(rank) < 3 * host_output.RANK_KEEP_BYTES and rank.stat().st_size > 8_000_000
