# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Removes what old runs left on hosts and controller, and says how much disk that frees.

A run that has not ended, that another controller owns, or that the controller does not know, is never touched.
Checkpoints in a folder that the job names are not touched either: they are the result. A run whose newest checkpoint is
in its own folder and nowhere else stays unless that is asked for. On the controller the record of a run stays, of which
usage is counted and by which ``train`` knows that it has ended.
"""

from __future__ import annotations

import dataclasses
import datetime
import os
import pathlib
import shutil
import typing as t

from ...module_utils._model import job_checkpoints
from ...module_utils._model.errors import InputError, MusterError, one_line
from ...module_utils._model.run_record import RunRecord
from ...module_utils._node import checkpoint_sets, files
from .._hosts.node_client import NodeClient, on_each_node
from .shared import run_record
from .shared.state_dir import StateHome, load_record
from .training_job.load import load_recorded_job
from .training_job_fetch import copies as run_copies

_ANYWAY = "-e muster_prune_unfetched=true"
_WAYS = f"Fetch it (muster.training.fetch -e muster_run_id=…), or remove the run with {_ANYWAY}"
# What stays of a run on the controller: what happened, who fetched it, and credentials that may have to be revoked.
_RECORD: t.Final = frozenset(
    ("run.json", "copies.json", "events.jsonl", "claim.json", "offsets.json", "lock", "secret_leases.json")
)
Connect = t.Callable[[t.Sequence[str]], list[NodeClient]]
# Runs on a node, as its answer describes them.
NodeRuns = dict[str, list[dict[str, t.Any]]]


@dataclasses.dataclass(frozen=True, slots=True)
class PruneRequest:
    """Which runs to remove: all but the newest ``keep``, or those of ``run_ids``.

    Without ``unfetched`` a run stays whose newest checkpoint would go with it and has no copy.
    """

    keep: int
    older_than_days: float
    run_ids: tuple[str, ...]
    controller: bool
    unfetched: bool
    check: bool


def prune_runs(
    home: StateHome, hosts: t.Sequence[str], connect: Connect, wanted: PruneRequest, now: float
) -> dict[str, object]:
    """Remove the runs and return ``{changed, runs, kept, freed_bytes {where: bytes}, problems, table}``.

    It has ``failed`` and ``msg``, too, where a host was not read or not cleaned.
    """
    chosen = choose_runs(home, wanted.keep, wanted.older_than_days, wanted.run_ids, now)
    owner = home.owner(create=False)["owner"]
    remotes = connect(hosts)
    places = {run_id: _checkpoint_place(record) for run_id, record in chosen.items()}
    disks, errors = on_each_node(remotes, lambda remote: remote.call("results", step="disk", places=places))
    found = {
        name: [run for run in disk["runs"] if run["run_id"] in chosen and _is_removable(run, owner)]
        for name, disk in disks.items()
    }
    kept = _find_kept(home, chosen, found, errors, wanted)
    due = {name: [run for run in runs if run["run_id"] not in kept] for name, runs in found.items()}
    going = {run_id: record for run_id, record in chosen.items() if run_id not in kept}
    held = {run["run_id"] for runs in due.values() for run in runs}
    bulky = {run_id for run_id in going if _list_bulky(home.run_folder(run_id))} if wanted.controller else set()
    # Of one that was pruned before, here or on its nodes, there is a record alone.
    named = {*wanted.run_ids} | (
        {run_id for run_id in going if not going[run_id].pruned_at} if wanted.controller else set()
    )
    going = {run_id: record for run_id, record in going.items() if run_id in held | bulky | named}
    marked = [run_id for run_id, record in going.items() if wanted.controller and not record.pruned_at]
    freed = {name: sum(run["bytes"] for run in runs) for name, runs in due.items()}
    if not wanted.check:
        freed, more = _clean(home, remotes, due, now)
        errors.update(more)
    if wanted.controller:
        freed["controller"] = _clean_controller(home, bulky | {*marked}, None if wanted.check else now)
    table = [
        *_build_table(disks, due, freed, len(going), wanted.check),
        *(_describe_run(record, due, wanted.check) for record in going.values()),
        *(f"{run_id} stays: {reason}" for run_id, reason in kept.items()),
        *([] if going or kept else [_describe_nothing(wanted)]),
    ]
    return {
        "changed": any(due.values()) or bool(bulky or marked),
        "runs": sorted(going),
        "kept": kept,
        "freed_bytes": freed,
        "problems": {name: str(error) for name, error in errors.items()},
        "table": table,
        **_describe_failure(errors, len(remotes)),
    }


def _describe_failure(errors: t.Mapping[str, MusterError], count: int) -> dict[str, object]:
    """Return ``{failed, msg}`` where hosts were not read or not cleaned: their disks are as full as they were."""
    if not errors:
        return {}
    named = "; ".join(one_line(str(error)) for _name, error in sorted(errors.items()))
    return {
        "failed": True,
        "msg": f"{len(errors)} of {count} hosts were not pruned: {named}. Mend them and prune again",
    }


def _is_removable(run: t.Mapping[str, t.Any], owner: str) -> bool:
    return not run["alive"] and run["owner"] in (owner, None)


def _checkpoint_place(record: RunRecord) -> dict[str, t.Any]:
    """Return where the nodes look for the newest checkpoint of a run; a job of another version names nothing."""
    try:
        job = load_recorded_job(record)
    except InputError:
        return {}
    folder = job_checkpoints.folder_on_hosts(job, record.run_id, record.generation)
    reported = record.checkpoint.path if record.checkpoint else None
    return {"folder": folder, "format": job.checkpoints.format, "reported": reported}


def _find_kept(
    home: StateHome,
    chosen: t.Mapping[str, RunRecord],
    found: NodeRuns,
    errors: t.Mapping[str, MusterError],
    wanted: PruneRequest,
) -> dict[str, str]:
    """Return the runs that stay, each with what would be lost and what to do."""
    kept = {}
    for run_id, record in chosen.items():
        reason = "" if wanted.unfetched else _find_only_copy(home, record, found, wanted.controller)
        silent = sorted(errors.keys() & {*record.node_names})
        if not reason and wanted.controller and silent and not record.pruned_at:
            reason = f"{', '.join(silent)} did not answer: what is there may have no other copy. Prune it later"
        if reason:
            kept[run_id] = reason
    return kept


def _find_only_copy(home: StateHome, record: RunRecord, found: NodeRuns, on_controller: bool) -> str:
    """Return which checkpoint of a run would be lost with its folders, empty where none would."""
    folder = home.run_folder(record.run_id)
    copies = run_copies.read_copies(folder)
    own = {name: run for name, runs in found.items() for run in runs if run["run_id"] == record.run_id}
    newest = _choose_newest(own)
    held = {(name, item.name): item for name, items in _read_held(own).items() for item in items}
    saved = [(name, held[name, item]) for name, items in newest.names.items() for item in items]
    stored = _list_stored(folder) if record.job["checkpoints"].get("binding") else set()
    apart = folder if on_controller else None
    only = [
        (name, item)
        for name, item in saved
        if (name, item.name) not in stored
        and not run_copies.has_copy(copies, item.name, item.saved_at / 1e9, apart, name if item.own else None)
    ]
    if only:
        listed = ", ".join(f"{item.name} ({_size(item.bytes)}) on {name}" for name, item in sorted(only))
        if newest.problem:
            return f"{newest.problem}. Fetch them by name (muster_fetch_paths), or remove the run with {_ANYWAY}"
        return f"it has a checkpoint that was not fetched: {listed}. {_WAYS}"
    if own and not saved and record.checkpoint and not copies.fetched and _is_inside(record):
        step = f"the checkpoint of {record.checkpoint.describe_step()}"
        return f"its program reported {step}, which may be in its folder and was not fetched. {_WAYS}"
    if on_controller and any((folder / "files").rglob("*")) and not own:
        return f"what was fetched of it is in {folder / 'files'}. Move it, or remove the run with {_ANYWAY}"
    return ""


def _read_held(runs: t.Mapping[str, t.Mapping[str, t.Any]]) -> dict[str, list[checkpoint_sets.Held]]:
    """Return what each node holds of a run's checkpoints in its folder."""
    return {
        name: [checkpoint_sets.Held(**row) for row in run.get("checkpoints") or ()]
        for name, run in sorted(runs.items())
    }


