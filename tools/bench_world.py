# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The world of the hosts backend's figures: loopback nodes, the product's runner, and ways to look at a run."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import subprocess
import sys
import time
import typing as t

from ansible_collections.muster.training.plugins.plugin_utils._hosts.node_client import NodeClient
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job import run as training_job

ROOT = pathlib.Path(__file__).parents[1]
NODES = ("node-1", "node-2")
STEPS_FOREVER = 1_000_000
INTERVAL = 10
WAIT_S = 120.0
# The two "nodes" share this machine's cores: threads of two ranks that wait for each other there would be timed too.
# What is compared with the product gets the same.
THREADS = {"OMP_NUM_THREADS": "1"}
RESTARTS = {"max_crashes": 100, "max_lost_nodes": 100}


@dataclasses.dataclass(frozen=True)
class Line:
    """One printed figure; ``ok`` None means that it has no gate."""

    what: str
    value: str
    gate: str
    ok: bool | None


def judge_when_quiet(lines: t.Iterable[Line], is_quiet: bool) -> t.Iterator[Line]:
    """Yield wall-clock figures with their verdicts, or without where others used the machine, each once it is known."""
    open_gate = "not judged: other processes use this machine"
    for line in lines:
        yield line if is_quiet or line.ok is None else dataclasses.replace(line, gate=open_gate, ok=None)


class Quiet:
    """A progress sink that keeps quiet."""

    def say(self, line: str) -> None:
        """Drop a line."""

    def show(self, values: t.Mapping[str, t.Any]) -> None:
        """Drop the values."""


class World:
    """Loopback nodes below a temporary folder; with ``gpus`` the jobs train on that many GPUs of each."""

    def __init__(self, root: pathlib.Path, python: str, nodes: tuple[str, ...] = NODES, gpus: int = 0) -> None:
        self.root, self.python, self.nodes, self.gpus = root, python, nodes, gpus

    def job(self, name: str, **values: t.Any) -> dict[str, t.Any]:
        """Return a char_lm job that would train for ever; ``values`` replace its keys."""
        return {
            "name": name,
            "nodes": len(self.nodes),
            "gpus_per_node": self.gpus,
            "python": self.python,
            "code": {"from": "path", "ref": str(ROOT / "examples" / "char_lm")},
            "script": "train.py",
            "args": ["--data", str(ROOT / "LICENSE"), "--steps", STEPS_FOREVER, "--checkpoint-every", INTERVAL],
            "checkpoints": {"interval_steps": INTERVAL, "path": str(self.root / "checkpoints"), "grace_s": 5},
            "restart": RESTARTS,
            "env": THREADS,
            **values,
        }

    def remotes(self, names: t.Sequence[str]) -> list[NodeClient]:
        """Return remotes that run requests as local processes, as the local connection does."""
        return [NodeClient(name, shell, sys.executable, str(self.root / "nodes")) for name in names]

    def request(self, job: dict[str, t.Any], run_id: str, **options: t.Any) -> training_job.RunRequest:
        """Return a request as the action plugin makes it."""
        values = {"job": job, "run_id": run_id, "state": "present", "cluster": "bench", "wait": True, **options}
        return training_job.RunRequest(
            options={"state_home": {"path": str(self.root / "state")}, **values},
            hosts=self.nodes,
            hostvars={name: {"ansible_connection": "local", "muster_address": address(name)} for name in self.nodes},
            base=ROOT,
            check=False,
            connect=self.remotes,
            progress=Quiet(),
        )

    def run_dir(self, node: str, run_id: str) -> pathlib.Path:
        """Return the run's folder on a node."""
        return self.root / "nodes" / node / "runs" / run_id

    def metrics(self, run_id: str) -> list[dict[str, t.Any]]:
        """Return all metrics of a run so far, in time order, straight from the nodes."""
        lines: list[dict[str, t.Any]] = []
        for node in self.nodes:
            place = self.run_dir(node, run_id) / "metrics.jsonl"
            if place.exists():
                lines += [json.loads(raw) for raw in place.read_text().splitlines() if raw.endswith("}")]
        return sorted(lines, key=lambda line: float(line["at"]))


def address(node: str) -> str:
    """Return the loopback address of a node."""
    return f"127.0.0.{node.rsplit('-', 1)[1]}"


def shell(command: str, data: bytes) -> tuple[int, str, str]:
    """Run a request as a local process."""
    done = subprocess.run(["/bin/sh", "-c", command], input=data, capture_output=True, check=False)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def until(true: t.Callable[[], t.Any], what: str, within_s: float = WAIT_S) -> t.Any:
    """Return the first true value of ``true``, looking often; give up with ``what``."""
    end = time.monotonic() + within_s
    while time.monotonic() < end:
        value = true()
        if value:
            return value
        time.sleep(0.01)
    raise SystemExit(f"bench: waited {within_s:.0f} s for {what}")


def first_step(lines: t.Sequence[t.Mapping[str, t.Any]], after: float = 0.0) -> float | None:
    """Return when the first step after ``after`` was made."""
    return next((float(line["at"]) for line in lines if "step" in line and float(line["at"]) > after), None)


def read(place: pathlib.Path) -> list[dict[str, t.Any]]:
    """Return the complete JSON lines of a file, none when it is not there."""
    if not place.exists():
        return []
    return [json.loads(raw) for raw in place.read_text().splitlines() if raw.endswith("}")]


def playbook(world: World, name: str, run_id: str) -> subprocess.Popen[bytes]:
    """Start a playbook on the local inventory, as a user would."""
    values = {
        "muster_run_id": run_id,
        "muster_state": {"path": str(world.root / "state")},
        "muster_cluster": "bench",
        "muster_node_state": str(world.root / "nodes"),
        "muster_job": world.job("bench"),
    }
    program = str(pathlib.Path(sys.executable).parent / "ansible-playbook")
    inventory = ROOT / "inventories" / "local" / "nodes.muster_local.yml"
    argv = [program, "-i", str(inventory), name, "-e", json.dumps(values)]
    return subprocess.Popen(argv, cwd=world.root, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
