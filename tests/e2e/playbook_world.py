# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A world for one end-to-end test: the local inventory's two nodes with all their state below a temporary folder.

Everything is done by real ``ansible-playbook`` processes; a test only looks at their output, at files and at /proc.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import typing as t
import uuid

from ansible_collections.muster.training.tests.support.older_python import find_older

ROOT = pathlib.Path(__file__).parents[2]
INVENTORY = ROOT / "inventories" / "local" / "nodes.muster_local.yml"
NODES = ("node-1", "node-2")
LIMIT_S = 90.0
# Both nodes are this machine: threads of one rank that spin while they wait would take the processors from the other.
ONE_THREAD = {"OMP_NUM_THREADS": "1"}

# One rank that a test can see and end: it holds a lock as long as it lives, so that a second rank with its number
# is noticed, notes that it began, and ends when the file "finish" appears.
RANK = """
import fcntl, os, pathlib, sys, time
here = pathlib.Path(sys.argv[1]); rank = os.environ["RANK"]
lock = open(here / f"rank-{rank}.lock", "w")
try:
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
except OSError:
    (here / "duplicate").write_text(rank)
with open(here / "began", "a") as handle:
    handle.write(f"{rank} {os.environ['MUSTER_ATTEMPT']} {os.getpid()}\\n")
while not (here / "finish").exists():
    if sys.argv[2:] == ["talk"]:
        print("working", flush=True)
    time.sleep(0.05)
"""


@dataclasses.dataclass(frozen=True, slots=True)
class Result:
    """How a playbook ended: exit code (negative: the signal), all its output, and how long it took."""

    code: int
    output: str
    seconds: float

    @property
    def errors(self) -> list[str]:
        """The lines in which Ansible states an error; the ``fatal:`` line repeats them for one host."""
        return [line for line in self.output.splitlines() if line.startswith(("[ERROR]:", "ERROR:"))]

    @property
    def recap(self) -> dict[str, dict[str, int]]:
        """The counts of the PLAY RECAP by host."""
        lines = self.output.rpartition("PLAY RECAP")[2].splitlines()[1:]
        hosts = (line.partition(" : ") for line in lines if " : ok=" in line)
        return {
            host.strip(): {key: int(value) for key, _, value in (item.partition("=") for item in counts.split())}
            for host, _, counts in hosts
        }

    @property
    def changed(self) -> int:
        """How many tasks changed something, over all hosts."""
        return sum(counts["changed"] for counts in self.recap.values())


class Play:
    """A running ``ansible-playbook`` in a session of its own, its output in a file."""

    def __init__(self, argv: list[str], env: dict[str, str], log: pathlib.Path, cwd: pathlib.Path, umask: int) -> None:
        self.log = log
        self.began = time.monotonic()
        with log.open("wb") as handle:
            self.process = subprocess.Popen(
                argv,
                cwd=cwd,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=handle,
                stderr=handle,
                start_new_session=True,
                umask=umask,
            )

    @property
    def output(self) -> str:
        """What was printed so far."""
        return self.log.read_text(errors="replace")

    def wait(self, limit_s: float = LIMIT_S) -> Result:
        """Wait for the end; a playbook that does not end in time is killed and fails the test."""
        try:
            code = self.process.wait(limit_s)
        except subprocess.TimeoutExpired:
            self.kill(signal.SIGKILL)
            raise AssertionError(
                f"ansible-playbook did not end within {limit_s:.0f} s:\n{self.output[-3000:]}"
            ) from None
        return Result(code, self.output, time.monotonic() - self.began)

    def signal(self, number: int) -> None:
        """Send a signal to the playbook's process group, as a terminal or a job runner does."""
        try:
            os.killpg(self.process.pid, number)
        except ProcessLookupError:
            return

    def kill(self, number: int) -> None:
        """Send a signal to the playbook and to its workers, which Ansible puts into sessions of their own."""
        for pid in [*descendants(self.process.pid), self.process.pid]:
            try:
                os.killpg(os.getpgid(pid), number) if os.getpgid(pid) == pid else os.kill(pid, number)
            except ProcessLookupError:
                continue


