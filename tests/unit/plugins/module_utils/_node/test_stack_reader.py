# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Stacks of real processes, read from their memory; line tables against CPython's own."""

from __future__ import annotations

import ast
import contextlib
import os
import pathlib
import subprocess
import sys
import time
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._node import processes, stack_reader
from ansible_collections.muster.training.plugins.module_utils._node.stack_reader import StackError, StackReader

PROGRAM = """
import threading, time

class Läufer:
    def warten(self, n):
        if n:
            return self.warten(n - 1)
        print("ready", flush=True)
        time.sleep(600)

def beside():
    time.sleep(600)

threading.Thread(target=beside, daemon=True).start()
(lambda: Läufer().warten(2))()
"""
Start = t.Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def start() -> t.Iterator[Start]:
    started: list[subprocess.Popen[bytes]] = []

    def begin(*argv: str) -> subprocess.Popen[bytes]:
        started.append(subprocess.Popen(argv, stdout=subprocess.PIPE))
        return started[-1]

    yield begin
    for program in started:
        program.kill()
        program.wait()


def pythons() -> list[str]:
    """The interpreters of this machine, one of each version."""
    found = sorted(pathlib.Path.home().glob(".pyenv/versions/3.*/bin/python3"))
    return [
        sys.executable,
        *(str(path) for path in found if path.parts[-3].startswith(("3.10", "3.11", "3.12", "3.13"))),
    ]


@pytest.mark.parametrize("python", pythons())
def test_functions_files_and_lines_of_all_threads(start: Start, tmp_path: pathlib.Path, python: str) -> None:
    place = tmp_path / "prög.py"
    place.write_text(PROGRAM, encoding="utf-8")
    program = start(python, str(place))
    assert program.stdout is not None and program.stdout.readline() == b"ready\n"
    time.sleep(0.1)
    found = subprocess.run([python, "-c", "import sys; print(*sys.version_info[:2])"], capture_output=True, text=True)
    version = tuple(map(int, found.stdout.split()))
    if version not in ((3, 11), (3, 12), (3, 13)):
        with pytest.raises(
            StackError, match=rf"(this version of Python|Python {version[0]}\.{version[1]}) cannot be read"
        ):
            StackReader(program.pid)
        return
    with contextlib.closing(StackReader(program.pid)) as reader:
        assert [(one.name, one.line) for one in reader.read_main()] == [
            ("Läufer.warten", 9),
            ("Läufer.warten", 7),
            ("Läufer.warten", 7),
            ("<lambda>", 15),
            ("<module>", 15),
        ]
        assert {one.path for one in reader.read_main()} == {str(place)}
        others = [frames for number, frames in reader.read_threads().items() if number != program.pid]
        assert [(frames[0].name, frames[0].line) for frames in others] == [("beside", 12)]
        program.kill()
        program.wait()
        with pytest.raises(StackError, match="did not hold together|ended"):
            reader.read_main()


def test_a_stopped_program_is_read_too(start: Start) -> None:
    program = start(sys.executable, "-c", "print(1, flush=True)\nimport time\ntime.sleep(600)")
    assert program.stdout is not None and program.stdout.readline()
    time.sleep(0.2)
    os.kill(program.pid, 19)
    with contextlib.closing(StackReader(program.pid)) as reader:
        assert [(one.name, one.line) for one in reader.read_main()] == [("<module>", 3)]


def test_what_cannot_be_read_is_said_with_its_reason(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(StackError, match="not a Python program"):
        StackReader(start("sleep", "600").pid)
    with pytest.raises(StackError, match="it has ended"):
        StackReader(2**22 + 1)
    program = start(sys.executable, "-c", "print(1, flush=True)\nimport time\ntime.sleep(600)")
    assert program.stdout is not None and program.stdout.readline()

    def refuse(*_args: t.Any, **_values: t.Any) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(stack_reader.os, "open", refuse)
    with pytest.raises(StackError, match="not permitted .*ptrace_scope"):
        StackReader(program.pid)


def test_a_shell_around_the_program_is_looked_through(start: Start) -> None:
    shell = start("sh", "-c", f"{sys.executable} -c 'print(1, flush=True); import time; time.sleep(600)'; true")
    assert shell.stdout is not None and shell.stdout.readline()
    child = stack_reader.find_python(shell.pid)
    assert child != shell.pid and child in processes.list_children(shell.pid)
    os.kill(child, 9)


def test_the_reader_lets_go_of_files(start: Start) -> None:
    program = start(sys.executable, "-c", "print(1, flush=True)\nimport time\ntime.sleep(600)")
    assert program.stdout is not None and program.stdout.readline()
    before = len(os.listdir("/proc/self/fd"))
    for _look in range(20):
        with contextlib.closing(StackReader(program.pid)) as reader:
            reader.read_main()
        with contextlib.suppress(StackError):
            StackReader(2**22 + 1)
    assert len(os.listdir("/proc/self/fd")) <= before + 1


def test_lines_of_the_standard_library_are_those_of_cpython() -> None:
    """Every code unit of a few modules, by the interpreter's own table."""
    count = 0
    for name in ("ast", "subprocess", "threading"):
        path = pathlib.Path(t.cast("str", sys.modules[name].__file__ if name != "ast" else ast.__file__))
        todo = [compile(path.read_text(), str(path), "exec")]
        while todo:
            code = todo.pop()
            todo += [item for item in code.co_consts if hasattr(item, "co_linetable")]
            for begin, end, line in code.co_lines():
                for unit in range(begin // 2, end // 2) if line is not None else ():
                    assert stack_reader.find_line(code.co_linetable, code.co_firstlineno, unit) == line
                    count += 1
    assert count > 10_000
