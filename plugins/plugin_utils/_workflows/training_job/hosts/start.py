# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Starting a gang: its record, its members, and the way back when it cannot start."""

from __future__ import annotations

import base64
import dataclasses
import json
import pathlib
import secrets
import time
import typing as t

from .....module_utils._model import checks, commands, job_checkpoints
from .....module_utils._model.errors import MusterError, RefusedError
from .....module_utils._model.job import Checkpoints, Job, to_yaml_names
from .....module_utils._model.node_report import NodeReport, SeenCheckpoint
from .....module_utils._model.run_record import RunRecord
from .....module_utils._node import files, shared_folder
from ...._hosts import gang
from ...._hosts.node_client import on_each_node
from ...shared import run_record
from ...shared.progress import Progress, say_if_killed
from ...shared.request import Result, RunRequest
from ...shared.state_dir import StateHome
from .. import fabric_file
from ..announce import announce
from ..changes import describe_changes, find_template
from ..object_stores import checkpoint_binding, dataset_binding
from ..object_stores.store_stream import find_own_ca
from ..outcome import build_result
from ..trackers.tracking import CA_FILE
from . import lease_guard
from . import plan as hosts_plan
from .left_checkpoints import agree
from .state import (
    AGENTS_FILE,
    HostsPlan,
    build_owner_mark,
    has_unrecorded_end,
    is_alive,
    is_part_over,
    is_running,
    list_left,
)

if t.TYPE_CHECKING:
    from .....module_utils._model import drill

# As in ``_node/checkpoint_peers.py``.
PEERS_FILE = "peers.json"
# So a difference between two jobs begins whose checkpoints lie in different folders.
_OTHER_FOLDER = "checkpoints.path "


def start_or_join(
    request: RunRequest,
    home: StateHome,
    plan: HostsPlan,
    before: RunRecord | None,
    resolved: tuple[dict[str, str], dict[str, bytes]],
    drilling: drill.Drill | None,
) -> Result:
    """Start what of the gang is not running, follow the run, and return the module's result.

    :param before: the run's record, None for a new run.
    :param resolved: the job's secrets: variables, and files by name.
    """
    folder = files.private_dir(home.run_folder(plan.run_id))
    differs = require_same_job(plan, before)
    unseen = has_unrecorded_end(plan, before)
    if before and before.is_ended:
        request.progress.say(_describe_continuation(before, differs, plan.job, _list_seen(plan)))
    _stop_left(request.progress, plan, before)
    lives = unseen or (is_running(plan, before) and not _stop_half_a_gang(plan))
    attempt = _first_attempt(plan, before, lives)
    current = _open_record(plan, before, attempt, lives, request)
    members, held = _build_members(home, plan, attempt, resolved), build_owner_mark(request, home, plan.job)
    missing = [] if unseen else [m for m in members if not (lives and _is_started(plan, m.remote.name, before))]
    started: list[str] = []
    guard = lease_guard.bind_run(request, home, plan)
    _announce(request.progress, plan, lives, unseen)
    run_record.write_record(folder, current)
    files.write_json(folder / "claim.json", held)
    fabric_file.write_verdict(folder, plan.network)
    if lives:
        _join(request, plan, members, held)
    cluster = request.options["cluster"]
    with say_if_killed(commands.describe_left(current, commands.STARTING, cluster)):
        if missing:
            if lives:
                names = ", ".join(member.remote.name for member in missing)
                request.progress.say(f"{names}: not running: agent; starting again")
            else:
                prices = {host.name: guard.price_of(host.node, host.price_usd_per_hour) for host in plan.hosts}
                nodes = run_record.describe_nodes(current.hosts, prices, current.leases)
                line = {"at": time.time(), "kind": "submitted", "attempt": attempt, "nodes": nodes}
                files.append_json(folder / "events.jsonl", line)
            ready = members if not lives else [gang.without_peers(member, members) for member in missing]
            try:
                started = _start_missing(request, plan, missing, ready, held, fresh=before is None)
            except MusterError:
                _restore_record(folder, before, lives)
                raise
            files.append_json(folder / "events.jsonl", {"at": time.time(), "kind": "started", "attempt": attempt})
            _record_versions(folder, plan)
        _store_agent_paths(home, plan)
        if not (request.options["wait"] or unseen):
            request.progress.say(commands.describe_left(current, commands.NOT_FOLLOWED, cluster))
            return build_result(current, folder, changed=bool(started))
        # Only now: by the time that this is imported, the agents are at work.
        from .follow import follow_run

        return follow_run(request, plan, members, folder, current, drilling, changed=bool(started), guard=guard)