class World:
    """Two loopback nodes, a controller's state home, and a run id that no other test has."""

    def __init__(self, root: pathlib.Path) -> None:
        self.root = root
        self.state = root / "state"
        self.nodes = root / "nodes"
        self.home = root / "home"
        self.run_id = f"e2e-{uuid.uuid4().hex[:10]}"
        self.plays: list[Play] = []
        self.inventory = INVENTORY
        # The path of a control socket may have no more than 108 bytes, which a folder of tests may use up.
        self.sockets = tempfile.TemporaryDirectory(prefix="cp-")
        # What ansible-playbook is run by, such as ``ip netns exec``.
        self.prefix: tuple[str, ...] = ()
        self.program = os.fspath(pathlib.Path(sys.executable).parent / "ansible-playbook")
        self.home.mkdir()
        (root / "ansible.cfg").write_text("[defaults]\n")

    def job(self, **values: t.Any) -> dict[str, t.Any]:
        """Return a job that needs no torch: one command a node that ends at once; ``values`` replace its keys."""
        return {"name": "e2e", "nodes": 2, "launcher": "command", "command": ["true"], **values}

    def rank_job(self, *, talk: bool = False, **values: t.Any) -> dict[str, t.Any]:
        """Return a job whose ranks live until :meth:`finish`; they write no output unless they ``talk``."""
        argv = [sys.executable, "-I", "-S", "-c", RANK, str(self.root), *(["talk"] if talk else [])]
        return self.job(command=argv, **{"checkpoints": {"grace_s": 1}, **values})

    def finish(self) -> None:
        """Let the ranks of :meth:`rank_job` end well."""
        (self.root / "finish").touch()

    def values(self, **extra: t.Any) -> dict[str, t.Any]:
        """Return the extra variables of a playbook; None removes one."""
        base = {
            "muster_state": {"path": str(self.state)},
            "muster_node_state": str(self.nodes),
            "muster_training_python": sys.executable,
            "muster_run_id": self.run_id,
            **extra,
        }
        return {key: value for key, value in base.items() if value is not None}

    def environment(self, changes: t.Mapping[str, str | None] | None = None) -> dict[str, str]:
        """Return an environment without anybody's settings of Ansible or Python; None in ``changes`` removes."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("ANSIBLE_", "PYTHON", "MUSTER_", "XDG_"))}
        ours: dict[str, str | None] = {
            "HOME": str(self.home),
            "ANSIBLE_CONFIG": str(self.root / "ansible.cfg"),
            "ANSIBLE_HOME": str(self.root / "ansible"),
            "ANSIBLE_NOCOLOR": "1",
            "ANSIBLE_SSH_CONTROL_PATH_DIR": self.sockets.name,
            "LC_ALL": "C.UTF-8",
            **(changes or {}),
        }
        merged: dict[str, str | None] = {**kept, **ours}
        return {key: value for key, value in merged.items() if value is not None}

    def start(
        self,
        playbook: str = "train",
        job: t.Any = None,
        *,
        hosts: t.Mapping[str, t.Mapping[str, t.Any]] | None = None,
        args: t.Sequence[str] = (),
        env: t.Mapping[str, str | None] | None = None,
        umask: int = 0o022,
        **extra: t.Any,
    ) -> Play:
        """Start a playbook of the collection. ``hosts`` are variables of single nodes, ``extra`` extra variables."""
        number = len(self.plays)
        argv = [*self.prefix, self.program, "-i", os.fspath(self.inventory)]
        if merged := self._merge(hosts or {}):
            overlay = self.root / f"hosts-{number}.json"
            overlay.write_text(json.dumps({"all": {"hosts": merged}}))
            argv += ["-i", os.fspath(overlay)]
        values = self.values(**extra) if job is None else self.values(muster_job=job, **extra)
        argv += [f"muster.training.{playbook}", "-e", json.dumps(values), *args]
        play = Play(argv, self.environment(env), self.root / f"play-{number}.log", self.root, umask)
        self.plays.append(play)
        return play

    def _merge(self, hosts: t.Mapping[str, t.Mapping[str, t.Any]]) -> dict[str, dict[str, t.Any]]:
        """Return variables of hosts: the second node of the local inventory has the oldest Python that it may have."""
        older = find_older() if self.inventory == INVENTORY else None
        first = {NODES[1]: {"ansible_python_interpreter": older}} if older else {}
        return {name: {**first.get(name, {}), **hosts.get(name, {})} for name in {**first, **hosts}}

    def play(self, playbook: str = "train", job: t.Any = None, limit_s: float = LIMIT_S, **options: t.Any) -> Result:
        """Run a playbook to its end."""
        return self.start(playbook, job, **options).wait(limit_s)

    def run_folder(self, run_id: str | None = None, state: pathlib.Path | None = None) -> pathlib.Path:
        """Return the run's folder on the controller."""
        return (state or self.state) / "local" / "runs" / (run_id or self.run_id)

    def node_folder(self, node: str, run_id: str | None = None) -> pathlib.Path:
        """Return the run's folder on a node."""
        return self.nodes / node / "runs" / (run_id or self.run_id)

    def record(self, run_id: str | None = None, state: pathlib.Path | None = None) -> dict[str, t.Any]:
        """Return run.json."""
        return t.cast("dict[str, t.Any]", json.loads((self.run_folder(run_id, state) / "run.json").read_text()))

    def events(self) -> list[dict[str, t.Any]]:
        """Return the events that the controller kept."""
        return [json.loads(line) for line in (self.run_folder() / "events.jsonl").read_text().splitlines()]

    def metrics(self) -> list[dict[str, t.Any]]:
        """Return the metrics that the controller kept."""
        return [json.loads(line) for line in (self.run_folder() / "metrics.jsonl").read_text().splitlines()]

    def ranks(self) -> dict[int, int]:
        """Return rank -> pid of the living ranks of :meth:`rank_job`, as they noted themselves."""
        place = self.root / "began"
        lines = place.read_text().splitlines() if place.exists() else []
        found = {int(line.split()[0]): int(line.split()[2]) for line in lines}
        return {rank: pid for rank, pid in found.items() if pid in self.processes()}

    def processes(self) -> dict[int, str]:
        """Return pid -> command line of what lives of this world's runs: ranks, agents, stores and supervisors.

        A process of a run carries MUSTER_UNIT in its environment; a supervisor names its unit's folder.
        """
        return {
            pid: command.replace(b"\0", b" ").decode(errors="replace")[:300]
            for pid, command, environment in everything()
            if b"\0supervise\0" + os.fsencode(self.nodes) in command or self._marked(environment)
        }

    def _marked(self, environment: bytes) -> bool:
        marks = [item for item in environment.split(b"\0") if item.startswith(b"MUSTER_UNIT=")]
        return any(name in mark for mark in marks for name in (self.run_id.encode(), os.fsencode(self.root)))

    def supervisors(self, node: str) -> list[int]:
        """Return the supervisors of the run's units on a node."""
        folder = str(self.node_folder(node))
        return [pid for pid, command in self.processes().items() if f"supervise {folder}/units" in command]

    def left_behind(self) -> list[str]:
        """Return what a refused run must not leave: run folders on the controller and on nodes.

        The installed agent and files by checksum may stay on a node: the next run uses them again.
        """
        found = [*self.root.glob("state*/*/runs/*"), *self.nodes.glob("*/runs/*")]
        return sorted(str(path.relative_to(self.root)) for path in found)

    def digest(self) -> dict[str, str]:
        """Return path -> type, mode and checksum of all that the controller and the nodes hold."""
        found = {}
        for top in (self.state, self.nodes, self.home):
            for path in sorted(top.rglob("*")):
                if not path.is_symlink() and path.is_file():
                    text = hashlib.sha256(path.read_bytes()).hexdigest()
                else:
                    text = "link" if path.is_symlink() else "folder"
                found[str(path.relative_to(self.root))] = f"{text} {path.lstat().st_mode:o}"
        return found

    def close(self) -> None:
        """End whatever of this world still lives; only processes that name its folder or its run."""
        place = os.fsencode(self.root)
        for _ in range(3):
            for pid, command, environment in everything():
                if place in command or place in environment or self._marked(environment):
                    try:
                        os.kill(pid, signal.SIGKILL)
                    except ProcessLookupError:
                        continue
        for play in self.plays:
            play.process.wait()
        self.sockets.cleanup()


