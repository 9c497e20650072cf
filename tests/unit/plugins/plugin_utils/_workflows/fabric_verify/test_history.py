# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Earlier verdicts and measurements in the state directory."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import time

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.verdict import Verdict
from ansible_collections.muster.training.plugins.plugin_utils._fabric.verdict import drift
from ansible_collections.muster.training.plugins.plugin_utils._fabric.verdict.drift import IslandMeasurement
from ansible_collections.muster.training.plugins.plugin_utils._workflows.fabric_verify import history

BEFORE = IslandMeasurement(("a", "b"), "pass", island="lan", backend="gloo/torch", busbw_gb_s=10.0)


def test_verdicts_of_a_damaged_file_are_left_out(tmp_path: pathlib.Path) -> None:
    assert history.read_verdicts(tmp_path) == []
    entry = {"island": "lan", "nodes": ["a", "b"], "outcome": "pass"}
    (tmp_path / "fabric.json").write_text(json.dumps({"islands": [entry, {"nodes": 3}, "text"]}))
    (stored,) = history.read_verdicts(tmp_path)
    assert stored.nodes == ("a", "b") and stored.document == entry
    (tmp_path / "fabric.json").write_text("{torn")
    assert history.read_verdicts(tmp_path) == []


def test_verdicts_stand_while_they_are_recent_and_let_jobs_run(tmp_path: pathlib.Path) -> None:
    def recent(outcome: str, age_s: float = 0.0, allow: bool = False, max_age_s: float = 60.0) -> int:
        entry = {"island": "lan", "nodes": ["a", "b"], "outcome": outcome}
        (tmp_path / "fabric.json").write_text(json.dumps({"islands": [entry]}))
        written = time.time() - age_s
        os.utime(tmp_path / "fabric.json", (written, written))
        return len(history.read_recent(tmp_path, max_age_s, allow))

    assert history.read_recent(tmp_path, 60.0, True) == []
    assert [recent("pass"), recent("warn"), recent("fail"), recent("unproven")] == [1, 1, 0, 0]
    assert recent("unproven", allow=True) == 1
    assert recent("pass", age_s=61.0) == recent("pass", max_age_s=0) == 0


def test_measurements_are_read_as_they_were_appended(tmp_path: pathlib.Path) -> None:
    history.append_measurements(tmp_path, [BEFORE], [])
    with (tmp_path / "fabric_history.jsonl").open("a") as out:
        out.write('{"other": 1}\ntorn {')
    assert history.read_measurements(tmp_path) == [BEFORE]


def test_a_file_that_exceeds_its_limit_is_rewritten_with_its_newest_half(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drift, "MAX_LINES", 4)
    lines = [dataclasses.replace(BEFORE, at=str(number)) for number in range(5)]
    history.append_measurements(tmp_path, lines[:4], [])
    history.append_measurements(tmp_path, lines[4:], lines[:4])
    assert [line.at for line in history.read_measurements(tmp_path)] == ["3", "4"]


def test_an_island_that_became_slower_gets_a_warning_with_its_cause() -> None:
    verdict = Verdict(island="lan", outcome="pass", exit_code=0, reasons=("as measured",))
    now = dataclasses.replace(BEFORE, busbw_gb_s=5.0)
    changed, changes = history.compare_verdict(verdict, now, [BEFORE])
    assert (changed.outcome, [cause.code for cause in changed.causes]) == ("warn", ["drift"])
    assert changes == ["bandwidth: 5 GB/s, 10 before"]
    assert changed.reasons == ("as measured", "drift: bandwidth: 5 GB/s, 10 before")
    assert history.compare_verdict(verdict, BEFORE, [BEFORE]) == (verdict, [])
