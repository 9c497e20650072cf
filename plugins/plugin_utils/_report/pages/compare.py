# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Several runs side by side: as values, and as one page.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import typing as t

from ..data import format as fmt
from ..data import parsing
from ..data.load import RunFolder
from ..data.run_model import RunModel, build_run_model
from ..rules.summary import build_figures
from ..rules.verdict import judge_run
from . import figures as pages_figures
from . import plots
from . import series as pages_series
from .html import Child, Html, join, plot, section, table, tag
from .page_details import mark
from .page_summary import caveat, cost_words
from .plots import Size

if t.TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_CURVES = len(plots.SERIES)
MOST_DIFFERENCES = 20
STYLES = ("-", "--", "-.", ":")


def compare_runs(runs: t.Sequence[RunFolder]) -> dict[str, t.Any]:
    """Return the comparison as a value that JSON can carry, runs in the order given.

    Keys: ``schema, runs [{run_id, name, outcome, word, figures.., usd, measured_on_loopback}], differences {option:
    [value of each run]}``.
    """
    cases = [build_run_model(run) for run in runs]
    lines = [
        {
            "run_id": case.run_id,
            "name": case.name,
            "outcome": case.outcome,
            "word": judge_run(case).word,
            **build_figures(case),
            "usd": case.usd,
            "measured_on_loopback": case.loopback,
        }
        for case in cases
    ]
    return t.cast(
        dict[str, t.Any], parsing.to_json({"schema": 1, "runs": lines, "differences": find_differences(cases)})
    )


def find_differences(cases: t.Sequence[RunModel]) -> dict[str, list[str | None]]:
    """Return the options of the jobs (and what was derived from them) whose values are not all equal.

    Environment values are left out: they may hold what is nobody's business.
    """
    flat = [{**_flat(case.job, ""), **_flat(case.derived, "derived.")} for case in cases]
    names = dict.fromkeys(name for item in flat for name in item)
    found = {name: [item.get(name) for item in flat] for name in names}
    return {name: values for name, values in found.items() if len(set(values)) > 1}


def _flat(value: dict[str, t.Any], prefix: str) -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    for key, item in value.items():
        name = prefix + (parsing.read_text(key, 60) or "")
        if isinstance(item, dict) and key not in ("env", "secret_refs") and prefix.count(".") < 4:
            found |= _flat(parsing.read_mapping(item), f"{name}.")
        elif isinstance(item, list) and key != "secret_refs":
            found[name] = parsing.hide_secrets(item)
        elif not isinstance(item, (dict, list)):
            found[name] = parsing.read_text(item)
    return found


def comparison(cases: t.Sequence[RunModel]) -> Html:
    """Return the content of the page that compares the runs."""
    said = [case for case in cases if caveat(case)]
    header = tag(
        "header",
        tag("p", "Training runs", class_="kicker"),
        tag("h1", title(cases)),
        tag("p", _caveat(cases, said), class_="caveat") if said else None,
    )
    return join(header, _outcomes(cases), _curves(cases), _differences(cases), _foot())


def title(cases: t.Sequence[RunModel]) -> str:
    """Return the title of the comparison."""
    return f"{fmt.plural(len(cases), 'run')} compared"


def _caveat(cases: t.Sequence[RunModel], said: t.Sequence[RunModel]) -> str:
    common = {caveat(case) for case in said}
    if len(said) == len(cases) and len(common) == 1:
        return caveat(said[0]) or ""
    if len(said) == len(cases):
        return "All figures come from CPUs or from loopback of one machine; they say nothing about a real network."
    return f"On CPUs or loopback of one machine, so not to be compared with the others: {fmt.join_names(_names(said))}."


def _names(cases: t.Sequence[RunModel]) -> list[str]:
    return [case.run_id for case in cases]


def _outcomes(cases: t.Sequence[RunModel]) -> Html:
    lines: list[list[Child]] = []
    for number, case in enumerate(cases, start=1):
        verdict = judge_run(case)
        lines.append(
            [
                str(number),
                case.run_id,
                mark(verdict.tone, verdict.word),
                fmt.format_duration(case.clock.elapsed),
                fmt.format_count(case.last_step),
                fmt.format_figure(case.steps_per_s),
                fmt.format_figure(case.final_loss),
                fmt.format_count(max(len(case.attempts) - 1, 0)),
                fmt.format_count(case.steps_lost),
                cost_words(case),
            ]
        )
    headings = ("No.", "Run", "Outcome", "Duration", "Steps", "Steps/s", "Final loss", "Restarts", "Steps lost", "Cost")
    return section("Outcome", table(headings, lines, "Runs in the order given", "   nnnnnnn"))


def _curves(cases: t.Sequence[RunModel]) -> Html:
    known = [(number, case) for number, case in enumerate(cases, start=1) if pages_series.losses(case.curve)]
    shown = known[:MOST_CURVES]
    if not shown:
        return section("Loss", tag("p", "None of these runs wrote a loss."))
    more = f" The first {len(shown)} of {len(known)} runs." if len(known) > len(shown) else ""
    keys = [
        tag("span", tag("b", str(number), style=f"--k:var(--series-{place})"), f" {case.run_id}", class_="key")
        for place, (number, case) in enumerate(shown)
    ]
    spaced = [join(key, " · " if index + 1 < len(keys) else None) for index, key in enumerate(keys)]
    return section("Loss", plot(*_draw(shown), join(*spaced, more)))


def _draw(shown: t.Sequence[tuple[int, RunModel]]) -> pages_figures.Picture:
    series = [(number, pages_series.losses(case.curve)) for number, case in shown]

    def paint(figure: Figure, size: Size) -> None:
        ax = plots.add_axes(figure, size, (48, 34, 22, 44))
        for place, (number, points) in enumerate(series):
            colour, style = plots.SERIES[place], STYLES[place % 2 + 2 * (place // 4 % 2)]
            pages_figures.draw_curve(ax, points, size, colour, 1.5, style)
            last = pages_series.downsample(points, 260).line[-1]
            ax.annotate(
                str(number), last, (4, 0), "data", "offset points", color=colour, va="center", fontweight="bold"
            )
        pages_figures.set_y_axis(ax, [y for _number, points in series for _x, y in points], None, size)
        pages_figures.set_step_axis(ax, size)
        pages_figures.name_axes(ax, size, "loss", "step")

    return pages_figures.draw_both("compare", "Loss of each run by step", (330, 280), paint)


def _differences(cases: t.Sequence[RunModel]) -> Html:
    found = find_differences(cases)
    if not found:
        return section("Differences", tag("p", "The jobs do not differ in any option."))
    headings = ("Option", *(f"Run {number}" for number in range(1, len(cases) + 1)))
    lines: list[list[Child]] = [
        [name, *(value or fmt.UNKNOWN for value in values)] for name, values in list(found.items())[:MOST_DIFFERENCES]
    ]
    more = f"; {len(found) - MOST_DIFFERENCES} more are left out" if len(found) > MOST_DIFFERENCES else ""
    return section("Differences", table(headings, lines, f"Options whose values are not all equal{more}"))


def _foot() -> Html:
    words = "Steps/s counts faults in. Final loss is the median of the last ten steps that count."
    return tag("footer", tag("p", words), tag("p", "Made by muster.training from the runs' own records."))
