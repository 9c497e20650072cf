# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Processes of a run, found through /proc.

torchrun starts its workers in sessions of their own, so a process group does not hold them: a killed agent leaves
its workers training as orphans. They are found by the tree below the supervisor and, when the supervisor is gone
too, by the marker variable that every process of a run carries in its environment.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import signal
import time
import typing as t

MARKER = "MUSTER_UNIT"
_PROC = pathlib.Path("/proc")
# ::ffff:0:0/96, as the kernel shows it.
_MAPPED = "0000000000000000FFFF0000"
_PR_SET_CHILD_SUBREAPER = 36


def start_time(pid: int) -> str | None:
    """Return the kernel's start time of ``pid`` (clock ticks since boot), or None when it has ended or is a zombie."""
    try:
        text = (_PROC / str(pid) / "stat").read_text()
    except OSError:
        return None
    # The command name may hold spaces and parentheses: count fields after the last ')'.
    rest = text[text.rindex(")") + 2 :].split()
    return None if rest[0] in "ZX" else rest[19]


def identity(pid: int) -> str | None:
    """Return a name for ``pid`` that a reused number does not share, or None when the process has ended."""
    started = start_time(pid)
    return f"{pid}@{started}" if started is not None else None


def living_pid(name: str | None) -> int | None:
    """Return the pid behind an :func:`identity`, or None when that process has ended."""
    if not name or "@" not in name:
        return None
    pid = int(name.split("@")[0])
    return pid if identity(pid) == name else None


def dead_children(parent: int) -> list[int]:
    """Return the direct children of ``parent`` that have ended and were not waited for (a subreaper gets orphans)."""
    found = []
    for pid in _pids():
        try:
            text = (_PROC / str(pid) / "stat").read_text()
        except OSError:
            continue
        state, owner = text[text.rindex(")") + 2 :].split()[:2]
        if state == "Z" and int(owner) == parent:
            found.append(pid)
    return found


def find_marked(value: str) -> list[int]:
    """Return living processes whose environment carries ``MUSTER_UNIT=value`` (this process excluded)."""
    wanted = f"{MARKER}={value}".encode()
    found = []
    for pid in _pids():
        try:
            names = (_PROC / str(pid) / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if wanted in names and pid != os.getpid() and start_time(pid) is not None:
            found.append(pid)
    return found


def count_connections(port: int, own: t.Iterable[int] = ()) -> int:
    """Return how many established TCP connections of this machine have ``port`` at this end.

    :param own: processes whose connections to that port do not count: a server may be a client of itself.
    """
    found = [line for name in ("tcp", "tcp6") for line in _read_connections(name)]
    sockets = {inode for pid in own for inode in _list_sockets(pid)}
    ours = {local for local, remote, inode in found if inode in sockets and remote[1] == port}
    return sum(local[1] == port and remote not in ours for local, remote, _inode in found)


def _read_connections(name: str) -> list[tuple[tuple[str, int], tuple[str, int], str]]:
    """Return both ends (address, port) and the inode of established connections.

    In hex as the kernel shows them (proc_net_tcp of its documentation): state 01 is ESTABLISHED.
    """
    try:
        lines = (_PROC / "net" / name).read_text().splitlines()[1:]
    except OSError:
        return []
    return [(_parse_end(item[1]), _parse_end(item[2]), item[9]) for item in map(str.split, lines) if item[3] == "01"]


def _parse_end(text: str) -> tuple[str, int]:
    # Of a connection over IPv4 one end may be a socket of IPv6: its address is the other's, mapped.
    address, _colon, port = text.rpartition(":")
    return address.removeprefix(_MAPPED), int(port, 16)


def _list_sockets(pid: int) -> list[str]:
    """Return the inodes of a process's sockets; none where they may not be read."""
    found = []
    with contextlib.suppress(OSError):
        for name in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                target = os.readlink(f"/proc/{pid}/fd/{name}")
                found += [target[8:-1]] if target.startswith("socket:[") else []
    return found


def list_children(pid: int) -> list[int]:
    """Return the children of all threads of a process."""
    found = []
    try:
        tasks = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return []
    for task in tasks:
        try:
            with open(f"/proc/{pid}/task/{task}/children", encoding="ascii") as handle:
                found += [int(item) for item in handle.read().split()]
        except OSError:
            continue
    return found


def list_descendants(pid: int, most: int) -> list[int]:
    """Return the descendants of a process, the nearest first, ``most`` of them at most."""
    found = [pid]
    for parent in found:
        if len(found) <= most:
            found += list_children(parent)
    return found[1 : most + 1]


def adopt_orphans(on: bool) -> None:
    """Become the parent of descendants whose own parent ends (a subreaper), or stop that.

    :raises OSError: this kernel or C library cannot do it.
    """
    # Here: few of the processes that use this file need it, and all of them would wait for it.
    import ctypes

    prctl = getattr(ctypes.CDLL(None, use_errno=True), "prctl", None)
    if prctl is None or prctl(_PR_SET_CHILD_SUBREAPER, int(on), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "PR_SET_CHILD_SUBREAPER")


def environment_of(pid: int) -> dict[str, str]:
    """Return the environment of ``pid``, empty when it has ended or belongs to another user."""
    try:
        raw = (_PROC / str(pid) / "environ").read_bytes()
    except OSError:
        return {}
    items = (item.partition("=") for item in raw.decode(errors="replace").split("\0"))
    return {key: value for key, _unused, value in items if key}


def kill_all(pids: list[int], number: int = signal.SIGKILL) -> None:
    """Send a signal to each process; those that have ended are ignored."""
    for pid in pids:
        try:
            os.kill(pid, number)
        except (ProcessLookupError, PermissionError):
            continue


def kill_group(leader: int, number: int) -> None:
    """Send a signal to a process group; one that has ended is ignored."""
    try:
        os.killpg(leader, number)
    except (ProcessLookupError, PermissionError):
        return


def kill_marked(value: str, within_s: float = 10.0) -> list[int]:
    """Kill every process of a unit and wait until none is left.

    :returns: the pids that are still there after ``within_s`` seconds (normally none).
    """
    end = time.monotonic() + within_s
    names: set[str] = set()
    while True:
        # One that ends loses its environment before its files and ports: what was found once is waited for by name.
        names |= {name for name in map(identity, find_marked(value)) if name}
        left = [pid for pid in map(living_pid, names) if pid]
        if not left or time.monotonic() >= end:
            return left
        kill_all(left)
        time.sleep(0.02)


def kill_now(value: str, within_s: float = 10.0) -> list[int]:
    """Kill the processes of a unit that are alive now, not those that its supervisor starts after them.

    :returns: the pids that are still there after ``within_s`` seconds.
    """
    names = [name for name in map(identity, find_marked(value)) if name]
    end = time.monotonic() + within_s
    left = [pid for pid in map(living_pid, names) if pid]
    while left and time.monotonic() < end:
        kill_all(left)
        time.sleep(0.02)
        left = [pid for pid in map(living_pid, names) if pid]
    return left


def _pids() -> list[int]:
    return [int(entry) for entry in os.listdir(_PROC) if entry.isdecimal()]
