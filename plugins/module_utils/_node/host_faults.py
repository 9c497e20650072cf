# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The faults of a drill on a node: processes of a run that are killed, and a node that is cut off its network.

A cut drops all packets but those of the loopback interface, in both directions, so that no reset reaches either end. It
begins a moment after the answer, and what ends it is started before it.
"""

# pylint: disable=ansible-bad-function  # on a node by itself, with no AnsibleModule around it
from __future__ import annotations

import os
import pathlib
import shlex
import shutil
import signal
import subprocess
import time
import typing as t

from . import files, processes

# The answer leaves the node before its link is cut.
_DELAY_S = 1.0
_TABLE = "muster_drill"
_PATH = "/usr/sbin:/sbin:/usr/local/sbin:/usr/bin:/bin"


def kill_target(run: pathlib.Path, target: str, rank: int | None) -> dict[str, t.Any]:
    """Kill with SIGKILL: ``worker`` (one rank), ``agent``, or ``host`` (all of the run here)."""
    state = files.read_json(run / "units" / "agent" / "state.json") or {}
    if target == "worker":
        victims = _find_rank_process(run, rank)
    elif target == "agent":
        victims = [pid for pid in [processes.living_pid(state.get("child"))] if pid]
    else:
        victims = [
            pid for pid in [processes.living_pid(_supervisor_identity(run, unit)) for unit in ("agent", "store")] if pid
        ]
    at = time.time()
    processes.kill_all(victims, signal.SIGKILL)
    left: list[int] = []
    for unit in {"agent": ("agent",), "host": ("agent", "store")}.get(target, ()):
        spec = files.read_json(run / "units" / unit / "spec.json") or {}
        left += processes.kill_now(spec.get("marker", "-"))
    return {"at": at, "killed": victims, "left": left}


def cut_link(seconds: float, check: bool) -> dict[str, t.Any]:
    """Cut this node off its network for so many seconds; return ``{at}``, Unix seconds of the cut, or a ``problem``.

    :param check: only look whether that is possible.
    """
    commands = _cut_commands()
    if isinstance(commands, str):
        fix = "Connect as root (ansible_become: true) on a machine with nft or iptables, or drill target: host"
        return {"problem": f"this node cannot be cut off its network: {commands}", "fix": fix}
    if check:
        return {"at": None}
    cut, restore = commands
    # What restores the link does not depend on what cuts it.
    for script in (f"sleep {_DELAY_S + seconds}; {restore}", f"sleep {_DELAY_S}; {cut}"):
        subprocess.Popen(
            ["/bin/sh", "-c", script],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            env={"PATH": _PATH},
            cwd="/",
        )
    return {"at": time.time() + _DELAY_S}


def _cut_commands() -> tuple[str, str] | str:
    """Return the commands that cut and restore the link, or why there are none."""
    if os.geteuid() != 0:
        return "that takes root, and the connection has another user"
    nft, iptables = shutil.which("nft", path=_PATH), shutil.which("iptables", path=_PATH)
    if nft and not (problem := _try([nft, "list", "tables"])):
        return _nft_commands(nft)
    if iptables and not (problem := _try([iptables, "-w", "-L", "-n"])):
        return _iptables_commands([iptables, *filter(None, [shutil.which("ip6tables", path=_PATH)])])
    return f"{problem}" if nft or iptables else "neither nft nor iptables is installed"


def _try(argv: list[str]) -> str:
    """Return why a program that only lists rules fails, empty when it does not."""
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=10, check=False)
    return "" if done.returncode == 0 else (done.stderr.strip().splitlines() or [f"{argv[0]} failed"])[-1]


def _nft_commands(nft: str) -> tuple[str, str]:
    chains = "".join(
        f"chain {hook} {{ type filter hook {hook} priority -400; policy drop; {name} lo accept; }}; "
        for hook, name in (("input", "iif"), ("output", "oif"), ("forward", "iif"))
    )
    program = shlex.quote(nft)
    return f"{program} {shlex.quote(f'table inet {_TABLE} {{ {chains}}}')}", f"{program} delete table inet {_TABLE}"


def _iptables_commands(programs: list[str]) -> tuple[str, str]:
    rules = (("INPUT", "! -i lo"), ("OUTPUT", "! -o lo"), ("FORWARD", ""))
    lines = {
        verb: "; ".join(
            f"{shlex.quote(program)} -w -{verb} {chain} {rule} -m comment --comment {_TABLE} -j DROP"
            for program in programs
            for chain, rule in rules
        )
        for verb in ("I", "D")
    }
    return lines["I"], lines["D"]


def _find_rank_process(run: pathlib.Path, rank: int | None) -> list[int]:
    """Return the newest living process of ``rank`` (any rank when None) that this node's events name."""
    started: dict[int, int] = {}
    try:
        text = (run / "events.jsonl").read_bytes()
    except OSError:
        return []
    for line in files.parse_json_lines(text):
        if line.get("kind") == "worker_started" and (rank is None or line.get("rank") == rank):
            started[int(line["rank"] or 0)] = int(line["pid"])
    marker = (files.read_json(run / "units" / "agent" / "spec.json") or {}).get("marker")
    living = [pid for pid in started.values() if processes.environment_of(pid).get(processes.MARKER) == marker]
    return living[-1:]


def _supervisor_identity(run: pathlib.Path, unit: str) -> str | None:
    state = files.read_json(run / "units" / unit / "state.json") or {}
    return t.cast("str | None", state.get("supervisor"))
