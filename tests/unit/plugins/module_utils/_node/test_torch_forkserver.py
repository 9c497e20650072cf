# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ranks as copies of a warm process: a program cannot tell it from ``python -u FILE``, and neither can the agent."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._node import rank as rank_module
from ansible_collections.muster.training.plugins.module_utils._node import torch_forkserver
from ansible_collections.muster.training.tests.support.node_lab import eventually, read_lines

NODE = pathlib.Path(rank_module.__file__).parent

# An agent: opens a template, starts one rank with it, waits, and says what it saw. It is its own process because the
# template is a copy of its process.
AGENT = """
import json, os, signal, subprocess, sys, time
sys.path.insert(0, {package!r})
from muster_node import rank, torch_forkserver
del sys.path[0]
import random
request = json.loads(sys.argv[1])
template = torch_forkserver.open_template(sys.orig_argv[0], rank.main)
out, err = open(request["out"], "wb"), open(request["err"], "wb")
process = template.start(request["args"], {{**os.environ, **request["env"]}}, out.fileno(), err.fileno())
if process is None:
    print(json.dumps({{"started": False}}))
    sys.exit(0)
seen = {{"started": True, "parent": open(f"/proc/{{process.pid}}/stat").read().rpartition(")")[2].split()[1]}}
seen["own"], seen["session"], seen["pid"] = os.getpid(), os.getsid(process.pid), process.pid
if request["signal"]:
    # Once the program has begun.
    while not os.path.getsize(request["out"]):
        try:
            process.wait(0.05)
        except subprocess.TimeoutExpired:
            seen["late"] = True
    os.killpg(process.pid, request["signal"])
print(json.dumps({{**seen, "code": process.wait(40)}}))
"""


