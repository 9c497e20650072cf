# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From a job and what its nodes answered to everything that is placed and started. No side effects."""

from __future__ import annotations

import dataclasses
import typing as t

from .....module_utils._model import interpreters, job_checkpoints, job_datasets
from .....module_utils._model.errors import InputError, RefusedError
from .....module_utils._model.job import Checkpoints, Job
from .....module_utils._model.node import Node
from .....module_utils._model.node_address import choose_address, is_loopback
from .....module_utils._model.node_environment import TOPOLOGY_FILE, Environment
from .....module_utils._model.node_facts import read_record
from .....module_utils._model.node_report import NodeReport
from ...._hosts import gang
from ...._hosts.node_client import NodeClient
from ...._launch import environment, registry
from ...._launch.base import Launch, NodeSlot, RunContext
from .. import source as code_source

_REACH_S = 15


@dataclasses.dataclass(frozen=True, slots=True)
class TrainingHost:
    """One host of the play: its name, its variables that matter here, and how it is reached.

    ``address`` is where the other nodes reach it, as far as the inventory knows: see ``addresses.settle_addresses``.
    ``is_declared``: the user named it in ``muster_address``. ``record`` is what the inventory says of the node.
    """

    name: str
    address: str
    python: str
    price_usd_per_hour: float | None
    connection: str
    node: t.Mapping[str, t.Any]
    record: Node
    is_declared: bool = False


def select_hosts(names: t.Sequence[str], hostvars: t.Mapping[str, t.Any], job: Job) -> list[TrainingHost]:
    """Return the job's hosts in the order of the play: rank 0 runs on the first.

    :raises InputError: when the job asks for more nodes than there are, or a host's record cannot be read.
    :raises RefusedError: when a host is a whole cluster.
    """
    if job.nodes > len(names):
        raise InputError(
            "job.nodes",
            f"requests {job.nodes} nodes, the play has {len(names)} host{'' if len(names) == 1 else 's'}",
            "Add hosts or request fewer nodes",
        )
    return [_build_host(name, hostvars[name], job) for name in names[: job.nodes]]


def build_info_request(
    job: Job,
    index: int,
    host: TrainingHost,
    identity: str,
    found: code_source.CodeSource,
    reserve: dict[str, t.Any] | None,
) -> dict[str, t.Any]:
    """Return what the preflight asks one host.

    :param reserve: the claim that the first host takes before anything else, so that of two controllers that start the
        same run at the same moment exactly one continues, and by whose owner each host ends what an earlier start left
        on a port of the run; None in check mode.
    """
    paths = [job.checkpoints.path] if job.checkpoints.path else []
    named = (job.script or "", job.env.get(TOPOLOGY_FILE, ""))
    absolute = [path for path in (*named, *job_datasets.mounted_paths(job)) if path.startswith("/")]
    return {
        "run_id": identity,
        "reserve": reserve if index == 0 else None,
        "end_left": reserve["owner"] if reserve else None,
        "python": host.python,
        "packages": list(registry.required_packages(job)),
        "env": {key: job.env[key] for key in ("PYTHONPATH",) if key in job.env},
        "script": code_source.read_script(job, found),
        "address": host.address,
        "ports": [[host.address, port] for port in _list_ports(job, index, identity)],
        "paths": paths,
        "mounts": [[item.path, item.marker] for item in job.mounts],
        "files": absolute,
        "tools": list(registry.required_tools(job, index)),
        "blobs": found.blobs(),
        "facts": bool(job.gpus_per_node),
        "checkpoints": job_checkpoints.checkpoint_to_find(job, identity),
    }


def _list_ports(job: Job, index: int, identity: str) -> list[int]:
    """Return the ports that a run opens on a node."""
    wanted = code_source.rendezvous_port(identity)
    ports = [wanted] if index == 0 else ([wanted + 1] if job.launcher == "mpi" else [])
    return [*ports, *([code_source.peer_port(identity)] if job_checkpoints.are_copied(job) else [])]


def build_slots(
    found: t.Sequence[TrainingHost],
    reports: t.Mapping[str, NodeReport],
    identity: str,
    environment: t.Mapping[str, Environment],
) -> tuple[NodeSlot, ...]:
    """Return the nodes as launchers see them; ``environment`` are the variables that each node's network asks for."""
    return tuple(
        NodeSlot(
            name=host.name,
            rank=index,
            address=host.address,
            interface=reports[host.name].interface,
            python=_find_interpreter(reports[host.name]),
            run_dir=f"{reports[host.name].state_dir}/runs/{identity}",
            agent_python=reports[host.name].executable,
            tools=reports[host.name].tools,
            user=reports[host.name].user,
            network=environment.get(host.name, {}),
            home=reports[host.name].home,
        )
        for index, host in enumerate(found)
    )


def _find_interpreter(report: NodeReport) -> str:
    return str(report.training.executable) if report.training else ""


def build_launch(
    job: Job, nodes: tuple[NodeSlot, ...], identity: str, attempt: int, clock_spread_s: float = 0.0
) -> tuple[Launch, RunContext]:
    """Return what every node starts for the attempts from ``attempt`` on.

    :param clock_spread_s: how far the nodes' clocks are apart.
    """
    context = code_source.build_context(job, identity, attempt, clock_spread_s)
    return registry.launch(job, nodes, context), context


