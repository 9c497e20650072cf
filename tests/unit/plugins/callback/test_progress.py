# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The progress callback rewrites one line on a terminal and prints the lines of tasks above it."""

from __future__ import annotations

import io
import json
import os
import typing as t

import pytest

from ansible_collections.muster.training.plugins.callback import progress as subject


class Screen(io.StringIO):
    """A standard output that is a terminal, or is not."""

    def __init__(self, terminal: bool) -> None:
        super().__init__()
        self.terminal = terminal

    def isatty(self) -> bool:
        return self.terminal

    def fileno(self) -> int:
        return 1


class Display:
    verbosity = 0

    def __init__(self, screen: Screen) -> None:
        self.screen = screen

    def display(self, line: str) -> None:
        self.screen.write(line + "\n")


def callback(monkeypatch: pytest.MonkeyPatch, screen: Screen) -> t.Any:
    monkeypatch.setattr(subject.sys, "stdout", screen)
    monkeypatch.setattr(subject.os, "get_terminal_size", lambda _fd: os.terminal_size((40, 24)))
    monkeypatch.delenv(subject.PIPE_VARIABLE, raising=False)
    monkeypatch.setenv("TERM", "dumb")
    return subject.CallbackModule(display=Display(screen))


def feed(plugin: t.Any, *messages: t.Any) -> None:
    """Let the plugin read messages as a task's process writes them."""
    reader, writer = os.pipe()
    with os.fdopen(writer, "w") as pipe:
        pipe.writelines(f"{message if isinstance(message, str) else json.dumps(message)}\n" for message in messages)
    plugin._read(reader)


def test_without_a_terminal_no_pipe_is_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    callback(monkeypatch, Screen(terminal=False))
    assert subject.PIPE_VARIABLE not in os.environ


def test_lines_are_printed_above_the_values(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Screen(terminal=True)
    plugin = callback(monkeypatch, screen)
    monkeypatch.setattr(subject, "describe", lambda values: f"step {values['step']}")
    feed(plugin, {"values": {"step": 12}}, "not JSON", {"line": "rank 3 exited"}, {"values": {"step": 7}})
    assert screen.getvalue() == "\rstep 12" + "\r" + " " * 7 + "\r" + "rank 3 exited\n" + "\rstep 7"


def test_a_shorter_line_covers_the_longer_one(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Screen(terminal=True)
    plugin = callback(monkeypatch, screen)
    monkeypatch.setattr(subject, "describe", lambda values: values["text"])
    feed(plugin, {"values": {"text": "x" * 60}}, {"values": {"text": "short"}})
    assert screen.getvalue() == "\r" + "x" * 39 + "\rshort" + " " * 34


@pytest.mark.parametrize("hook", ["v2_runner_on_ok", "v2_runner_on_failed"])
def test_the_line_is_cleared_before_a_result(monkeypatch: pytest.MonkeyPatch, hook: str) -> None:
    screen = Screen(terminal=True)
    plugin = callback(monkeypatch, screen)
    monkeypatch.setattr(subject, "describe", lambda values: "abc")
    feed(plugin, {"values": {}})
    getattr(plugin, hook)(None)
    getattr(plugin, hook)(None)
    assert screen.getvalue() == "\rabc" + "\r   \r"
