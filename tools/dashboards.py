# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The dashboards for Grafana, from one table. ``python -m tools.dashboards`` writes them.

``tests/unit/roles/monitoring_files/test_dashboards.py`` holds the files to it, and asks every query of a real
Prometheus.
"""

from __future__ import annotations

import json
import typing as t

from .tree import ROOT

FOLDER: t.Final = ROOT / "plugins" / "plugin_utils" / "_services" / "monitoring" / "dashboards"
SOURCE: t.Final = {"type": "prometheus", "uid": "${datasource}"}
# Grafana's grid has 24 columns.
_COLUMNS: t.Final = 24
_SIZES: t.Final = {"stat": (4, 4), "timeseries": (12, 8), "table": (12, 8)}
_OF_RUN: t.Final = 'on (node) group_left (run) muster_run_node{run=~"$run"}'
_SENT: t.Final = "rate(node_infiniband_port_data_transmitted_bytes_total[5m])"


class Panel(t.NamedTuple):
    """One picture. ``queries``: expression -> how a series is called; ``unit`` is Grafana's.

    ``link``: the label whose text is an address.
    """

    title: str
    kind: str
    unit: str
    queries: t.Mapping[str, str]
    link: str = ""


def _stat(title: str, expression: str, unit: str = "short") -> Panel:
    return Panel(title, "stat", unit, {expression: ""})


def _lines(title: str, unit: str, **queries: str) -> Panel:
    return Panel(title, "timeseries", unit, {expression: name for name, expression in queries.items()})


_RUN: t.Final = '{run=~"$run"}'
DASHBOARDS: t.Final[dict[str, tuple[str, list[Panel]]]] = {
    "fleet": ("Fleet", [
        _stat("Rented now", "sum(muster_lease_usd_per_hour) or vector(0)", "currencyUSD"),
        _stat("GPUs", "count(muster:gpu_utilisation:percent)"),
        _stat("GPUs taken", "sum(muster:gpu_taken:bool)"),
        _stat("GPUs idle for 30 min", "count(avg_over_time(muster:gpu_utilisation:percent[30m]) < 5) or vector(0)"),
        _stat("Runs", "sum(muster_run_active)"),
        _stat("Cost of runs so far", "sum(muster_run_usd)", "currencyUSD"),
        _lines("Utilisation of GPUs by node", "percent", **{
            "{{node}}": "avg by (node) (muster:gpu_utilisation:percent)"}),
        _lines("Power by node", "watt", **{"{{node}}": "sum by (node) (muster:gpu_power:watts)"}),
        Panel("Rented without a run, USD an hour", "table", "currencyUSD",
              {"muster_lease_usd_per_hour unless on (node) muster_run_node": "{{node}}"}),
        Panel("Leases, time left", "table", "s", {"muster_lease_deadline_seconds - time()": "{{node}}"}),
        Panel("Runs by node", "table", "short", {"muster_run_node": "{{node}} {{run}}"}),
        _lines("Cost of runs", "currencyUSD", **{"{{name}} {{run}}": "muster_run_usd"}),
    ]),
    "job": ("Job", [
        _stat("Step", f"muster_run_step{_RUN}"),
        _stat("Attempt", f"muster_run_attempt{_RUN}"),
        _stat("Ranks seen", f"muster_run_ranks_seen{_RUN} / muster_run_ranks_asked{_RUN}", "percentunit"),
        _stat("Age of the checkpoint", f"muster_run_checkpoint_age_seconds{_RUN}", "s"),
        _stat("Cost so far", f"muster_run_usd{_RUN}", "currencyUSD"),
        _stat("Stands", f"muster_run_stalled{_RUN}", "bool_yes_no"),
        Panel("What it is, and its report", "table", "short", {f"muster_run_info{_RUN}": ""}, "report"),
        _lines("Loss", "short", **{"{{run}}": f"muster_run_loss{_RUN}"}),
        _lines("Throughput", "short", **{
            "tokens/s": f"muster_run_tokens_per_second{_RUN}", "samples/s": f"muster_run_samples_per_second{_RUN}"}),
        _lines("Seconds of a step", "s", **{
            "usual": f"muster_run_step_seconds{_RUN}", "median of ranks": f"muster_run_step_seconds_median{_RUN}",
            "slowest rank": f"muster_run_step_seconds_slowest{_RUN}"}),
        _lines("Seconds of a step by rank", "s", **{"rank {{rank}}": f"muster_run_rank_step_seconds{_RUN}"}),
        _lines("Utilisation of its GPUs", "percent", **{
            "{{node}} {{uuid}}": f"muster:gpu_utilisation:percent * {_OF_RUN}"}),
        _lines("Power of its GPUs", "watt", **{"{{node}} {{uuid}}": f"muster:gpu_power:watts * {_OF_RUN}"}),
        _lines("RDMA sent", "Bps", **{"{{node}} {{device}}": f"{_SENT} * {_OF_RUN}"}),
        _lines("RDMA sent, of the line rate", "percentunit", **{
            "{{node}} {{device}}":
                f"{_SENT} / on (node, device, port) node_infiniband_rate_bytes_per_second * {_OF_RUN}"}),
    ]),
    "health": ("Health", [
        Panel("Alerts", "table", "short",
              {'sum by (alertname, severity, node, run) (ALERTS{alertstate="firing"})':
               "{{alertname}} {{node}} {{run}}"}),
        Panel("Services that answer", "table", "short", {'up{job=~"muster-.*"}': "{{job}} {{instance}}"}),
        _lines("Temperature of GPUs", "celsius", **{"{{node}} {{uuid}}": "muster:gpu_temperature:celsius"}),
        _lines("Clock of GPUs", "rotmhz", **{"{{node}} {{uuid}}": "muster:gpu_clock:mhz"}),
        _lines("Memory of GPUs", "bytes", **{"{{node}} {{uuid}}": "muster:gpu_memory_used:bytes"}),
        Panel("Errors of GPUs (Xid)", "table", "short", {"muster:gpu_xid:number": "{{node}} Xid {{xid}}"}),
        _lines("Memory errors that could not be corrected", "short", **{
            "{{node}} {{uuid}}": "muster_gpu_ecc_uncorrected_errors",
            "{{Hostname}} {{UUID}}": "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL"}),
        _lines("GPUs slowed down", "short", **{"{{node}} {{uuid}}": "muster_gpu_throttled"}),
        _lines("State of RDMA ports (4: active)", "short", **{"{{node}} {{device}}": "node_infiniband_state_id"}),
        _lines("Rate of RDMA ports", "Bps", **{"{{node}} {{device}}": "node_infiniband_rate_bytes_per_second"}),
        _lines("Space left", "percentunit", **{
            "{{node}} {{mountpoint}}":
                'node_filesystem_avail_bytes{fstype!~"tmpfs|overlay"} / node_filesystem_size_bytes'}),
        _lines("Offset of clocks", "s", **{"{{node}}": "node_timex_offset_seconds"}),
    ]),
}  # fmt: skip


def _override(panel: Panel) -> list[dict[str, t.Any]]:
    """Return what makes a column with an address a link; a series without that label has no such column."""
    if not panel.link:
        return []
    # Grafana, "Data link variables": the text of the cell itself.
    link = {"title": "Open it", "url": "${__value.text}", "targetBlank": True}
    return [
        {"matcher": {"id": "byName", "options": panel.link}, "properties": [{"id": "links", "value": [link]}]},
    ]


def _build_panel(number: int, panel: Panel, place: t.Mapping[str, int]) -> dict[str, t.Any]:
    is_now = panel.kind != "timeseries"
    targets = [
        {
            "refId": chr(ord("A") + index),
            "datasource": SOURCE,
            "expr": expression,
            "legendFormat": name or "__auto",
            "instant": is_now,
            "range": not is_now,
            **({"format": "table"} if panel.kind == "table" else {}),
        }
        for index, (expression, name) in enumerate(panel.queries.items())
    ]
    return {
        "id": number,
        "title": panel.title,
        "type": panel.kind,
        "datasource": SOURCE,
        "gridPos": dict(place),
        "fieldConfig": {"defaults": {"unit": panel.unit}, "overrides": _override(panel)},
        "options": {},
        "targets": targets,
    }


def place_panels(kinds: t.Iterable[str]) -> list[dict[str, int]]:
    """Return where panels of these kinds are on the grid: side by side, and below one another where a row is full."""
    places, x, y, height = [], 0, 0, 0
    for kind in kinds:
        width, high = _SIZES[kind]
        if x + width > _COLUMNS or (height and high != height):
            x, y = 0, y + height
        places.append({"x": x, "y": y, "w": width, "h": high})
        x, height = x + width, high
    return places


def build(name: str) -> dict[str, t.Any]:
    """Return a dashboard as Grafana imports it; the data source and the run are chosen there."""
    title, panels = DASHBOARDS[name]
    chosen: list[dict[str, t.Any]] = [
        {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Data source"}
    ]
    marks: list[dict[str, t.Any]] = []
    if name == "job":
        query = {"query": "label_values(muster_run_active, run)", "refId": "runs"}
        chosen.append(
            {"name": "run", "type": "query", "datasource": SOURCE, "query": query, "refresh": 2, "label": "Run"}
        )
        marks.append({
            "name": "Attempts", "datasource": SOURCE, "enable": True, "iconColor": "orange",
            "target": {"refId": "attempts", "expr": f"changes(muster_run_attempt{_RUN}[1m]) > 0"},
            "titleFormat": "A new attempt",
        })  # fmt: skip
    return {
        "uid": f"muster-{name}",
        "title": f"muster: {title}",
        "tags": ["muster"],
        "schemaVersion": 41,
        "editable": False,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": chosen},
        "annotations": {"list": marks},
        "panels": [
            _build_panel(number, panel, place)
            for number, (panel, place) in enumerate(
                zip(panels, place_panels(panel.kind for panel in panels), strict=True), 1
            )
        ],
    }


def render(name: str) -> str:
    """Return the text of a dashboard's file."""
    return json.dumps(build(name), indent=1) + "\n"


def main() -> None:
    """Write the files."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name in DASHBOARDS:
        (FOLDER / f"muster-{name}.json").write_text(render(name))


if __name__ == "__main__":
    main()
