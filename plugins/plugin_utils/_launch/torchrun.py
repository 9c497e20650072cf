# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""torchrun as it is: an agent a node, and a rendezvous store of its own that outlives each of them.

Of all forms only c10d with such a store survives the loss of either host's agent. The shared store is off because a
restarted gang reads the previous attempt's keys from it and hangs (pytorch#135712). On a single host there is nothing
that a store could outlive, so the agent opens one by itself (``--standalone``).
"""

from __future__ import annotations

import math
import re

from ...module_utils._model import job_backends
from ...module_utils._model.job import Job
from ...module_utils._model.pod_spec import PodSpec
from . import environment, pod_spec
from .base import STORE_PROGRAM, Launch, NodeLaunch, NodeSlot, RunContext

_TORCHRUN = ("-m", "torch.distributed.run")
# What follows "--" is the program's: otherwise torchrun takes --logs there for an abbreviation of options of its own.
_PROGRAM = ("--no-python", "--")
# A rank that ended is noticed after this long; looking costs an agent half a percent of a core.
_MONITOR_S = "0.02"
# A lost agent is noticed after interval x attempts = 3 s; torch's own default is 15 s.
_KEEP_ALIVE_S = 1
_KEEP_ALIVE_ATTEMPTS = 3
# Clocks that are no further apart need no more time: as well as they can be read over SSH.
_CLOSE_S = 1.0

# In pods torchrun shows the lines: the rank in the whole world, where its own prefix has the number on the node.
_LOG_PREFIX = {"TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE": "[default${rank}]:"}

_DOLLAR = re.compile(r"\$(?!\{local_rank\})")

PACKAGES = ("torch",)


def launch(job: Job, nodes: tuple[NodeSlot, ...], run: RunContext) -> Launch:
    """Return one torchrun per node and, for several, the rendezvous store beside the first."""
    first = nodes[0]
    store = (first.python, STORE_PROGRAM, "{listen_fd}", first.address, str(run.port))
    return Launch(
        nodes=tuple(node_launch(job, slot, nodes, run) for slot in nodes),
        policy="torchrun",
        store=store if len(nodes) > 1 else None,
        restarts="torchrun re-forms the gang; a lost agent is started again by its unit",
    )


def node_launch(job: Job, slot: NodeSlot, nodes: tuple[NodeSlot, ...], run: RunContext) -> NodeLaunch:
    """Return the agent of one node."""
    env = {
        **environment.node_variables(job, slot, nodes, run),
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
        # Read by rank.py: the supervisor puts the lines of the ranks into the node's log (host_rank_output.py).
        "MUSTER_OUTPUT": f"{slot.run_dir}/ranks",
        # Read by rank.py: a gang of fewer ranks is not this job.
        "MUSTER_WORLD_SIZE": str(job.world_size),
        # Time for ranks to save after SIGTERM before torchrun kills them (an option only since torch 2.10).
        "PET_SHUTDOWN_TIMEOUT": str(job.checkpoints.grace_s),
    }
    if job.restart.fatal_exit_codes:
        env["MUSTER_FATAL_EXIT_CODES"] = ",".join(str(code) for code in job.restart.fatal_exit_codes)
    return NodeLaunch(argv=_agent_command(job, slot, nodes, run), env=env)


def _agent_command(job: Job, slot: NodeSlot, nodes: tuple[NodeSlot, ...], run: RunContext) -> tuple[str, ...]:
    # A surviving agent spends its budget on the other nodes' losses too, so it needs the sum.
    restarts = job.restart.max_crashes + job.restart.max_lost_nodes
    return (
        slot.python,
        *_TORCHRUN,
        f"--nnodes={len(nodes)}",
        f"--nproc-per-node={job.nproc}",
        *_rendezvous_options(job, nodes, run),
        f"--local-addr={slot.address}",
        f"--max-restarts={restarts}",
        f"--monitor-interval={_MONITOR_S}",
        f"--log-dir={slot.run_dir}/ranks",
        *_PROGRAM,
        *_keep_dollars(environment.rank_command(job, slot)),
    )


def _keep_dollars(argv: tuple[str, ...]) -> tuple[str, ...]:
    """Return a command whose dollars survive torchrun, which takes each argument for a ``string.Template``.

    Its one macro stays one: ``${local_rank}`` (torch.distributed.elastic.utils.macros).
    """
    return tuple(_DOLLAR.sub("$$", word) for word in argv)


def _rendezvous_options(job: Job, nodes: tuple[NodeSlot, ...], run: RunContext) -> tuple[str, ...]:
    if len(nodes) == 1:
        return ("--standalone",)
    # An agent compares the others' heartbeats, by their clocks, with its own clock, and takes one that is old for lost:
    # a complete gang then has fewer ranks (torch.distributed.elastic.rendezvous.dynamic_rendezvous, _sanitize).
    late = math.ceil(run.clock_spread_s / _KEEP_ALIVE_S) if run.clock_spread_s > _CLOSE_S else 0
    settings = {
        "is_host": 0,
        "keep_alive_interval": _KEEP_ALIVE_S,
        "keep_alive_max_attempt": _KEEP_ALIVE_ATTEMPTS + late,
        "read_timeout": 60,
        "join_timeout": job.restart.wait_s,
    }
    return (
        "--rdzv-backend=c10d",
        f"--rdzv-endpoint={nodes[0].address}:{run.port}",
        f"--rdzv-id={run.run_id}-{run.attempt}",
        "--rdzv-conf=" + ",".join(f"{key}={value}" for key, value in settings.items()),
    )


# Engines that start the whole gang again: there an agent starts nothing itself, so that each crash is counted once.
_GANG_RESTARTS = ("jobset", "trainjob", "volcano")


def pods(job: Job, run: RunContext) -> dict[str, PodSpec]:
    """Return the agent of every pod: a static rendezvous at the first pod, or c10d where the world may change its size.

    A gang of fixed size never gets one pod replaced alone: measured, neither rendezvous survives it with its defaults.
    """
    pod = pod_spec.any_pod(job)
    argv = (pod.python, *_TORCHRUN, *_PROGRAM, *_keep_dollars(environment.rank_command(job, pod)))
    inside = 0 if job.engine in _GANG_RESTARTS else job.restart.max_crashes
    values = {
        **_LOG_PREFIX,
        "PET_NPROC_PER_NODE": str(job.nproc),
        "PET_RDZV_ID": f"{run.run_id}-{{attempt}}",
        "PET_LOCAL_ADDR": "{own}",
        "PET_MONITOR_INTERVAL": _MONITOR_S,
        "PET_LOG_DIR": pod_spec.path_in_run("ranks"),
        "PET_TEE": "3",
        # Read by rank.py: torchrun shows two streams out of order, and a line that has no step is of the bar before it.
        "MUSTER_ONE_STREAM": "1",
        "PET_SHUTDOWN_TIMEOUT": str(job.checkpoints.grace_s),
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
    }
    if job_backends.is_elastic(job):
        values.update(_elastic_variables(job, run))
    else:
        values.update(
            PET_NNODES=str(job.nodes),
            PET_NODE_RANK="{rank}",
            PET_MASTER_ADDR="{address}",
            PET_MASTER_PORT=str(run.port),
            PET_MAX_RESTARTS=str(inside),
            PET_RDZV_CONF=f"timeout={job.restart.wait_s}",
        )
    return {"node": pod_spec.build_pod_spec(job, run, argv, values, policy="torchrun")}


def _elastic_variables(job: Job, run: RunContext) -> dict[str, str]:
    settings = {
        "is_host": "{first}",
        "keep_alive_interval": _KEEP_ALIVE_S,
        "keep_alive_max_attempt": _KEEP_ALIVE_ATTEMPTS,
        "read_timeout": 60,
        "join_timeout": job.restart.wait_s,
    }
    return {
        "PET_NNODES": f"{job.elastic.min}:{job.nodes}",
        "PET_RDZV_BACKEND": "c10d",
        "PET_RDZV_ENDPOINT": f"{{address}}:{run.port}",
        "PET_RDZV_CONF": ",".join(f"{key}={value}" for key, value in settings.items()),
        "PET_MAX_RESTARTS": str(job.restart.max_crashes + job.restart.max_lost_nodes),
    }