def everything() -> t.Iterator[tuple[int, bytes, bytes]]:
    """Yield (pid, command line, environment) of all processes that we may look at, without this one and its parents."""
    own = set(ancestors(os.getpid()))
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) in own:
            continue
        try:
            place = pathlib.Path("/proc", entry)
            command = (place / "cmdline").read_bytes()
            environment = (place / "environ").read_bytes()
        except OSError:
            continue
        # A zombie has neither; it is gone for all purposes here.
        if command:
            yield int(entry), command, environment


def ancestors(pid: int) -> t.Iterator[int]:
    """Yield ``pid`` and its parents."""
    while pid > 0:
        yield pid
        pid = _parent(pid)


def descendants(pid: int) -> list[int]:
    """Return the children of ``pid`` and theirs."""
    parents = {int(entry): _parent(int(entry)) for entry in os.listdir("/proc") if entry.isdigit()}
    found: list[int] = []
    queue = [pid]
    while queue:
        parent = queue.pop()
        below = [child for child, owner in parents.items() if owner == parent]
        found += below
        queue += below
    return found


def _parent(pid: int) -> int:
    try:
        text = pathlib.Path("/proc", str(pid), "stat").read_text()
    except OSError:
        return 0
    return int(text[text.rindex(")") + 2 :].split()[1])


