# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A command, started once on every node. On hosts it is never restarted, as the run record states."""

from __future__ import annotations

from ...module_utils._model.job import Job
from ...module_utils._model.pod_spec import PodSpec
from . import environment, pod_spec
from .base import Launch, NodeLaunch, NodeSlot, RunContext


def launch(job: Job, nodes: tuple[NodeSlot, ...], run: RunContext) -> Launch:
    """Return the command for each node, with the variables from which it can build a world of one rank a node."""
    return Launch(
        nodes=tuple(_node(job, slot, nodes, run) for slot in nodes),
        policy="never",
        restarts="none: the launcher 'command' starts each node's command once",
    )


def _node(job: Job, slot: NodeSlot, nodes: tuple[NodeSlot, ...], run: RunContext) -> NodeLaunch:
    env = {
        "MASTER_ADDR": nodes[0].address,
        "MASTER_PORT": str(run.port),
        "RANK": str(slot.rank),
        "WORLD_SIZE": str(len(nodes)),
        "LOCAL_RANK": "0",
        **environment.node_variables(job, slot, nodes, run),
    }
    return NodeLaunch(argv=environment.rank_command(job, slot), env=env, wait_for_peer=False)


def pods(job: Job, run: RunContext) -> dict[str, PodSpec]:
    """Return the command of every pod, one rank each; the engine starts the whole gang again."""
    values = {"RANK": "{rank}", "WORLD_SIZE": str(job.nodes), "LOCAL_RANK": "0"}
    return {"node": pod_spec.build_pod_spec(job, run, environment.rank_command(job, pod_spec.any_pod(job)), values)}
