# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Heal a fleet (``fleet_heal``): read the facts, plan, then mark losses, delete machines, release nodes, stop gangs.

Renting, joining and resuming are left to the playbook: they are other modules' work and a user may replace them.
"""

from __future__ import annotations

import dataclasses
import time
import typing as t

from ....module_utils._model import heal_plan, run_history
from ....module_utils._model.errors import MusterError, RefusedError
from ....module_utils._model.heal_plan import HealAction
from ....module_utils._model.ledger import make_event
from ....module_utils._model.machine_memory import MachineNote
from ....module_utils._model.timestamps import parse_time
from ....module_utils._node import files
from ..._hosts import gang
from ..._kube.api.client import Client
from ..._kube.jobs.spec import RUN_LABEL, label_value, object_name
from ..._kube.nodes import drain, out_of_service
from ..._provision.ledger.ledger_session import LedgerSession
from ..._provision.ledger.ledger_store import read_ledger
from ..node_pool import absent as node_pool_absent
from ..node_pool import present as node_pool_present
from ..shared import run_record
from ..shared.open_ledger import open_ledger, open_machines
from ..shared.request import RunRequest
from ..shared.state_dir import LOCK_S, StateHome, load_record
from ..training_job.load import drop_template
from . import facts
from .facts import SILENT, HealFacts

# Programs may save for the job's grace, and have ended so long after it.
_STOP_S = 20
# Who follows the run fetches the last lines and writes the record after that; on a busy controller this takes a while.
_FOLLOWER_S = 60


def heal_fleet(request: RunRequest, context: node_pool_present.Context) -> dict[str, t.Any]:
    """Heal what can be healed from here; return the plan, with what the playbook has to do."""
    home = StateHome(request.options["state_home"], request.options["cluster"])
    state = facts.read_facts(request, home, context)
    actions = heal_plan.build_heal_plan(state.facts)
    for action in actions:
        names = f" {', '.join(action.nodes)}" if action.nodes else ""
        request.progress.say(f"{action.kind.replace('_', ' ')}{names}: {action.reason}")
    result = _build_result(state, actions)
    if not request.check:
        _store_silence(home, state)
        result["done"] = _apply_actions(request, home, state, actions, context)
        result["changed"] = bool(result["done"] or result["rent"] or result["resume"])
    stopped = [action for action in actions if action.kind in ("fail", "refuse")]
    if stopped:
        reasons = "; ".join(f"{', '.join(action.nodes)}: {action.reason}".lstrip(": ") for action in stopped)
        result.update(failed=True, msg=f"not healed: {reasons}")
    return result


def _build_result(state: HealFacts, actions: t.Sequence[HealAction]) -> dict[str, t.Any]:
    """Return the module's result; ``resume`` is what the run continues with."""
    kinds = {action.kind for action in actions}
    resuming = next((action for action in actions if action.kind == "resume"), None)
    run = state.facts.run
    resume: dict[str, object] | None = None
    if resuming and run:
        shrunk = {**drop_template(state.job), "nodes": resuming.count} if resuming.count < run.nodes else None
        hosts = [] if state.facts.kubernetes else list(resuming.nodes)
        resume = {"run_id": run.run_id, "nodes": resuming.count, "hosts": hosts, "job": shrunk}
    return {
        "changed": bool(kinds & set(heal_plan.CHANGING_KINDS)),
        "actions": [action.to_dict() for action in actions],
        "lost": sorted(
            {name for action in actions if action.kind in ("mark_lost", "release") for name in action.nodes}
        ),
        "deleted": sorted(name for action in actions if action.kind == "give_back" for name in action.nodes),
        "backend": "kubernetes" if state.facts.kubernetes else "hosts",
        "rent": next((action.count for action in actions if action.kind == "rent"), 0),
        "join": "join" in kinds,
        "resume": resume,
        "gang": _find_gang(state) if resume is None else None,
        # The machines of the pool that are not replacements.
        "known_tokens": sorted(lease.token for lease in state.leases.values()),
        "done": [],
    }


