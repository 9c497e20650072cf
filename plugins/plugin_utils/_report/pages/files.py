# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Writes the files of a report; nothing else of this package writes."""

from __future__ import annotations

import json
import os
import pathlib
import tempfile
import typing as t

from ....module_utils._model.errors import InputError
from ..data.load import RunFolder, load_run
from ..rules.summary import build_report
from .compare import compare_runs, render_compare
from .junit import render_junit
from .overview import render_overview
from .page import render_html


def write_report(folder: pathlib.Path, out: pathlib.Path | None = None) -> dict[str, pathlib.Path]:
    """Write report.json, junit.xml and report.html of the run in ``folder`` and return their paths by json|junit|html.

    They go into ``out`` (created when missing), else into the run's folder; each is replaced as a whole, mode 0600.
    Without matplotlib the page has no plots.

    :raises InputError: no run in the folder, or the files cannot be written.
    """
    run = load_run(folder)
    target = out or folder
    return {
        "json": write_text(target / "report.json", to_json_text(build_report(run))),
        "junit": write_text(target / "junit.xml", render_junit(run)),
        "html": write_text(target / "report.html", render_html(run)),
    }


def write_comparison(folders: t.Sequence[pathlib.Path], out: pathlib.Path) -> dict[str, pathlib.Path]:
    """Write compare.json and compare.html of several runs into ``out`` and return their paths by json|html.

    :raises InputError: as :func:`write_report`.
    """
    runs: list[RunFolder] = [load_run(folder) for folder in folders]
    return {
        "json": write_text(out / "compare.json", to_json_text(compare_runs(runs))),
        "html": write_text(out / "compare.html", render_compare(runs)),
    }


def write_overview(folders: t.Sequence[pathlib.Path], out: pathlib.Path, left_out: int) -> pathlib.Path:
    """Write runs.html, the page of all runs in ``folders``, into ``out`` and return its path.

    :param left_out: how many older runs are not among them.
    :raises InputError: when it cannot be written.
    """
    return write_text(out / "runs.html", render_overview(folders, out, left_out))


def to_json_text(value: object) -> str:
    """Return JSON text for people and machines; a NaN in it would be a defect and raises ValueError."""
    return json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def write_text(path: pathlib.Path, content: str) -> pathlib.Path:
    """Replace ``path`` by ``content`` in one step: a reader sees the old file or the new one, never a part."""
    temporary: str | None = None
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, path)
    except OSError as error:
        if temporary:
            pathlib.Path(temporary).unlink(missing_ok=True)
        raise InputError("report", f"cannot write {path}: {error.strerror}", "Choose another folder") from error
    return path
