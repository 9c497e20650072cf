# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Programs forked by the fork server of a node: they cannot tell it from ``python -u FILE``, and neither can torchrun."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._node import processes, torch_forkserver
from ansible_collections.muster.training.plugins.module_utils._node import rank as rank_module
from ansible_collections.muster.training.tests.support.node_lab import eventually, read_lines

NODE = pathlib.Path(rank_module.__file__).parent
RANK = {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1"}
# Notes each process that is forked after the import, and takes part in what a fork renews.
STAND_IN = """
import os
forks = os.environ["FORKS"]
def note():
    with open(forks, "a") as file:
        file.write("x")
os.register_at_fork(after_in_child=note)
class default_generator:
    @staticmethod
    def seed():
        pass
"""


@dataclasses.dataclass
class Node:
    """Runs one program as ranks of a node, with a fork server and without."""

    folder: pathlib.Path
    python: str = sys.executable

    def __post_init__(self) -> None:
        package = self.folder / "site" / "torch"
        package.mkdir(parents=True)
        (package / "__init__.py").write_text(STAND_IN)
        (package / "_dynamo.py").touch()
        (self.folder / "private").mkdir(mode=0o700)

    @property
    def env(self) -> dict[str, str]:
        stand_in = {"PYTHONPATH": str(self.folder / "site"), "FORKS": str(self.folder / "forks")}
        # The program's outputs must be unbuffered by ``-u`` alone.
        own = {key: value for key, value in os.environ.items() if key != "PYTHONUNBUFFERED"}
        return {**own, **(stand_in if self.python == sys.executable else {})}

    @property
    def socket(self) -> str:
        return str(self.folder / "private" / "socket")

    @property
    def events(self) -> list[dict[str, t.Any]]:
        return read_lines(self.folder / "events.jsonl")

    @contextlib.contextmanager
    def server(self, command: list[str], **env: str) -> t.Iterator[subprocess.Popen[bytes]]:
        argv = [self.python, "-u", str(NODE / "torch_forkserver.py"), *command]
        values = {**self.env, "MUSTER_WARM": self.socket, **env}
        with subprocess.Popen(argv, cwd=self.folder, env=values, stdin=subprocess.DEVNULL) as server:
            try:
                eventually(lambda: os.path.exists(self.socket), "the fork server")
                yield server
            finally:
                server.kill()

    def rank(self, command: list[str], warm: bool = True, **env: str) -> subprocess.Popen[str]:
        argv = [sys.executable, "-I", "-S", str(NODE / "rank.py"), str(self.folder / "events.jsonl"), *command]
        pipe, values = subprocess.PIPE, {**self.env, **RANK, **({"MUSTER_WARM": self.socket} if warm else {}), **env}
        return subprocess.Popen(
            argv,
            cwd=self.folder,
            env=values,
            stdin=subprocess.DEVNULL,
            stdout=pipe,
            stderr=pipe,
            text=True,
            start_new_session=True,
        )

    def run(self, command: list[str], warm: bool = True, **env: str) -> tuple[int, str, str]:
        with self.rank(command, warm, **env) as process:
            out, err = process.communicate(timeout=60)
        return process.returncode, out, err

    def program(self, text: str, name: str = "train.py") -> list[str]:
        file = self.folder / "code" / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(text + "\n")
        return [self.python, "-u", str(file), "--steps", "3"]

    def was_forked(self) -> bool:
        """Return whether a process that had imported torch was forked."""
        return (self.folder / "forks").exists()


@pytest.fixture
def node(tmp_path: pathlib.Path) -> Node:
    return Node(tmp_path)


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
def test_a_program_cannot_tell_the_difference(node: Node, name: str) -> None:
    command = node.program(PROGRAMS[name])
    node.program("NAME = 'neighbour'", "neighbour.py")
    node.program("NAME = 'the user has a rank.py too'", "rank.py")
    _compare(node, command)


@pytest.mark.parametrize(
    "text",
    [
        "import sys\nfrom . import part\nprint(__name__, __package__, part.NAME, sys.argv[1:])",
        "import sys\nsys.exit(5)",
        "raise ValueError('torn')",
    ],
)
def test_a_module_cannot_tell_the_difference(node: Node, text: str) -> None:
    package = node.folder / "job"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "part.py").write_text("NAME = 'part'\n")
    (package / "train.py").write_text(text + "\n")
    _compare(node, [sys.executable, "-u", "-m", "job.train", "--steps", "3"])


