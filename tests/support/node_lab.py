# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nodes on this machine for tests: real requests, real supervisors and real processes, each node below one folder.

A node's connection is ``/bin/sh -c COMMAND`` with the request on standard input. HOME is unset and the umask is open,
as the worst connection would leave them, and no systemd is in PATH, so supervisors are detached ones everywhere.
Everything a node starts carries a variable of its lab, so that a test can prove what is left and end it.
"""

from __future__ import annotations

import compileall
import contextlib
import json
import os
import pathlib
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.job import parse_job
from ansible_collections.muster.training.plugins.module_utils._node import files, processes
from ansible_collections.muster.training.plugins.plugin_utils._hosts import agent_package, gang
from ansible_collections.muster.training.plugins.plugin_utils._hosts.node_client import NodeClient

FAKES = pathlib.Path(__file__).resolve().parents[1] / "fakes"
_VARIABLE = "MUSTER_TEST_LAB"
_TOOLS = ("sh", "sleep", "true", "false", "ip")
DEADLINE_S = 30.0


def eventually[T](look: t.Callable[[], T], what: str, within_s: float = DEADLINE_S) -> T:
    """Return the first true value of ``look``; a test that waits in vain fails and says for what."""
    end = time.monotonic() + within_s
    while True:
        value = look()
        if value:
            return value
        assert time.monotonic() < end, f"waited {within_s:.0f} s for {what}"
        time.sleep(0.01)


class NodeShell:
    """A connection to one node. ``sent`` counts the bytes of requests, ``umask`` is what the login left."""

    def __init__(self, env: t.Mapping[str, str], umask: str = "000") -> None:
        self.env = dict(env)
        self.umask = umask
        self.sent = 0

    def __call__(self, command: str, data: bytes) -> tuple[int, str, str]:
        self.sent += len(data)
        argv = ["/bin/sh", "-c", f"umask {self.umask}; {command}"]
        done = subprocess.run(argv, input=data, capture_output=True, env=self.env, check=False, cwd="/")
        return done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")


class NodeLab:
    """Nodes below ``root``. Call :meth:`close` at the end: it kills what a failed test left."""

    def __init__(self, root: pathlib.Path) -> None:
        self.root = root
        self.nodes = root / "nodes"
        tools = root / "bin"
        tools.mkdir()
        for name in _TOOLS:
            place = shutil.which(name) or shutil.which(name, path="/usr/sbin:/sbin:/usr/bin:/bin")
            if place:
                (tools / name).symlink_to(place)
        (tools / "python3").symlink_to(sys.executable)
        self.env = {"PATH": str(tools), _VARIABLE: str(root)}

    def remote(self, name: str, **changes: t.Any) -> NodeClient:
        """Return a node; ``changes`` are fields of Remote."""
        values = {"shell": NodeShell(self.env), "python": sys.executable, "state_root": str(self.nodes), **changes}
        return NodeClient(name, **values)

    def installed(self, name: str, **changes: t.Any) -> NodeClient:
        """Return a node that has the agent installed, copied from one that any lab of this session has compiled."""
        made = self.root.parent / f"agent-{agent_package.agent_version()}"
        if not made.exists():
            place = files.private_dir(made.with_suffix(f".{os.getpid()}"))
            package = files.private_dir(place / "muster_node")
            request = agent_package.install_request()
            for file, text in request["sources"].items():
                (package / file).write_text(text)
            (place / "run.py").write_text(request["entry"])
            compileall.compile_dir(package, quiet=2)
            place.rename(made)
        program = self.state(name) / "agent" / agent_package.agent_version()
        shutil.copytree(made, program)
        self.state(name).chmod(0o700)
        return self.remote(name, program=str(program), **changes)

    def state(self, name: str) -> pathlib.Path:
        """Return the state folder of a node."""
        return self.nodes / name

    def run(self, name: str, run_id: str) -> pathlib.Path:
        """Return the folder of a run on a node."""
        return self.state(name) / "runs" / run_id

    def events(self, name: str, run_id: str) -> list[dict[str, t.Any]]:
        """Return the events that a node has recorded."""
        return read_lines(self.run(name, run_id) / "events.jsonl")

    def spec(self, name: str, run_id: str, argv: t.Sequence[str], **changes: t.Any) -> dict[str, t.Any]:
        """Return the specification of an agent unit; ``changes`` are its fields, ``restart`` the job's section."""
        restart = changes.pop("restart", {})
        job = parse_job({"name": "x", "script": "/t.py", "restart": restart})
        values = {"argv": list(argv), "policy": "never", "generation": 1, "grace_s": 5, **changes}
        return gang.unit_spec(job, name, str(self.run(name, run_id)), run_id, values.pop("unit", "agent"), **values)

    def prepare(self, remote: NodeClient, run_id: str, **values: t.Any) -> dict[str, t.Any]:
        """Claim and prepare a run on a node."""
        claim = {"owner": "me", "controller": "here", "gpus": 0}
        return remote.ask("prepare", **{"run_id": run_id, "claim": claim, "program": remote.program, **values})

    def start(self, remote: NodeClient, run_id: str, argv: t.Sequence[str], **changes: t.Any) -> dict[str, t.Any]:
        """Start the agent of a prepared run."""
        spec = self.spec(remote.name, run_id, argv, **changes)
        return remote.ask("start", run_id=run_id, program=remote.program, spec=spec)

    def left(self) -> dict[int, str]:
        """Return the living processes of this lab, by /proc: pid -> command line."""
        found = {}
        for entry in os.listdir("/proc"):
            if entry.isdecimal() and int(entry) != os.getpid():
                pid = int(entry)
                if processes.environment_of(pid).get(_VARIABLE) == str(self.root) and processes.start_time(pid):
                    # It may end at any moment.
                    with contextlib.suppress(OSError):
                        found[pid] = pathlib.Path("/proc", entry, "cmdline").read_bytes().replace(b"\0", b" ").decode()
        return found

    def close(self) -> None:
        """Kill everything that is left of this lab and wait until it is gone."""
        end = time.monotonic() + DEADLINE_S
        while (left := list(self.left())) and time.monotonic() < end:
            processes.kill_all(left, signal.SIGKILL)
            time.sleep(0.01)