def until[T](true: t.Callable[[], T], what: str, within_s: float = 30.0) -> T:
    """Return the first true value of ``true``; a test fails when there is none in time."""
    end = time.monotonic() + within_s
    while not (value := true()):
        if time.monotonic() > end:
            raise AssertionError(f"waited {within_s:.0f} s for {what}")
        time.sleep(0.01)
    return value


def assert_refused(world: World, result: Result, *words: str, within_s: float = 120.0) -> str:
    """Assert one clear error with all ``words``, nothing started, nothing left behind; return the error.

    ``within_s`` only tells a refusal from a wait for something that never comes, on a busy machine too.
    """
    assert result.code != 0, result.output
    assert "Traceback" not in result.output and "internal error" not in result.output, result.output
    assert len(result.errors) == 1, result.output
    error = result.errors[0]
    assert not [word for word in words if word not in error], f"{words} are not all in: {error}"
    assert world.processes() == {}
    assert world.left_behind() == []
    assert result.seconds < within_s
    return error


def script(place: pathlib.Path, text: str) -> str:
    """Write an executable file and return its path."""
    place.write_text(text)
    place.chmod(0o755)
    return str(place)


def own_homes(world: World) -> dict[str, dict[str, t.Any]]:
    """Return variables by which each node has a home, and with it a folder ~/ckpt, of its own."""
    found = {}
    for node in NODES:
        home = world.root / f"home-{node}"
        home.mkdir()
        text = f'#!/bin/sh\nHOME={home} exec {sys.executable} "$@"\n'
        found[node] = {"ansible_python_interpreter": script(world.root / f"python-{node}", text)}
    return found