def _choose_newest(runs: t.Mapping[str, t.Mapping[str, t.Any]]) -> checkpoint_sets.CheckpointSet:
    """Return the newest whole checkpoint of a run, by what its nodes answered: what ``fetch`` would bring."""
    return checkpoint_sets.choose_set(_read_held(runs))


def _is_inside(record: RunRecord) -> bool:
    """Return whether the job leaves it to the program where checkpoints are."""
    checkpoints = record.job["checkpoints"]
    path = (record.checkpoint and record.checkpoint.path) or ""
    return not checkpoints.get("path") and not checkpoints.get("binding") and not path.startswith("/")


def _list_stored(folder: pathlib.Path) -> set[tuple[str, str]]:
    """Return (node, name) of the checkpoints that were stored in the run's bucket."""
    lines = files.parse_json_lines(files.read_text(folder / "events.jsonl"))
    return {
        (str(line.get("node")), str(line.get("detail"))) for line in lines if line.get("kind") == "checkpoint_stored"
    }


def choose_runs(
    home: StateHome, keep: int, older_than_days: float, run_ids: t.Sequence[str], now: float
) -> dict[str, RunRecord]:
    """Return the runs to remove by id: those that have ended, are older and not among the newest.

    :raises InputError: for a run that is named and does not exist or has not ended.
    """
    records = [record for folder in home.runs() if (record := load_record(folder)) is not None]
    by_id = {record.run_id: record for record in records}
    for run_id in run_ids:
        if run_id not in by_id:
            raise InputError("run_ids", f"run {run_id} does not exist in {home.folder}")
        if not by_id[run_id].is_ended:
            raise InputError("run_ids", f"run {run_id} has not ended", "Cancel it first")
    if run_ids:
        return {run_id: by_id[run_id] for run_id in run_ids}
    limit = now - older_than_days * 86400
    # Of one that was pruned before only a node that did not answer then may have something: it takes no place.
    former = [record for record in records if record.pruned_at]
    old = [*[record for record in records if not record.pruned_at][keep:], *former]
    return {record.run_id: record for record in old if record.is_ended and _ended_at(record) <= limit}


