# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The gang: all nodes prepared before any starts; if one cannot start, all are stopped and the reason is raised."""

from __future__ import annotations

import base64
import dataclasses
import typing as t

from ...module_utils._model import job_checkpoints
from ...module_utils._model.errors import EmptiedError, MusterError, StoppedNodeError
from ...module_utils._model.job import Job
from ...module_utils._model.object_names import unit_marker
from ...module_utils._secrets.scrubber import is_remembered, list_forms
from . import agent_package, file_sync, send_progress
from .node_client import NodeClient, most_telling_error, on_each_node

# Specifications and answers as the node agent reads and writes them: JSON objects.
NodeObject = dict[str, t.Any]


@dataclasses.dataclass(frozen=True, slots=True)
class GangMember:
    """One node of a gang: its client, its unit's specification and files. Secrets never enter ``spec``.

    ``shared`` is the folder that must be one and the same on all nodes, where there is one.
    """

    remote: NodeClient
    spec: NodeObject
    files: t.Mapping[str, str]
    store: NodeObject | None
    secrets: NodeObject
    missing: t.Mapping[str, int]
    free_bytes: int
    write: tuple[str, ...]
    meet: NodeObject | None = None
    reach: NodeObject | None = None
    shared: str | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class PlacedTree:
    """A tree and where it goes below the run's folder."""

    tree: file_sync.FileTree
    target: str
    link: bool


def prepare_gang(
    members: t.Sequence[GangMember],
    trees: t.Sequence[PlacedTree],
    ownership: NodeObject,
    run_id: str,
    *,
    fresh: bool = False,
    again: bool = False,
    proof: t.Mapping[str, str] | None = None,
    say: t.Callable[[str], None] = lambda _line: None,
) -> None:
    """Take ownership of the run, place files and open the rendezvous port on all nodes; undo all when one fails.

    :param fresh: the run has never run: when a node fails, its folders are removed again.
    :param again: the run was started on these nodes before: what it had is not brought again, its processes stay.
    :param proof: ``{name, content}`` of the file by which the members' ``shared`` folder is proven to be one.
    :param say: takes a line about how much of the files was sent, now and then.
    :raises EmptiedError: a node has not even the agent of a run that was started on it before (``again``).
    :raises StoppedNodeError: the run was stopped on a node that is to be started ``again``.
    :raises MusterError: the reason of the first node that failed; what of the run was not running before is stopped.
    """
    by_name = {member.remote.name: member for member in members}
    sending = send_progress.SendProgress([item.tree for item in trees], [m.missing for m in members], say)
    remotes = [member.remote for member in members]
    shared = _build_proofs(members, proof)

    def send(remote: NodeClient) -> None:
        member = by_name[remote.name]
        if member.missing:
            file_sync.send_files(
                remote, [item.tree for item in trees], member.missing, member.free_bytes, sending.count
            )
        if not remote.program:
            remote.program = remote.call("install", **agent_package.install_request())["program"]

    def place(remote: NodeClient) -> None:
        member, program = by_name[remote.name], str(remote.program)
        answer = remote.call(
            "prepare",
            run_id=run_id,
            claim=ownership,
            fresh=fresh,
            again=again,
            program=program,
            trees=[{"target": p.target, "manifest": p.tree.manifest(), "link": p.link} for p in trees],
            shared=shared.get(remote.name),
            **_describe_member(member, program),
        )
        if answer.get("emptied"):
            raise EmptiedError(remote.name, f"nothing of run {run_id} is left on it")
        _require_unstopped(remote, run_id, answer)

    # Files first, on all nodes, so that no node waits for a peer whose files are still being sent.
    for work in (send, place):
        _unused, errors = on_each_node(remotes, work)
        if errors:
            if not again:
                undo_start(remotes, run_id, fresh=fresh)
            raise most_telling_error(errors)


def _describe_member(member: GangMember, program: str) -> NodeObject:
    """Return what a node is to know of its part in the gang, with the agent's folder in it."""
    return {
        "files": {name: text.replace("{program}", program) for name, text in member.files.items()},
        "secrets": member.secrets,
        "store": _with_program(member.store, program) if member.store else None,
        "meet": member.meet,
        "reach": member.reach,
        "write": list(member.write),
    }


def _build_proofs(members: t.Sequence[GangMember], proof: t.Mapping[str, str] | None) -> dict[str, NodeObject]:
    """Return by node its part in the proof of the shared folder: the first node writes what the others read."""
    if proof is None or len(members) < 2 or any(member.shared is None for member in members):
        return {}
    writer = members[0].remote.name
    return {
        member.remote.name: {
            **proof,
            "folder": member.shared,
            "writer": writer,
            "writes": member is members[0],
            "within_s": job_checkpoints.VISIBLE_S,
        }
        for member in members
    }


