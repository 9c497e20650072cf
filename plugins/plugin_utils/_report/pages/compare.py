# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Compares several runs: as values (compare.json) and as one page (compare.html)."""

from __future__ import annotations

import typing as t

from markupsafe import Markup

from ..data import format as fmt
from ..data import parsing
from ..data.load import RunFolder
from ..data.run_model import RunModel, build_run_model
from ..rules.summary import build_figures
from ..rules.verdict import judge_run
from . import figures, plots, series
from .page_summary import describe_caveat, format_cost
from .plots import Size
from .rendering import Cell, Plot, Table, build_mark, render

if t.TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_CURVES = len(plots.SERIES)
MOST_DIFFERENCES = 20
STYLES = ("-", "--", "-.", ":")


def compare_runs(runs: t.Sequence[RunFolder]) -> dict[str, object]:
    """Return the comparison as a value that JSON can carry, runs in the order given.

    Keys: ``schema, runs [{run_id, name, outcome, word, figures.., usd, measured_on_loopback}], differences {option:
    [value of each run]}``.
    """
    models = [build_run_model(run) for run in runs]
    lines = [
        {
            "run_id": model.run_id,
            "name": model.name,
            "outcome": model.outcome,
            "word": judge_run(model).word,
            **build_figures(model),
            "usd": model.usd,
            "measured_on_loopback": model.loopback,
        }
        for model in models
    ]
    values = {"schema": 1, "runs": lines, "differences": find_differences(models)}
    return parsing.read_mapping(parsing.to_json(values))


def find_differences(models: t.Sequence[RunModel]) -> dict[str, list[str | None]]:
    """Return the options of the jobs (and what was derived from them) whose values are not all equal.

    Environment values are left out: they may be secret.
    """
    options = [{**_flatten(model.job, ""), **_flatten(model.derived, "derived.")} for model in models]
    names = dict.fromkeys(name for values in options for name in values)
    table = {name: [values.get(name) for values in options] for name in names}
    return {name: values for name, values in table.items() if len(set(values)) > 1}


def _flatten(options: dict[str, object], prefix: str) -> dict[str, str | None]:
    """Return the options by their dotted names."""
    values: dict[str, str | None] = {}
    for key, value in options.items():
        name = prefix + (parsing.read_text(key, 60) or "")
        if isinstance(value, dict) and key not in ("env", "secret_refs") and prefix.count(".") < 4:
            values |= _flatten(parsing.read_mapping(value), f"{name}.")
        elif isinstance(value, list) and key != "secret_refs":
            values[name] = parsing.hide_secrets(value)
        elif not isinstance(value, (dict, list)):
            values[name] = parsing.read_text(value)
    return values


def render_compare(runs: t.Sequence[RunFolder]) -> str:
    """Return the page that compares runs, in the order given."""
    models = [build_run_model(run) for run in runs]
    return render(
        "compare.html.j2",
        title=f"{fmt.plural(len(models), 'run')} compared",
        caveat=_describe_caveats(models),
        outcomes=_outcome_table(models),
        curves=_build_curves(models),
        differences=_difference_table(models),
    )


def _describe_caveats(models: t.Sequence[RunModel]) -> str | None:
    """Return the sentence that says which figures are not those of a real network, None where all are."""
    caveats = [describe_caveat(model) for model in models]
    if all(caveats):
        same = len(set(caveats)) == 1
        every = "All figures come from CPUs or from loopback of one machine; they say nothing about a real network."
        return caveats[0] if same else every
    names = [model.run_id for model, caveat in zip(models, caveats, strict=True) if caveat]
    words = "On CPUs or loopback of one machine, so not to be compared with the others"
    return f"{words}: {fmt.join_names(names)}." if names else None


def _outcome_table(models: t.Sequence[RunModel]) -> Table:
    headings = ("No.", "Run", "Outcome", "Duration", "Steps", "Steps/s", "Final loss", "Restarts", "Steps lost", "Cost")
    lines = [_outcome_line(number, model) for number, model in enumerate(models, start=1)]
    return Table(headings, lines, "Runs in the order given", "   nnnnnnn")


def _outcome_line(number: int, model: RunModel) -> list[Cell]:
    verdict = judge_run(model)
    return [
        str(number),
        model.run_id,
        build_mark(verdict.tone, verdict.word),
        fmt.format_duration(model.clock.duration),
        fmt.format_count(model.last_step),
        fmt.format_figure(model.steps_per_s),
        fmt.format_figure(model.final_loss),
        fmt.format_count(model.restarts),
        fmt.format_count(model.steps_lost),
        format_cost(model),
    ]


def _build_curves(models: t.Sequence[RunModel]) -> Plot | None:
    """Return the loss of the runs in one picture, None where none of them wrote a loss."""
    curves = [(number, model) for number, model in enumerate(models, start=1) if series.losses(model.curve)]
    shown = curves[:MOST_CURVES]
    if not shown:
        return None
    key = Markup('<span class="key"><b style="--k:var(--series-{0})">{1}</b> {2}</span>')
    legend = Markup(" · ").join(key.format(place, number, model.run_id) for place, (number, model) in enumerate(shown))
    more = f" The first {len(shown)} of {len(curves)} runs." if len(curves) > len(shown) else ""
    return Plot(*_draw(shown), legend + more)


def _draw(shown: t.Sequence[tuple[int, RunModel]]) -> figures.Picture:
    curves = [(number, series.losses(model.curve)) for number, model in shown]

    def paint(figure: Figure, size: Size) -> None:
        ax = plots.add_axes(figure, size, (48, 34, 22, 44))
        for place, (number, points) in enumerate(curves):
            colour, style = plots.SERIES[place], STYLES[place % 2 + 2 * (place // 4 % 2)]
            figures.draw_curve(ax, points, size, colour, 1.5, style)
            last = series.downsample(points, 260).line[-1]
            ax.annotate(
                str(number), last, (4, 0), "data", "offset points", color=colour, va="center", fontweight="bold"
            )
        figures.set_y_axis(ax, [y for _number, points in curves for _x, y in points], None, size)
        figures.set_step_axis(ax, size)
        figures.name_axes(ax, size, "loss", "step")

    return figures.draw_both("compare", "Loss of each run by step", (330, 280), paint)


def _difference_table(models: t.Sequence[RunModel]) -> Table | None:
    differences = find_differences(models)
    if not differences:
        return None
    headings = ("Option", *(f"Run {number}" for number in range(1, len(models) + 1)))
    lines = [[name, *(value or fmt.UNKNOWN for value in values)] for name, values in differences.items()]
    more = f"; {len(lines) - MOST_DIFFERENCES} more are left out" if len(lines) > MOST_DIFFERENCES else ""
    return Table(headings, lines[:MOST_DIFFERENCES], f"Options whose values are not all equal{more}")