def _join(request: RunRequest, plan: HostsPlan, members: t.Sequence[gang.GangMember], held: dict[str, t.Any]) -> None:
    """Take a run that is running over, where that is asked for, and renew what its nodes upload and copy with."""
    if request.options.get("take_over"):
        gang.take_over_run(plan.remotes, plan.run_id, held)
    if plan.bound is not None:
        checkpoint_binding.renew(plan.bound, plan.remotes)
    _renew_peers(plan, members)


def _renew_peers(plan: HostsPlan, members: t.Sequence[gang.GangMember]) -> None:
    """Give all nodes the key by which one that joins copies checkpoints."""
    content = {m.remote.name: data for m in members if (data := m.secrets.get("files", {}).get(PEERS_FILE))}
    on_each_node(
        [remote for remote in plan.remotes if remote.name in content],
        lambda remote: remote.call(
            "s3",
            step="renew",
            run_id=plan.run_id,
            file=PEERS_FILE,
            content=base64.b64decode(content[remote.name]).decode(),
        ),
    )


def _stop_half_a_gang(plan: HostsPlan) -> bool:
    """Stop a gang of MPI of which a part has ended; return whether it was one.

    Its parts share keys that are not stored: one part cannot be joined to the others later.
    """
    if plan.job.launcher != "mpi" or all(is_alive(plan, host.name) for host in plan.hosts):
        return False
    gang.stop_gang(plan.remotes, plan.run_id, plan.job.checkpoints.grace_s + 20)
    return True


def _stop_left(progress: Progress, plan: HostsPlan, before: RunRecord | None) -> None:
    """Stop what is left of a start that has ended: it waits for a gang that is gone, and cannot be joined."""
    names = list_left(plan, before)
    remotes = [remote for remote in plan.remotes if remote.name in names]
    if remotes:
        progress.say(f"a part of the start that has ended still runs on {', '.join(names)}: it is stopped first")
        gang.stop_gang(remotes, plan.run_id, plan.job.checkpoints.grace_s + 20)


def _start_missing(
    request: RunRequest,
    plan: HostsPlan,
    missing: t.Sequence[gang.GangMember],
    ready: t.Sequence[gang.GangMember],
    held: dict[str, t.Any],
    *,
    fresh: bool,
) -> list[str]:
    """Start what does not run yet; return the nodes on which it was started.

    :param ready: what is prepared: the whole gang, or what joins one that runs.
    """
    bring_bound_data(request, plan, missing, fresh=fresh)
    proof, say = shared_folder.new_proof(), request.progress.say
    gang.prepare_gang(ready, plan.source.placed, held, plan.run_id, fresh=fresh, proof=proof, say=say)
    return gang.start_gang(missing, plan.run_id, fresh=fresh)


def bring_bound_data(
    request: RunRequest,
    plan: HostsPlan,
    members: t.Sequence[gang.GangMember],
    *,
    fresh: bool = False,
    again: bool = False,
) -> None:
    """Fetch what these nodes lack from the job's buckets, datasets and the newest checkpoint.

    When that fails it is undone, unless the nodes are started ``again`` in a gang that is at work.
    """
    ranks = {remote.name: rank for rank, remote in enumerate(plan.remotes)}
    chosen = {ranks[member.remote.name]: member for member in members}
    remotes = {rank: member.remote for rank, member in chosen.items()}
    try:
        dataset_binding.stage(plan.datasets, list(remotes.values()), plan.run_id, request.progress)
        if plan.bound is not None:
            folders = {rank: str(member.spec["checkpoints"]["folder"]) for rank, member in chosen.items()}
            checkpoint_binding.restore(plan.bound, remotes, folders, request.progress)
    except MusterError:
        if not again:
            gang.undo_start(list(remotes.values()), plan.run_id, fresh=fresh)
        raise


