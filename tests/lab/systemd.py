# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a node's systemd and its process table say about runs, asked past SSH."""

from __future__ import annotations

import dataclasses

from .image import USER
from .nodes import Lab
from .plays import Controller


@dataclasses.dataclass(frozen=True, slots=True)
class Process:
    """A process of a node: pid, user, command line."""

    pid: int
    user: str
    command: str


def unit(controller: Controller, node: str, name: str = "agent") -> str:
    """Return the name of a run's unit on a node."""
    return f"muster-{controller.run_id}-{node}-{name}.service"


def units(lab: Lab, node: str, user: bool = False) -> list[str]:
    """Return the units of runs, in whatever state; with ``user`` those of the user's own systemd."""
    done = lab.run(node, *_systemctl(user), "list-units", "--all", "--plain", "--no-legend", "muster-*")
    # A user's own systemd that does not run has no units.
    return [line.split()[0] for line in done.stdout.decode().splitlines()]


def show(lab: Lab, node: str, name: str, user: bool = False) -> dict[str, str]:
    """Return all properties of a unit."""
    text = lab.ask(node, *_systemctl(user), "show", name)
    return {key: value for key, _, value in (line.partition("=") for line in text.splitlines())}


def members(lab: Lab, node: str, name: str) -> dict[int, str]:
    """Return pid -> command line of every process in the unit's control group (hierarchy of version 1 or 2)."""
    group = show(lab, node, name)["ControlGroup"]
    script = f"cat /sys/fs/cgroup/systemd{group}/cgroup.procs /sys/fs/cgroup{group}/cgroup.procs 2>/dev/null"
    pids = {int(pid) for pid in lab.ask(node, "sh", "-c", f"{script}; true").split()}
    return {item.pid: item.command for item in processes(lab, node) if item.pid in pids}


def processes(lab: Lab, node: str) -> list[Process]:
    """Return the processes of a node."""
    text = lab.ask(node, "ps", "-ww", "-eo", "pid=,user=,args=")
    rows = (line.split(None, 2) for line in text.splitlines())
    return [Process(int(pid), user, command) for pid, user, command in rows]


def supervisors(lab: Lab, node: str) -> list[Process]:
    """Return the supervisors of all runs' units on a node."""
    return [item for item in processes(lab, node) if "run.py supervise " in item.command]


def traces(lab: Lab, node: str, run_id: str) -> list[str]:
    """Return what a run must not leave on a node: units, files below /run, processes that carry its mark."""
    found = [f"unit {name}" for name in [*units(lab, node), *units(lab, node, user=True)] if run_id in name]
    found += [f"file {name}" for name in lab.ask(node, "find", "/run", "-name", f"*{run_id}*").splitlines()]
    script = f"grep -lz '^MUSTER_UNIT=.*{run_id}' /proc/[0-9]*/environ 2>/dev/null; true"
    found += [f"process {name}" for name in lab.ask(node, "sh", "-c", script).split()]
    return found + [f"process {item.command}" for item in supervisors(lab, node) if run_id in item.command]


def _systemctl(user: bool) -> list[str]:
    if not user:
        return ["systemctl"]
    script = 'XDG_RUNTIME_DIR="/run/user/$(id -u)" exec systemctl --user "$@"'
    return ["runuser", "-u", USER, "--", "sh", "-c", script, "systemctl"]
