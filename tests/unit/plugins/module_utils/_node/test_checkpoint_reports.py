# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which file a reported checkpoint is; how these are stored is in test_checkpoint_sync.py."""

from __future__ import annotations

import json
import os
import pathlib
import time

import pytest

from ansible_collections.muster.training.plugins.module_utils._node import checkpoint_copies
from ansible_collections.muster.training.plugins.module_utils._node.checkpoint_reports import (
    CheckpointReports,
    MissingWatch,
    find_missing,
)
from ansible_collections.muster.training.tests.support.layout_parts import CASES, save_step


class Program:
    """A program that saves and prints."""

    def __init__(self, root: pathlib.Path, form: str = "files") -> None:
        self.folder, self.printed = root / "checkpoints", root / "printed.jsonl"
        self.folder.mkdir()
        self.form = form

    def save(self, name: str, size: int = 10) -> None:
        place = self.folder / name
        if self.form == "dcp":
            place.mkdir(exist_ok=True)
            place /= ".metadata"
        place.write_bytes(os.urandom(size))

    def report(self, step: int, at: float | None = None) -> None:
        with self.printed.open("a") as handle:
            handle.write(json.dumps({"at": at or time.time(), "checkpoint_step": step}) + "\n")

    def reports(self) -> CheckpointReports:
        return CheckpointReports(self.folder, self.form, self.printed)


def found(reports: CheckpointReports) -> list[str]:
    reports.take()
    reports.take()
    return [path.name for path in reports.list_complete()]


@pytest.mark.parametrize(
    ("files", "chosen"),
    [
        ({"w-10.pt": 10, "w-10.json": 5, "big.bin": 99}, "w-10.pt"),
        ({"optimizer.bin": 99, "log.txt": 5}, "optimizer.bin"),
        # 110 and 1000 are other numbers.
        ({"w-110.pt": 99, "w-1000.pt": 99, "w-00010.pt": 5}, "w-00010.pt"),
        ({".hidden-10": 99, "w-10.pt.tmp": 99}, None),
    ],
)
def test_the_file_of_a_printed_report(tmp_path: pathlib.Path, files: dict[str, int], chosen: str | None) -> None:
    program = Program(tmp_path)
    reports = program.reports()
    for name, size in files.items():
        program.save(name, size)
    program.report(10)
    assert found(reports) == ([chosen] if chosen else [])
    assert reports.steps == ({chosen: 10} if chosen else {})


def test_what_is_saved_over_is_another_checkpoint_until_it_is_reported(tmp_path: pathlib.Path) -> None:
    program = Program(tmp_path)
    reports = program.reports()
    program.save("last.pt")
    program.report(10)
    assert found(reports) == ["last.pt"]
    program.save("last.pt", 11)
    os.utime(program.folder / "last.pt", ns=(1, time.time_ns() + 5))
    assert found(reports) == []
    program.report(20)
    assert found(reports) == ["last.pt"] and reports.steps == {"last.pt": 20}


def test_a_sharded_checkpoint_gets_the_step_that_was_printed(tmp_path: pathlib.Path) -> None:
    program = Program(tmp_path, "dcp")
    reports = program.reports()
    program.save("epoch-a")
    program.report(7)
    assert found(reports) == ["epoch-a"] and reports.steps == {"epoch-a": 7} and not reports.find_problem(last=True)


def test_what_lay_there_before_is_no_answer_to_a_new_report(tmp_path: pathlib.Path) -> None:
    program = Program(tmp_path)
    program.save("w-10.pt")
    reports = program.reports()
    program.report(10)
    assert found(reports) == []
    assert reports.find_problem() == "" and reports.find_problem(last=True).startswith(
        "checkpoint 10 was reported, and"
    )


def test_a_node_whose_ranks_report_nothing_stores_what_it_wrote(tmp_path: pathlib.Path) -> None:
    program = Program(tmp_path)
    program.save("before-1.pt")
    reports = CheckpointReports(program.folder, "files", program.printed, adopts=True)
    program.save("step-5.pt", 100)
    for name, size in (("settings.json", 5), ("train.log", 900), ("step-6.pt.tmp", 500), ("latest", 3)):
        program.save(name, size)
    reports.take()
    assert reports.list_complete() == [], "it may still be written"
    reports.take()
    assert [path.name for path in reports.list_complete()] == ["step-5.pt"]
    assert reports.steps == {"step-5.pt": None} and reports.find_problem(last=True) == ""
    program.save("step-10.pt", 100)
    assert found(reports)[0] == "step-10.pt"


