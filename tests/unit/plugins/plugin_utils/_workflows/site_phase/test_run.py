# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Seconds of the steps of site: begun, ended, and one file for each ansible-playbook."""

from __future__ import annotations

import json
import pathlib
import typing as t

from ansible_collections.muster.training.plugins.plugin_utils._workflows.site_phase import run as site_phase


def note(base: pathlib.Path, name: str, now: float, check: bool = False, **more: t.Any) -> dict[str, t.Any]:
    options = {"name": name, "cluster": "lab", "state_home": {"path": str(base)}, **more}
    return site_phase.run(options, now, check)


def test_a_step_ends_when_the_next_one_begins(tmp_path: pathlib.Path) -> None:
    note(tmp_path, "cluster", 100.0)
    assert note(tmp_path, "train", 160.26)["table"] == ["cluster: 60.3 s"]
    run = tmp_path / "lab" / "runs" / "gang-1"
    run.mkdir(parents=True)
    note(tmp_path, "report", 200.0, run_id="gang-1")
    found = note(tmp_path, "", 201.0, run_id="gang-1")
    assert found["table"] == ["cluster: 60.3 s", "train: 39.7 s", "report: 1.0 s"] and found["changed"] is False
    kept = json.loads((run / "site.json").read_text())["phases"]
    assert [(item["name"], item["seconds"]) for item in kept] == [("cluster", 60.3), ("train", 39.7), ("report", None)]


def test_a_check_writes_nothing(tmp_path: pathlib.Path) -> None:
    assert note(tmp_path, "cluster", 1.0, check=True)["phases"][0]["name"] == "cluster"
    assert list(tmp_path.iterdir()) == []


def test_another_process_starts_anew() -> None:
    first = site_phase.begin_phase(None, "cluster", "7-1", 10.0)
    assert site_phase.begin_phase(first, "train", "7-1", 20.0)["phases"][0]["seconds"] == 10.0
    anew = site_phase.begin_phase(first, "train", "8-1", 20.0)
    assert [item["name"] for item in anew["phases"]] == ["train"]
    assert site_phase.begin_phase("damaged", "", "8-1", 20.0)["phases"] == []