def require_same_job(plan: HostsPlan, before: RunRecord | None) -> list[str]:
    """Return what differs from the job that a run had before.

    :raises RefusedError: when it is running with another job, ended so and that is not recorded yet, or would not find
        the checkpoints that it has.
    """
    differs = describe_changes(before, plan.job, plan.source.code_sha256) if before else []
    if differs and has_unrecorded_end(plan, before):
        raise RefusedError(
            f"run {plan.run_id} has ended with another job while it was not followed: {', '.join(differs)}",
            "Run status first, which records how, or name another run_id (muster_run_id)",
        )
    if differs and is_running(plan, before):
        raise RefusedError(
            f"run {plan.run_id} is already running with another job: {', '.join(differs)}",
            "Cancel it first, or name another run_id (muster_run_id)",
        )
    if before is not None:
        _require_its_checkpoints(plan.job.checkpoints, before, differs)
    return differs


def _require_its_checkpoints(checkpoints: Checkpoints, before: RunRecord, differs: t.Sequence[str]) -> None:
    """Refuse to begin a run at its first step because its checkpoints are in another folder.

    :raises RefusedError: unless the job asks for that, or a bucket has them.
    """
    step = before.checkpoint.step if before.checkpoint else None
    moved = next((item for item in differs if item.startswith(_OTHER_FOLDER)), None)
    if step is None or moved is None or checkpoints.resume != "auto" or checkpoints.binding is not None:
        return
    raise RefusedError(
        f"run {before.run_id} has a checkpoint of step {step}, and would begin without it: {moved}",
        f"Copy its folder {before.run_id} to the new path on the nodes and set checkpoints.resume: required, or set "
        "checkpoints.resume: never to begin at the first step",
    )


def _list_seen(plan: HostsPlan) -> dict[str, SeenCheckpoint]:
    return agree({host.name: seen for host in plan.hosts if (seen := plan.reports[host.name].checkpoint)})


def describe_start(plan: HostsPlan, before: RunRecord) -> str:
    """Return from where a run would continue."""
    saved = before.checkpoint
    if saved is None or saved.step is None:
        return ""
    return _describe_origin(saved.step, saved.describe_step(), plan.job, _list_seen(plan))


def _describe_continuation(
    before: RunRecord, differs: t.Sequence[str], job: Job, seen: t.Mapping[str, SeenCheckpoint]
) -> str:
    """Return the line that says from where a run that has ended continues, and what has changed since.

    :param seen: the newest checkpoint on each node, of those that were asked.
    """
    saved = before.checkpoint
    start = "begins where its program finds a checkpoint"
    if saved and saved.step is not None:
        start = _describe_origin(saved.step, saved.describe_step(), job, seen)
    if any(item.startswith(_OTHER_FOLDER) for item in differs):
        start = "begins in another folder for checkpoints"
    changed = f", with another job: {', '.join(differs)}" if differs else ""
    ended = "has" if before.outcome in ("succeeded", "failed") else "was"
    return f"run {before.run_id} {ended} {before.outcome}, and {start}{changed}"


def _describe_origin(step: int, called: str, job: Job, seen: t.Mapping[str, SeenCheckpoint]) -> str:
    """Return from where a run continues that reported a checkpoint of ``step``: from what its nodes still have.

    Which one all of them can begin with, they find out together before the ranks begin.
    """
    if job.checkpoints.resume == "never":
        return "begins at its first step (checkpoints.resume: never)"
    left = job_checkpoints.find_left(step, seen)
    if left is None or left.kind == "partly":
        return f"continues from the checkpoint of {called}, or the newest one that is left"
    if left.kind in ("reported", "unnamed"):
        return f"continues from the checkpoint of {called}"
    if left.kind == "other":
        return f"continues from the newest checkpoint that is left, {left.place} (it reported {called} last)"
    if job.checkpoints.binding:
        return f"continues from the newest checkpoint in its bucket (it reported {called} last): no node has one"
    return (
        f"no node has a checkpoint in {left.place} (it reported {called} last): it begins at its first step, unless "
        "its program finds one elsewhere"
    )


def _is_started(plan: HostsPlan, node: str, before: RunRecord | None) -> bool:
    """Return whether a node of a running gang does its part, or has done it a moment before the others."""
    return is_alive(plan, node) or is_part_over(plan, node, before)


def _store_agent_paths(home: StateHome, plan: HostsPlan) -> None:
    place = home.folder / AGENTS_FILE
    known = files.read_json(place) or {}
    found = {**known, **{remote.name: remote.program for remote in plan.remotes}}
    if found != known:
        files.write_json(place, found)


def _restore_record(folder: pathlib.Path, before: RunRecord | None, running: bool) -> None:
    """Put the record back: a run that never started leaves no trace, one that had run stays ended."""
    if running:
        return
    if before is not None:
        run_record.write_record(folder, before)
        return
    for name in ("run.json", "claim.json", "events.jsonl", "offsets.json", "fabric.json", "lock"):
        (folder / name).unlink(missing_ok=True)
    try:
        folder.rmdir()
    except OSError:
        return


