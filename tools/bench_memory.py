# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller's memory while it watches many hosts (``make bench``)."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys
import time
import typing as t

from .bench_world import Line, World


def memory(world: World, hosts: int = 64) -> list[Line]:
    """Watch many local hosts and compare the controller's memory with an empty playbook's."""
    names = [f"w{number}" for number in range(1, hosts + 1)]
    place = world.root / "many.yml"
    address_of = {name: {"muster_address": f"127.0.1.{number}"} for number, name in enumerate(names, 1)}
    shared = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    place.write_text(json.dumps({"all": {"hosts": address_of, "vars": shared}}))
    job = {"name": "many", "nodes": hosts, "launcher": "command", "command": ["sleep", "8"]}
    values = {"muster_job": job, "muster_state": {"path": str(world.root / "state")}, "muster_train_hosts": "all"}
    values["muster_node_state"] = str(world.root / "nodes")
    watching = _peak(_many(place, "muster.training.train", values))
    empty = world.root / "empty_many.yml"
    empty.write_text("- hosts: all\n  gather_facts: false\n  tasks: []\n")
    nothing = _peak(_many(place, str(empty), values))
    extra = (watching - nothing) / 2**20
    shown = f"{extra:.0f} MiB more ({watching / 2**20:.0f} against {nothing / 2**20:.0f} MiB, PSS; local connection)"
    return [Line(f"controller memory while watching {hosts} hosts", shown, "≤ 200 MiB more", extra <= 200)]


def _many(inventory: pathlib.Path, name: str, values: dict[str, t.Any]) -> subprocess.Popen[bytes]:
    program = str(pathlib.Path(sys.executable).parent / "ansible-playbook")
    argv = [program, "-i", str(inventory), name, "-e", json.dumps(values)]
    return subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _peak(play: subprocess.Popen[bytes]) -> int:
    """Return the largest proportional set size of the playbook's processes; what runs for a node does not count."""
    peak = 0
    while play.poll() is None:
        peak = max(peak, sum(_pss(pid) for pid in _controller_tree(play.pid)))
        time.sleep(0.1)
    if play.returncode:
        raise SystemExit(f"bench: the playbook ended with {play.returncode}")
    return peak


def _controller_tree(root: int) -> list[int]:
    found, queue = [], [root]
    while queue:
        pid = queue.pop()
        try:
            command = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
            children = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        except OSError:
            continue
        if b"ansible-playbook" in command:
            found.append(pid)
            queue += [int(child) for child in children]
    return found


def _pss(pid: int) -> int:
    try:
        for line in pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0
