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

from ansible_collections.muster.training.plugins.module_utils._node.checkpoint_reports import CheckpointReports


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
    return [path.name for path, _at in reports.list_complete()]


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