def _first_attempt(plan: HostsPlan, before: RunRecord | None, running: bool) -> int:
    """Return the number of the first attempt of this start; a gang that runs keeps the one it has.

    Nodes know numbers that this controller does not when another one started the run before.
    """
    agents = [report.agent for report in plan.reports.values()]
    seen = [agent.generation for agent in agents if agent.generation is not None]
    if running:
        return max(seen)
    return max([before.last_attempt if before else 0, *seen]) + 1


def _open_record(
    plan: HostsPlan, before: RunRecord | None, attempt: int, running: bool, request: RunRequest
) -> RunRecord:
    values: dict[str, t.Any] = {
        "launcher": plan.job.launcher,
        "code_sha256": plan.source.code_sha256,
        "versions": _read_versions(plan),
        "derived": plan.derived,
        "generation": attempt,
        "inventory": _inventory(request, plan.hosts[0].name),
        "command_line": request.command_line,
        "unrepeated": request.unrepeated or None,
        "catalogue_template": find_template(
            request.options.get("catalogue_template"), before, plan.job, plan.source.code_sha256
        ),
        "fabric": plan.network.reference,
        "hosts": tuple(host.name for host in plan.hosts),
        "leases": {host.name: host.record.owner.token for host in plan.hosts if host.record.owner.token},
    }
    if before is None:
        return run_record.new_record(plan.run_id, to_yaml_names(plan.job), time.time(), **values)
    again = run_record.reopen_record(before, "running" if running else "starting", to_yaml_names(plan.job))
    return dataclasses.replace(again, **values)


def _record_versions(folder: pathlib.Path, plan: HostsPlan) -> None:
    for name, report in plan.reports.items():
        line = {"at": time.time(), "kind": "versions", "node": name, "versions": _node_versions(report)}
        line |= _describe_devices(report, plan.job.gpus_per_node)
        files.append_json(folder / "events.jsonl", line)


def _inventory(request: RunRequest, node: str) -> str | None:
    """Return the file that a node comes from, for the commands that messages name."""
    return str(request.hostvars[node].get("inventory_file") or "") or None


def _read_versions(plan: HostsPlan) -> Result:
    first = plan.reports[plan.hosts[0].name]
    found: Result = {**_node_versions(first), "kernel": first.kernel}
    return {**found, "commit": plan.source.commit} if plan.source.commit else found


def _describe_devices(report: NodeReport, gpus: int) -> dict[str, t.Any]:
    """Return which GPUs and RDMA devices a host gives to a job with GPUs, by its facts; nothing without."""
    if not gpus:
        return {}
    gpu, nics = report.facts.get("gpu") or {}, report.facts.get("nics")
    return {
        "gpus": None if gpu.get("count") is None else min(gpus, int(gpu["count"])),
        "gpu_model": gpu.get("model"),
        "driver": (report.facts.get("driver") or {}).get("version"),
        "rdma": None if nics is None else sorted({str(nic["name"]) for nic in nics if nic.get("rdma")}),
    }


def _node_versions(report: NodeReport) -> dict[str, str | None]:
    return {"python": report.training.version if report.training else None, **report.packages}


def _build_members(
    home: StateHome, plan: HostsPlan, attempt: int, resolved: tuple[dict[str, str], dict[str, bytes]]
) -> list[gang.GangMember]:
    nodes = hosts_plan.build_slots(plan.hosts, plan.reports, plan.run_id, plan.network.environment)
    spread = checks.find_clock_spread(plan.checks)
    launched, context = hosts_plan.build_launch(plan.job, nodes, plan.run_id, attempt, spread)
    env, files = resolved
    if launched.keypair:
        # Late: only mpirun's nodes reach each other over SSH.
        from . import mpi_keys

        files = {**files, **mpi_keys.generate_files(home.run_folder(plan.run_id), nodes, context)}
    made = hosts_plan.build_members(plan.job, plan.remotes, nodes, launched, context, plan.reports, (env, files))
    if job_checkpoints.are_copied(plan.job):
        peers = hosts_plan.build_peers(nodes, context, plan.job.checkpoints, secrets.token_hex(32))
        made = [_add_secret_file(member, PEERS_FILE, json.dumps(peers[member.remote.name]))[1] for member in made]
    ca = find_own_ca(dataset_binding.streams(plan.datasets))
    if ca is not None:
        made = [_add_ca(member, "stream-ca.pem", ca, "AWS_CA_BUNDLE") for member in made]
    tracked = plan.tracked
    if tracked is not None and tracked.ca_variable:
        made = [_add_ca(member, CA_FILE, str(tracked.binding.ca), tracked.ca_variable) for member in made]
    if plan.bound is None:
        return made
    return [_store_checkpoints(member, plan.bound, rank) for rank, member in enumerate(made)]


