# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Writes the report of a run, or the comparison of several, from the records that the controller keeps."""

from __future__ import annotations

import pathlib
import tempfile
import typing as t

from ...module_utils._model.errors import InputError
from ...module_utils._node import files
from .._report.pages import plots
from .._report.pages.files import write_comparison, write_overview, write_report
from .._report.pages.overview import render_overview
from .shared.state_dir import StateHome, find_run_folder


def write_run_report(
    home: StateHome, run_id: str | None, names: t.Sequence[str], out: str | None, check: bool
) -> dict[str, object]:
    """Write the report of a run and return ``{changed, html, json, junit}``: the paths of its files.

    Of a comparison, and of a check, ``html`` is the only path.

    :param run_id: None for the newest run.
    :param names: runs to compare on one page instead.
    :param out: the folder. The default is ``report`` in the run's folder, or ``compare`` in the cluster's.
    """
    if names:
        return _write_comparison(home, names, out, check)
    # A check of site asks for the report of a run that does not exist yet.
    folder = home.run_folder(run_id) if check and run_id else find_run_folder(home, run_id)
    target = pathlib.Path(out).expanduser() if out else folder / "report"
    before = _read_digests(target)
    if check:
        with tempfile.TemporaryDirectory(prefix="muster-report-") as place:
            written = write_report(folder, pathlib.Path(place)) if (folder / "run.json").is_file() else {}
            changed = not written or not _read_digests(pathlib.Path(place)).items() <= before.items()
        return {"changed": changed, "html": str(target / "report.html")}
    paths = write_report(folder, target)
    changed = _read_digests(target) != before
    return {"changed": changed, **{name: str(path) for name, path in paths.items()}, **_warn_without_plots()}


def write_run_overview(
    home: StateHome, others: t.Sequence[str], limit: int, out: str | None, check: bool
) -> dict[str, object]:
    """Write the page of the newest ``limit`` runs and return ``{changed, html}``.

    :param others: options that were given and that name single runs.
    :param out: the folder. The default is the cluster's.
    :raises InputError: for other options, and a limit below 1.
    """
    if others:
        raise InputError("all", f"goes without {' and '.join(others)}", "Leave out all for the page of single runs")
    if limit < 1:
        raise InputError("limit", "must be 1 or more")
    folders = home.runs()
    target = (pathlib.Path(out).expanduser() if out else home.folder) / "runs.html"
    before = target.read_bytes() if target.is_file() else b""
    if check:
        text = render_overview(folders[:limit], target.parent, max(0, len(folders) - limit))
        return {"changed": text.encode() != before, "html": str(target)}
    write_overview(folders[:limit], target.parent, max(0, len(folders) - limit))
    return {"changed": target.read_bytes() != before, "html": str(target)}


def _read_digests(folder: pathlib.Path) -> dict[str, str]:
    return {place.name: files.sha256_of(place) for place in sorted(folder.glob("*")) if place.is_file()}


def _warn_without_plots() -> dict[str, object]:
    missing = plots.missing_package()
    return {"warnings": [f"report: {missing}"]} if missing else {}


def _write_comparison(home: StateHome, names: t.Sequence[str], out: str | None, check: bool) -> dict[str, object]:
    folders = [find_run_folder(home, name) for name in names]
    target = pathlib.Path(out).expanduser() if out else home.folder / "compare"
    if not check:
        write_comparison(folders, target)
    return {"changed": True, "html": str(target / "compare.html"), **({} if check else _warn_without_plots())}