def read_lines(path: pathlib.Path) -> list[dict[str, t.Any]]:
    """Return the objects of a JSON-lines file that exists and has no torn line."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def fingerprint(root: pathlib.Path) -> dict[str, tuple[int, bytes]]:
    """Return mode and content of everything below ``root``: two equal ones mean that nothing was written."""
    found = {}
    for path in sorted(root.rglob("*")):
        content = os.readlink(path).encode() if path.is_symlink() else (path.read_bytes() if path.is_file() else b"")
        found[str(path.relative_to(root))] = (path.lstat().st_mode, content)
    return found


def unit_exit(run: pathlib.Path, unit: str = "agent") -> dict[str, t.Any]:
    """Wait for the end of a unit and return its exit.json."""
    value = eventually(lambda: files.read_json(run / "units" / unit / "exit.json"), f"the end of {unit}")
    return t.cast("dict[str, t.Any]", value)


def free_port(host: str = "127.0.0.1") -> int:
    """Return a port that nobody holds, below the range from which the kernel gives ports to other programs."""
    while True:
        number = random.randrange(10_000, 20_000)
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind((host, number))
            return number


@contextlib.contextmanager
def small_disk(folder: pathlib.Path, size: str = "2m", options: str = "") -> t.Iterator[pathlib.Path]:
    """Mount a small file system at ``folder``; the test is skipped where that is not allowed."""
    folder.mkdir()
    if os.geteuid() != 0:
        pytest.skip("only root may mount a small file system")
    tools = {name: shutil.which(name, path="/usr/bin:/bin:/usr/sbin:/sbin") or name for name in ("mount", "umount")}
    argv = [tools["mount"], "-t", "tmpfs", "-o", f"size={size}{options}", "tmpfs", str(folder)]
    if subprocess.run(argv, capture_output=True, check=False).returncode != 0:
        pytest.skip("a file system cannot be mounted here")
    try:
        yield folder
    finally:
        subprocess.run([tools["umount"], "--lazy", str(folder)], check=True)


def fill(folder: pathlib.Path) -> pathlib.Path:
    """Fill the disk below ``folder`` and return the file that takes the room."""
    place = folder / "filler"
    with contextlib.suppress(OSError), open(place, "wb", buffering=0) as handle:
        while True:
            handle.write(b"\0" * 4096)
    return place