def _store_checkpoints(
    member: gang.GangMember, bound: checkpoint_binding.BoundCheckpoints, rank: int
) -> gang.GangMember:
    """Return a member that stores its checkpoints in the job's bucket, by signed addresses among its secrets."""
    if not bound.stores(rank):
        return member
    place, member = _add_secret_file(member, checkpoint_binding.ADDRESSES_FILE, bound.addresses(rank))
    spec = {**member.spec, "checkpoints": {**member.spec["checkpoints"], "store": place}}
    return dataclasses.replace(member, spec=spec)


def _add_ca(member: gang.GangMember, name: str, ca: str, variable: str) -> gang.GangMember:
    """Return a member whose programs find a service's own CA by a variable."""
    place, member = _add_secret_file(member, name, ca)
    return dataclasses.replace(member, spec={**member.spec, "env": {variable: place, **member.spec["env"]}})


def _add_secret_file(member: gang.GangMember, name: str, content: str) -> tuple[str, gang.GangMember]:
    """Return the path of a file that is removed at the end of the run, and the member that gets it."""
    run_dir = str(member.spec["events"]).rpartition("/")[0]
    place = f"{run_dir}/secrets/{name}"
    spec = {**member.spec, "secret_files": [*member.spec["secret_files"], place]}
    own = gang.secret_payload({}, {name: content.encode()})
    values = {key: {**member.secrets.get(key, {}), **own[key]} for key in ("env", "files")}
    merged = {**values, "masks": [*member.secrets.get("masks", []), *own["masks"]]}
    return place, dataclasses.replace(member, spec=spec, secrets=merged)


def _describe_memory_limit(managers: t.Mapping[str, str | None]) -> list[str]:
    """Return what limits the memory where it is not systemd, which limits the job on a node as a whole."""
    alone = [node for node, manager in managers.items() if manager == "detached"]
    return [f"resources.memory limits each process by itself on {', '.join(alone)} (no systemd)"] if alone else []


def _describe_neighbours(plan: HostsPlan) -> list[str]:
    """Return which other runs are running on the hosts of a run: they share its processors, memory and network."""
    places: dict[str, list[str]] = {}
    for host in plan.hosts:
        for run in plan.reports[host.name].live_runs:
            if run.run_id != plan.run_id:
                places.setdefault(run.run_id, []).append(host.name)
    return [f"{run_id} is running here too ({', '.join(names)})" for run_id, names in sorted(places.items())]


def _announce(progress: Progress, plan: HostsPlan, running: bool, ended: bool = False) -> None:
    parts = [f"run {plan.run_id}: {plan.job.nodes} nodes × {plan.job.nproc} = world size {plan.derived['world_size']}"]
    if plan.job.nodes > 1 and plan.derived.get("lane") == "loopback":
        parts.append(f"{plan.job.nodes} nodes on 1 machine")
    parts += [plan.derived["checkpoints"]] if plan.derived.get("checkpoints") else []
    if plan.job.resources.memory is not None:
        parts += _describe_memory_limit({host.name: plan.reports[host.name].manager for host in plan.hosts})
    announce(progress, parts, plan.derived, plan.network, running=running, ended=ended)
    rented = {host.name: host.price_usd_per_hour for host in plan.hosts if host.record.ownership == "rented"}
    vanishing = "" if running else job_checkpoints.describe_vanishing(plan.job, rented)
    unlimited = "" if running else job_checkpoints.describe_unlimited(plan.job)
    for said in filter(None, (vanishing, unlimited)):
        progress.say(f"warning: {said}")
    used = [] if running else checks.describe_used_gpus(plan.job, plan.reports)
    used += [] if running else checks.describe_torn(plan.job, plan.reports)
    for warning in (*plan.network.warnings, *used, *([] if running else _describe_neighbours(plan))):
        progress.say(f"warning: {warning}")