def _ended_at(record: RunRecord) -> float:
    return datetime.datetime.fromisoformat(record.ended_at or record.submitted_at).timestamp()


def _clean(
    home: StateHome, remotes: t.Sequence[NodeClient], due: NodeRuns, now: float
) -> tuple[dict[str, int], dict[str, t.Any]]:
    """Remove the runs on their nodes and record it; return the bytes that this freed by node, and the errors."""
    busy = [remote for remote in remotes if remote.name in due]

    def clean(remote: NodeClient) -> int:
        answer = remote.call("results", step="clean", runs=[run["run_id"] for run in due[remote.name]])
        return int(answer["freed"])

    freed, errors = on_each_node(busy, clean)
    for run_id in {run["run_id"] for name in freed for run in due[name]}:
        names = [name for name in freed if any(run["run_id"] == run_id for run in due[name])]
        run_copies.note_pruned(home.run_folder(run_id), names, now)
    return dict(freed), dict(errors)


def _list_bulky(folder: pathlib.Path) -> list[pathlib.Path]:
    """Return what a run's folder on the controller has beside its record: logs, metrics, reports, fetched files."""
    return [place for place in folder.iterdir() if place.name not in _RECORD]


def _clean_controller(home: StateHome, chosen: t.Iterable[str], now: float | None) -> int:
    """Remove all but the records of runs on the controller, unless one is in use; return the bytes.

    :param now: the day that the records get, None where nothing is to be removed.
    """
    freed = 0
    for run_id in chosen:
        bulky = _list_bulky(home.run_folder(run_id))
        inner = [place for item in bulky for place in (item, *item.rglob("*"))]
        freed += sum(place.lstat().st_blocks * 512 for place in inner if not place.is_dir())
        if now is not None:
            with home.lock(run_id, 0.0):
                for place in bulky:
                    if place.is_dir() and not place.is_symlink():
                        shutil.rmtree(place)
                    else:
                        place.unlink()
                _mark_pruned(home.run_folder(run_id), now)
    return freed


