# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The environment that every process of a job sees, one place for it."""

from __future__ import annotations

import json
import re

from ...module_utils._model.job import Job
from ...module_utils._model.node_environment import bind_to_interface
from .base import NodeSlot, RunContext

CODE_DIR = "code"
DATA_DIR = "data"
DEEPSPEED_FILE = "deepspeed.json"


def node_variables(job: Job, slot: NodeSlot, nodes: tuple[NodeSlot, ...], run: RunContext) -> dict[str, str]:
    """Return the variables that do not depend on the launcher.

    RANK, WORLD_SIZE and LOCAL_RANK are not among them: above torchrun they confuse every library that discovers MPI.
    """
    values = {
        **shared_variables(job, slot.run_dir, run),
        "MUSTER_NODE": slot.name,
        "MUSTER_ATTEMPT_BASE": str(run.attempt),
        "MUSTER_ATTEMPT_COUNTER": f"{slot.run_dir}/attempts-{run.attempt}",
        "NNODES": str(len(nodes)),
        "NODE_RANK": str(slot.rank),
        **interface_variables(slot),
        **slot.network,
    }
    folder = values["MUSTER_CHECKPOINT_DIR"]
    if slot.home and folder.startswith("~/"):
        values["MUSTER_CHECKPOINT_DIR"] = slot.home + folder[1:]
    return {**values, **job.env}


def shared_variables(job: Job, run_dir: str, run: RunContext) -> dict[str, str]:
    """Return the variables that are the same on all nodes."""
    values = {
        "MUSTER_RUN_ID": run.run_id,
        "MUSTER_METRICS_FILE": f"{run_dir}/metrics.jsonl",
        "MUSTER_CHECKPOINT_DIR": run.checkpoints_in(run_dir),
        "MUSTER_RESUME": job.checkpoints.resume,
        "NNODES": str(job.nodes),
        "NPROC_PER_NODE": str(job.nproc),
        "PYTHONUNBUFFERED": "1",
    }
    if job.checkpoints.resume_args:
        # Read by rank.py, which knows the checkpoint when the rank starts.
        given = [item.replace("{run_dir}", run_dir) for item in job.checkpoints.resume_args]
        values["MUSTER_RESUME_ARGS"] = json.dumps({"args": given, "format": job.checkpoints.format})
    if job.checkpoints.keep is not None:
        values["MUSTER_CHECKPOINT_KEEP"] = str(job.checkpoints.keep)
    for dataset in job.datasets:
        # A streamed one's address is known with its binding.
        if dataset.mode != "stream":
            place = dataset.path if dataset.mode == "mount" else f"{run_dir}/{DATA_DIR}/{dataset.name}"
            values[dataset_variable(dataset.name)] = str(place)
    if job.gpus_per_node:
        # Read by rank.py: each rank gets a log of its own.
        values["MUSTER_NCCL_LOG"] = f"{run_dir}/nccl"
    else:
        # A CPU job must not grab GPUs that another job on the node is using.
        values["CUDA_VISIBLE_DEVICES"] = ""
    return values


def interface_variables(slot: NodeSlot) -> dict[str, str]:
    """Return the socket interfaces of NCCL and gloo: the one that has the node's address in the gang."""
    return bind_to_interface(slot.interface) if slot.interface else {}


def program(job: Job, slot: NodeSlot) -> tuple[str, ...]:
    """Return the user's command for one rank: the script or module under the job's interpreter, or the command."""
    if job.command:
        own: tuple[str, ...] = job.command
    elif job.module:
        own = (slot.python, "-u", "-m", job.module)
    else:
        script = str(job.script)
        own = (slot.python, "-u", script if script.startswith("/") else f"{workdir(job, slot)}/{script}")
    return tuple(_fill_paths(item, slot) for item in (*own, *job.args))


def rank_command(job: Job, slot: NodeSlot) -> tuple[str, ...]:
    """Return the command of one rank inside the recorder that attendance rests on."""
    events = f"{slot.run_dir}/events.jsonl"
    return (slot.agent_python, "-I", "-S", "{program}/muster_node/rank.py", events, *program(job, slot))


def workdir(job: Job, slot: NodeSlot) -> str:
    """Return the folder in which the user's command runs on the node."""
    if job.code is None:
        return slot.run_dir
    below = job.code.workdir.strip("/")
    base = job.code.ref.rstrip("/") if job.code.source == "image" else f"{slot.run_dir}/{CODE_DIR}"
    return base + (f"/{below}" if below not in ("", ".") else "")


def deepspeed_files(job: Job) -> dict[str, str]:
    """Return the DeepSpeed configuration as the JSON file that DeepSpeed reads."""
    if not job.deepspeed_config:
        return {}
    return {DEEPSPEED_FILE: json.dumps(job.deepspeed_config, indent=1)}


def dataset_variable(name: str) -> str:
    """Return the variable in which a program finds a dataset."""
    return f"MUSTER_DATASET_{variable_name(name)}"


def variable_name(name: str) -> str:
    """Return ``name`` as a part of an environment variable's name."""
    return re.sub(r"[^A-Z0-9]", "_", name.upper())


def _fill_paths(argument: str, slot: NodeSlot) -> str:
    """Replace the two paths that only the node knows; other braces are the user's own."""
    return argument.replace("{run_dir}", slot.run_dir).replace("{deepspeed_config}", f"{slot.run_dir}/{DEEPSPEED_FILE}")
