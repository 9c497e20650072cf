# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Making the report of a run, or the comparison of several, from what the controller kept.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import pathlib
import typing as t

from ...module_utils._model.errors import RefusedError
from ...module_utils._node import files
from .._report.data import load
from .._report.pages import page
from .._report.pages.files import write_report
from .shared.state_dir import StateHome

Dict = dict[str, t.Any]


def write_run_report(home: StateHome, run_id: str | None, names: t.Sequence[str], out: str | None, check: bool) -> Dict:
    """Write the report files and return ``{changed, html, json, junit}`` (paths)."""
    if names:
        return _write_comparison(home, names, out, check)
    folder = _find_run_folder(home, run_id)
    target = pathlib.Path(out).expanduser() if out else folder / "report"
    if check:
        return {"changed": True, "html": str(target / "report.html")}
    written = write_report(folder, target)
    return {"changed": True, **{key: str(path) for key, path in written.items()}}


def _write_comparison(home: StateHome, names: t.Sequence[str], out: str | None, check: bool) -> Dict:
    folders = [_find_run_folder(home, name) for name in names]
    target = pathlib.Path(out).expanduser() if out else home.folder / "compare"
    place = target / "compare.html"
    if not check:
        files.private_dir(target)
        html = page.render_compare([load.load_run(folder) for folder in folders])
        files.write_atomic(place, html.encode())
    return {"changed": True, "html": str(place)}


def _find_run_folder(home: StateHome, run_id: str | None) -> pathlib.Path:
    runs = home.runs()
    if run_id:
        folder = home.run_folder(run_id)
        if folder in runs:
            return folder
    elif runs:
        return runs[0]
    wanted = f"no run {run_id}" if run_id else "no run"
    newest = ", ".join(path.name for path in runs[:5]) or "none"
    raise RefusedError(f"there is {wanted} in {home.folder}", f"The newest are: {newest}")
