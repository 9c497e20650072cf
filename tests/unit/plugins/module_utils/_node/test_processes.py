# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Processes of a run, found through a real /proc: reused numbers, odd names, orphans and zombies."""

from __future__ import annotations

import contextlib
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import typing as t
import uuid

import pytest

from ansible_collections.muster.training.plugins.module_utils._node import processes
from ansible_collections.muster.training.tests.support.node_lab import eventually


@pytest.fixture
def marker() -> t.Iterator[str]:
    value = f"test/{uuid.uuid4().hex}"
    yield value
    processes.kill_marked(value)


def spawn(marker: str, argv: list[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(argv, env={**os.environ, processes.MARKER: marker}, start_new_session=True)


@contextlib.contextmanager
def sleeping(marker: str) -> t.Iterator[int]:
    """Yield the pid of a process with a marker, which ends with the block."""
    child = spawn(marker, ["sleep", "60"])
    try:
        yield child.pid
    finally:
        child.kill()
        child.wait()


def test_an_identity_names_one_process_only() -> None:
    name = processes.identity(os.getpid())
    assert name is not None and processes.living_pid(name) == os.getpid()
    pid, started = name.split("@")
    assert processes.living_pid(f"{pid}@{int(started) + 1}") is None
    assert (
        processes.living_pid(None) is None and processes.living_pid("") is None and processes.living_pid("17") is None
    )


def test_a_name_with_spaces_and_parentheses_is_read_right(tmp_path: pathlib.Path, marker: str) -> None:
    tool = tmp_path / "a) R (b"
    tool.symlink_to(t.cast(str, shutil.which("sleep")))
    child = spawn(marker, [str(tool), "60"])
    try:
        assert processes.living_pid(processes.identity(child.pid)) == child.pid
    finally:
        child.kill()
        child.wait()


def test_what_has_ended_is_gone_also_while_nobody_waited_for_it(marker: str) -> None:
    child = spawn(marker, ["true"])
    eventually(lambda: processes.dead_children(os.getpid()) == [child.pid], "a zombie")
    assert processes.start_time(child.pid) is None and processes.identity(child.pid) is None
    assert processes.find_marked(marker) == []
    child.wait()
    assert processes.dead_children(os.getpid()) == [] and processes.start_time(child.pid) is None
    assert processes.environment_of(child.pid) == {}
    processes.kill_all([child.pid])


def test_orphans_in_sessions_of_their_own_are_found_by_their_mark_and_killed(marker: str) -> None:
    # A launcher starts two workers as session leaders and is killed itself, as torchrun is when its host is lost.
    start = "subprocess.Popen(['sleep', '60'], start_new_session=True)"
    program = f"import subprocess, time\nfor _ in range(2): {start}\ntime.sleep(60)"
    launcher = spawn(marker, [sys.executable, "-c", program])
    eventually(lambda: len(processes.find_marked(marker)) == 3, "two workers and their launcher")
    launcher.kill()
    launcher.wait()
    orphans = processes.find_marked(marker)
    assert len(orphans) == 2 and launcher.pid not in orphans
    assert all(processes.environment_of(pid)[processes.MARKER] == marker for pid in orphans)
    assert processes.kill_marked(marker) == []
    assert all(processes.start_time(pid) is None for pid in orphans)


def test_a_killed_process_is_waited_for_after_it_has_lost_its_environment(
    marker: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel takes its environment before it closes its files and ports."""
    monkeypatch.setattr(processes, "kill_all", lambda pids: None)
    with sleeping(marker) as pid:
        seen = iter([[pid]])
        monkeypatch.setattr(processes, "find_marked", lambda _value: next(seen, []))
        assert processes.kill_marked(marker, within_s=0.05) == [pid]


def test_a_mark_is_compared_as_a_whole_and_never_names_the_caller(marker: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with sleeping(marker + "0") as pid:
        monkeypatch.setenv(processes.MARKER, marker)
        assert processes.find_marked(marker) == [] and processes.find_marked(marker + "0") == [pid]


def test_a_signal_of_choice_is_sent(marker: str) -> None:
    child = spawn(marker, ["sleep", "60"])
    processes.kill_all([child.pid], signal.SIGTERM)
    assert child.wait() == -signal.SIGTERM


def test_what_cannot_be_killed_in_time_is_returned(marker: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "kill_all", lambda pids: None)
    with sleeping(marker) as pid:
        assert processes.kill_marked(marker, within_s=0.05) == [pid]
