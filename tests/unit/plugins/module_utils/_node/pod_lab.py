# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pods as plain processes on loopback: the real program from a folder that looks like a mounted ConfigMap."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import subprocess
import sys
import typing as t
import uuid

from ansible_collections.muster.training.plugins.module_utils._model.pod_spec import PROGRAM_FILES, PodSpec
from ansible_collections.muster.training.plugins.module_utils._node import pod as pod_module
from ansible_collections.muster.training.plugins.module_utils._node.pod_log import MARK
from ansible_collections.muster.training.tests.support.node_lab import free_port

SOURCES = pathlib.Path(pod_module.__file__).parent


@dataclasses.dataclass(frozen=True)
class End:
    """How a pod ended: its exit code, the lines for people, and the marked ones."""

    code: int
    text: str
    marks: list[dict[str, t.Any]]

    def events(self, kind: str) -> list[dict[str, t.Any]]:
        return [mark["data"] for mark in self.marks if mark["stream"] == "events" and mark["data"]["kind"] == kind]

    @property
    def lines(self) -> list[str]:
        return [line for line in self.text.splitlines() if not line.startswith("muster:")]


class PodLab:
    """Starts the pods of one run."""

    def __init__(self, root: pathlib.Path) -> None:
        self.root = root
        # What is left of a run is killed by its name: labs of tests that run beside each other must not share it.
        self.run_id = f"x-{uuid.uuid4().hex[:8]}"
        self.port = free_port()
        self.started: list[subprocess.Popen[bytes]] = []
        mounted = root / "program" / "muster_node"
        hidden = mounted / "..2026_11_21"
        hidden.mkdir(parents=True)
        for name in PROGRAM_FILES:
            (hidden / name).write_bytes((SOURCES / name).read_bytes())
            (mounted / name).symlink_to(hidden / name)
        self.program = mounted / "pod.py"

    def run_dir(self, rank: int) -> pathlib.Path:
        return self.root / f"run{rank}"

    def spec(self, rank: int, argv: t.Sequence[str], **changes: t.Any) -> dict[str, t.Any]:
        values: dict[str, t.Any] = {
            "run_id": self.run_id,
            "attempt": 1,
            "nodes": 1,
            "port": self.port,
            "argv": tuple(argv),
            "env": {},
            "workdir": "{run_dir}",
            "checkpoint_dir": str(self.root / "checkpoints"),
            "coordinator": "localhost",
            "wait_s": 20,
            "grace_s": 5,
            "free_bytes": 1,
            **changes,
        }
        return {**json.loads(PodSpec(**values).to_json()), "run_dir": str(self.run_dir(rank))}

    def start(self, spec: t.Mapping[str, t.Any], rank: int = 0, **env: str) -> subprocess.Popen[bytes]:
        place = self.root / f"spec{len(self.started)}.json"
        place.write_text(json.dumps(spec))
        given = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.root),
            "MUSTER_NODE": f"n{rank}",
            "MUSTER_POD": f"x-node-0-{rank}-abcde",
            "MUSTER_POD_IP": f"127.0.0.{rank + 1}",
            "JOB_COMPLETION_INDEX": str(rank),
            **env,
        }
        argv = [sys.executable, "-I", "-S", "-u", str(self.program), str(place)]
        pipe = subprocess.PIPE
        process = subprocess.Popen(argv, env=given, stdout=pipe, stderr=subprocess.STDOUT, start_new_session=True)
        self.started.append(process)
        return process

    def run(self, spec: t.Mapping[str, t.Any], rank: int = 0, **env: str) -> End:
        return self.end(self.start(spec, rank, **env))

    def close(self) -> None:
        for process in self.started:
            # Asked first: it takes along what it started, as a container's end would.
            process.terminate()
        for process in self.started:
            process.wait(timeout=30)
            if process.stdout:
                process.stdout.close()

    @staticmethod
    def end(process: subprocess.Popen[bytes], within_s: float = 60) -> End:
        raw = process.communicate(timeout=within_s)[0].decode()
        # A line ends at "\n": the separator of the mark is one for str.splitlines too.
        lines = raw.split("\n")
        marks = [json.loads(line.removeprefix(MARK)) for line in lines if line.startswith(MARK)]
        return End(process.returncode, "\n".join(line for line in lines if not line.startswith(MARK)), marks)


def recorded(*argv: str) -> list[str]:
    """Return the command of a rank inside its recorder."""
    return [sys.executable, "-I", "-S", "{program}/muster_node/rank.py", "{run_dir}/events.jsonl", *argv]
