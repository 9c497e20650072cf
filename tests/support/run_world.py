# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A controller and local nodes for tests of whole runs, without Ansible: requests are built by hand."""

from __future__ import annotations

import pathlib
import sys
import typing as t
import uuid

from ansible_collections.muster.training.plugins.plugin_utils._hosts.node_client import NodeClient
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared.state_dir import StateHome
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job import run as training_job
from ansible_collections.muster.training.tests.support.node_lab import NodeLab

Dict = dict[str, t.Any]


class Said:
    """Takes progress and keeps it."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.values: list[t.Mapping[str, t.Any]] = []

    def say(self, line: str) -> None:
        self.lines.append(line)

    def show(self, values: t.Mapping[str, t.Any]) -> None:
        self.values.append(values)


class RunWorld:
    """Nodes a and b at two loopback addresses, and controllers that differ by their state home."""

    def __init__(self, root: pathlib.Path) -> None:
        self.root, self.lab, self.said = root, NodeLab(root), Said()
        self.run_id = f"r-{uuid.uuid4().hex[:8]}"
        self.nodes: dict[str, NodeClient] = {}
        for name in "ab":
            self.lab.installed(name)

    def home(self, controller: str = "home") -> pathlib.Path:
        """Return the state folder of a controller's cluster."""
        return self.root / controller / "default"

    def folder(self, controller: str = "home") -> pathlib.Path:
        """Return the run's folder on a controller."""
        return StateHome({"path": str(self.root / controller)}, "default").run_folder(self.run_id)

    def job(self, *command: str, **changes: t.Any) -> Dict:
        """Return a job of two nodes that runs a command on each."""
        own = {"name": "x", "nodes": 2, "launcher": "command", "command": list(command), "python": sys.executable}
        return {**own, "checkpoints": {"grace_s": 5}, **changes}

    def connect(self, names: t.Sequence[str]) -> list[NodeClient]:
        """Return nodes; those that a test has put into ``nodes`` are used as they are."""
        return [self.nodes.get(name) or self.lab.remote(name) for name in names]

    def request(
        self, job: Dict | None, controller: str = "home", check: bool = False, **options: t.Any
    ) -> training_job.Request:
        """Return a request for the run; ``options`` are the module's."""
        common: Dict = {
            "cluster": "default",
            "state": "present",
            "wait": True,
            "take_over": False,
            "template_paths": [],
        }
        mine: Dict = {
            "state_home": {"path": str(self.root / controller)},
            "job": job,
            "run_id": self.run_id,
            "drill": None,
        }
        hostvars = {"a": {"muster_address": "127.0.0.1"}, "b": {"muster_address": "127.0.0.2"}}
        return training_job.Request(
            options={**common, **mine, **options},
            hosts=["a", "b"],
            hostvars=hostvars,
            base=self.root,
            check=check,
            connect=self.connect,
            progress=self.said,
        )

    def play(self, job: Dict | None, controller: str = "home", check: bool = False, **options: t.Any) -> Dict:
        """Carry a request out and return the result."""
        return training_job.run(self.request(job, controller, check, **options))

    def close(self) -> None:
        """End what a failed test left."""
        self.lab.close()
