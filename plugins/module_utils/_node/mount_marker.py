# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a shared file system is the one that a job's binding was checked with: its marker says so.

A mount whose server is away answers nothing and cannot be interrupted: each is looked at by a child of this process,
and only the child hangs.
"""

# pylint: disable=ansible-bad-function  # on a node by itself, with no AnsibleModule around it
from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import time
import typing as t

FILE: t.Final = ".muster-filesystem"
# A mount that is slower is of no use to a job.
LIMIT_S: t.Final = 30.0
_AGAIN_S: t.Final = 0.1
# How long another node's marker may be empty: it was created a moment ago.
_EMPTY_S: t.Final = 5.0


class Child:
    """Work on a file system in a process of its own, which does not keep the connection to this node open."""

    def __init__(self, work: t.Callable[[], dict[str, t.Any]]) -> None:
        self._read, write = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            _work_alone(work, write)
        os.close(write)

    def answer(self, until: float) -> dict[str, t.Any]:
        """Return what the work returned; ``{failed}`` where it has not by then."""
        text = b""
        try:
            while select.select([self._read], [], [], max(0.0, until - time.monotonic()))[0]:
                piece = os.read(self._read, 65536)
                if not piece:
                    return json.loads(text) if text else {"failed": "crash", "error": "no output"}
                text += piece
            return {"failed": "time"}
        finally:
            os.close(self._read)
            self._end()

    def _end(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGKILL)
        for _try in range(20):
            # One that waits for its server ends when that is back, or with the machine. It is not waited for.
            with contextlib.suppress(ChildProcessError):
                if os.waitpid(self._pid, os.WNOHANG)[0] == 0:
                    time.sleep(0.05)
                    continue
            return


def _work_alone(work: t.Callable[[], dict[str, t.Any]], write: int) -> t.NoReturn:
    try:
        null = os.open(os.devnull, os.O_RDWR)
        for number in range(3):
            os.dup2(null, number)
        os.closerange(3, write)
        os.closerange(write + 1, 4096)
        try:
            found = work()
        except Exception as exc:
            found = {"failed": "crash", "error": type(exc).__name__}
        data = json.dumps(found).encode()
        while data:
            data = data[os.write(write, data) :]
    finally:
        os._exit(0)


def read_marker(path: str) -> str | None:
    """Return the marker of the file system at ``path``, None where it has none."""
    until = time.monotonic() + _EMPTY_S
    while True:
        try:
            with open(os.path.join(path, FILE), encoding="ascii", errors="replace") as file:
                text = file.read(200).strip()
        except FileNotFoundError:
            return None
        if text or time.monotonic() > until:
            return text or None
        time.sleep(_AGAIN_S)


def find_problem(path: str, marker: str | None, limit_s: float = LIMIT_S) -> str:
    """Return why the file system with this marker is not at ``path`` now, empty where it is; nothing is written."""
    found = Child(lambda: _read_through(path)).answer(time.monotonic() + limit_s)
    if found.get("failed") == "time":
        return f"{path} did not answer for {limit_s:.0f} s: its server or the network to it is away"
    if found.get("failed"):
        return f"{path} cannot be read ({found['error']}): mount the shared file system there"
    if marker in (None, found["marker"]):
        return ""
    if found["marker"]:
        return f"{path} is another shared file system than the one that the binding names: mount that one there"
    return f"{path} is not the shared file system, which is not mounted there: mount it"


def _read_through(path: str) -> dict[str, t.Any]:
    try:
        os.listdir(path)
        return {"marker": read_marker(path)}
    except OSError as exc:
        return {"failed": "list", "error": exc.strerror}
