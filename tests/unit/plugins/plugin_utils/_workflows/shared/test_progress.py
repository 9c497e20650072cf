# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Progress as plain lines, or through the callback's pipe."""

from __future__ import annotations

import json
import os
import pathlib
import re
import subprocess
import sys
import time
import types
import typing as t

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared import progress


@pytest.fixture
def pipe(monkeypatch: pytest.MonkeyPatch) -> t.Iterator[int]:
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    monkeypatch.setenv(progress.PIPE_VARIABLE, str(writer))
    yield reader
    os.close(reader)
    os.close(writer)


def received(reader: int) -> list[dict[str, t.Any]]:
    try:
        return [json.loads(line) for line in os.read(reader, 1 << 16).splitlines()]
    except BlockingIOError:
        return []


@pytest.mark.parametrize("value", [None, "", "x"])
def test_without_a_callback_lines_are_printed_and_values_are_not(
    value: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(progress.PIPE_VARIABLE, raising=False)
    if value is not None:
        monkeypatch.setenv(progress.PIPE_VARIABLE, value)
    shown: list[str] = []
    reporter = progress.Reporter(shown.append)
    reporter.say("step 1")
    reporter.show({"step": 1})
    assert len(shown) == 1 and re.fullmatch(r"\d\d:\d\d:\d\d  step 1", shown[0])


def test_the_callback_gets_lines_and_at_most_four_values_a_second(pipe: int, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []
    reporter = progress.Reporter(shown.append)
    reporter.say("go")
    now = 1000.0
    monkeypatch.setattr(progress, "time", types.SimpleNamespace(monotonic=lambda: now, strftime=time.strftime))
    for step in range(10):
        reporter.show({"step": step})
        now += 0.1
    found = received(pipe)
    assert found[0]["line"].endswith("  go") and shown == []
    assert [message["values"]["step"] for message in found[1:]] == [0, 3, 6, 9]


def test_a_callback_that_is_gone_is_replaced_by_plain_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    reader, writer = os.pipe()
    monkeypatch.setenv(progress.PIPE_VARIABLE, str(writer))
    shown: list[str] = []
    reporter = progress.Reporter(shown.append)
    os.close(reader)
    reporter.say("one")
    os.close(writer)
    reporter.say("two")
    assert [line.split("  ")[1] for line in shown] == ["one", "two"]


def test_a_line_cannot_rule_the_terminal(pipe: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs and servers say what is quoted in it."""
    hostile = "node-1: \x1b[2J\x1b]0;x\x07a\r\nchanged: [localhost]\u202e\x9b31m"
    shown: list[str] = []
    progress.Reporter(shown.append).say(hostile)
    monkeypatch.delenv(progress.PIPE_VARIABLE)
    progress.Reporter(shown.append).say(hostile)
    lines = [*shown, received(pipe)[0]["line"]]
    assert [line[10:] for line in lines] == ["node-1:  [2J ]0;x a changed: [localhost] 31m"] * 2


TASK = """
import os, sys
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared import progress
progress.keep_last_word()
if not (pid := os.fork()):
    with progress.say_if_killed("run net-1 keeps\\nrunning"):
        if sys.argv[1] == "killed":
            os.kill(os.getpid(), 9)
    os._exit(0)
os.waitpid(pid, 0)
print("interrupted")
"""


@pytest.mark.parametrize(
    ("end", "printed"), [("killed", "interrupted\nrun net-1 keeps running\n"), ("ended", "interrupted\n")]
)
def test_the_last_word_of_a_task_whose_process_was_killed(end: str, printed: str) -> None:
    """The process that forked it prints it at its own end, and the one that was forked never."""
    done = subprocess.run([sys.executable, "-c", TASK, end], capture_output=True, text=True, check=True)
    assert done.stdout == printed and done.stderr == ""


def test_the_last_words_of_two_tasks_that_overlap_end_with_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is in a process of its own: what one has said is not what another has said before."""
    word = progress.LastWord()
    monkeypatch.setattr(progress, "_last_word", word)
    first, second = progress.say_if_killed("run a goes on"), progress.say_if_killed("run b goes on")
    said: dict[str, list[str]] = {"a": [], "b": []}

    def step(task: str, act: t.Callable[[], object]) -> str:
        monkeypatch.setattr(progress, "_said", said[task])
        act()
        return word.line

    assert step("a", first.__enter__) == "run a goes on"
    assert step("b", second.__enter__) == "run b goes on"
    assert step("a", lambda: first.__exit__(None, None, None)) == "run b goes on"
    assert step("b", lambda: second.__exit__(None, None, None)) == ""


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_a_reader_that_ends_does_not_end_the_writer(tmp_path: pathlib.Path, stream: str) -> None:
    """``ansible-playbook … | head``: the play comes to its end."""
    done = tmp_path / "done"
    program = f"""
import pathlib, sys
from {progress.__name__} import flush_each_line
flush_each_line()
flush_each_line()
for number in range(20000):
    print("line", number, file=sys.{stream})
pathlib.Path({str(done)!r}).touch()
"""
    other = "stderr" if stream == "stdout" else "stdout"
    pipes: dict[str, t.Any] = {stream: subprocess.PIPE, other: subprocess.DEVNULL}
    with subprocess.Popen([sys.executable, "-c", program], **pipes) as writer:
        reader = getattr(writer, stream)
        assert reader.readline() == b"line 0\n"
        reader.close()
        assert writer.wait(60) == 0 and done.exists()
