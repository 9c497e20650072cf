# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reading runs back: records, live state and logs. Works without the nodes for what the controller kept.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import pathlib
import typing as t

from ...module_utils._model.errors import RefusedError
from ...module_utils._node import files
from .._hosts.node_client import Remote, each
from .shared.state_dir import StateHome, read_record

Dict = dict[str, t.Any]
Connect = t.Callable[[t.Sequence[str]], list[Remote]]
# What a run's cluster says of it: ``{phase, detail}``.
Ask = t.Callable[[t.Mapping[str, t.Any]], Dict]
_SHORT = ("run_id", "state", "outcome", "submitted_at", "duration_s", "exit_code", "steps_lost", "checkpoint", "cost")


def info(
    home: StateHome,
    run_id: str | None,
    live: Connect | None,
    known: t.Container[str],
    hostvars: t.Mapping[str, t.Any] | None = None,
    ask: Ask | None = None,
) -> Dict:
    """Return ``{runs}``: the named record, or all of them with the newest first; with ``live`` what nodes say now.

    With ``hostvars``, asking for a run that lives renews the leases of its rented machines. ``ask`` asks the cluster of
    a run in pods.
    """
    folders = [_folder(home, run_id)] if run_id else home.runs()
    runs = [record for folder in folders if (record := read_record(folder)) is not None]
    if live is not None:
        runs = [{**record, "live": _live(record, live, known, hostvars or {}, ask)} for record in runs]
    return {"changed": False, "runs": runs, "summary": [summary(record) for record in runs]}


def summary(record: Dict) -> Dict:
    """Return the few fields of a record that a list shows."""
    value = {key: record.get(key) for key in _SHORT}
    value["name"] = record["job"]["name"]
    # Attempts of which no rank came to start are not in the record; the numbers of the others count them.
    value["restarts"] = record["attempts"][-1]["n"] - 1 if record["attempts"] else 0
    value["world_size"] = record["world_size"]
    if (record.get("live") or {}).get("detail"):
        value["live"] = record["live"]["detail"]
    return value


def logs(
    home: StateHome, run_id: str | None, lines: int, ranks: bool, connect: Connect, known: t.Container[str]
) -> Dict:
    """Return the last lines of each node's log; with ``ranks`` fetch the files of every rank and attempt too."""
    folder = _folder(home, run_id)
    record = t.cast(Dict, read_record(folder))
    problems: dict[str, str] = {}
    if ranks:
        problems = _fetch(folder, record, connect, known)
    found = sorted((folder / "logs").glob("**/*.log"))
    tails = {str(path.relative_to(folder / "logs")): tail(path, lines) for path in found}
    return {"changed": False, "run_id": record["run_id"], "logs": tails, "problems": problems, "folder": str(folder)}


def tail(path: pathlib.Path, count: int) -> list[str]:
    """Return the last ``count`` lines of a text file, reading only its end."""
    with open(path, "rb") as handle:
        handle.seek(0, 2)
        size = handle.tell()
        handle.seek(max(0, size - 512 * max(count, 1)))
        return handle.read().decode(errors="replace").splitlines()[-count:] if count else []


def _folder(home: StateHome, run_id: str | None) -> pathlib.Path:
    runs = home.runs()
    if run_id is None:
        if not runs:
            raise RefusedError(f"no runs in {home.folder}", "Start one with the train playbook")
        return runs[0]
    folder = home.run_folder(run_id)
    if read_record(folder) is None:
        names = ", ".join(path.name for path in runs[:5]) or "none"
        raise RefusedError(f"run {run_id} does not exist in {home.folder}", f"The newest are: {names}")
    return folder


def _live(
    record: Dict, connect: Connect, known: t.Container[str], hostvars: t.Mapping[str, t.Any], ask: Ask | None
) -> Dict | None:
    if record["state"] == "ended":
        return None
    if record.get("backend") == "kubernetes":
        return ask(record) if ask else None
    remotes = connect([name for name in record.get("hosts", []) if name in known])
    answers, errors = each(remotes, lambda remote: remote.call("info", run_id=record["run_id"]))
    units = {name: answer["units"] for name, answer in answers.items()}
    unreachable = {name: str(exc) for name, exc in errors.items()}
    at_work = [remote for remote in remotes if units.get(remote.name, {}).get("agent", {}).get("alive")]
    return {"units": units, "unreachable": unreachable, **_renewed(at_work, hostvars)}


def _renewed(remotes: t.Sequence[Remote], hostvars: t.Mapping[str, t.Any]) -> Dict:
    """Renew the leases of rented machines that are at work; return what came of it, nothing where none is rented."""
    from .node_pool import lease_renewal

    rented = lease_renewal.rented(remotes, hostvars) if hostvars else []
    if not rented:
        return {}
    problems = lease_renewal.renew(rented)
    return {"leases": {remote.name: str(problems.get(remote.name, "renewed")) for remote in rented}}


def _fetch(folder: pathlib.Path, record: Dict, connect: Connect, known: t.Container[str]) -> dict[str, str]:
    run_id = record["run_id"]
    names = [name for name in record.get("hosts", []) if name in known]

    def work(remote: Remote) -> None:
        for pattern in ("ranks/**/std*.log", "units/*/log", "units/*/supervisor.log"):
            for item in remote.call("read", run_id=run_id, pattern=pattern, limit=4 << 20)["files"]:
                name = pathlib.PurePosixPath(item["path"])
                if name.is_absolute() or ".." in name.parts:
                    # A node's answer is not to be trusted with places on the controller.
                    continue
                place = folder / "logs" / remote.name / name
                if place.suffix != ".log":
                    place = place.with_suffix(".log")
                files.private_dir(place.parent)
                files.write_atomic(place, item["text"].encode())

    _unused, errors = each(connect(names), work)
    return {name: str(exc) for name, exc in errors.items()}