def build_members(
    job: Job,
    remotes: t.Sequence[NodeClient],
    nodes: tuple[NodeSlot, ...],
    plan: Launch,
    context: RunContext,
    reports: t.Mapping[str, NodeReport],
    secrets: tuple[dict[str, str], dict[str, bytes]],
) -> list[gang.GangMember]:
    """Return what each node needs: unit, store, files, and the meeting that proves that the gang can form."""
    result = []
    meet = {"host": nodes[0].address, "port": context.port, "seconds": _REACH_S}
    for index, (remote, slot, item) in enumerate(zip(remotes, nodes, plan.nodes, strict=True)):
        first_without_store = index == 0 and plan.store is None and len(nodes) > 1
        result.append(
            gang.GangMember(
                remote=remote,
                spec=_build_agent_spec(job, slot, plan, context, index, secrets),
                files=item.files,
                store=_build_store_spec(job, slot, plan, context) if index == 0 and plan.store else None,
                secrets=gang.secret_payload(*secrets),
                missing=reports[remote.name].missing,
                free_bytes=reports[remote.name].free_bytes,
                write=(context.checkpoints_in(slot.run_dir),),
                shared=context.checkpoints_in(slot.run_dir) if job_checkpoints.must_be_shared(job) else None,
                meet={**meet, "peers": len(nodes) - 1} if first_without_store else None,
                reach=meet if index > 0 else None,
            )
        )
    return result


def _build_agent_spec(
    job: Job,
    slot: NodeSlot,
    plan: Launch,
    context: RunContext,
    index: int,
    secrets: tuple[dict[str, str], dict[str, bytes]],
) -> dict[str, t.Any]:
    item = plan.nodes[index]
    store = {"host": store_host(plan, context), "port": context.port, "seconds": job.restart.wait_s}
    files = [f"{slot.run_dir}/secrets/{name}" for name in secrets[1]]
    return gang.unit_spec(
        job,
        slot.name,
        slot.run_dir,
        context.run_id,
        "agent",
        argv=list(item.argv),
        env={**item.env, **{f"{name}_FILE": f"{slot.run_dir}/secrets/{name}" for name in secrets[1]}},
        cwd=environment.workdir(job, slot),
        policy=plan.policy,
        wait_for=store if plan.store and item.wait_for_peer else None,
        secrets=f"{slot.run_dir}/secrets/env.json" if secrets[0] or secrets[1] else None,
        secret_files=files,
        usage=f"{slot.run_dir}/usage.jsonl",
        timeout_s=job.timeout_s,
        memory=job.resources.memory,
        checkpoints={
            **job_checkpoints.node_rules(job),
            "folder": context.checkpoints_in(slot.run_dir),
            "first": index == 0,
        },
        generation=context.attempt,
    )


def _build_store_spec(job: Job, slot: NodeSlot, plan: Launch, context: RunContext) -> dict[str, t.Any]:
    where = {"host": slot.address, "port": context.port}
    return gang.unit_spec(
        job,
        slot.name,
        slot.run_dir,
        context.run_id,
        "store",
        argv=list(plan.store or ()),
        # The store only passes keys on: it must not take GPU memory or threads from the ranks.
        env={"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"},
        policy="store",
        listen=where,
        generation=context.attempt,
    )


def build_peers(
    nodes: tuple[NodeSlot, ...], context: RunContext, rules: Checkpoints, key: str
) -> dict[str, dict[str, t.Any]]:
    """Return by node what it needs to copy checkpoints from the others (``_node/checkpoint_peers.py``)."""
    places = {slot.name: [slot.address, code_source.peer_port(context.run_id)] for slot in nodes}
    every = 0 if rules.binding else rules.copy_every_s
    common = {"key": key, "format": rules.format, "nodes": places, "copy_every_s": every}
    return {slot.name: {**common, "node": slot.name, "folder": context.checkpoints_in(slot.run_dir)} for slot in nodes}


def store_host(plan: Launch, context: RunContext) -> str:
    """Return the rendezvous address out of the store's argument list."""
    return plan.store[3] if plan.store else ""


def _build_host(name: str, variables: t.Mapping[str, t.Any], job: Job) -> TrainingHost:
    record = read_record(name, variables)
    if record.kind == "cluster":
        raise RefusedError(
            f"{name} is a Kubernetes cluster, not a machine",
            "Set placement.backend: kubernetes and muster_train_hosts: localhost, or leave it out of the play",
        )
    connection = str(variables.get("ansible_connection") or "ssh")
    python = str(job.python or interpreters.default_interpreter(variables))
    declared = variables.get("muster_address")
    chosen = choose_address(record, job.placement.required_network_types)
    address = str(declared or (chosen.address if chosen else variables.get("ansible_host") or name))
    return TrainingHost(
        name=name,
        address=address,
        python=python,
        price_usd_per_hour=price_per_hour(name, variables),
        connection=connection.rsplit(".", 1)[-1],
        node=variables.get("muster_node") or {},
        record=record,
        is_declared=bool(declared),
    )


def price_per_hour(name: str, variables: t.Mapping[str, t.Any]) -> float | None:
    """Return what a host costs in dollars an hour: nothing if it is owned, None where that is not known."""
    record = read_record(name, variables)
    if record.price_usd_per_hour is None and record.ownership in (None, "owned"):
        return 0.0
    return record.price_usd_per_hour


def network_lane(found: t.Sequence[TrainingHost]) -> str:
    """Return ``loopback`` when all nodes are this one machine, else ``network``."""
    return "loopback" if all(is_loopback(host.address) for host in found) else "network"
