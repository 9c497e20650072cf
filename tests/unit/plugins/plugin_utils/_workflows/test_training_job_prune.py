# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which runs are removed, on which nodes, and that a run that works or belongs to others stays."""

from __future__ import annotations

import os
import pathlib
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError, UnreachableError
from ansible_collections.muster.training.plugins.module_utils._model.job import parse_job, to_yaml_names
from ansible_collections.muster.training.plugins.module_utils._node import files
from ansible_collections.muster.training.plugins.plugin_utils._hosts.node_client import NodeClient
from ansible_collections.muster.training.plugins.plugin_utils._workflows import training_job_prune as prune
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared import run_record
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared.state_dir import StateHome

NOW = 1_000_000.0


class Node(NodeClient):
    def __init__(self, name: str, runs: list[dict[str, t.Any]] | None) -> None:
        super().__init__(name, lambda command, data: (0, "", ""))
        self.runs = runs
        self.cleaned: list[str] = []

    def call(self, op: str, **values: t.Any) -> dict[str, t.Any]:
        if self.runs is None:
            raise UnreachableError(self.name, "no answer")
        if values["step"] == "disk":
            return {"runs": self.runs, "environments": 5, "blobs": 7}
        self.cleaned = values["runs"]
        return {"removed": values["runs"], "freed": 11}


@pytest.fixture
def home(tmp_path: pathlib.Path) -> StateHome:
    home = StateHome({"path": str(tmp_path)}, "lab")
    home.owner(create=True)
    job = to_yaml_names(parse_job({"name": "net", "script": "/t.py"}))
    for age, state in enumerate(["running", "ended", "ended", "ended"]):
        folder = files.private_dir(home.run_folder(f"run-{age}"))
        ended = run_record.format_time(NOW - age * 86400) if state == "ended" else None
        record = run_record.new_record(f"run-{age}", job, NOW - 10 * 86400).to_dict()
        files.write_json(folder / "run.json", {**record, "state": state, "ended_at": ended})
        os.utime(folder / "run.json", (NOW - age, NOW - age))
    return home


def run(home: StateHome, nodes: list[Node], **values: t.Any) -> dict[str, t.Any]:
    options: dict[str, t.Any] = {"keep": 0, "older_than_days": 0, "run_ids": [], "on_controller": False, "check": False}
    return prune.prune_runs(home, ["x"], lambda _names: nodes, **{**options, "now": NOW, **values})


def entry(home: StateHome, run_id: str, **values: t.Any) -> dict[str, t.Any]:
    return {"run_id": run_id, "bytes": 1000, "alive": False, "owner": home.owner(create=False)["owner"], **values}


def test_only_own_runs_that_have_ended_are_removed(home: StateHome) -> None:
    own = [entry(home, f"run-{age}") for age in range(4)]
    foreign = [entry(home, "run-1", owner="other"), entry(home, "run-2", alive=True), entry(home, "else-9")]
    nodes = [Node("a", own), Node("b", foreign), Node("c", None)]
    would = run(home, nodes, check=True)
    assert would["freed_bytes"] == {"a": 3000, "b": 0} and nodes[0].cleaned == []
    result = run(home, nodes)
    assert nodes[0].cleaned == ["run-1", "run-2", "run-3"] and nodes[1].cleaned == []
    assert result["problems"] == {"c": "c: no answer"} and result["runs"] == ["run-1", "run-2", "run-3"]
    assert result["table"][1].startswith("a: 3 of 4 runs, 0.0 MB of 0.0 MB freed")
    assert home.run_folder("run-1").exists(), "the controller keeps its records"


def test_the_newest_and_the_young_stay(home: StateHome) -> None:
    assert sorted(prune.choose_runs(home, 2, 0, [], NOW)) == ["run-2", "run-3"]
    assert sorted(prune.choose_runs(home, 0, 2.5, [], NOW)) == ["run-3"]
    assert sorted(prune.choose_runs(home, 20, 9, ["run-1"], NOW)) == ["run-1"]
    with pytest.raises(InputError, match="run run-0 has not ended"):
        prune.choose_runs(home, 0, 0, ["run-0"], NOW)
    with pytest.raises(InputError, match="run nope does not exist"):
        prune.choose_runs(home, 0, 0, ["nope"], NOW)


def test_the_folders_of_the_controller(home: StateHome) -> None:
    would = run(home, [], on_controller=True, check=True)
    assert would["freed_bytes"]["controller"] > 0 and home.run_folder("run-3").exists()
    run(home, [], on_controller=True)
    assert [home.run_folder(f"run-{age}").exists() for age in range(4)] == [True, False, False, False]


def test_the_checkpoints_that_stay_are_named(home: StateHome) -> None:
    place = home.run_folder("run-2") / "run.json"
    record = files.read_json(place)
    assert record is not None
    record["job"]["checkpoints"]["path"] = "/mnt/shared"
    files.write_json(place, record)
    assert run(home, [])["table"][1:] == ["checkpoints stay in /mnt/shared/run-2"]
    assert run(home, [], run_ids=["run-1"])["table"][1:] == []
