# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plan of a run on plain hosts, and what the nodes' answers say of its former start."""

from __future__ import annotations

import dataclasses

from .....module_utils._model import checks
from .....module_utils._model.job import Job
from .....module_utils._model.network_plan import NetworkPlan
from .....module_utils._model.node_report import NodeReport
from .....module_utils._model.run_record import RunRecord
from ...._hosts.node_client import NodeClient
from ...shared.request import Dict, RunRequest
from ...shared.state_dir import StateHome
from .. import source as code_source
from ..object_stores.checkpoint_binding import BoundCheckpoints
from ..object_stores.dataset_binding import BoundDataset
from ..trackers.tracking import BoundTracking
from . import plan as hosts_plan

# Of the cluster's folder: where each host's agent was when it was last asked.
AGENTS_FILE = "agents.json"


_FINAL = (
    "succeeded",
    "crash",
    "disk_full",
    "fatal_exit_code",
    "timeout",
    "rendezvous_closed",
    "rendezvous_timeout",
)


@dataclasses.dataclass(frozen=True)
class HostsPlan:
    """Everything decided before anything is written."""

    job: Job
    run_id: str
    hosts: list[hosts_plan.TrainingHost]
    source: code_source.CodeSource
    remotes: list[NodeClient]
    reports: dict[str, NodeReport]
    checks: list[checks.Check]
    derived: Dict
    network: NetworkPlan
    bound: BoundCheckpoints | None = None
    datasets: tuple[BoundDataset, ...] = ()
    tracked: BoundTracking | None = None


def build_owner_mark(request: RunRequest, home: StateHome, job: Job) -> Dict:
    """Return what a node notes about who holds the run."""
    take_over = bool(request.options.get("take_over"))
    return {**home.owner(create=True), "gpus": job.gpus_per_node, "take_over": take_over}


def is_running(plan: HostsPlan, before: RunRecord | None) -> bool:
    """Return whether the run is at work; what is left of a start whose end is recorded is not."""
    left = list_left(plan, before)
    return any(report.agent.alive for name, report in plan.reports.items() if name not in left)


def list_left(plan: HostsPlan, before: RunRecord | None) -> list[str]:
    """Return the nodes with a part of a start that has ended by the run's record: it could not be stopped then.

    A later start is one that another controller has begun since.
    """
    if before is None or not before.is_ended:
        return []
    starts = {name: report.agent.generation for name, report in plan.reports.items() if report.agent.alive}
    return [name for name, start in starts.items() if start is not None and start <= before.generation]


def has_unrecorded_end(plan: HostsPlan, before: RunRecord | None) -> bool:
    """Return whether the run ended while it was not followed: its end then only has to be recorded.

    It ended on all nodes, or under mpirun on the first, whose end is the run's.
    """
    if before is None or before.is_ended:
        return False
    if plan.job.launcher == "mpi" and is_part_over(plan, plan.hosts[0].name, before):
        return True
    ends = [report.agent.end for report in plan.reports.values()]
    return all(end is not None and end.generation == before.generation for end in ends)


def is_part_over(plan: HostsPlan, node: str, before: RunRecord | None) -> bool:
    """Return whether a node has ended its part of the present start, while others may need a moment longer.

    A part that was cancelled, or that lost its gang, is not over: it can be started again.
    """
    end = plan.reports[node].agent.end
    if end is None or before is None or before.is_ended:
        return False
    return end.generation == before.generation and end.cause in _FINAL


def is_alive(plan: HostsPlan, node: str) -> bool:
    return plan.reports[node].agent.alive
