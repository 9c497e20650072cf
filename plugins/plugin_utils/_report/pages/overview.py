# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The page of all runs of a cluster (runs.html): a line for each, with a link to its own page where there is one."""

from __future__ import annotations

import os
import pathlib
import typing as t
import urllib.parse

from markupsafe import Markup

from ....module_utils._model.errors import InputError
from ..data import format as fmt
from ..data import parsing
from ..data.load import Checkpoint, load_run
from ..data.run_model import RunModel, build_run_model
from ..rules.verdict import judge_run
from .rendering import Cell, Table, build_mark, render

# Of a date and time, up to the minute.
_MINUTES: t.Final = 16
HEADINGS: t.Final = (
    *("Run", "Started (UTC)", "Outcome", "Nodes", "Duration", "Steps", "Checkpoint", "Final loss", "Restarts", "Cost"),
)


def render_overview(folders: t.Sequence[pathlib.Path], out: pathlib.Path, left_out: int) -> str:
    """Return the page of the runs in ``folders``, in the order given.

    :param out: the folder of the page, from which links lead to the runs' pages.
    :param left_out: how many older runs are not on the page, which it says.
    """
    lines, known, open_costs = [], [], 0
    for folder in folders:
        try:
            model = build_run_model(load_run(folder))
        except InputError as error:
            lines.append([folder.name, fmt.UNKNOWN, build_mark("bad", f"cannot be read: {error.message}"), *_none(7)])
            continue
        lines.append(_line(model, _link(model, folder, out)))
        known += [model.usd] if model.usd is not None else []
        open_costs += model.usd is None or model.usd_complete is False
    more = f"; {fmt.plural(left_out, 'older run')} left out" if left_out else ""
    return render(
        "runs.html.j2",
        title=f"{fmt.plural(len(folders), 'run')}",
        runs=Table(HEADINGS, lines, f"The newest first{more}", "   nnnnnnn"),
        cost=_describe_cost(known, open_costs),
    )


def _describe_cost(known: t.Sequence[float], unknown: int) -> str:
    """Return what the runs on the page cost together, and of how many that is not wholly known."""
    least = f"; of {fmt.plural(unknown, 'run')} not all of the cost is known" if unknown else ""
    return f"Cost of these runs: {fmt.format_usd(sum(known))}{least}." if known else "The cost of no run is known."


def _link(model: RunModel, folder: pathlib.Path, out: pathlib.Path) -> Cell:
    """Return a run's name, as a link where its page was written."""
    page = folder / "report" / "report.html"
    if not page.is_file():
        return _keep_whole(model.run_id)
    way = urllib.parse.quote(pathlib.PurePath(os.path.relpath(page, out)).as_posix())
    return Markup('<a class="when" href="{0}">{1}</a>').format(way, model.run_id)


def _line(model: RunModel, name: Cell) -> list[Cell]:
    verdict = judge_run(model)
    return [
        name,
        _keep_whole(fmt.format_time(model.clock.zero)[:_MINUTES]),
        build_mark(verdict.tone, verdict.word),
        fmt.format_count(parsing.read_integer(model.job.get("nodes"))),
        fmt.format_duration(model.clock.duration),
        fmt.format_count(model.last_step),
        _count_checkpoint(model.checkpoint),
        fmt.format_figure(model.final_loss),
        fmt.format_count(model.restarts),
        fmt.format_usd(model.usd),
    ]


def _count_checkpoint(saved: Checkpoint | None) -> str:
    count = fmt.format_count(saved.step if saved else None)
    return f"about {count}" if saved and saved.step_by else count


def _keep_whole(text: str) -> Markup | str:
    """Return a text that is not broken over lines."""
    return text if text == fmt.UNKNOWN else Markup('<span class="when">{0}</span>').format(text)


def _none(count: int) -> list[Cell]:
    return [fmt.UNKNOWN] * count
