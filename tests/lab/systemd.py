# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a node's systemd says about units, asked past SSH."""

from __future__ import annotations

from .nodes import Lab


def units(lab: Lab, node: str, pattern: str = "muster-*", user: str = "") -> list[str]:
    """Return the names of the units that match, in whatever state; ``user`` asks that user's own manager."""
    text = lab.ask(node, *_systemctl(user), "list-units", "--all", "--plain", "--no-legend", pattern)
    return [line.split()[0] for line in text.splitlines()]


def show(lab: Lab, node: str, unit: str, user: str = "") -> dict[str, str]:
    """Return all properties of a unit."""
    text = lab.ask(node, *_systemctl(user), "show", unit)
    return {key: value for key, _, value in (line.partition("=") for line in text.splitlines())}


def members(lab: Lab, node: str, unit: str, user: str = "") -> dict[int, str]:
    """Return pid -> command line of every process in the unit's control group (version 1 or 2)."""
    group = show(lab, node, unit, user)["ControlGroup"]
    script = (
        f"cat /sys/fs/cgroup/systemd{group}/cgroup.procs /sys/fs/cgroup{group}/cgroup.procs 2>/dev/null | sort -u |"
        " while read -r pid; do echo $pid $(tr '\\0' ' ' < /proc/$pid/cmdline | head -c 200); done"
    )
    lines = (line.partition(" ") for line in lab.ask(node, "sh", "-c", script).splitlines())
    return {int(pid): command for pid, _, command in lines}


def traces(lab: Lab, node: str) -> list[str]:
    """Return what a run may leave behind on a node outside its state folder: units, processes, files below /run."""
    found = [f"unit {name}" for name in units(lab, node)]
    files = lab.ask(node, "find", "/run", "-name", "*muster*", "-not", "-path", "/run/user/*/inaccessible/*")
    # logind's mark for a user of that name is no trace of a run, nor is sudo's.
    found += [f"file {name}" for name in files.splitlines() if "muster-" in name]
    commands = lab.ask(node, "ps", "-eo", "pid=,args=")
    mine = [line.strip() for line in commands.splitlines() if " supervise " in line or "MUSTER" in line]
    return found + [f"process {line}" for line in mine]


def _systemctl(user: str) -> list[str]:
    return ["systemctl"] if not user else ["systemctl", "--user", f"--machine={user}@"]
