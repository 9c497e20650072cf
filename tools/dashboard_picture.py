# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A dashboard as a picture, for the docs: its queries, answered by a Prometheus, drawn as the report draws its plots.

``python -m tools.dashboard_picture PICTURE.svg`` runs the demo's job with one rank killed, has a real Prometheus take
its metrics, and draws the dashboard "Job" over the time of that run. Grafana draws the same queries by itself.
"""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import typing as t
import urllib.parse
import urllib.request

import yaml

from ansible_collections.muster.training.plugins.plugin_utils._report.data import format as fmt
from ansible_collections.muster.training.plugins.plugin_utils._report.pages import css, plots

from . import dashboards
from .tree import ROOT

if t.TYPE_CHECKING:
    from matplotlib.figure import Figure

Json = dict[str, t.Any]
INVENTORY = ROOT / "inventories" / "local" / "nodes.muster_local.yml"
RUN, STEPS = "char-lm", 4000
# Pixels of one column and one row of Grafana's grid.
_COLUMN, _ROW = 50, 30
_POINTS, _LINES, _LETTERS = 300, 5, 44
# Grafana's names of units, as a person reads them.
_UNITS = {"currencyUSD": "USD", "percentunit": "of 1", "s": "s", "Bps": "B/s", "watt": "W", "percent": "%"}


@dataclasses.dataclass(frozen=True, slots=True)
class Span:
    """The time of a picture (Unix seconds), and the run that it shows."""

    begin: float
    end: float
    run: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Source:
    """A Prometheus. ``url`` is the address below which ``/api/v1`` is."""

    url: str

    def ask(self, path: str, **words: object) -> list[Json]:
        """Return the series of an answer; one with an error raises urllib.error.HTTPError."""
        text = urllib.parse.urlencode(words)
        with urllib.request.urlopen(f"{self.url}/api/v1/{path}?{text}", timeout=20) as answer:
            return t.cast("list[Json]", json.loads(answer.read())["data"]["result"])


def draw(name: str, source: Source, span: Span) -> str:
    """Return a dashboard as an SVG document, in the report's light colours."""
    answers = [(panel, _answer(panel, source, span)) for panel in dashboards.build(name)["panels"]]
    found = [(panel, series) for panel, series in answers if series]
    places = dashboards.place_panels(panel["type"] for panel, _series in found)
    height = max(place["y"] + place["h"] for place in places) * _ROW
    size = plots.Size("wide", 24 * _COLUMN, height + _ROW)
    empty = ", ".join(panel["title"] for panel, series in answers if not series)

    def paint(figure: Figure, size: plots.Size) -> None:
        for (panel, series), place in zip(found, places, strict=True):
            _paint_panel(figure, size, {**panel, "gridPos": place}, series, span)
        if empty:
            figure.text(16 / size.width, 12 / size.height, f"Without data: {empty}", color=plots.MUTED)

    svg = str(plots.draw_svg(size, name, f"The dashboard {name}", paint))
    coloured = re.sub(r"var\(--([a-z0-9-]+)\)", lambda match: css.LIGHT[match[1]], svg)
    ground = f'<rect width="{size.width}" height="{size.height}" fill="{css.LIGHT["paper"]}"/>'
    head, title, rest = coloured.partition("</title>")
    font = head.replace("<svg ", '<svg font-family="sans-serif" ', 1)
    return f"{font}{title}{ground}{rest}\n"


def _answer(panel: Json, source: Source, span: Span) -> list[tuple[str, list[tuple[float, float]], Json]]:
    """Return name, points and labels of each series of a panel; one that shows what is now has its last values."""
    found = []
    for target in panel["targets"]:
        query = target["expr"].replace("$run", span.run)
        if panel["type"] == "timeseries":
            step = max((span.end - span.begin) / _POINTS, 1.0)
            series = source.ask("query_range", query=query, start=span.begin, end=span.end, step=step)
        else:
            series = [{**item, "values": [item["value"]]} for item in source.ask("query", query=query, time=span.end)]
        for item in series:
            points = [(float(at), float(value)) for at, value in item["values"]]
            found.append((_legend(target["legendFormat"], item["metric"]), points, item["metric"]))
    return found


def _legend(pattern: str, labels: Json) -> str:
    if pattern == "__auto":
        return str(labels.get("run") or labels.get("node") or "")
    return re.sub(r"\{\{\s*(\w+)\s*\}\}", lambda match: str(labels.get(match[1], "")), pattern)