def test_what_was_copied_from_another_node_is_not_its_part(tmp_path: pathlib.Path) -> None:
    program = Program(tmp_path)
    reports = CheckpointReports(program.folder, "files", program.printed, adopts=True)
    program.save("step-5.pt", 100)
    state = (program.folder / "step-5.pt").stat()
    copied = {"step-5.pt": {"whole": True, "files": {"": [100, 1, state.st_mtime_ns]}}}
    (program.folder / checkpoint_copies.LEDGER).write_text(json.dumps(copied))
    assert found(reports) == []


@pytest.mark.parametrize(
    ("form", "saved", "reported", "missing"),
    [
        ("files", ["a-5", "a-10"], [(5, "{}/a-5"), (10, "{}/a-10")], None),
        ("files", ["a-5"], [(5, "{}/a-5"), (10, "{}/a-10")], (10, 5)),
        ("files", ["a-5"], [(10, "{}/a-10")], (10, None)),
        # A step that was made again, and what may be below any folder.
        ("files", ["b-10"], [(10, "{}/a-10"), (10, "{}/b-10")], None),
        ("files", [], [(10, "a-10")], None),
        ("files", [], [], None),
        # Elsewhere it is as good.
        ("files", ["a-5"], [(5, "{}/../elsewhere")], (5, None)),
        ("dcp", ["a-5"], [(5, "{}/a-5")], None),
        ("dcp", ["a-5"], [(5, "{}/a-5"), (10, "{}/unmarked")], (10, 5)),
    ],
)
def test_a_reported_checkpoint_that_is_not_there(
    tmp_path: pathlib.Path,
    form: str,
    saved: list[str],
    reported: list[tuple[int, str]],
    missing: tuple[int, int | None] | None,
) -> None:
    program = Program(tmp_path, form)
    (program.folder / "unmarked").mkdir()
    for name in saved:
        program.save(name)
    lines: list[dict[str, object]] = [{"at": 1.0, "step": 1}]
    lines += [{"checkpoint_step": step, "path": path.format(program.folder)} for step, path in reported]
    program.printed.write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"checkpoint_step": 99, "pa')
    found = find_missing(program.printed, program.folder, form)
    assert (found and (found["checkpoint_step"], (found["there"] or {}).get("step"))) == missing


def test_what_files_have_in_common_is_there_as_they_are(tmp_path: pathlib.Path) -> None:
    """``CheckpointManager.save`` returns it, and there is no file of that name."""
    folder, metrics = tmp_path / "c", tmp_path / "metrics.jsonl"
    save_step(folder, CASES["tensorflow"], 10, CASES["tensorflow"].first, tracks=True)
    metrics.write_text(json.dumps({"checkpoint_step": 10, "path": str(folder / "ckpt-10")}) + "\n")
    assert find_missing(metrics, folder, "auto") is None
    (folder / "ckpt-10.index").unlink()
    assert (find_missing(metrics, folder, "auto") or {})["checkpoint_step"] == 10


def test_a_node_without_metrics_misses_nothing(tmp_path: pathlib.Path) -> None:
    assert find_missing(tmp_path / "metrics.jsonl", tmp_path / "none", "files") is None


def test_a_checkpoint_that_is_not_there_is_noted_while_the_program_runs(tmp_path: pathlib.Path) -> None:
    """Each change once: that the newest is not there at two looks, that it came, that it was removed."""
    program = Program(tmp_path)
    watch = MissingWatch(program.folder, "files", tmp_path, "n1")

    def report(step: int) -> None:
        with (tmp_path / "metrics.jsonl").open("a") as handle:
            handle.write(json.dumps({"checkpoint_step": step, "path": str(program.folder / f"c-{step}")}) + "\n")

    def look(times: int = 2) -> list[tuple[str, int, int | None]]:
        for _ in range(times):
            watch.step(list)
        place = tmp_path / "events.jsonl"
        lines = [json.loads(line) for line in place.read_text().splitlines()] if place.exists() else []
        return [(line["kind"], line["checkpoint_step"], (line.get("there") or {}).get("step")) for line in lines]

    assert look() == []
    program.save("c-120")
    report(120)
    assert look() == []
    report(180)
    assert look(1) == [], "it may be on its way"
    missing = ("checkpoint_missing", 180, 120)
    assert look(3) == [missing]
    program.save("c-180")
    there = ("checkpoint_there", 180, None)
    assert look(3) == [missing, there]
    (program.folder / "c-180").unlink()
    assert look() == [missing, there, missing]
    report(240)
    program.save("c-240")
    assert look() == [missing, there, missing, ("checkpoint_there", 240, None)]
