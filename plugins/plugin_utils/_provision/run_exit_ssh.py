# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read from its machines whether a run has ended: for a reaper, when the controller that followed it has ended.

Every machine of a run stores how its part ended (``units/agent/exit.json`` below the run's folder, whose path is in
the ledger). A machine that does not answer proves nothing; one that its provider no longer lists has ended.
"""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import re
import shlex
import subprocess
import typing as t

from ...module_utils._model.lease import Instance
from ...module_utils._model.ledger import Lease
from .bill.due_rules import RunView
from .probe_ssh import RunCommand, checked_endpoint, ssh_argv

# A controller that still follows the run needs this long for the last logs.
GRACE_S = 120.0
_LIMIT_S = 60.0
_LINE = re.compile(r"([a-z_]{1,40})=(.{0,4000})\Z")
_SCRIPT = """
look() { cat "$1" 2>/dev/null || sudo -n cat "$1" 2>/dev/null || true; }
printf 'muster_run=1\\n'
printf 'now=%s\\n' "$(date +%s)"
printf 'exit=%s\\n' "$(look "$run/units/agent/exit.json" | tr -d '\\n' | head -c 3000)"
"""

NodeState = t.Literal["ended", "running", "silent", "gone"]
ReadRunEnd = t.Callable[[Instance, str], "NodeEnd"]


@dataclasses.dataclass(frozen=True, slots=True)
class NodeEnd:
    """How one machine's part of a run stands; ``age_s`` is how long ago it ended."""

    state: NodeState
    exit_code: int | None = None
    cause: str = ""
    age_s: float = 0.0


def parse_run_end(output: str) -> NodeEnd:
    """Return the state in the script's output; without a valid end the part is running, or the machine is silent."""
    facts = {match[1]: match[2] for line in output.split("\n") if (match := _LINE.match(line.strip("\r")))}
    if facts.get("muster_run") != "1" or not re.fullmatch(r"[0-9]{1,12}", facts.get("now", "")):
        return NodeEnd("silent")
    try:
        end = json.loads(facts.get("exit", ""))
        return NodeEnd("ended", int(end["exit_code"]), str(end["cause"]), int(facts["now"]) - float(end["at"]))
    except (ValueError, LookupError, TypeError, OverflowError, RecursionError):
        return NodeEnd("running")


def judge_run(ends: t.Sequence[tuple[NodeEnd, bool]]) -> RunView | None:
    """Return how a run ended from (end, whether this machine decides); None while it may be running."""
    deciding = [end for end, decides in ends if decides]
    if not deciding or any(end.state in ("running", "silent") for end in deciding):
        return None
    if min((end.age_s for end in deciding if end.state == "ended"), default=GRACE_S) < GRACE_S:
        return None
    if any(end.state == "gone" for end in deciding):
        return RunView("ended", "lost")
    if all(end.exit_code == 0 for end in deciding):
        return RunView("ended", "succeeded")
    return RunView("ended", "cancelled" if any(end.cause == "cancelled" for end in deciding) else "failed")


def find_ended_runs(
    leases: t.Iterable[Lease],
    known: t.Mapping[str, RunView],
    listed: t.Mapping[str, t.Sequence[Instance]],
    read: ReadRunEnd,
) -> dict[str, RunView]:
    """Return how runs ended whose record has no end, for leases that end with their run.

    :param listed: the listings of the accounts that could be read, by provider.
    """
    ends_by_run: dict[str, list[tuple[NodeEnd, bool]]] = {}
    for lease in leases:
        if lease.provider in listed and is_bound_to_open_run(lease, known):
            ends = [_read_node_end(node, lease, listed[lease.provider], read) for node in run_nodes(lease)]
            ends_by_run.setdefault(str(lease.run_id), []).extend(ends)
    views = {run_id: judge_run(ends) for run_id, ends in ends_by_run.items()}
    return {run_id: view for run_id, view in views.items() if view is not None}


def is_bound_to_open_run(lease: Lease, known: t.Mapping[str, RunView]) -> bool:
    """Return whether a lease ends with its run and the end of that run is not known yet."""
    run = known.get(lease.run_id or "")
    ends_with_run = lease.open and bool(lease.run_id) and lease.release in ("success", "always")
    return ends_with_run and (run is None or run.state != "ended")


def run_nodes(lease: Lease) -> list[t.Mapping[str, object]]:
    """Return ``{id, run_dir, decides}`` of the machines of a lease on which its run is; a ledger may hold anything."""
    nodes = (lease.run_place or {}).get("nodes")
    listed = nodes if isinstance(nodes, list) else []
    return [item for item in listed if isinstance(item, t.Mapping) and isinstance(item.get("run_dir"), str)]


def _read_node_end(
    node: t.Mapping[str, object], lease: Lease, listed: t.Sequence[Instance], read: ReadRunEnd
) -> tuple[NodeEnd, bool]:
    decides = node.get("decides") is not False
    instances = [item for item in listed if item.id in lease.ids or item.carries(lease.cluster, lease.token)]
    machine = next((item for instance in instances for item in instance.machines if item.id == node.get("id")), None)
    if machine is None:
        return NodeEnd("gone"), decides
    return read(machine, str(node["run_dir"])), decides


class SshRunReader:
    """Reads runs over SSH; ``folder`` holds the host keys, one file a machine."""

    def __init__(self, folder: pathlib.Path, identity: str | None = None, execute: RunCommand = subprocess.run) -> None:
        self._folder = folder
        self._identity = identity
        self._execute = execute

    def __call__(self, machine: Instance, run_dir: str) -> NodeEnd:
        """Return how a machine's part of the run in ``run_dir`` stands."""
        endpoint = checked_endpoint(machine)
        if endpoint is None:
            return NodeEnd("silent")
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            process = self._execute(
                ssh_argv(self._folder, machine, endpoint, self._identity),
                input=f"run={shlex.quote(run_dir)}\n{_SCRIPT}",
                capture_output=True,
                text=True,
                errors="replace",
                timeout=_LIMIT_S,
                check=False,
                env={**os.environ, "LC_ALL": "C"},
            )
        except (subprocess.TimeoutExpired, OSError):
            return NodeEnd("silent")
        return parse_run_end(process.stdout) if process.returncode == 0 else NodeEnd("silent")
