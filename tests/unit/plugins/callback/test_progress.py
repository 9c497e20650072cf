# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The line of live progress on a terminal."""

from __future__ import annotations

import json
import os
import typing as t

import pytest

from ansible_collections.muster.training.plugins.callback.progress import CallbackModule

VALUES = {"ranks": 2, "ranks_asked": 2, "step": 7, "restarts": 0}


class Display:
    """Takes the lines that are displayed."""

    verbosity = 0

    def __init__(self) -> None:
        self.lines: list[str] = []

    def display(self, line: str, *_options: t.Any, **_more: t.Any) -> None:
        self.lines.append(line)


@pytest.fixture
def callback(monkeypatch: pytest.MonkeyPatch) -> tuple[CallbackModule, Display]:
    """Return a callback whose terminal has 40 columns, and what it displays."""
    display = Display()
    monkeypatch.setattr(os, "get_terminal_size", lambda _fileno: os.terminal_size((40, 20)))
    return CallbackModule(display=display), display


def feed(callback: CallbackModule, *messages: str) -> None:
    reader, writer = os.pipe()
    os.write(writer, "".join(f"{message}\n" for message in messages).encode())
    os.close(writer)
    callback._read(reader)


def test_values_rewrite_one_line_and_a_line_is_displayed(
    callback: tuple[CallbackModule, Display], capfd: pytest.CaptureFixture[str]
) -> None:
    plugin, display = callback
    feed(plugin, json.dumps({"values": VALUES}), "no JSON", json.dumps({"line": "attempt 2"}))
    out = capfd.readouterr().out
    assert out.startswith("\rranks 2/2 · step 7") and out.endswith(" \r")
    assert display.lines == ["attempt 2"]


def test_a_long_line_is_cut_to_the_terminal_and_a_shorter_one_covers_it(
    callback: tuple[CallbackModule, Display],
    capfd: pytest.CaptureFixture[str],
) -> None:
    plugin, _display = callback
    feed(plugin, json.dumps({"values": {**VALUES, "waiting": "w" * 60}}), json.dumps({"values": VALUES}))
    first, second = capfd.readouterr().out.split("\r")[1:]
    assert (len(first), len(second)) == (39, 39) and second.startswith("ranks 2/2")


def test_without_a_terminal_there_is_no_pipe(
    callback: tuple[CallbackModule, Display], capfd: pytest.CaptureFixture[str]
) -> None:
    plugin, _display = callback
    plugin.v2_runner_on_ok(None)
    plugin.v2_runner_on_failed(None)
    assert (plugin._terminal, capfd.readouterr().out) == (False, "")
