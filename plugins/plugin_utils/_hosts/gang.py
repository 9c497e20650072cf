# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The gang: all nodes prepared before any starts; if one cannot start, all are stopped and the reason is raised.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import base64
import dataclasses
import typing as t

from ...module_utils._model.errors import MusterError
from ...module_utils._model.job import Job
from ...module_utils._model.object_names import unit_marker
from . import agent_package, file_sync
from .node_client import Remote, each, first_error

Dict = dict[str, t.Any]


@dataclasses.dataclass(frozen=True, slots=True)
class Member:
    """What one node needs: its remote, its unit and what is placed beside it. Secrets never enter ``spec``."""

    remote: Remote
    spec: Dict
    files: t.Mapping[str, str]
    store: Dict | None
    secrets: Dict
    missing: t.Mapping[str, int]
    free_bytes: int
    write: tuple[str, ...]
    meet: Dict | None = None
    reach: Dict | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Placed:
    """A tree and where it goes below the run's folder."""

    tree: file_sync.Tree
    target: str
    link: bool


def prepare(
    members: t.Sequence[Member], placed: t.Sequence[Placed], claim: Dict, run_id: str, *, fresh: bool = False
) -> None:
    """Claim the run, place files and open the rendezvous port on all nodes; give all up when one fails.

    :param fresh: the run never ran: when a node fails, its folders are removed again.
    :raises MusterError: the reason of the first node that failed; nothing of the run is left running.
    """
    by_name = {member.remote.name: member for member in members}

    remotes = [member.remote for member in members]

    def send(remote: Remote) -> None:
        member = by_name[remote.name]
        if member.missing:
            file_sync.send(remote, [item.tree for item in placed], member.missing, member.free_bytes)
        if not remote.program:
            remote.program = remote.call("install", **agent_package.install_request())["program"]

    def place(remote: Remote) -> None:
        member, program = by_name[remote.name], str(remote.program)
        remote.call(
            "prepare",
            run_id=run_id,
            claim=claim,
            fresh=fresh,
            program=program,
            trees=[{"target": p.target, "manifest": p.tree.manifest(), "link": p.link} for p in placed],
            files={name: text.replace("{program}", program) for name, text in member.files.items()},
            secrets=member.secrets,
            store=_with_program(member.store, program) if member.store else None,
            meet=member.meet,
            reach=member.reach,
            write=list(member.write),
        )

    # Files first, on all nodes: nobody waits for a peer whose files are still on the way.
    for work in (send, place):
        _unused, errors = each(remotes, work)
        if errors:
            give_up(remotes, run_id, fresh=fresh)
            raise first_error(errors)


def alone(member: Member, members: t.Sequence[Member]) -> Member:
    """Return a member for joining a gang that runs: only a rendezvous store is still there to be met."""
    store = any(other.store for other in members)
    return dataclasses.replace(member, meet=None, reach=member.reach if store else None)


def start(members: t.Sequence[Member], run_id: str, *, fresh: bool = False) -> list[str]:
    """Start every agent; return the names of the nodes on which it was not running before.

    :raises MusterError: the reason of the first node that failed; all others were stopped again.
    """
    by_name = {member.remote.name: member for member in members}

    def work(remote: Remote) -> bool:
        spec = _with_program(by_name[remote.name].spec, str(remote.program))
        return bool(remote.call("start", run_id=run_id, program=remote.program, spec=spec)["started"])

    started, errors = each([member.remote for member in members], work)
    if errors:
        give_up([member.remote for member in members], run_id, fresh=fresh)
        raise first_error(errors)
    return sorted(name for name, new in started.items() if new)


def claim(remotes: t.Sequence[Remote], run_id: str, held: Dict) -> None:
    """Note on all nodes that a run that lives is ours from now on."""
    _unused, errors = each(remotes, lambda remote: remote.call("claim", run_id=run_id, claim=held))
    if errors:
        raise first_error(errors)


def give_up(remotes: t.Sequence[Remote], run_id: str, *, fresh: bool, within_s: float = 10) -> None:
    """Stop what a failed start began, as far as nodes answer; a run of another controller is left alone."""
    each(remotes, lambda remote: remote.ask("stop", run_id=run_id, forget=True, within_s=within_s, remove=fresh))


def stop(remotes: t.Sequence[Remote], run_id: str, within_s: float) -> tuple[dict[str, Dict], dict[str, MusterError]]:
    """Stop the run on all nodes and give up its claims; return answers and errors by node."""
    return each(remotes, lambda remote: remote.call("stop", run_id=run_id, forget=True, within_s=within_s))


def unit_spec(job: Job, node: str, run_dir: str, run_id: str, unit: str, **values: t.Any) -> Dict:
    """Return the specification of a unit (its fields are listed in ``_node/host_units.py``)."""
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
        "warm": [],
        **values,
    }


def secret_payload(env: t.Mapping[str, str], files: t.Mapping[str, bytes]) -> Dict:
    """Return secrets in the form a ``prepare`` request carries on standard input; empty when there are none."""
    if not env and not files:
        return {}
    return {"env": dict(env), "files": {name: base64.b64encode(data).decode() for name, data in files.items()}}


def _with_program(spec: Dict, program: str) -> Dict:
    filled = {key: [str(item).replace("{program}", program) for item in spec[key]] for key in ("argv", "warm")}
    return {**spec, **filled}
