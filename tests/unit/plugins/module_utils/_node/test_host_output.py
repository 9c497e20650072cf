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
    output = host_output.UnitOutput(log, tmp_path, {"": STEP})
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


def test_patterns_that_a_later_start_has_begin_at_the_end_of_the_log(tmp_path: pathlib.Path) -> None:
    log = tmp_path / "log"
    without = host_output.UnitOutput(log, tmp_path, {})
    log.write_text("step 1\nstep 2\n")
    without.close()
    output = host_output.UnitOutput(log, tmp_path, {"": STEP})
    output.start()
    output.close()
    assert metrics(tmp_path) == []


def test_a_lot_of_output_is_parsed_to_its_last_line(tmp_path: pathlib.Path) -> None:
    log = tmp_path / "log"
    output = host_output.UnitOutput(log, tmp_path, {"": STEP})
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
    os.utime(log, (1000, 1000))
    assert host_output.bound_log(log, 1 << 20, 1 << 18) == 1 << 20
    assert host_output.bound_log(log, None, 1 << 18) == (4 << 20) - (1 << 18)
    assert log.stat().st_mtime == 1000, "nothing was printed"
    assert host_output.bound_log(log, None, 1 << 18) == 0 and host_output.bound_log(tmp_path / "none", None, 1) == 0


def test_the_files_of_ranks_become_metrics_and_are_released(tmp_path: pathlib.Path) -> None:
    """One copy of what a rank printed, and its last line, which has no end."""
    rank = tmp_path / "ranks" / "attempt_1" / "0" / "stdout.log"
    output = host_output.UnitOutput(tmp_path / "log", tmp_path, {"": STEP})
    rank.parent.mkdir(parents=True)
    rank.write_text("".join(f"step {number} {'y' * 40_000}\n" for number in range(200)) + "step 200")
    output.close()
    assert [line["step"] for line in metrics(tmp_path)] == list(range(201))
    assert allocated(rank) < 3 * host_output.RANK_KEEP_BYTES and rank.stat().st_size > 8_000_000


@pytest.mark.parametrize("killed", ["before its first look", "after it"])
def test_what_a_killed_supervisor_had_not_read_is_read_by_the_next(tmp_path: pathlib.Path, killed: str) -> None:
    """Of the ranks' files and of what a command prints into the log itself; nothing is read twice."""
    log = tmp_path / "log"
    rank = tmp_path / "ranks" / "attempt_1" / "0" / "stdout.log"
    rank.parent.mkdir(parents=True)
    log.write_text("step 1 of an earlier start\n")
    first = host_output.UnitOutput(log, tmp_path, {"": STEP})
    rank.write_text("step 2\n")
    if killed == "after it":
        first.read_new()
    with open(rank, "a") as handle:
        handle.write("step 3\nstep 4 and no end")
    with open(log, "a") as handle:
        handle.write("step 5\n")
    host_output.UnitOutput(log, tmp_path, {"": STEP}).start()
    assert sorted(line["step"] for line in metrics(tmp_path)) == [2, 3, 4, 5]
    assert log.read_text().count("[default0]:step") == 3
    rank.with_name("stderr.log").write_text("step 6\n")
    last = host_output.UnitOutput(log, tmp_path, {"": STEP})
    last.close()
    assert sorted(line["step"] for line in metrics(tmp_path)) == [2, 3, 4, 5, 6]


def test_what_is_read_after_the_next_attempt_has_begun_is_dated_by_its_own(tmp_path: pathlib.Path) -> None:
    output = host_output.UnitOutput(tmp_path / "log", tmp_path, {"": STEP})
    for attempt, text in ((1, "step 7\n"), (2, "step 5\n")):
        place = tmp_path / "ranks" / f"attempt_{attempt}" / "0" / "stdout.log"
        place.parent.mkdir(parents=True)
        place.write_text(text)
    os.utime(tmp_path / "ranks" / "attempt_1" / "0" / "stdout.log", (1000, 1000))
    output.read_new()
    assert [line["step"] for line in metrics(tmp_path)] == [7, 5]
    early, late = (line["at"] for line in metrics(tmp_path))
    assert early == 1000 and late > 1e9


def test_what_is_read_after_the_fact_says_so(tmp_path: pathlib.Path) -> None:
    """A supervisor that was away for a minute reads what was printed meanwhile in one moment."""
    log = tmp_path / "log"
    log.write_text("")
    first = host_output.UnitOutput(log, tmp_path, {"": STEP})
    with open(log, "a") as handle:
        handle.write("step 1\n")
    first.read_new()
    with open(log, "a") as handle:
        handle.write("step 2\nstep 3\n")
    place = log.with_name("read.json")
    os.utime(place, (place.stat().st_mtime - 60.0,) * 2)
    output = host_output.UnitOutput(log, tmp_path, {"": STEP})
    output.start()
    with open(log, "a") as handle:
        handle.write("step 4\n")
    output.close()
    lates = [line.get("late_s", 0.0) for line in metrics(tmp_path)]
    assert [line["step"] for line in metrics(tmp_path)] == [1, 2, 3, 4]
    assert lates == pytest.approx([0.0, 60.0, 60.0, 0.0], abs=5.0) and lates[0] == lates[3] == 0.0
