# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A fleet of two hosts without machines behind them, for tests of healing."""

from __future__ import annotations

import pathlib
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import (
    UnreachableError,
)
from ansible_collections.muster.training.plugins.module_utils._node import files
from ansible_collections.muster.training.plugins.plugin_utils._hosts.node_client import NodeClient
from ansible_collections.muster.training.plugins.plugin_utils._workflows.fleet_heal import facts
from ansible_collections.muster.training.plugins.plugin_utils._workflows.fleet_heal import run as subject
from ansible_collections.muster.training.plugins.plugin_utils._workflows.node_pool.present import Context
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared.state_dir import StateHome
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job import run as training_job
from ansible_collections.muster.training.tests.support.run_world import Said

Dict = dict[str, t.Any]


RECORD: Dict = {
    "schema": 1,
    "run_id": "r",
    "state": "ended",
    "outcome": "lost",
    "attempts": [],
    "submitted_at": "x",
    "world_size": {},
    "backend": "hosts",
    "hosts": ["a", "b"],
}


class Node(NodeClient):
    """A host that answers, refuses, or is silent."""

    def __init__(self, name: str, problem: Exception | None, devices: Dict | None = None) -> None:
        super().__init__(name, lambda command, data: (0, "", ""))
        self.problem, self.devices = problem, devices or {}

    def call(self, op: str, **values: t.Any) -> Dict:
        if self.problem:
            raise self.problem
        return self.devices if op == "devices" else {}


class HostVars(dict[str, t.Any]):
    """Ansible's: ``get`` of a host that is not there gives something that breaks when it is used."""

    def get(self, key: str, default: t.Any = None) -> t.Any:
        assert key in self, f"{key} is no host"
        return super().get(key, default)


class World:
    """Hosts a, b and c of the inventory; ``problems`` are how they answer, ``devices`` what they say of GPUs."""

    def __init__(self, root: pathlib.Path) -> None:
        self.root, self.said = root, Said()
        self.problems: dict[str, Exception] = {}
        self.devices: dict[str, Dict] = {}

    def run(self, hosts: str = "ab", check: bool = False, **options: t.Any) -> Dict:
        return subject.heal_fleet(self.request(hosts, check, **options), Context(self.root, check))

    def state(self, home: StateHome) -> facts.HealFacts:
        """Return the facts that a call reads."""
        return facts.read_facts(self.request(), home, Context(self.root, False))

    def request(self, hosts: str = "ab", check: bool = False, **options: t.Any) -> training_job.RunRequest:
        usual: Dict = {"state_home": {"path": str(self.root)}, "cluster": "lab", "patience_s": 100.0, "providers": []}
        hostvars = HostVars({name: {} for name in "abc"})
        return training_job.RunRequest(
            {**usual, **options},
            list(hosts),
            hostvars,
            self.root,
            check,
            lambda names: [Node(name, self.problems.get(name), self.devices.get(name, {})) for name in names],
            self.said,
        )

    def record(self, policy: str = "shrink", name: str = "r", **more: t.Any) -> None:
        job = {"name": "x", "nodes": 2, "template": "t", "python": None, "restart": {"on_lost_node": policy}}
        folder = files.private_dir(self.root / "lab" / "runs" / name)
        files.write_json(folder / "run.json", {**RECORD, "run_id": name, "job": job, **more})


@pytest.fixture
def world(tmp_path: pathlib.Path) -> World:
    return World(tmp_path)


def silent(name: str) -> UnreachableError:
    return UnreachableError(name, "no answer")
