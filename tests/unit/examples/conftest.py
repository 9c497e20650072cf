# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Starts the examples for real, with the interpreter that has torch."""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import random
import resource
import signal
import socket
import subprocess
import time
import typing as t
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
DEADLINE_S = 180.0


@dataclasses.dataclass
class Process:
    """A started rank or torchrun. ``output`` is complete after :meth:`finish`."""

    popen: subprocess.Popen[str]
    output: str = ""

    def finish(self) -> int:
        """Wait for the end and return the exit code."""
        self.output, _ = self.popen.communicate(timeout=DEADLINE_S)
        return self.popen.returncode

    def workers(self) -> dict[int, int]:
        """Return the process id of each rank that a torchrun started."""
        found = {}
        for pid in descendants(self.popen.pid):
            environment = dict(entry.partition("=")[::2] for entry in environ_of(pid))
            if "RANK" in environment:
                found[int(environment["RANK"])] = pid
        return found


def environ_of(pid: int) -> list[str]:
    """Return the environment of a process, empty if it has gone."""
    try:
        return Path(f"/proc/{pid}/environ").read_text().split("\0")
    except OSError:
        return []


def descendants(pid: int) -> list[int]:
    """Return the living descendants of a process; torchrun's workers leave its process group."""
    try:
        children = [int(child) for task in Path(f"/proc/{pid}/task").iterdir() for child in read_children(task)]
    except OSError:
        return []
    return children + [deeper for child in children for deeper in descendants(child)]


def read_children(task: Path) -> list[str]:
    """Return the process ids of a thread's children."""
    try:
        return (task / "children").read_text().split()
    except OSError:
        return []


def free_port() -> int:
    """Return a port of the loopback that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Example:
    """One example with a home of its own for checkpoints and metrics."""

    def __init__(self, python: str, name: str, home: Path, started: list[Process]) -> None:
        self.script = EXAMPLES / name / "train.py"
        self.checkpoints = home / "checkpoints"
        self.metrics = home / "metrics.jsonl"
        self._python = python
        self._text = home / "text"
        self._started = started
        words = random.Random(5)
        self._text.write_text(" ".join("".join(words.choices("abcdefgh", k=4)) for _ in range(400)))

    def torchrun(self, ranks: int, *options: str, restarts: int = 0) -> Process:
        """Start torchrun with ``ranks`` ranks on this machine."""
        endpoint = f"--rdzv-endpoint=127.0.0.1:{free_port()}"
        launcher = ["-m", "torch.distributed.run", "--nnodes=1", f"--nproc-per-node={ranks}", "--rdzv-backend=c10d"]
        return self._start([*launcher, endpoint, "--monitor-interval=0.1", f"--max-restarts={restarts}"], options, {})

    def alone(self, *options: str, **variables: str) -> Process:
        """Start the script by itself."""
        return self._start([], options, variables)

    def ranks(self, *options: str, each: t.Sequence[dict[str, str]], limit_bytes: int | None = None) -> list[Process]:
        """Start one rank for each of ``each``, with the variables that torchrun would set on one-rank nodes."""
        port = str(free_port())
        common = {"WORLD_SIZE": str(len(each)), "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        return [
            self._start([], options, {**common, "RANK": str(rank), **own}, limit_bytes) for rank, own in enumerate(each)
        ]

    def _start(
        self, launcher: list[str], options: t.Sequence[str], variables: dict[str, str], limit_bytes: int | None = None
    ) -> Process:
        environment = {
            "PATH": os.environ["PATH"],
            "OMP_NUM_THREADS": "1",
            "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
            "GLOO_SOCKET_IFNAME": "lo",
            "MUSTER_CHECKPOINT_DIR": str(self.checkpoints),
            "MUSTER_METRICS_FILE": str(self.metrics),
            "PYTHONDONTWRITEBYTECODE": "1",
            **variables,
        }
        command = [self._python, *launcher, str(self.script), f"--data={self._text}", *options]

        def limit() -> None:
            if limit_bytes is not None:
                resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, limit_bytes))

        popen = subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, preexec_fn=limit
        )
        self._started.append(Process(popen))
        return self._started[-1]

    def lines(self, key: str) -> list[dict[str, t.Any]]:
        """Return the metrics lines that have ``key``."""
        content = self.metrics.read_text() if self.metrics.exists() else ""
        records = [json.loads(line) for line in content.splitlines(keepends=True) if line.endswith("\n")]
        return [record for record in records if key in record]

    def losses(self) -> dict[int, float]:
        """Return the last reported loss of each step."""
        return {record["step"]: record["loss"] for record in self.lines("step")}

    def wait_for_step(self, step: int, process: Process) -> None:
        """Wait until the metrics file has ``step``."""
        deadline = time.monotonic() + DEADLINE_S
        while step not in self.losses():
            assert process.popen.poll() is None, process.popen.communicate()[0]
            assert time.monotonic() < deadline
            time.sleep(0.02)


@pytest.fixture(scope="session")
def torch_python() -> str:
    """Return the interpreter with torch; without the variable the tests that need it are skipped."""
    python = os.environ.get("MUSTER_TORCH_PYTHON")
    if not python:
        pytest.skip("MUSTER_TORCH_PYTHON does not name an interpreter with torch")
    return python


@pytest.fixture(scope="module")
def start_example(
    torch_python: str, tmp_path_factory: pytest.TempPathFactory
) -> t.Iterator[t.Callable[[str], Example]]:
    """Return a maker of examples, each with a home of its own; whatever still runs at the end is killed."""
    started: list[Process] = []
    numbers = itertools.count(1)
    yield lambda name: Example(torch_python, name, tmp_path_factory.mktemp(f"{name}{next(numbers)}"), started)
    for process in started:
        if process.popen.poll() is None:
            for pid in [*descendants(process.popen.pid), process.popen.pid]:
                os.kill(pid, signal.SIGKILL)
            process.popen.wait()