def _paint_panel(figure: Figure, size: plots.Size, panel: Json, series: t.Sequence[t.Any], span: Span) -> None:
    place = panel["gridPos"]
    left, top = place["x"] * _COLUMN + 16, place["y"] * _ROW + 12
    width, height = place["w"] * _COLUMN - 32, place["h"] * _ROW - 24

    def write(x: float, y: float, text: str, **how: t.Any) -> None:
        figure.text((left + x) / size.width, 1 - (top + y) / size.height, text, **{"va": "top", **how})

    unit = _UNITS.get(panel["fieldConfig"]["defaults"]["unit"], "")
    write(0, 0, panel["title"] + (f", {unit}" if unit and panel["type"] == "timeseries" else ""), color=plots.INK)
    if panel["type"] == "stat":
        write(0, 26, _say(series[0][1][-1][1], unit), color=plots.INK, fontsize=26)
    elif panel["type"] == "table":
        for row, text in enumerate(_rows(panel, series)):
            write(0, 26 + 18 * row, text, color=plots.MUTED)
    else:
        box = (left + 44, top + 24, size.width - left - width, size.height - top - height + 40)
        ax = plots.add_axes(figure, size, box)
        for index, (name, points, _labels) in enumerate(series[: len(plots.SERIES)]):
            ax.plot(*zip(*points, strict=True), color=plots.SERIES[index], linewidth=1.4, label=name or " ")
        ax.set_xlim(span.begin, span.end)
        plots.set_round_ticks(ax.yaxis, 4)
        ticks = [span.begin + (span.end - span.begin) * part / 4 for part in range(5)]
        ax.set_xticks(ticks, [fmt.format_clock(tick - span.begin) for tick in ticks])
        ax.grid(axis="y")
        ax.legend(loc="upper left", bbox_to_anchor=(0, -0.16), ncol=4, frameon=False, borderpad=0, handlelength=1.2)


def _rows(panel: Json, series: t.Sequence[t.Any]) -> list[str]:
    """Return the lines of a table: its series with their values, or the labels of the only one, a line each."""
    if panel["fieldConfig"]["overrides"]:
        labels = {key: value for key, value in series[0][2].items() if not key.startswith(("__", "job"))}
        words = [f"{key}: {value}" for key, value in sorted(labels.items())]
        return [word if len(word) <= 2 * _LETTERS else f"{word[: 2 * _LETTERS]}…" for word in words]
    return [f"{name[:_LETTERS]}   {fmt.format_figure(points[-1][1])}" for name, points, _labels in series[:_LINES]]


def _say(value: float, unit: str) -> str:
    if unit == "of 1":
        return f"{value:.0%}"
    if value == int(value):
        return f"{fmt.format_count(int(value))} {unit}".strip()
    return f"{fmt.format_figure(value)} {unit}".strip()


def main(argv: list[str]) -> int:
    """Run the job, draw the picture and write it; return 1 where the run or a query failed."""
    from ansible_collections.muster.training.tests.support import prometheus_program

    target = pathlib.Path(argv[0])
    with tempfile.TemporaryDirectory() as folder:
        state = pathlib.Path(folder)
        with prometheus_program.running(state / "prometheus", prometheus_program.OTLP) as server:
            source, begin = Source(server.url), time.time()
            code = _train(state, server.url)
            if code == 0:
                query = f'muster_run_step{{run="{RUN}"}}'
                (steps,) = source.ask("query_range", query=query, start=begin, end=time.time(), step=1)
                begin, end = (float(steps["values"][place][0]) for place in (0, -1))
                target.write_text(draw("job", source, Span(begin, end, RUN)), encoding="utf-8")
    return code


def _train(state: pathlib.Path, url: str) -> int:
    """Train the demo's job for longer, with its metrics in this Prometheus; return the play's exit code."""
    job = yaml.safe_load((INVENTORY.parent / "group_vars" / "muster_nodes.yml").read_text())["muster_job"]
    args = [str(STEPS) if word == "240" else word for word in job["args"]]
    service = {"name": "metrics", "kind": "monitoring", "mode": "bind", "endpoint": url}
    values = {
        "muster_run_id": RUN,
        "muster_state": {"path": str(state / "state")},
        "muster_node_state": str(state / "nodes"),
        "muster_services": [service],
        "muster_drill": {"target": "worker", "rank": 1, "at_step": STEPS // 2},
        "muster_job": {**job, "args": args, "monitoring": "metrics"},
    }
    program = str(pathlib.Path(sys.executable).parent / "ansible-playbook")
    environment = {**os.environ, "XDG_STATE_HOME": str(state), "ANSIBLE_PIPELINING": "1"}
    for playbook in ("site", "local_nodes_absent"):
        argv = [program, "-i", str(INVENTORY), f"muster.training.{playbook}", "-e", json.dumps(values)]
        done = subprocess.run(argv, cwd=ROOT, env=environment, check=False)
        if playbook == "site":
            code = done.returncode
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