def _mark_pruned(folder: pathlib.Path, now: float) -> None:
    """Record the day, and that the logs of its attempts are gone; the record keeps its time, which orders runs."""
    before = (folder / "run.json").stat()
    if (record := load_record(folder)) is not None:
        # A continuation folds its attempts from the events again.
        files.append_json(folder / "events.jsonl", {"at": now, "kind": "pruned"})
        attempts = tuple(dataclasses.replace(attempt, logs=()) for attempt in record.attempts)
        pruned = dataclasses.replace(record, attempts=attempts, pruned_at=run_record.format_time(now))
        run_record.write_record(folder, pruned)
        os.utime(folder / "run.json", ns=(before.st_atime_ns, before.st_mtime_ns))


def _build_table(
    disks: t.Mapping[str, t.Mapping[str, t.Any]],
    due: t.Mapping[str, t.Sequence[object]],
    freed: t.Mapping[str, int],
    count: int,
    check: bool,
) -> list[str]:
    verb = "would be freed" if check else "freed"
    lines = [f"{count} runs chosen, {_size(sum(freed.values()))} {verb}"]
    for name, disk in sorted(disks.items()):
        total = sum(run["bytes"] for run in disk["runs"])
        lines.append(
            f"{name}: {len(due[name])} of {len(disk['runs'])} runs, "
            f"{_size(freed.get(name, 0))} of {_size(total)} {verb}; "
            f"environments {_size(disk['environments'])}, copies of code and data {_size(disk['blobs'])}"
        )
    if "controller" in freed:
        lines.append(f"controller: {_size(freed['controller'])} {verb}")
    return lines


def _describe_nothing(wanted: PruneRequest) -> str:
    """Return why nothing is removed, and where the space is that may be looked for."""
    older = f", nor younger than {wanted.older_than_days:g} days" if wanted.older_than_days else ""
    return (
        f"nothing to remove: the newest {wanted.keep} runs (muster_prune_keep) and runs that have not ended are not "
        f"removed{older}. Old checkpoints in a folder that a job names (checkpoints.path) are deleted there, or by "
        "checkpoints.keep"
    )


def _describe_run(record: RunRecord, due: NodeRuns, check: bool) -> str:
    """Return the line of a run that is removed: from where, and what becomes of its checkpoints."""
    own = {name: run for name, runs in sorted(due.items()) for run in runs if run["run_id"] == record.run_id}
    verb = "would be removed" if check else "removed"
    where = (
        f"{verb} from {', '.join(own)} ({_size(sum(run['bytes'] for run in own.values()))})" if own else "on no node"
    )
    path = (record.job.get("checkpoints") or {}).get("path")
    names = sorted({name for items in _choose_newest(own).names.values() for name in items})
    if names:
        return f"{record.run_id}: {where}, with the checkpoint {', '.join(names)}"
    return f"{record.run_id}: {where}" + (f"; {path}/{record.run_id} is left as it is" if path else "")


def _size(count: float) -> str:
    return f"{count / 1e9:,.2f} GB" if count >= 1e9 else f"{count / 1e6:,.1f} MB"
