# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The dashboards: every query is executed by a real Prometheus that has the series of a healthy day."""

from __future__ import annotations

import html
import itertools
import json
import pathlib
import re
import time
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.binding import Binding
from ansible_collections.muster.training.plugins.plugin_utils._services.monitoring import prometheus
from ansible_collections.muster.training.plugins.plugin_utils._services.monitoring.component import RULES
from ansible_collections.muster.training.plugins.plugin_utils._services.monitoring.prometheus import Sample
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.monitoring import run_figures
from ansible_collections.muster.training.tests.support import prometheus_program
from ansible_collections.muster.training.tests.support.alert_cases import HEALTHY
from ansible_collections.muster.training.tests.support.kube_api import free_port
from ansible_collections.muster.training.tools import dashboard_picture, dashboards

# Nothing is there where all is well.
EMPTY_WHEN_WELL = {"Alerts", "Rented without a run, USD an hour", "Errors of GPUs (Xid)"}


def read_series() -> t.Iterator[tuple[str, dict[str, str], float, float]]:
    """Yield name, labels, first value and growth a minute of the series of a healthy day."""
    for text, values in HEALTHY.items():
        name, _brace, inner = text.partition("{")
        first, _plus, growth = values.partition("x")[0].partition("+")
        yield name, dict(re.findall(r'(\w+)="([^"]*)"', inner)), float(first), float(growth or 0)


def tell(url: str, now: float) -> None:
    """Fill a Prometheus with ten minutes of all series."""
    binding = Binding.from_dict({"name": "m", "component": "monitoring", "mode": "bind", "endpoint": url})
    own = {"run": "r", "name": "llm"}
    more = [Sample(f"{run_figures.PREFIX}{name}", 1, own) for name in run_figures.FIGURES if name != "info"]
    more.append(Sample(f"{run_figures.PREFIX}rank_step_seconds", 1, {**own, "rank": "0"}))
    series, known = [*read_series()], {name for name, *_rest in read_series()}
    for minute in range(11):
        at = now - 60 * (10 - minute)
        samples = [Sample(name, first + growth * minute, labels) for name, labels, first, growth in series]
        samples += [sample for sample in more if sample.name not in known]
        prometheus.push(binding, {}, prometheus.encode(samples, at), "o")


@pytest.mark.parametrize("name", sorted(dashboards.DASHBOARDS))
def test_a_file_is_what_the_table_says_and_its_parts_fit(name: str) -> None:
    text = (dashboards.FOLDER / f"muster-{name}.json").read_text()
    assert text == dashboards.render(name), "python -m tools.dashboards writes it"
    panels = json.loads(text)["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels) == len({panel["title"] for panel in panels})
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        cells = {(place["x"] + x, place["y"] + y) for x, y in itertools.product(range(place["w"]), range(place["h"]))}
        assert not cells & taken and place["x"] + place["w"] <= 24, panel["title"]
        taken |= cells
        assert panel["datasource"]["uid"] == "${datasource}" and panel["fieldConfig"]["defaults"]["unit"]
        assert all(target["datasource"]["uid"] == "${datasource}" for target in panel["targets"])


def test_a_run_leads_to_its_report() -> None:
    """The column of the label is a link to what the label says."""
    panels = json.loads((dashboards.FOLDER / "muster-job.json").read_text())["panels"]
    (found,) = [panel for panel in panels if panel["fieldConfig"]["overrides"]]
    (override,) = found["fieldConfig"]["overrides"]
    assert found["targets"][0]["expr"].startswith("muster_run_info") and override["matcher"]["options"] == "report"
    assert override["properties"][0]["value"][0]["url"] == "${__value.text}"


def test_no_two_dashboards_have_one_uid() -> None:
    """Grafana takes none of a folder in which two have one."""
    uids = [json.loads(place.read_text())["uid"] for place in dashboards.FOLDER.glob("*.json")]
    assert len(uids) == len({*uids}) == len(dashboards.DASHBOARDS)


def test_every_query_is_executed_and_finds_series(tmp_path: pathlib.Path) -> None:
    port = free_port()
    # "up" is what a scrape makes: here of itself.
    scrape = {
        "job_name": "muster-nodes",
        "static_configs": [{"targets": [f"127.0.0.1:{port}"], "labels": {"node": "a"}}],
    }
    config = {
        "global": {"evaluation_interval": "1s", "scrape_interval": "1s"},
        "scrape_configs": [scrape],
        "rule_files": [str(RULES)],
        "storage": {"tsdb": {"out_of_order_time_window": "30m"}},
    }
    with prometheus_program.running(tmp_path, prometheus_program.OTLP, config=json.dumps(config), port=port) as server:
        tell(server.url, time.time())
        end = time.monotonic() + 20
        while (
            not (server.query("muster:gpu_taken:bool") and server.query("up{job='muster-nodes'}"))
            and time.monotonic() < end
        ):
            time.sleep(0.2)
        asked, empty = 0, []
        for name in dashboards.DASHBOARDS:
            board = json.loads((dashboards.FOLDER / f"muster-{name}.json").read_text())
            for panel in board["panels"]:
                for target in panel["targets"]:
                    asked += 1
                    # An answer with an error is an HTTPError.
                    if not server.query(target["expr"].replace("$run", "r")):
                        empty.append(panel["title"])
            for mark in board["annotations"]["list"]:
                server.query(mark["target"]["expr"].replace("$run", "r"))
        assert asked > 40 and {*empty} == EMPTY_WHEN_WELL, (asked, empty)
        for name, (_title, panels) in dashboards.DASHBOARDS.items():
            source, now = dashboard_picture.Source(server.url), time.time()
            picture = dashboard_picture.draw(name, source, dashboard_picture.Span(now - 600, now, "r"))
            # Text of pictures is text: those without data are named below the others.
            said = html.unescape(picture)
            assert all(panel.title in said for panel in panels), name
            assert (EMPTY_WHEN_WELL & {panel.title for panel in panels} != set()) == ("Without data: " in said)
            assert "var(--" not in picture
