# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where real processes stand: one that has registered faulthandler, one that would die of a signal, one with py-spy."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import time
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._node import (
    diag_ranks,
    diag_stacks,
    processes,
    stack_reader,
)
from ansible_collections.muster.training.plugins.plugin_utils._fabric.diagnosis.stacks import read_main_stack
from ansible_collections.muster.training.tests.support.node_lab import eventually

WAITS = "import os, sys, time\n{more}\ndef waits():\n    print('ready', flush=True)\n    time.sleep(600)\nwaits()\n"
REGISTERS = "import faulthandler, signal; faulthandler.register(signal.SIGUSR2)"


@pytest.fixture
def start(tmp_path: pathlib.Path) -> t.Iterator[t.Callable[[str], subprocess.Popen[bytes]]]:
    started = []

    def begin(more: str = "pass") -> subprocess.Popen[bytes]:
        """Start a program that waits, as rank 0 of a run in ``tmp_path``."""
        with open(tmp_path / "stderr.log", "wb") as errors:
            program = subprocess.Popen(
                [sys.executable, "-c", WAITS.format(more=more)],
                stdout=subprocess.PIPE,
                stderr=errors,
                env={**os.environ, processes.MARKER: "mine"},
            )
        started.append(program)
        assert program.stdout is not None and program.stdout.readline() == b"ready\n"
        eventually(lambda: "(sleeping)" in pathlib.Path(f"/proc/{program.pid}/status").read_text(), "it waits")
        event = {"kind": "worker_started", "rank": 0, "pid": program.pid, "at": time.time()}
        (tmp_path / "events.jsonl").write_text(json.dumps(event) + "\n")
        (tmp_path / "units" / "agent").mkdir(parents=True, exist_ok=True)
        (tmp_path / "units" / "agent" / "spec.json").write_text('{"marker": "mine"}')
        return program

    yield begin
    for program in started:
        program.kill()
        program.wait()


def take(run: pathlib.Path, **options: t.Any) -> dict[str, t.Any]:
    return diag_stacks.take_stacks(diag_ranks.find_live_ranks(run), **{"signals": False, **options})


@pytest.fixture
def closed_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel that lets nobody read the memory of another process."""

    def refuse(pid: int) -> t.NoReturn:
        raise stack_reader.StackError("not permitted")

    monkeypatch.setattr(stack_reader, "StackReader", refuse)


def test_the_line_is_read_from_memory_with_nothing_installed_and_no_signal(
    tmp_path: pathlib.Path, start: t.Any
) -> None:
    program = start()
    (found,) = take(tmp_path)["ranks"]
    assert (found["how"], found["problem"]) == ("memory", "") and program.poll() is None
    assert [str(frame) for frame in read_main_stack(found["text"])] == ["waits (<string>:5)", "<module> (<string>:6)"]


@pytest.mark.usefixtures("closed_memory")
def test_faulthandler_names_the_line_where_a_signal_is_caught(tmp_path: pathlib.Path, start: t.Any) -> None:
    program = start(REGISTERS)
    (quiet,) = take(tmp_path)["ranks"]
    assert quiet["how"] is None and (tmp_path / "stderr.log").read_bytes() == b"", "asked for no signal, none is sent"
    (found,) = take(tmp_path, signals=True)["ranks"]
    assert (found["rank"], found["how"]) == (0, "faulthandler") and "in waits" in found["text"]
    assert program.poll() is None and "py-spy is not installed" in found["problem"]


@pytest.mark.usefixtures("closed_memory")
def test_a_process_that_would_die_of_a_signal_gets_none(tmp_path: pathlib.Path, start: t.Any) -> None:
    program = start()
    (found,) = take(tmp_path, signals=True)["ranks"]
    assert program.poll() is None and (found["how"], found["text"]) == (None, "")
    assert found["kernel"][0].startswith(f"process {program.pid}: python") and "sleeping" in found["kernel"][0]


@pytest.mark.usefixtures("closed_memory")
def test_a_signal_handler_of_its_own_is_no_stack(tmp_path: pathlib.Path, start: t.Any) -> None:
    program = start(
        "import signal; signal.signal(signal.SIGUSR1, lambda *_: print('saved', file=sys.stderr, flush=True))"
    )
    (found,) = take(tmp_path, signals=True)["ranks"]
    assert program.poll() is None and found["how"] is None


@pytest.mark.usefixtures("closed_memory")
def test_py_spy_of_the_environment_comes_first(
    tmp_path: pathlib.Path, start: t.Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = start(REGISTERS)
    tool = tmp_path / "bin" / "py-spy"
    tool.parent.mkdir()
    tool.write_text(
        f'#!/bin/sh\necho "$@" > {tmp_path}/argv\nprintf \'Thread 1 (idle): "MainThread"\\n    f (a.py:2)\\n\'\n'
    )
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tool.parent}:{os.environ['PATH']}")
    (found,) = take(tmp_path, signals=True)["ranks"]
    assert found["how"] == "py-spy" and "f (a.py:2)" in found["text"]
    assert (tmp_path / "argv").read_text().split() == ["dump", "--pid", str(program.pid)]
    tool.write_text("#!/bin/sh\necho 'Permission Denied: try sudo' >&2\nexit 1\n")
    (found,) = take(tmp_path, signals=True)["ranks"]
    assert found["how"] == "faulthandler" and found["problem"] == "not permitted; py-spy: Permission Denied: try sudo"


def test_children_and_threads_are_named(tmp_path: pathlib.Path, start: t.Any) -> None:
    start(
        "import subprocess, threading; subprocess.Popen(['sleep', '60']); "
        "threading.Thread(target=time.sleep, args=(60,), daemon=True).start()"
    )
    (found,) = take(tmp_path)["ranks"]
    lines = "\n".join(found["kernel"])
    assert "1 thread: " in lines and ": sleep, S (sleeping)" in lines
    child = int(next(line for line in found["kernel"] if line.startswith("child"))[6:].split(":")[0])
    os.kill(child, 9)


@pytest.mark.parametrize(
    "mask, caught",
    [("0000000000000000", []), ("0000000000000200", [10]), ("0000000000000a00", [10, 12]), ("0000000180000002", [])],
)
def test_the_mask_of_caught_signals(mask: str, caught: list[int]) -> None:
    assert diag_stacks.find_caught(f"Name:\tx\nSigIgn:\tffffffffffffffff\nSigCgt:\t{mask}\n") == caught
    assert diag_stacks.find_caught("") == []