def without_peers(member: GangMember, members: t.Sequence[GangMember]) -> GangMember:
    """Return a member that joins a running gang: only a rendezvous store still accepts connections."""
    store = any(other.store for other in members)
    return dataclasses.replace(member, meet=None, reach=member.reach if store else None, shared=None)


def start_gang(members: t.Sequence[GangMember], run_id: str, *, fresh: bool = False, again: bool = False) -> list[str]:
    """Start every agent; return the names of the nodes on which it was not running before.

    :raises StoppedNodeError: the run was stopped on a node that is to be started ``again``.
    :raises MusterError: the reason of the first node that failed; all others were stopped again, unless ``again``.
    """
    by_name = {member.remote.name: member for member in members}

    def work(remote: NodeClient) -> bool:
        spec = _with_program(by_name[remote.name].spec, str(remote.program))
        answer = remote.call("start", run_id=run_id, program=remote.program, spec=spec, again=again)
        _require_unstopped(remote, run_id, answer)
        return bool(answer["started"])

    started, errors = on_each_node([member.remote for member in members], work)
    if errors:
        if not again:
            undo_start([member.remote for member in members], run_id, fresh=fresh)
        raise most_telling_error(errors)
    return sorted(name for name, new in started.items() if new)


def _require_unstopped(remote: NodeClient, run_id: str, answer: NodeObject) -> None:
    if answer.get("stopped"):
        raise StoppedNodeError(remote.name, f"run {run_id} was stopped on it")


def take_over_run(remotes: t.Sequence[NodeClient], run_id: str, ownership: NodeObject) -> None:
    """Record on all nodes that this controller owns a running run from now on."""
    _unused, errors = on_each_node(remotes, lambda remote: remote.call("claim", run_id=run_id, claim=ownership))
    if errors:
        raise most_telling_error(errors)


def undo_start(remotes: t.Sequence[NodeClient], run_id: str, *, fresh: bool, within_s: float = 10) -> None:
    """Stop the processes of a failed start, as far as nodes answer; a run of another controller is left alone."""
    on_each_node(
        remotes, lambda remote: remote.ask("stop", run_id=run_id, forget=True, within_s=within_s, remove=fresh)
    )


def stop_gang(
    remotes: t.Sequence[NodeClient], run_id: str, within_s: float
) -> tuple[dict[str, NodeObject], dict[str, MusterError]]:
    """Stop the run on all nodes and give up its ownership; return answers and errors by node."""
    return on_each_node(remotes, lambda remote: remote.call("stop", run_id=run_id, forget=True, within_s=within_s))


def unit_spec(job: Job, node: str, run_dir: str, run_id: str, unit: str, **values: t.Any) -> NodeObject:
    """Return the specification of a unit (``UnitSpec`` of ``_node/host_units.py``); ``values`` replace defaults."""
    return {
        "run_id": run_id,
        "node": node,
        "unit": unit,
        "marker": unit_marker(run_dir, unit),
        "folder": f"{run_dir}/units/{unit}",
        "events": f"{run_dir}/events.jsonl",
        "cwd": run_dir,
        "env": {},
        "max_crashes": job.restart.max_crashes,
        "max_lost": job.lost_budget,
        "launcher_restarts": job.restart.max_crashes + job.restart.max_lost_nodes,
        "fatal_exit_codes": list(job.restart.fatal_exit_codes),
        "wait_for": None,
        "listen": None,
        "secrets": None,
        "secret_files": [],
        "usage": None,
        "timeout_s": None,
        "grace_s": job.checkpoints.grace_s,
        "memory": None,
        "checkpoints": {},
        "forms": job.metrics.forms if unit == "agent" else {},
        **values,
    }


def secret_payload(env: t.Mapping[str, str], files: t.Mapping[str, bytes]) -> NodeObject:
    """Return secrets in the form that a ``prepare`` request has on standard input; empty without any.

    ``masks`` are the spellings by which the node masks the values in what programs print: of those that are secrets,
    not of others that come with them, as the address of a data set does.
    """
    if not env and not files:
        return {}
    texts = filter(is_remembered, [*env.values(), *(data.decode(errors="replace") for data in files.values())])
    return {
        "env": dict(env),
        "files": {name: base64.b64encode(data).decode() for name, data in files.items()},
        "masks": sorted({form for text in texts for form in list_forms(text)}),
    }


def _with_program(spec: NodeObject, program: str) -> NodeObject:
    return {**spec, "argv": [str(item).replace("{program}", program) for item in spec["argv"]]}
