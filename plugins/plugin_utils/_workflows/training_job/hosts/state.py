# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the parts of the ``training_job`` runner share: the request, the plan, and small questions about them.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import dataclasses
import pathlib
import typing as t

from .....module_utils._model import checks, fabric_gate
from .....module_utils._model.job import Job
from ...._hosts.node_client import NodeClient
from ...shared.progress import Progress
from ...shared.state_dir import StateHome
from . import plan as hosts_plan

Dict = dict[str, t.Any]
# Of the cluster's folder: where each host's agent was when it was last asked.
AGENTS = "agents.json"


_FINAL = ("succeeded", "crash", "fatal_exit_code", "timeout")


@dataclasses.dataclass(frozen=True)
class Request:
    """What the face hands over: options, the play's hosts with their variables, and how to reach them."""

    options: Dict
    hosts: t.Sequence[str]
    hostvars: t.Mapping[str, t.Any]
    base: pathlib.Path
    check: bool
    connect: t.Callable[[t.Sequence[str]], list[NodeClient]]
    progress: Progress


@dataclasses.dataclass(frozen=True)
class Plan:
    """Everything decided before anything is written."""

    job: Job
    run_id: str
    hosts: list[hosts_plan.Host]
    source: hosts_plan.Source
    remotes: list[NodeClient]
    infos: dict[str, Dict]
    checks: list[checks.Check]
    derived: Dict
    gate: fabric_gate.FabricGate


def claim(request: Request, home: StateHome, job: Job) -> Dict:
    """Return what a node notes about who holds the run."""
    take_over = bool(request.options.get("take_over"))
    return {**home.owner(create=True), "gpus": job.gpus_per_node, "take_over": take_over}


def running(plan: Plan) -> bool:
    return any(info["units"].get("agent", {}).get("alive") for info in plan.infos.values())


def ended_unseen(plan: Plan, before: Dict | None) -> bool:
    """Return whether the run ended while nobody followed it: its end is then only to be recorded.

    It ended on all nodes, or under mpirun on the first, whose end is the run's.
    """
    if before is None or before["state"] == "ended":
        return False
    if plan.job.launcher == "mpi" and part_is_over(plan, plan.hosts[0].name, before):
        return True
    ends = [info["units"].get("agent", {}).get("exit") for info in plan.infos.values()]
    return all(end and end["generation"] == before["generation"] for end in ends)


def part_is_over(plan: Plan, node: str, before: Dict | None) -> bool:
    """Return whether a node has ended its part of the present start, while others may need a moment longer.

    A part that was cancelled, or that lost its gang, is not over: it can be started again.
    """
    end = plan.infos[node]["units"].get("agent", {}).get("exit")
    if not end or before is None or before["state"] == "ended":
        return False
    return end["generation"] == before["generation"] and end["cause"] in _FINAL


def alive(plan: Plan, node: str) -> bool:
    return bool(plan.infos[node]["units"].get("agent", {}).get("alive"))


def result(value: Dict, folder: pathlib.Path, changed: bool) -> Dict:
    """Return the module's result: the record, where it is, and failure when the run failed."""
    result: Dict = {"changed": changed, "run_id": value["run_id"], "run": value, "folder": str(folder)}
    if value["outcome"] in ("failed", "lost"):
        short = {key: value[key] for key in ("state", "outcome", "cause", "detail", "exit_code", "world_size")}
        # Ansible prints all of a failed result: the line that matters must not drown in the record.
        result.update(failed=True, run=short, msg=f"run {value['run_id']} {value['outcome']}: {value['detail']}")
    return result