def _compare(node: Node, command: list[str]) -> None:
    code, out, err = node.run(command, warm=False)
    with node.server(command):
        warm = node.run(command)
    assert (warm[0], warm[1], _without_runpy(warm[2])) == (code, out, _without_runpy(err))
    assert node.was_forked()
    first, second = ([event for event in node.events if event["kind"] == "worker_exit"][n] for n in (0, 1))
    # Only Python itself ends by the signal.
    assert first["exit_code"] == second["exit_code"] and second["signal"] in (first["signal"], 0)


def _without_runpy(text: str) -> str:
    """Return an error text without runpy's own frames, which are Python's business."""
    return re.sub(r'  File "<frozen runpy>".*\n', "", text)


STATE = """
import json, os, sys, threading, resource
status = dict(line.split(":\\t") for line in open("/proc/self/status").read().splitlines() if ":\\t" in line)
print(json.dumps({
    "env": dict(os.environ), "cwd": os.getcwd(), "argv": sys.argv, "orig_argv": sys.orig_argv, "path": sys.path,
    "flags": list(sys.flags), "umask": os.umask(0o22), "executable": sys.executable,
    "threads": threading.active_count(), "tasks": len(os.listdir("/proc/self/task")),
    "signals": [status[name] for name in ("SigBlk", "SigIgn", "SigCgt")],
    "descriptors": sorted(os.listdir("/proc/self/fd")), "limits": resource.getrlimit(resource.RLIMIT_NOFILE),
    "command": open("/proc/self/cmdline").read().rstrip("\\0").split("\\0"),
    "output": [sys.stdout.encoding, sys.stdout.errors, sys.stdout.write_through, sys.stderr.write_through],
    "main": sorted(vars(sys.modules["__main__"]).keys() - {"status", "json", "os", "sys", "threading", "resource"}),
}))
"""


def test_a_program_has_the_environment_folder_umask_and_signals_of_its_rank(node: Node) -> None:
    command = node.program(STATE)
    before = os.umask(0o027)
    try:
        cold = json.loads(node.run(command, warm=False, EXTRA="1")[1])
        os.umask(0o077)
        with node.server(command):
            os.umask(0o027)
            warm = json.loads(node.run(command, EXTRA="1")[1])
    finally:
        os.umask(before)
    assert node.was_forked()
    differences = {key: (cold[key], warm[key]) for key in cold if cold[key] != warm[key]}
    assert not differences


def test_a_program_that_gets_its_checkpoint_folder_as_an_argument_is_forked(node: Node) -> None:
    command = [*node.program("import sys\nprint(sys.argv[-1])"), "--out={checkpoint_dir}"]
    with node.server(command, MUSTER_CHECKPOINT_DIR="/c/r-1"):
        assert node.run(command, MUSTER_CHECKPOINT_DIR="/c/r-1")[:2] == (0, "--out=/c/r-1\n")
    assert node.was_forked()


def test_a_forked_program_prints_into_the_files_of_its_rank(node: Node) -> None:
    command = node.program("import sys\nprint('out')\nprint('err', file=sys.stderr)")
    with node.server(command):
        assert node.run(command, MUSTER_OUTPUT=str(node.folder / "ranks")) == (0, "", "")
    printed = {place.name: place.read_text() for place in node.folder.glob("ranks/attempt_1.1/3/*")}
    assert node.was_forked() and printed == {"stdout.log": "out\n", "stderr.log": "err\n"}


def test_a_program_leads_a_session_of_its_own_and_is_recorded(node: Node) -> None:
    command = node.program("import os, sys\nprint(os.getpid(), os.getsid(0), os.getppid())\nsys.exit(4)")
    with node.server(command) as server:
        code, out, _ = node.run(command)
        pid, session, parent = (int(word) for word in out.split())
        assert (code, session, parent) == (4, pid, server.pid)
    started, ended = node.events
    assert (started["kind"], started["rank"], started["world_size"], started["pid"]) == ("worker_started", 3, 4, pid)
    assert (ended["kind"], ended["exit_code"]) == ("worker_exit", 4)


