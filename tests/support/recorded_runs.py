# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs that are in a state home, and nodes that answer what a test says."""

from __future__ import annotations

import os
import pathlib
import typing as t

from ansible_collections.muster.training.plugins.module_utils._model.job import parse_job, to_yaml_names
from ansible_collections.muster.training.plugins.module_utils._node import files
from ansible_collections.muster.training.plugins.plugin_utils._hosts.node_client import NodeClient
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared import run_record
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared.state_dir import StateHome

Dict = dict[str, t.Any]


def place(home: StateHome, run_id: str, age: int, **values: t.Any) -> pathlib.Path:
    """Make the folder of a run that was recorded ``age`` seconds before the others; return it."""
    folder = files.private_dir(home.run_folder(run_id))
    job = to_yaml_names(parse_job({"name": run_id.split("-")[0], "script": "/t.py"}))
    files.write_json(folder / "run.json", {**run_record.new_record(run_id, job, 1000.0).to_dict(), **values})
    os.utime(folder / "run.json", (1_000_000 - age, 1_000_000 - age))
    return folder


class Node(NodeClient):
    """A node that gives scripted answers or an error."""

    def __init__(self, name: str, answers: dict[str, t.Any]) -> None:
        super().__init__(name, lambda command, data: (0, "", ""))
        self.answers = answers

    def call(self, op: str, **values: t.Any) -> Dict:
        answer = self.answers[op]
        if isinstance(answer, Exception):
            raise answer
        return t.cast(Dict, answer(values) if callable(answer) else answer)


def connect(answers: dict[str, Dict]) -> t.Callable[[t.Sequence[str]], list[NodeClient]]:
    """Return a function from names to nodes with these answers."""
    return lambda names: [Node(name, answers[name]) for name in names]
