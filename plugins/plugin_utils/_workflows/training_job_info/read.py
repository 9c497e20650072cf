# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lists recorded runs with their live state; what the controller keeps needs no node."""

from __future__ import annotations

import dataclasses
import pathlib
import time
import typing as t

from ....module_utils._model.errors import RefusedError, UnreachableError
from ....module_utils._model.node_report import UnitReport
from ....module_utils._model.run_record import RunRecord
from ....module_utils._model.stall import format_span
from ..._hosts.node_client import NodeClient, on_each_node
from ..._provision.ledger.ledger_store import read_ledger
from ..node_pool.gone_runs import end_gone_runs
from ..shared.progress import Progress
from ..shared.state_dir import StateHome, find_run_folder, is_followed, read_record
from ..training_job import movement as run_movement
from . import table

Record = table.Record
Connect = t.Callable[[t.Sequence[str]], list[NodeClient]]
# Returns what a run's cluster reports of it: ``{phase, detail}``.
ReadCluster = t.Callable[[Record], dict[str, object]]
# So long the others may take to end after the first node.
_PARTED_S: t.Final = 60.0
_SUMMARY_FIELDS = (
    *("run_id", "state", "outcome", "submitted_at", "duration_s", "exit_code"),
    *("problems", "steps_lost", "checkpoint", "cost", "world_size", "catalogue_template"),
)


@dataclasses.dataclass(frozen=True)
class LiveSource:
    """How the live state of runs is read: ``hosts`` are the hosts of the inventory.

    With ``hostvars``, what is new on the hosts is fetched, runs that have ended are recorded so, and the leases of the
    rented machines of a run that is running are renewed.
    """

    connect: Connect
    hosts: t.Container[str]
    hostvars: t.Mapping[str, t.Any] | None = None
    read_cluster: ReadCluster | None = None
    progress: Progress | None = None
    # Hosts that did not answer for one run are not asked again for the next.
    silent: dict[str, str] = dataclasses.field(default_factory=dict)


def read_runs(
    home: StateHome,
    run_id: str | None,
    live: LiveSource | None = None,
    limit: int | None = None,
    query: str | None = None,
    now: float | None = None,
    *,
    is_check: bool = False,
) -> dict[str, object]:
    """Return ``{runs, summary, table}``: the named record, or all of them (the ``limit`` newest) with the newest first.

    :param query: a JMESPath expression on these; what it selects is returned as ``selected``. :param is_check: whether
        nothing may be written: a run whose machines are proved gone stays as it is recorded.
    """
    folders = [find_run_folder(home, run_id)] if run_id else home.runs()
    found, unread = _read_records(folders[:limit], is_list=run_id is None)
    now = time.time() if now is None else now
    if not is_check and any(record["state"] != "ended" for record, _folder in found):
        ended = end_gone_runs(home, read_ledger(home.folder).leases.values())
        found = [
            (ended[name].to_dict() if (name := record["run_id"]) in ended else record, folder)
            for record, folder in found
        ]
    entries = [(read_live(home, record, live, now) if live is not None else record, folder) for record, folder in found]
    records = [record for record, _folder in entries]
    result: dict[str, object] = {"runs": records, "summary": [summarize_record(record) for record in records]}
    if query:
        result["selected"] = table.search(query, result)
    lines = table.build_table(entries, now)
    lines = lines if entries or unread else [f"no run is recorded in {home.folder}"]
    older = len(folders) - len(found) - len(unread)
    left_out = [f"{older} older runs are not shown"] if older > 0 else []
    return {"changed": False, **result, "table": [*lines, *unread, *left_out]}


def _read_records(
    folders: t.Iterable[pathlib.Path], *, is_list: bool
) -> tuple[list[tuple[Record, pathlib.Path]], list[str]]:
    """Return the records with their folders, and of a list a line for each that cannot be read: it hides no other."""
    found: list[tuple[Record, pathlib.Path]] = []
    unread: list[str] = []
    for folder in folders:
        try:
            record = read_record(folder)
        except RefusedError as error:
            if not is_list:
                raise
            unread.append(f"{folder.name} is not shown: {error}")
            continue
        if record is not None:
            found.append((record, folder))
    return found, unread


def summarize_record(record: Record) -> dict[str, object]:
    """Return the few fields of a record that a list shows."""
    summary: dict[str, object] = {key: record.get(key) for key in _SUMMARY_FIELDS}
    summary["name"] = record["job"]["name"]
    # Of an earlier version: attempts of which no rank came to start are counted by the numbers of the others.
    numbered = record["attempts"][-1]["n"] - 1 if record["attempts"] else 0
    summary["restarts"] = numbered if record.get("restarts") is None else record["restarts"]
    summary["step"] = next((item["last_step"] for item in reversed(record["attempts"]) if item.get("last_step")), None)
    state = record.get("live") or {}
    if state.get("detail"):
        summary["live"] = state["detail"]
    if state.get("unreachable"):
        summary["unreachable"] = state["unreachable"]
    if state.get("stalled"):
        summary["stalled"] = state["stalled"]
    return summary