def test_a_program_saves_when_torchrun_asks_its_ranks_to_end(node: Node) -> None:
    command = node.program(
        "import signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: (print('saved'), sys.exit(143)))\n"
        "print('training')\ntime.sleep(60)"
    )
    with node.server(command), node.rank(command) as rank:
        assert rank.stdout is not None and rank.stdout.readline() == "training\n"
        os.killpg(rank.pid, signal.SIGTERM)
        assert rank.communicate(timeout=30)[0] == "saved\n"
    assert rank.returncode == 143 and node.events[-1]["exit_code"] == 143


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_the_other_signals_of_a_rank_reach_its_program_too(node: Node, number: signal.Signals) -> None:
    command = node.program(
        f"import signal, sys, time\nsignal.signal({int(number)}, lambda got, _: sys.exit(100 + got))\n"
        "print('training')\ntime.sleep(60)"
    )
    with node.server(command), node.rank(command) as rank:
        assert rank.stdout is not None and rank.stdout.readline() == "training\n"
        os.kill(rank.pid, number)
        rank.communicate(timeout=30)
    assert rank.returncode == 100 + number


def test_nothing_is_left_of_a_rank_that_is_killed(node: Node) -> None:
    command = node.program(
        "import os, subprocess, time\nloader = subprocess.Popen(['sleep', '60'])\nprint(os.getpid(), loader.pid)\n"
        "time.sleep(60)"
    )
    with node.server(command) as server:
        with node.rank(command) as rank:
            assert rank.stdout is not None
            pids = [int(word) for word in rank.stdout.readline().split()]
            os.killpg(rank.pid, signal.SIGKILL)
            eventually(lambda: not any(map(processes.start_time, pids)), "the end of the program and its loader")
        assert server.poll() is None
        # And the next one is served.
        assert node.run(node.program("import os\nprint(os.getppid())"))[1] == f"{server.pid}\n"


def test_programs_end_with_their_server_and_ranks_say_so(node: Node) -> None:
    command = node.program("import os, time\nprint(os.getpid())\ntime.sleep(60)")
    with node.server(command) as server, node.rank(command) as rank:
        assert rank.stdout is not None
        pid = int(rank.stdout.readline())
        server.kill()
        assert rank.wait(timeout=30) == 137
        eventually(lambda: processes.start_time(pid) is None, "the end of the program")
        rank.communicate()
    assert (node.events[-1]["exit_code"], node.events[-1]["signal"]) == (137, 9)


def test_ranks_of_one_node_end_one_by_one(node: Node) -> None:
    command = node.program("import os, sys, time\ntime.sleep(0.2 * int(os.environ['LOCAL_RANK']))\nsys.exit(7)")
    with node.server(command):
        ranks = [node.rank(command, LOCAL_RANK=str(local), RANK=str(local)) for local in range(3)]
        for rank in ranks:
            rank.communicate(timeout=30)
    assert [rank.returncode for rank in ranks] == [7, 7, 7]
    assert [event["rank"] for event in node.events if event["kind"] == "worker_exit"] == [0, 1, 2]


@pytest.mark.parametrize(
    ("library", "draw"),
    [
        ("import random", "random.random()"),
        pytest.param("import numpy", "numpy.random.rand()", marks=pytest.mark.torch),
        pytest.param("import torch", "torch.rand(1).item()", marks=pytest.mark.torch),
    ],
)
def test_two_ranks_of_one_server_draw_other_random_numbers(
    tmp_path: pathlib.Path, library: str, draw: str, request: pytest.FixtureRequest
) -> None:
    python = sys.executable
    if "torch" in request.node.keywords:
        python = os.environ.get("MUSTER_TORCH_PYTHON", "") or pytest.skip("MUSTER_TORCH_PYTHON names no interpreter")
    node = Node(tmp_path, python)
    command = node.program(f"{library}\nprint({draw})")
    with node.server(command):
        numbers = [node.run(command)[:2] for _ in range(2)]
    assert [code for code, _ in numbers] == [0, 0] and len(set(numbers)) == 2