def _find_gang(state: HealFacts) -> dict[str, object] | None:
    """Return where the cluster has what is left of the run's gang: its object's name, and its pods' labels."""
    run = state.facts.run
    if run is None or run.ended or not state.facts.kubernetes:
        return None
    return {
        "name": object_name(run.run_id),
        "namespace": (state.job.get("placement") or {}).get("namespace"),
        "labels": {RUN_LABEL: label_value(run.run_id)},
        "stop_s": run_record.read_grace_s(state.job) + _FOLLOWER_S,
    }


def _store_silence(home: StateHome, state: HealFacts) -> None:
    """Store since when nodes are silent, for the next call."""
    path = home.folder / SILENT
    if state.silent or path.exists():
        files.private_dir(home.folder)
        files.write_json(path, {name: silence._asdict() for name, silence in state.silent.items()})


def _apply_actions(
    request: RunRequest,
    home: StateHome,
    state: HealFacts,
    actions: t.Sequence[HealAction],
    context: node_pool_present.Context,
) -> list[str]:
    """Carry out a plan; return a line for each thing that was done.

    In the plan's order, except losses and deletions, which are one transaction each.
    """
    _record_notices(request, home, state)
    marks = [action for action in actions if action.kind == "mark_lost"]
    if marks:
        _mark_lost(home, state, marks)
        _remember_faults(request, home, state, marks)
    done = [f"{action.nodes[0]} is lost in the ledger" for action in marks]
    for action in actions:
        if action.kind == "stop":
            _stop_gang(request, home, state, action.nodes)
            done.append(f"the rest of the run was stopped on {', '.join(action.nodes)}")
        elif action.kind == "drain":
            done.append(_drain_node(request, state, *action.nodes))
        elif action.kind == "close":
            done.append(_close_node(request, state, *action.nodes))
    ending = [name for action in actions if action.kind == "give_back" for name in action.nodes]
    done += _delete_machines(request, state, ending, context) if ending else []
    done += [line for action in actions for line in _release_node(state, action)]
    for line in done:
        request.progress.say(f"  {line}")
    return done


def _record_notices(request: RunRequest, home: StateHome, state: HealFacts) -> None:
    """Write into the run's events, once, which of its machines will be taken away, what says so, and since when.

    Who follows the run reads it there: on hosts the gang is stopped and may save.
    """
    run = state.facts.run
    if run is None or run.ended:
        return
    at = request.options.get("noticed_at")
    place = home.run_folder(run.run_id) / "events.jsonl"
    story = run_history.fold(files.parse_json_lines(files.read_text(place)), ())
    newest = story.attempts[-1] if story.attempts else None
    for name, text in facts.read_notices(request.options).items():
        known = any(item.node == name for item in story.notices if newest is None or item.at >= newest.started_at)
        if name in (newest.node_names if newest else run.names) and not known:
            noticed = time.time() if at is None else parse_time(at)
            files.append_json(place, {"at": noticed, "kind": "notice", "node": name, "detail": text})


def _drain_node(request: RunRequest, state: HealFacts, name: str) -> str:
    drained = drain.remove_node(
        _client(state), name, run_record.read_grace_s(state.job) + _STOP_S, request.progress.say
    )
    return f"{name} left the cluster: {len(drained.evicted)} pods were evicted, {len(drained.forced)} deleted by force"


def _close_node(request: RunRequest, state: HealFacts, name: str) -> str:
    drained = drain.drain_node(_client(state), name, run_record.read_grace_s(state.job) + _STOP_S, request.progress.say)
    return (
        f"Node {name} takes no pods: {len(drained.evicted)} were evicted. Open it when its GPU works (kubectl uncordon)"
    )


def _release_node(state: HealFacts, action: HealAction) -> list[str]:
    """Release the pods of a node that is gone, or let a node that is back take pods again."""
    if action.kind == "release":
        (name,) = action.nodes
        is_removed = state.tokens.get(name) is not None or not state.may_return(name)
        return list(out_of_service.release_pods(_client(state), name, is_removed))
    if action.kind != "admit":
        return []
    admitted = [name for name in action.nodes if out_of_service.remove_taint(_client(state), name)]
    return [f"Node {name} takes pods again" for name in admitted]