@dataclasses.dataclass
class Agent:
    """Runs one program as a warm rank and the same program by Python itself."""

    folder: pathlib.Path

    def package(self) -> str:
        # On nodes the programs live in a package of this name.
        place = self.folder / "agent"
        place.mkdir(exist_ok=True)
        if not (place / "muster_node").exists():
            (place / "muster_node").symlink_to(NODE)
        return str(place)

    def rank(self, command: list[str], **values: t.Any) -> dict[str, t.Any]:
        recorder = f"{self.package()}/muster_node/rank.py"
        request = {
            "args": [sys.executable, "-I", "-S", recorder, str(self.folder / "events.jsonl"), *command],
            "env": {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1"},
            "out": str(self.folder / "out"),
            "err": str(self.folder / "err"),
            "signal": 0,
            **values,
        }
        program = AGENT.format(package=self.package())
        argv = [sys.executable, "-c", program, json.dumps(request)]
        # An agent whose own output is buffered.
        env = {key: value for key, value in os.environ.items() if key != "PYTHONUNBUFFERED"}
        done = subprocess.run(argv, capture_output=True, text=True, cwd=self.folder, env=env, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        return t.cast("dict[str, t.Any]", json.loads(done.stdout))

    def texts(self) -> tuple[str, str]:
        return (self.folder / "out").read_text(), (self.folder / "err").read_text()

    @property
    def events(self) -> list[dict[str, t.Any]]:
        return read_lines(self.folder / "events.jsonl")


@pytest.fixture
def agent(tmp_path: pathlib.Path) -> Agent:
    return Agent(tmp_path)


PROGRAMS = {
    "says who it is": "import sys, os\nprint(__name__, __file__, sys.argv, sys.path[0], __spec__, os.getcwd())",
    "ends well": "print('done')",
    "ends with a number": "import sys\nsys.exit(7)",
    "ends with a text": "import sys\nsys.exit('no data')",
    "ends with nothing": "import sys\nsys.exit(None)",
    "ends with false": "import sys\nsys.exit(False)",
    "raises": "def inner():\n    raise ValueError('torn')\n\ninner()",
    "raises from another": "try:\n    1 / 0\nexcept ZeroDivisionError as exc:\n    raise KeyError('x') from exc",
    "is no Python": "def broken(:\n    pass",
    "has an exit function": "import atexit\natexit.register(print, 'last words')\nprint('first')",
    "has a thread that is no daemon": (
        "import threading, time\nthreading.Thread(target=lambda: (time.sleep(0.3), print('thread'))).start()\nprint('main')"
    ),
    "keeps its classes": (
        "import pickle, sys\nclass Point:\n    x = 3\nassert pickle.loads(pickle.dumps(Point())).x == 3\n"
        "assert sys.modules['__main__'].Point is Point\nprint(pickle.dumps(Point()))"
    ),
    "shows its source": "import inspect\ndef f():\n    return 1\nprint(inspect.getsource(f))",
    "starts processes anew": (
        "import multiprocessing as mp\ndef work(n):\n    return n * n\n"
        "if __name__ == '__main__':\n    with mp.get_context('spawn').Pool(1) as pool:\n        print(pool.map(work, [2]))"
    ),
    "forks": (
        "import multiprocessing as mp\ndef work(n):\n    return n * n\n"
        "if __name__ == '__main__':\n    with mp.get_context('fork').Pool(1) as pool:\n        print(pool.map(work, [3]))"
    ),
    "has neighbours": "import neighbour, rank\nprint(neighbour.NAME, rank.NAME, neighbour.__file__)",
    "kills itself": "import os, signal\nprint('now', flush=True)\nos.kill(os.getpid(), signal.SIGKILL)",
    "is interrupted": "raise KeyboardInterrupt",
    "writes at once": "import os, sys\nprint('a'); print('b', file=sys.stderr)\nsys.stdout.buffer.write(b'c')\nos._exit(0)",
    "reads nothing": "import sys\nprint(repr(sys.stdin.read()))",
    "has its environment": "import os\nprint(os.environ['RANK'], 'MUSTER_SECRETS_FILE' in os.environ)",
    "starts a program": "import subprocess\nsubprocess.run(['sh', '-c', 'echo $RANK; exit 3'])",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_cannot_tell_the_difference(agent: Agent, name: str) -> None:
    file = agent.folder / "code" / "train.py"
    file.parent.mkdir()
    file.write_text(PROGRAMS[name] + "\n")
    (file.parent / "neighbour.py").write_text("NAME = 'neighbour'\n")
    (file.parent / "rank.py").write_text("NAME = 'the user has a rank.py too'\n")
    _same(agent, [str(file), "--steps", "3"])


@pytest.mark.parametrize(
    "text",
    [
        "import sys\nfrom . import part\nprint(__name__, __package__, part.NAME, sys.argv[1:])",
        "import sys\nsys.exit(5)",
        "raise ValueError('torn')",
    ],
)
def test_a_module_cannot_tell_the_difference(agent: Agent, text: str) -> None:
    package = agent.folder / "job"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "part.py").write_text("NAME = 'part'\n")
    (package / "train.py").write_text(text + "\n")
    _same(agent, ["-m", "job.train", "--steps", "3"])


def _same(agent: Agent, arguments: list[str]) -> None:
    env = {**os.environ, "RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1"}
    command = [sys.executable, "-u", *arguments]
    ordinary = subprocess.run(
        [sys.executable, "-I", "-S", str(NODE / "rank.py"), os.devnull, *command],
        capture_output=True,
        text=True,
        env=env,
        cwd=agent.folder,
        stdin=subprocess.DEVNULL,
        timeout=60,
        check=False,
    )
    seen = agent.rank(command)
    out, err = agent.texts()
    assert seen["code"] == ordinary.returncode
    assert out == ordinary.stdout
    assert _frames(err) == _frames(ordinary.stderr)


def _frames(text: str) -> str:
    """Return an error text without runpy's own frames, which are Python's business."""
    return re.sub(r'  File "<frozen runpy>".*\n', "", text)


def test_a_rank_is_the_agents_child_in_a_session_of_its_own_and_is_recorded(agent: Agent) -> None:
    file = agent.folder / "train.py"
    file.write_text(
        "import os, sys\nprint(os.getpid(), os.getppid())\nprint(open('/proc/self/cmdline').read())\nsys.exit(4)"
    )
    seen = agent.rank([sys.executable, "-u", str(file), "--steps", "3"])
    assert (int(seen["parent"]), seen["session"], seen["code"]) == (seen["own"], seen["pid"], 4)
    identity, title = agent.texts()[0].splitlines()[:2]
    pid, parent = identity.split()
    assert int(parent) == seen["pid"] and title.rstrip("\0").split("\0")[:3] == [sys.executable, "-u", str(file)]
    started, ended = agent.events
    assert (started["kind"], started["rank"], started["world_size"], started["pid"]) == (
        "worker_started",
        3,
        4,
        int(pid),
    )
    assert (ended["kind"], ended["exit_code"]) == ("worker_exit", 4)


def test_a_rank_saves_when_the_agent_asks_it_to_end(agent: Agent) -> None:
    file = agent.folder / "train.py"
    file.write_text(
        "import signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: (print('saved'), sys.exit(143)))\n"
        "print('training')\ntime.sleep(60)"
    )
    seen = agent.rank([sys.executable, "-u", str(file)], signal=int(signal.SIGTERM))
    assert seen["late"] is True and seen["code"] == 143
    assert agent.texts()[0] == "training\nsaved\n"


def test_a_killed_session_leaves_nobody(agent: Agent) -> None:
    file = agent.folder / "train.py"
    file.write_text("import os, time\nprint(os.getpid())\ntime.sleep(60)")
    seen = agent.rank([sys.executable, "-u", str(file)], signal=int(signal.SIGKILL))
    assert seen["code"] == -signal.SIGKILL
    child = int(agent.texts()[0])
    eventually(lambda: not pathlib.Path(f"/proc/{child}/cmdline").exists(), "the end of the program")


@pytest.mark.parametrize(
    ("library", "draw"),
    [
        ("import random", "random.random()"),
        pytest.param("import numpy", "numpy.random.rand()", marks=pytest.mark.torch),
        pytest.param("import torch", "torch.rand(1).item()", marks=pytest.mark.torch),
    ],
)
def test_two_ranks_of_one_template_draw_other_random_numbers(
    tmp_path: pathlib.Path, library: str, draw: str, request: pytest.FixtureRequest
) -> None:
    python = sys.executable
    if "torch" in request.node.keywords:
        python = os.environ.get("MUSTER_TORCH_PYTHON", "") or pytest.skip("MUSTER_TORCH_PYTHON names no interpreter")
    program = f"""
import sys, os
sys.path.insert(0, {Agent(tmp_path).package()!r})
from muster_node import torch_forkserver
{library}
def record(arguments, become):
    pid = os.fork()
    if pid == 0:
        become(arguments[2:])
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
template = torch_forkserver.open_template(sys.orig_argv[0], record)
recorder = "/x/muster_node/rank.py"
for _ in range(2):
    args = [sys.orig_argv[0], "-I", "-S", recorder, "/x/e", sys.orig_argv[0], "-u", {str(tmp_path / "draw.py")!r}]
    assert template.start(args, dict(os.environ), None, None).wait(60) == 0
"""
    (tmp_path / "draw.py").write_text(f"{library}\nprint({draw})")
    done = subprocess.run([python, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert len(set(done.stdout.split())) == 2


@pytest.mark.parametrize(
    "command",
    [
        ["/usr/bin/env", "-u", "train.py"],
        [sys.executable, "train.py"],
        [sys.executable, "-u", "missing.py"],
        [sys.executable, "-u", "folder"],
        [sys.executable, "-u", "-m"],
        ["sh", "-c", "true"],
    ],
)
def test_anything_else_is_started_the_ordinary_way(agent: Agent, command: list[str]) -> None:
    (agent.folder / "train.py").touch()
    (agent.folder / "folder").mkdir()
    assert agent.rank(command) == {"started": False}
    assert agent.events == []


def test_only_the_recorder_of_ranks_is_started_warm(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "train.py"
    file.touch()
    command = [sys.executable, "-u", str(file)]
    recorder = [sys.executable, "-I", "-S", "/x/muster_node/rank.py", "/x/events.jsonl"]
    assert torch_forkserver.suits([*recorder, *command], sys.executable)
    assert not torch_forkserver.suits(["numactl", "-N", "0", *recorder, *command], sys.executable)
    assert not torch_forkserver.suits([*recorder[:3], "/x/other.py", "/x/events.jsonl", *command], sys.executable)
    assert not torch_forkserver.suits([*recorder, *command], "/other/python")
    assert not torch_forkserver.suits(recorder, sys.executable)


def test_a_template_that_is_gone_is_not_asked_again(tmp_path: pathlib.Path) -> None:
    ours, theirs = socket.socketpair()
    theirs.close()
    template = torch_forkserver.Template(ours, sys.executable)
    file = tmp_path / "train.py"
    file.touch()
    args = [sys.executable, "-I", "-S", "/x/muster_node/rank.py", "/x/e", sys.executable, "-u", str(file)]
    assert template.start(args, {}, None, None) is None
    assert ours.fileno() == -1
    assert template.start(args, {}, None, None) is None


def test_a_rank_that_is_not_told_to_begin_never_does(tmp_path: pathlib.Path) -> None:
    reader, writer = os.pipe()
    os.close(writer)
    pid = os.fork()
    if pid == 0:
        try:
            torch_forkserver._rank({"args": [], "env": {}, "cwd": "/"}, [1, 2, reader], lambda *_: 9)
        finally:
            os._exit(99)
    os.close(reader)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