@pytest.mark.parametrize(
    "change",
    [
        {"PYTHONHASHSEED": "1"},
        {"OMP_NUM_THREADS": "7"},
        {"LD_LIBRARY_PATH": "/x"},
    ],
)
def test_a_rank_with_other_settings_of_the_interpreter_executes_its_program(node: Node, change: dict[str, str]) -> None:
    command = node.program("import os\nprint(os.getppid())")
    with node.server(command) as server, node.rank(command, **change) as rank:
        out = rank.communicate(timeout=30)[0]
    assert rank.returncode == 0 and int(out) == rank.pid != server.pid


@pytest.mark.parametrize(
    "command",
    [
        [sys.executable, "-c", "print(1)"],
        ["/usr/bin/env", "printf", "1\\n"],
        ["sh", "-c", "echo 1"],
    ],
)
def test_anything_but_the_servers_own_program_is_executed(node: Node, command: list[str]) -> None:
    with node.server(node.program("print('the program')")):
        assert node.run(command) == (0, "1\n", "")


def test_a_rank_without_its_server_executes_its_program(node: Node) -> None:
    command = node.program("import os\nprint('MUSTER_WARM' in os.environ)")
    assert node.run(command) == (0, "False\n", "")
    with node.server(command) as server:
        server.kill()
        server.wait()
        assert os.path.exists(node.socket)
        assert node.run(command) == (0, "False\n", "")


def test_a_rank_waits_for_a_server_that_still_imports_torch(node: Node) -> None:
    (node.folder / "site" / "torch" / "_dynamo.py").write_text("import time\ntime.sleep(1)\n")
    command = node.program("import os\nprint(os.getppid())")
    with node.server(command) as server:
        assert node.run(command)[1] == f"{server.pid}\n"


def test_a_server_that_cannot_import_torch_says_so_and_ranks_do_without(
    node: Node, capfd: pytest.CaptureFixture[str]
) -> None:
    (node.folder / "site" / "torch" / "_dynamo.py").write_text("raise ImportError('no Dynamo')\n")
    command = node.program("print('trained')")
    with node.server(command) as server:
        assert server.wait(timeout=30) == 1
        assert node.run(command) == (0, "trained\n", "")
    assert "muster: the fork server cannot import torch, ranks start without it: no Dynamo" in capfd.readouterr().err


def test_a_rank_that_gave_up_waiting_is_not_forked(node: Node) -> None:
    (node.folder / "site" / "torch" / "_dynamo.py").write_text("import time\ntime.sleep(1)\n")
    command = node.program(f"open({str(node.folder / 'ran')!r}, 'a').write('x')")
    with node.server(command):
        with node.rank(command) as rank:
            os.killpg(rank.pid, signal.SIGKILL)
        assert node.run(command)[0] == 0
    assert (node.folder / "ran").read_text() == "x"


@pytest.mark.parametrize("data", [b"", b"\0\0", b"\0\0\0\4nope", b"\0\0\0\2{}", b"\x7f\xff\xff\xff"])
def test_what_is_no_request_is_dropped_and_the_next_is_served(node: Node, data: bytes) -> None:
    import socket

    command = node.program("print('trained')")
    with node.server(command):
        with socket.socket(socket.AF_UNIX) as link:
            link.connect(node.socket)
            link.sendall(data)
        assert node.run(command)[1] == "trained\n"
    assert node.was_forked()


def test_a_path_longer_than_an_address_is_no_obstacle(tmp_path: pathlib.Path) -> None:
    folder = tmp_path / ("x" * 120)
    folder.mkdir()
    node = Node(folder)
    command = node.program("print('trained')")
    with node.server(command):
        assert node.run(command)[1] == "trained\n"
    assert node.was_forked()


def test_variables_that_are_read_once_are_told_from_the_others() -> None:
    env = {"PYTHONPATH": "a", "OMP_NUM_THREADS": "1", "LD_PRELOAD": "x", "RANK": "3", "TORCHELASTIC_RUN_ID": "y"}
    assert sorted(torch_forkserver.read_at_start(env)) == ["LD_PRELOAD", "OMP_NUM_THREADS", "PYTHONPATH"]
