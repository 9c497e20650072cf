# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Seconds of the steps of the playbook site: ``site.json`` of the cluster, and a copy in the folder of the run."""

from __future__ import annotations

import os
import pathlib
import typing as t

from ....module_utils._node import files
from ..shared.run_record import format_time
from ..shared.state_dir import StateHome

Dict = dict[str, t.Any]
FILE = "site.json"
_SCHEMA = 1


def run(options: t.Mapping[str, t.Any], now: float, check: bool) -> Dict:
    """Note that a step begins (``name``), or without a name that the last one has ended; return the result."""
    home = StateHome(options["state_home"], str(options["cluster"]))
    place = home.folder / FILE
    document = begin_phase(files.read_json(place), str(options.get("name") or ""), _read_process(), now)
    result: Dict = {"changed": False, "phases": document["phases"], "table": list_seconds(document)}
    if check:
        return result
    files.private_dir(home.folder)
    files.write_json(place, document)
    # The report that the last step has written shows this copy: it stays as it was then.
    begins = options.get("run_id") and options.get("name")
    folder = home.run_folder(str(options["run_id"])) if begins else None
    if folder is not None and folder.is_dir():
        files.write_json(folder / FILE, document)
    return {**result, "file": str(place)}


def begin_phase(document: t.Any, name: str, process: str, now: float) -> Dict:
    """Return the document with the last step ended and, where it has a name, a new one begun.

    :param document: what is there; one of another process is of an earlier ``ansible-playbook`` and starts anew.
    """
    if not isinstance(document, dict) or document.get("process") != process:
        document = {"schema": _SCHEMA, "process": process, "started_at": format_time(now), "phases": []}
    phases = [dict(item) for item in document["phases"]]
    if phases and phases[-1]["seconds"] is None:
        phases[-1]["seconds"] = round(now - phases[-1]["started"], 1)
    if name:
        phases.append({"name": name, "started": now, "seconds": None})
    return {**document, "phases": phases}


def list_seconds(document: t.Mapping[str, t.Any]) -> list[str]:
    """Return a line for each step that has ended."""
    return [f"{item['name']}: {item['seconds']} s" for item in document["phases"] if item["seconds"] is not None]


def _read_process() -> str:
    """Return what tells this ansible-playbook from others: its process number with the time at which it started."""
    parent = os.getppid()
    try:
        started = pathlib.Path(f"/proc/{parent}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        started = ""
    return f"{parent}-{started}"