def _client(state: HealFacts) -> Client:
    return t.cast(Client, state.client)


def _mark_lost(home: StateHome, state: HealFacts, marks: t.Sequence[HealAction]) -> None:
    """Record the losses in the ledger, whose state may have changed since it was read."""
    with open_ledger(home) as writer:
        session = LedgerSession(read_ledger(home.folder).events, writer)
        for action in marks:
            (name,) = action.nodes
            lease = session.leases[(state.leases[name].token, state.leases[name].resource)]
            if lease.open and lease.state != "lost":
                session.record(make_event(lease, "lost", time.time(), reason=action.reason))
        if session.problem:
            raise MusterError(session.problem)


def _remember_faults(request: RunRequest, home: StateHome, state: HealFacts, marks: t.Sequence[HealAction]) -> None:
    """Remember the machines whose GPU failed, so that the one that comes in the place of one is not the same."""
    faults = {node.name: node.gpu_fault for node in state.facts.nodes if node.gpu_fault}
    for name in (action.nodes[0] for action in marks):
        if name in faults:
            lease, host = state.leases[name], state.hosts.get(name)
            note = MachineNote(time.time(), lease.provider, "gpu_fault", faults[name], host)
            if problem := open_machines(home).add(note):
                request.progress.say(f"warning: {problem}")


def _delete_machines(
    request: RunRequest, state: HealFacts, names: t.Sequence[str], context: node_pool_present.Context
) -> list[str]:
    """Delete machines that may still run, and prove it: their pods must not write beside the new gang's."""
    tokens = [str(state.tokens[name]) for name in names]
    options = {
        **request.options,
        "providers": state.providers,
        "pool": None,
        "nodes": tokens,
        "due_only": False,
        "orphans": "report",
        "hygiene": [],
        "release_timeout_s": 900,
    }
    result = node_pool_absent.ensure_absent(options, dataclasses.replace(context, check=False))
    remaining = [item for item in t.cast(list[dict[str, object]], result["billing"]) if item.get("token") in tokens]
    if remaining:
        problem = remaining[0].get("problem")
        raise RefusedError(f"{', '.join(names)} could not be deleted: {problem}", "Run heal again")
    return [f"{name} was deleted, with proof" for name in names]


def _record_end(home: StateHome, run: heal_plan.FleetRun, lost: t.Sequence[str], noticed: t.Container[str]) -> None:
    folder, now = home.run_folder(run.run_id), time.time()
    before = load_record(folder)
    if before is None or before.is_ended:
        return
    gone = [name for name in lost if name not in noticed]
    for name in gone:
        files.append_json(folder / "events.jsonl", {"at": now, "kind": "node_lost", "node": name})
    detail = (
        f"{', '.join(gone or lost)} {'was lost' if gone else 'will be taken away'}; heal stopped the rest of the gang"
    )
    cause = "node_lost" if gone else "preempted"
    ended = run_record.end_record(before, now, outcome="lost", cause=cause, detail=detail, exit_code=1)
    run_record.write_record(folder, ended)


def _stop_gang(request: RunRequest, home: StateHome, state: HealFacts, names: t.Sequence[str]) -> None:
    """Stop the rest of a gang; its program saves a checkpoint first. The record gets this attempt's end."""
    run = t.cast(heal_plan.FleetRun, state.facts.run)
    remotes = request.connect([name for name in names if name in request.hostvars])
    for remote in remotes:
        remote.owner = home.owner(create=False)["owner"]
    # Who follows the run stops it, too, and lets go of it, when one of its machines will be taken away.
    noticed = facts.read_notices(request.options)
    saves_s = run_record.read_grace_s(state.job) + _STOP_S
    patience_s = saves_s + _FOLLOWER_S if noticed.keys() & set(run.names) else LOCK_S
    with home.lock(run.run_id, patience_s):
        _unused, errors = gang.stop_gang(remotes, run.run_id, saves_s)
        lost = [node.name for node in state.facts.nodes if heal_plan.loss_reason(node, state.facts)]
        _record_end(home, run, lost, noticed)
    for name, error in errors.items():
        request.progress.say(f"  warning: {name}: {error}")
