# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Playbooks of the collection against the cluster: a controller with a state home of its own, and the job they run."""

from __future__ import annotations

import json
import os
import pathlib
import re
import subprocess
import sys
import typing as t

from ansible_collections.muster.training.tests.lab.kube import plan
from ansible_collections.muster.training.tests.support.kube_lab import KubeLab, Team

ROOT = pathlib.Path(__file__).resolve().parents[2]
LIMIT_S = 300
INTERVAL = 20
CANARY = "kube-canary-7c0ffee5"
Dict = dict[str, t.Any]


def count_tasks(output: str) -> int:
    """Return how many tasks a playbook ran that were not skipped, as its last lines say."""
    return sum(int(number) for number in re.findall(r"\bok=(\d+)", output))


class Play:
    """A playbook that runs."""

    def __init__(self, argv: t.Sequence[str], environment: t.Mapping[str, str], place: pathlib.Path) -> None:
        self.place = place
        with place.open("wb") as output:
            self.process = subprocess.Popen(
                argv,
                env=environment,
                cwd=place.parent,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    @property
    def output(self) -> str:
        """What it has said so far."""
        return self.place.read_text(errors="replace")

    @property
    def ended(self) -> bool:
        """Whether it has ended."""
        return self.process.poll() is not None

    def wait(self, limit_s: float = LIMIT_S) -> tuple[int, str]:
        """Wait for its end; return its exit code and output. One that does not end is stopped."""
        try:
            return self.process.wait(limit_s), self.output
        except subprocess.TimeoutExpired:
            self.stop()
            return 124, self.output

    def stop(self) -> None:
        """End it where it still runs, as Ctrl-C does."""
        if self.ended:
            return
        self.process.terminate()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Controller:
    """Plays against the cluster with a state home of its own below ``folder``."""

    def __init__(self, lab: KubeLab, team: Team, folder: pathlib.Path, kubeconfig: pathlib.Path | None = None) -> None:
        self.lab, self.team, self.folder = lab, team, folder
        self.kubeconfig = kubeconfig or lab.kubeconfig
        # Another environment, for playbooks that need more than Ansible.
        self.programs = pathlib.Path(sys.executable).parent
        self.env: dict[str, str] = {}

    def start(
        self,
        playbook: str,
        job: Dict | None = None,
        *,
        check: bool = False,
        inventory: pathlib.Path | None = None,
        **extra: t.Any,
    ) -> Play:
        """Start a playbook, or several in one process; ``inventory`` comes beside localhost."""
        values: Dict = {
            "muster_state": {"path": str(self.folder / "state")},
            "muster_train_hosts": "localhost",
            "muster_kubeconfig": str(self.kubeconfig),
            **extra,
        }
        if job is not None:
            placement = {"backend": "kubernetes", "namespace": self.team.namespace, **job.get("placement", {})}
            values["muster_job"] = {"image": self.lab.image, **job, "placement": placement}
        program = str(self.programs / "ansible-playbook")
        books = [f"muster.training.{name}" for name in playbook.split()]
        argv = [program, "-i", "localhost,", "-c", "local", *books, "-e", json.dumps(values)]
        argv += ["-i", str(inventory)] if inventory else []
        argv += ["--check"] if check else []
        home = self.folder / "ansible"
        # What a task says is to be seen at once whatever the environment is.
        kept = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
        environment = {**kept, "MUSTER_CANARY": CANARY, "ANSIBLE_NOCOLOR": "1", "ANSIBLE_HOME": str(home)}
        environment |= self.env
        number = len(list(self.folder.glob("play-*.log")))
        return Play(argv, environment, self.folder / f"play-{number}.log")

    def play(
        self, playbook: str, job: Dict | None = None, *, limit_s: float = LIMIT_S, **how: t.Any
    ) -> tuple[int, str]:
        """Run a playbook; return its exit code and output."""
        return self.start(playbook, job, **how).wait(limit_s)

    def count_visits(self) -> int:
        """Return how many short Jobs were made to ask nodes from pods, as the events of the team's namespace say."""
        events = self.lab.items(f"/api/v1/namespaces/{self.team.namespace}/events")
        made = [item for item in events if item.get("reason") == "SuccessfulCreate"]
        return len({name for item in made if (name := item["involvedObject"]["name"]).startswith("muster-visit-")})

    def run(self, run_id: str = "*") -> tuple[Dict, pathlib.Path]:
        """Return the record and the folder of a run, of the only one where none is named."""
        (place,) = (self.folder / "state").glob(f"*/runs/{run_id}/run.json")
        return json.loads(place.read_text()), place.parent


def last_word(output: str) -> str:
    """Return the line of a play's output that says why it failed, its last line where none does."""
    lines = output.splitlines()
    errors = [line for line in lines if line.startswith("[ERROR]")]
    return (errors or lines or ["no output"])[-1].strip()[:300]


def command(*argv: str, **job: t.Any) -> Dict:
    """Return a job of two pods that needs no torch."""
    small = {"cpu": 0.1, "memory": "128Mi"}
    return {"name": "gang", "nodes": 2, "launcher": "command", "command": [*argv], "resources": small, **job}


def training(lab: KubeLab, folder: str, steps: int = 120, pace_s: float = 0.0, **job: t.Any) -> Dict:
    """Return a job of two pods that train by DDP over gloo, with checkpoints in a folder that all nodes share.

    :param folder: where below the shared folder.
    :param pace_s: seconds that a step takes at least.
    """
    words = {
        "--steps": steps,
        "--checkpoint-every": INTERVAL,
        "--batch-size": 8,
        "--step-time-min": pace_s,
        "--timeout": 60,
        "--data": "{run_dir}/data/text/LICENSE",
    }
    mounts = [
        {"name": "torch", "path": lab.torch, "host_path": lab.torch, "read_only": True},
        {"name": "checkpoints", "path": "/checkpoints", "host_path": plan.SHARED},
    ]
    return {
        "name": "char-lm",
        "nodes": 2,
        "code": {"ref": str(ROOT / "examples" / "char_lm")},
        "script": "train.py",
        "args": [str(word) for pair in words.items() for word in pair],
        "datasets": [{"name": "text", "path": str(ROOT / "LICENSE")}],
        # All pods are on this machine: threads that spin while they wait would take the processors from the other rank.
        "env": {"PYTHONPATH": lab.torch, "OMP_NUM_THREADS": "1"},
        "mounts": mounts,
        "checkpoints": {"path": f"/checkpoints/{folder}", "interval_steps": INTERVAL, "grace_s": 5},
        "resources": {"cpu": 0.5, "memory": "2Gi"},
        **job,
    }
