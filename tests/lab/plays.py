# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A controller for the lab: real ``ansible-playbook`` processes with the collection's playbooks, over SSH to the nodes."""

from __future__ import annotations

import json
import os
import pathlib
import sys
import typing as t
import uuid

from ansible_collections.muster.training.tests.e2e.playbook_world import Play, Result, until

from . import nodes, programs

ROOT = pathlib.Path(__file__).parents[2]
CLUSTER = "lab"


class Controller:
    """State home, inventory and run id of one test. ``user`` and ``variables`` say how the nodes are reached."""

    def __init__(self, lab: nodes.Lab, user: str = "root", **variables: t.Any) -> None:
        self.lab = lab
        self.run_id = f"run-{uuid.uuid4().hex[:6]}"
        self.folder = lab.folder / self.run_id
        self.folder.mkdir()
        self.state = self.folder / "state"
        self.meeting = lab.shared / self.run_id
        self.meeting.mkdir()
        self.meeting.chmod(0o777)
        self.inventory = lab.inventory(user, **variables)
        self.plays: list[Play] = []
        (self.folder / "ansible.cfg").write_text("[defaults]\n")

    @property
    def shared(self) -> str:
        """The folder of this test on the shared disk, as the nodes see it."""
        return f"{nodes.SHARED}/{self.run_id}"

    def rank_job(self, **values: t.Any) -> dict[str, t.Any]:
        """Return a job of one rank a node that lives until :meth:`finish`."""
        command = ["python3", "-c", programs.RANK, self.shared]
        return {"name": "lab", "nodes": 2, "launcher": "command", "command": command, **values}

    def trainer_job(self, steps: int, pause_s: float = 0.05, interval: int = 10, **values: t.Any) -> dict[str, t.Any]:
        """Return an mpi job that counts ``steps`` steps with checkpoints on the shared disk."""
        command = ["python3", "-c", programs.TRAINER, str(steps), str(pause_s), str(interval)]
        checkpoints = {"path": f"{self.shared}/checkpoints", "interval_steps": interval, "grace_s": 2}
        base = {"name": "lab", "nodes": 2, "launcher": "mpi", "command": command, "checkpoints": checkpoints}
        return {**base, **values}

    def start(
        self, playbook: str = "train", job: t.Any = None, env: t.Mapping[str, str] | None = None, **extra: t.Any
    ) -> Play:
        """Start a playbook of the collection; ``extra`` are extra variables."""
        values = {
            "muster_state": {"path": str(self.state)},
            "muster_cluster": CLUSTER,
            "muster_run_id": self.run_id,
            **({} if job is None else {"muster_job": job}),
            **extra,
        }
        program = os.fspath(pathlib.Path(sys.executable).parent / "ansible-playbook")
        argv = [program, "-i", os.fspath(self.inventory), f"muster.training.{playbook}", "-e", json.dumps(values)]
        log = self.folder / f"play-{len(self.plays)}.log"
        play = Play(argv, self._environment(env or {}), log, self.folder, 0o022)
        self.plays.append(play)
        return play

    def play(self, playbook: str = "train", job: t.Any = None, limit_s: float = 90, **options: t.Any) -> Result:
        """Run a playbook to its end."""
        return self.start(playbook, job, **options).wait(limit_s)

    def finish(self) -> None:
        """Let the ranks of :meth:`rank_job` end well."""
        (self.meeting / "finish").touch()

    def began(self) -> list[tuple[int, int, int, int]]:
        """Return (rank, attempt, pid on its node, length of the secret that it saw) of every start of a rank."""
        place = self.meeting / "began"
        lines = place.read_text().splitlines() if place.exists() else []
        return [t.cast("tuple[int, int, int, int]", tuple(map(int, line.split()))) for line in lines]

    def wait_began(self, count: int = 2) -> list[tuple[int, int, int, int]]:
        """Wait until ``count`` starts of ranks were noted and return all of them."""
        return until(lambda: self.began() if len(self.began()) >= count else [], f"{count} starts of ranks")

    def duplicated(self) -> bool:
        """Return whether a rank began while another one with its number lived."""
        return (self.meeting / "duplicate").exists()

    @property
    def run_folder(self) -> pathlib.Path:
        """The run's folder on the controller."""
        return self.state / CLUSTER / "runs" / self.run_id

    def record(self) -> dict[str, t.Any]:
        """Return run.json."""
        return t.cast("dict[str, t.Any]", json.loads((self.run_folder / "run.json").read_text()))

    def events(self) -> list[dict[str, t.Any]]:
        """Return the events that the controller kept."""
        return self._lines("events")

    def steps(self) -> list[int]:
        """Return the training steps in the order in which they were seen."""
        return [line["step"] for line in self._lines("metrics") if "step" in line]

    def wait_step(self, step: int, within_s: float = 60) -> None:
        """Wait until the controller has seen a training step."""
        until(lambda: max(self.steps(), default=0) >= step, f"step {step}", within_s)

    def close(self) -> None:
        """End the run where it still lives, so that the next test finds quiet nodes."""
        for play in self.plays:
            if play.process.poll() is None:
                play.kill(9)
                play.process.wait()
            # Shown by pytest for a test that failed.
            print(f"--- {play.log.name}\n{play.output[-3000:]}")
        if self.run_folder.exists() and self.record()["state"] != "ended":
            self.play("cancel")

    def _lines(self, name: str) -> list[dict[str, t.Any]]:
        place = self.run_folder / f"{name}.jsonl"
        text = place.read_text() if place.exists() else ""
        return [json.loads(line) for line in text.splitlines()]

    def _environment(self, changes: t.Mapping[str, str]) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("ANSIBLE_", "PYTHON", "MUSTER_", "XDG_"))}
        ours = {
            "ANSIBLE_CONFIG": str(self.folder / "ansible.cfg"),
            "ANSIBLE_HOME": str(self.lab.folder / "ansible"),
            "ANSIBLE_NOCOLOR": "1",
            "LC_ALL": "C.UTF-8",
        }
        return {**kept, **ours, **changes}
