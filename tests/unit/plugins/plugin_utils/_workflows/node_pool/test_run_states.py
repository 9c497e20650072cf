# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The state of runs by their records: damaged records and invalid ids are ignored."""

from __future__ import annotations

import json
import pathlib
import types

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._provision.bill.due_rules import RunView
from ansible_collections.muster.training.plugins.plugin_utils._workflows.node_pool import run_states


def lease(run_id: str | None, open: bool = True) -> types.SimpleNamespace:
    return types.SimpleNamespace(run_id=run_id, open=open)


def record(folder: pathlib.Path, run_id: str, text: str) -> None:
    (folder / "runs" / run_id).mkdir(parents=True)
    (folder / "runs" / run_id / "run.json").write_text(text)


def test_records_of_open_leases_are_read(tmp_path: pathlib.Path) -> None:
    record(tmp_path, "r1", json.dumps({"state": "ended", "outcome": "succeeded"}))
    record(tmp_path, "r2", json.dumps({"state": "running"}))
    leases = [lease("r1"), lease("r2", open=False), lease(None), lease("r3")]
    assert run_states.read_run_records(tmp_path, leases) == {"r1": RunView("ended", "succeeded")}


@pytest.mark.parametrize("text", ["", "[]", "{", "7"])
def test_a_damaged_record_is_no_record(tmp_path: pathlib.Path, text: str) -> None:
    record(tmp_path, "r1", text)
    assert run_states.read_run_records(tmp_path, [lease("r1")]) == {}


@pytest.mark.parametrize(("run_id", "valid"), [("r-1", True), ("../r", False), ("", False), ("R 1", False)])
def test_a_run_id_is_a_plain_name(run_id: str, valid: bool) -> None:
    assert run_states.valid_run_id(run_id) == (run_id if valid else None)
