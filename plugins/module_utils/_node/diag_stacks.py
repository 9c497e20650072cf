# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where the ranks of a run stand on this node: their stacks, as far as this machine can tell, and what waits for what.

The stacks are read from the memory of a rank (``stack_reader.py``) where the kernel permits it and its Python is known.
Else py-spy names the lines, where it is installed and may look, and a program that has registered Python's faulthandler
for a signal is sent that signal, but only one that is caught (SigCgt), because another one ends a process; and only
before its ranks are stopped anyway. The kernel's side is always told.
"""

# pylint: disable=ansible-bad-function  # on a node by itself, with no AnsibleModule around it
from __future__ import annotations

import contextlib
import os
import pathlib
import shutil
import signal
import subprocess
import time
import typing as t

from . import files, stack_reader

_PROC = pathlib.Path("/proc")
_SIGNALS = (signal.SIGUSR1, signal.SIGUSR2)
# The words of faulthandler above a stack.
_DUMP = "most recent call first"
_PY_SPY_S = 10.0
_DUMP_S = 3.0
_SETTLED_S = 0.2
_LARGEST = 64 << 10
_MOST_THREADS = 64


def take_stacks(ranks: t.Mapping[int, int], *, signals: bool, within_s: float = 3600.0) -> dict[str, t.Any]:
    """Return ``{ranks [{rank, pid, how, text, kernel [text], problem}]}`` of ranks with their process ids.

    ``how`` is ``memory``, ``py-spy``, ``faulthandler`` or null, where ``kernel`` is all there is.

    :param signals: whether ranks may be sent a signal that they catch.
    :param within_s: so long py-spy may take for all of them.
    """
    found, end = [], time.monotonic() + within_s
    for rank, pid in sorted(ranks.items()):
        how, text, problem = _read_memory(pid)
        if not text:
            how, text, more = _dump_with_py_spy(pid, min(_PY_SPY_S, end - time.monotonic()), pauses=signals)
            problem = f"{problem}; {more}" if more else problem
        if not text and signals:
            text = _dump_with_signal(pid)
            how = "faulthandler" if text else None
        kernel = _describe_waits(pid)
        found.append({"rank": rank, "pid": pid, "how": how, "text": text, "kernel": kernel, "problem": problem})
    return {"ranks": found}


def _read_memory(pid: int) -> tuple[str | None, str, str]:
    """Return (``memory``, the stacks of all threads as py-spy prints them, nothing), else (None, nothing, why not)."""
    python = stack_reader.find_python(pid)
    try:
        with contextlib.closing(stack_reader.StackReader(python)) as reader:
            main, threads = reader.read_main(), reader.read_threads()
    except stack_reader.StackError as exc:
        return None, "", str(exc)
    others = [(number, frames) for number, frames in threads.items() if number != python and frames]
    lines = []
    for number, frames in [(python, main), *others[:_MOST_THREADS]]:
        name = ': "MainThread"' if number == python else ""
        lines += [f"Thread {number}{name}", *(f"    {one.name} ({one.path}:{one.line})" for one in frames)]
    return "memory", "\n".join(lines)[:_LARGEST], ""


def _dump_with_py_spy(pid: int, within_s: float, *, pauses: bool) -> tuple[str | None, str, str]:
    """Return (``py-spy``, its dump, nothing), else (None, nothing, why there is none)."""
    tool = _find_py_spy(pid)
    if tool is None:
        return None, "", "py-spy is not installed in the job's environment"
    try:
        argv = [tool, "dump", "--pid", str(pid), *([] if pauses else ["--nonblocking"])]
        done = subprocess.run(argv, capture_output=True, text=True, errors="replace", timeout=within_s, check=False)
    except (OSError, subprocess.TimeoutExpired) as exc:
        return None, "", f"py-spy: {type(exc).__name__}"
    if done.returncode == 0 and "Thread" in done.stdout:
        return "py-spy", done.stdout[:_LARGEST], ""
    return None, "", f"py-spy: {(done.stderr.strip().splitlines() or ['no answer'])[-1][:200]}"


def _find_py_spy(pid: int) -> str | None:
    """Return py-spy of the program's own environment, else of this node."""
    argv = _read(pid, "cmdline").split("\0")
    own = os.path.dirname(argv[0]) if argv[0].startswith("/") else ""
    return shutil.which("py-spy", path=own) or shutil.which("py-spy")


def _dump_with_signal(pid: int) -> str:
    """Return what faulthandler writes at a signal that the process catches, empty where it writes nothing."""
    try:
        target = pathlib.Path(os.readlink(_PROC / str(pid) / "fd" / "2"))
        size = target.stat().st_size
    except OSError:
        return ""
    for number in find_caught(_read(pid, "status")):
        if not target.is_file():
            return ""
        try:
            os.kill(pid, number)
        except OSError:
            return ""
        text = _await_dump(target, size)
        if text:
            return text
    return ""


def find_caught(status: str) -> list[int]:
    """Return the signals of users that a process handles, by the text of its ``status`` (SigCgt: bit 0 is signal 1)."""
    masks = [line.split()[1] for line in status.splitlines() if line.startswith("SigCgt:")]
    mask = int(masks[0], 16) if masks else 0
    return [int(number) for number in _SIGNALS if mask >> (number - 1) & 1]


def _await_dump(target: pathlib.Path, size: int) -> str:
    """Return the dump that was written behind ``size``, once no more is."""
    end, known = time.monotonic() + _DUMP_S, ""
    while time.monotonic() < end:
        time.sleep(_SETTLED_S)
        with open(target, "rb") as handle:
            handle.seek(size)
            text = handle.read(_LARGEST).decode(errors="replace")
        if _DUMP in text and text == known:
            return text
        known = text
    return known if _DUMP in known else ""


def _describe_waits(pid: int) -> list[str]:
    """Return lines on a process, its threads and its children: state, where they wait, and the kernel's stack."""
    lines = [f"process {pid}: {_describe_task(_PROC / str(pid))}"]
    stack = _read(pid, "stack").split("\n")
    lines += [f"  {line}" for line in stack[:20] if line]
    places: dict[str, int] = {}
    for task in sorted((_PROC / str(pid) / "task").glob("*"))[:_MOST_THREADS]:
        if task.name != str(pid):
            place = _describe_task(task)
            places[place] = places.get(place, 0) + 1
    lines += [f"{count} thread{'s' if count > 1 else ''}: {place}" for place, count in sorted(places.items())]
    for child in _read(pid, "task", pid, "children").split()[:_MOST_THREADS]:
        lines.append(f"child {child}: {_describe_task(_PROC / child)}")
    return lines


def _describe_task(place: pathlib.Path) -> str:
    name = files.read_text(place / "comm").strip() or "ended"
    state = next(
        (line.split(None, 1)[1] for line in files.read_text(place / "status").splitlines() if line[:6] == "State:"), "?"
    )
    waits = files.read_text(place / "wchan").strip()
    return f"{name}, {state}" + (f", waits in {waits}" if waits not in ("", "0") else "")


def _read(pid: int, *parts: object) -> str:
    return files.read_text(_PROC.joinpath(str(pid), *map(str, parts)))
