# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Removes what old runs left on hosts and controller, and says how much disk that frees.

A run that has not ended, that another controller owns, or that the controller does not know, is never touched.
Checkpoints in a folder that the job names are not touched either: they are the result.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import datetime
import shutil
import typing as t

from ...module_utils._model.errors import InputError
from ...module_utils._model.run_record import RunRecord
from .._hosts.node_client import NodeClient, on_each_node
from .shared.state_dir import StateHome, load_record

_NAMED = 5
Connect = t.Callable[[t.Sequence[str]], list[NodeClient]]


def prune_runs(
    home: StateHome,
    hosts: t.Sequence[str],
    connect: Connect,
    *,
    keep: int,
    older_than_days: float,
    run_ids: t.Sequence[str],
    on_controller: bool,
    check: bool,
    now: float,
) -> dict[str, object]:
    """Remove the runs and return ``{changed, runs, freed_bytes {where: bytes}, problems, table}``.

    :param keep: the newest runs that stay; ``run_ids`` names the runs to remove instead.
    """
    chosen = choose_runs(home, keep, older_than_days, run_ids, now)
    owner = home.owner(create=False)["owner"]
    remotes = connect(hosts)
    disks, errors = on_each_node(remotes, lambda remote: remote.call("results", step="disk"))
    due = {
        name: [
            run
            for run in disk["runs"]
            if run["run_id"] in chosen and not run["alive"] and run["owner"] in (owner, None)
        ]
        for name, disk in disks.items()
    }
    freed = {name: sum(run["bytes"] for run in runs) for name, runs in due.items()}
    if not check:
        freed, more = _clean(remotes, due)
        errors.update(more)
    if on_controller:
        freed["controller"] = _clean_controller(home, chosen, check)
    changed = any(due.values()) or bool(on_controller and chosen)
    return {
        "changed": changed,
        "runs": sorted(chosen),
        "freed_bytes": freed,
        "problems": {name: str(error) for name, error in errors.items()},
        "table": [*_build_table(disks, due, freed, len(chosen), check), *_name_kept(chosen)],
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
    return {record.run_id: record for record in records[keep:] if record.is_ended and _ended_at(record) <= limit}


def _ended_at(record: RunRecord) -> float:
    return datetime.datetime.fromisoformat(record.ended_at or record.submitted_at).timestamp()


def _clean(
    remotes: t.Sequence[NodeClient], due: t.Mapping[str, t.Sequence[t.Mapping[str, t.Any]]]
) -> tuple[dict[str, int], dict[str, t.Any]]:
    """Remove the runs on their nodes; return the bytes that this freed by node, and the errors."""
    busy = [remote for remote in remotes if remote.name in due]

    def clean(remote: NodeClient) -> int:
        answer = remote.call("results", step="clean", runs=[run["run_id"] for run in due[remote.name]])
        return int(answer["freed"])

    freed, errors = on_each_node(busy, clean)
    return dict(freed), dict(errors)


def _clean_controller(home: StateHome, chosen: t.Iterable[str], check: bool) -> int:
    """Remove the folders of runs on the controller, unless one is in use; return their bytes."""
    freed = 0
    for run_id in chosen:
        folder = home.run_folder(run_id)
        freed += sum(place.lstat().st_blocks * 512 for place in folder.rglob("*") if not place.is_dir())
        if not check:
            with home.lock(run_id, 0.0):
                shutil.rmtree(folder)
    return freed


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


def _name_kept(chosen: t.Mapping[str, RunRecord]) -> list[str]:
    """Return the line that names the checkpoints of removed runs that stay where the job put them."""
    folders = {run_id: (record.job.get("checkpoints") or {}).get("path") for run_id, record in chosen.items()}
    kept = [f"{folder}/{run_id}" for run_id, folder in sorted(folders.items()) if folder]
    more = f" and {len(kept) - _NAMED} more" if len(kept) > _NAMED else ""
    return [f"checkpoints stay in {', '.join(kept[:_NAMED])}{more}"] if kept else []


def _size(count: float) -> str:
    return f"{count / 1e9:,.2f} GB" if count >= 1e9 else f"{count / 1e6:,.1f} MB"