def read_live(home: StateHome, record: Record, live: LiveSource, now: float | None = None) -> Record:
    """Return a record with what the nodes or the cluster of its run report now under ``live``, None if it has ended.

    ``stalled`` says there, at the time ``now``, that the run makes no steps, where all of its hosts were read, and that
    only a part of it runs.
    """
    if record["state"] == "ended":
        return {**record, "live": None}
    if record.get("backend") == "kubernetes":
        found = live.read_cluster(record) if live.read_cluster else None
        return {**record, "live": None} if found is None else _add_pods(home, record, found, now)
    names = [name for name in record.get("hosts", []) if name in live.hosts]
    remotes = live.connect([name for name in names if name not in live.silent])
    answers, errors = on_each_node(remotes, lambda remote: remote.call("info", run_id=record["run_id"]))
    units = {name: answer["units"] for name, answer in answers.items()}
    live.silent.update({name: str(error) for name, error in errors.items() if isinstance(error, UnreachableError)})
    unreachable = {name: str(errors.get(name, live.silent.get(name))) for name in names if name not in answers}
    record = _refresh(home, record, [remote for remote in remotes if remote.name in answers], live)
    running = [remote for remote in remotes if units.get(remote.name, {}).get("agent", {}).get("alive")]
    leases = _renew_leases(running, live.hostvars or {})
    stalled = {}
    if now is not None and live.progress is not None and live.hostvars is not None and names:
        movement, said = run_movement.read_movement(home.run_folder(str(record["run_id"])), now)
        agents = {name: UnitReport.from_dict(found["agent"]) for name, found in units.items() if found.get("agent")}
        words = _describe_parts(agents, names, now)
        if movement == "stalled" and running and len(agents) == len(names):
            words = [said, *words]
        stalled = {"stalled": "; ".join(words)} if words else {}
    # Of a host that the inventory lacks nothing is known, so that the record is not what is so now.
    unasked = [name for name in record.get("hosts", []) if name not in live.hosts]
    missing = {"unasked": unasked} if unasked else {}
    return {**record, "live": {"units": units, "unreachable": unreachable, **missing, **stalled, **leases}}


def _add_pods(home: StateHome, record: Record, found: dict[str, object], now: float | None) -> Record:
    """Return the record of a run in pods with what its cluster says of it.

    The steps, who hangs, and that it runs, are recorded by who follows it: without a follower its pods say so.
    """
    count, run_id, state = record["job"].get("nodes"), str(record["run_id"]), record["state"]
    is_complete = bool(count) and t.cast(int, found.get("running", 0)) >= count
    if is_followed(home, run_id):
        if state != "running" or not is_complete or now is None:
            return {**record, "live": found}
        movement, said = run_movement.read_movement(home.run_folder(run_id), now)
        return {**record, "live": {**found, **({"stalled": said} if movement == "stalled" else {})}}
    follow = f"run train with muster_run_id={run_id} to follow it"
    if state in ("queued", "starting"):
        if not is_complete:
            return {**record, "live": found}
        detail = f"its pods run, its steps are unknown here: {follow}"
        return {**record, "state": "running", "live": {**found, "detail": detail}}
    if found.get("phase") != "waiting":
        return {**record, "live": found}
    age = max(0.0, (time.time() if now is None else now) - _last_word(home.run_folder(run_id)))
    detail = f"not followed from here for {format_span(age)}, and its step is as old: {follow}"
    if is_complete:
        return {**record, "state": "running", "live": {**found, "detail": detail}}
    return {**record, "live": {**found, "detail": f"{detail} ({found.get('detail')})"}}


def _last_word(folder: pathlib.Path) -> float:
    """Return when the follower of a run has written last, Unix seconds."""
    places = [folder / name for name in ("run.json", "events.jsonl", "metrics.jsonl", "offsets.json")]
    return max((place.stat().st_mtime for place in places if place.exists()), default=0.0)


def _describe_parts(agents: t.Mapping[str, UnitReport], names: t.Sequence[str], now: float) -> list[str]:
    """Return what is said of a gang of which only a part runs: who has ended for a while, and whose part is gone."""
    running = [name for name in names if name in agents and agents[name].alive]
    ended = {name: agent.end for name, agent in agents.items() if agent.end and now - agent.end.at > _PARTED_S}
    lost = [name for name in names if name in agents and agents[name].is_lost]
    gone = [name for name in lost if not agents[name].left]
    words = []
    if running and ended:
        codes = ", ".join(f"{name} ended with exit code {end.exit_code}" for name, end in sorted(ended.items()))
        words.append(f"{codes}, {', '.join(running)} still {'runs' if len(running) == 1 else 'run'}")
    if gone:
        words.append(f"nothing of the run runs on {', '.join(gone)}: the train playbook starts it again")
    if left := [f"{name} ({agents[name].left})" for name in lost if agents[name].left]:
        # Nothing ends or restarts them, and what they print is read late.
        said = f"processes of the run run without their supervisor on {', '.join(left)}"
        words.append(f"{said}: the train playbook ends them and starts it again")
    return words


def _refresh(home: StateHome, record: Record, answering: t.Sequence[NodeClient], live: LiveSource) -> Record:
    """Fetch what is new of a run on its hosts into its folder, and return its record as it is then."""
    if live.hostvars is None or live.progress is None or not answering:
        return record
    # Late: a list of runs that have ended needs nothing of this.
    from ..training_job.hosts.refresh import refresh_record

    run = RunRecord.from_dict({key: value for key, value in record.items() if key != "live"})
    return refresh_record(home, run, answering, live.hostvars, live.progress).to_dict()


def _renew_leases(remotes: t.Sequence[NodeClient], hostvars: t.Mapping[str, t.Any]) -> dict[str, object]:
    """Renew the leases of the rented machines among ``remotes``; return ``{leases}``, nothing where none is rented."""
    from ..node_pool import lease_renewal

    rented = lease_renewal.select_rented(remotes, hostvars) if hostvars else []
    if not rented:
        return {}
    problems = lease_renewal.renew_leases(rented)
    return {"leases": {remote.name: str(problems.get(remote.name, "renewed")) for remote in rented}}
