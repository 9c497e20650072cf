# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Progress of a long task: plain lines, or values for the progress callback when it listens.

The callback (``muster.training.progress``) opens a pipe before workers are forked and names it in the environment;
without it, lines go out as ordinary output, so AWX and log files show them too.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import io
import json
import mmap
import os
import sys
import time
import typing as t

from ....module_utils._model.errors import one_line

PIPE_VARIABLE = "MUSTER_PROGRESS_FD"
_SHOW_EVERY_S = 0.25


def flush_each_line() -> None:
    """Have this process write each line of its output when it is complete, into files and pipes too.

    Ansible flushes when it starts the next task: what a task says that runs for hours would be seen at its end. It
    passes over a reader that has ended (``| head``) only where it flushes, so that here the line itself has to.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and not isinstance(stream.write, functools.partial):
            with contextlib.suppress(OSError, ValueError):
                stream.reconfigure(line_buffering=True)
                stream.write = functools.partial(_write_if_read, stream, stream.write)  # type: ignore[method-assign]


def _write_if_read(stream: io.TextIOWrapper, write: t.Callable[[str], int], text: str) -> int:
    """Write to a stream; once its reader has ended, what is written goes nowhere."""
    try:
        return write(text)
    except BrokenPipeError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
        return len(text)


class LastWord:
    """What ansible-playbook prints when it ends unless its task has ended: Ctrl-C kills the task's process at once.

    The memory is shared with the processes of tasks, which are forked later.
    """

    _BYTES = 4096

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, self._BYTES)
        self._process = os.getpid()
        atexit.register(self._print)

    @property
    def line(self) -> str:
        """What is printed; nothing if it is empty."""
        return self._memory[:].rstrip(b"\0").decode(errors="ignore")

    @line.setter
    def line(self, line: str) -> None:
        self._memory[:] = line.encode()[: self._BYTES].ljust(self._BYTES, b"\0")

    def _print(self) -> None:
        if self.line and os.getpid() == self._process:
            # The program that reads the output may have ended.
            with contextlib.suppress(OSError, ValueError):
                print(self.line, flush=True)


_last_word: LastWord | None = None
# What this process has said, the innermost last.
_said: list[str] = []


def keep_last_word() -> None:
    """Have this process, which forks those of tasks, print what :func:`say_if_killed` asks for."""
    global _last_word
    _last_word = _last_word or LastWord()


@contextlib.contextmanager
def say_if_killed(line: str) -> t.Iterator[None]:
    """Have ``line`` printed if this process is killed meanwhile, as by Ctrl-C, and ansible-playbook ends."""
    if _last_word is None:
        yield
        return
    _last_word.line = one_line(line)
    own = _last_word.line
    _said.append(own)
    try:
        yield
    finally:
        _said.pop()
        # Another host's task may have said its own meanwhile, which is not this one's to end, nor to bring back.
        if _last_word.line == own:
            _last_word.line = _said[-1] if _said else ""


class Progress(t.Protocol):
    """Where progress goes: lines for people and values for the progress callback."""

    def say(self, line: str) -> None: ...

    def show(self, values: t.Mapping[str, t.Any]) -> None: ...


class Reporter:
    """Sends lines with ``display`` (a function that prints one line) or through the callback's pipe."""

    def __init__(self, display: t.Callable[[str], None]) -> None:
        self._display = display
        self._shown_at = 0.0
        number = os.environ.get(PIPE_VARIABLE, "")
        self._pipe = int(number) if number.isdecimal() else None

    def say(self, line: str) -> None:
        """Print one line that stays. It may quote what a program or a server said."""
        line = f"{time.strftime('%H:%M:%S')}  {one_line(line)}"
        if not self._send({"line": line}):
            self._display(line)

    def show(self, values: t.Mapping[str, t.Any]) -> None:
        """Hand over the present state; only the callback shows it, at most four times a second."""
        if self._pipe is not None and time.monotonic() - self._shown_at > _SHOW_EVERY_S:
            self._shown_at = time.monotonic()
            self._send({"values": dict(values)})

    def _send(self, message: t.Mapping[str, t.Any]) -> bool:
        if self._pipe is None:
            return False
        try:
            os.write(self._pipe, json.dumps(message).encode() + b"\n")
        except OSError:
            self._pipe = None
            return False
        return True
