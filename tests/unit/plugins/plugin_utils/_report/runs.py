# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs to test the report with, and a reader of its pages."""

from __future__ import annotations

import html.parser
import json
import pathlib
import typing as t
from xml.etree import ElementTree as tree

from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.plugin_utils._report.data.load import (
    RunFolder,
    build_run_folder,
    load_run,
    parse_events,
    parse_metrics,
    parse_usage,
)
from ansible_collections.muster.training.plugins.plugin_utils._report.data.parsing import read_text
from ansible_collections.muster.training.plugins.plugin_utils._report.data.run_model import RunModel, build_run_model
from ansible_collections.muster.training.plugins.plugin_utils._report.pages.junit import render_junit
from ansible_collections.muster.training.plugins.plugin_utils._report.rules.checks import build_checks
from ansible_collections.muster.training.plugins.plugin_utils._report.rules.summary import build_report

FIXTURES = pathlib.Path(__file__).parents[4] / "fixtures" / "report"
ZERO = 1_000_000.0
Line = dict[str, t.Any]
NAMES = ["resumed", "crash_loop", "cancelled", "running", "gpu64", "nulls"]
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=8,
)
HOSTILE = "</title></style></svg><script>alert(1)</script><img src=x onerror=alert(1)>\"'&$x^2$\u202e\ud800#010101"
VOID = {"meta", "br", "hr", "path", "use", "rect"}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


def start(at: float, step: int | None, world: int | None = 2) -> Line:
    return {"at": ZERO + at, "resumed_from_step": step, "world_size": world}


def steps(at: float, first: int, last: int, every: int = 10, level: float = 4.0) -> list[Line]:
    lines: list[Line] = []
    for index, step in enumerate(range(first, last + 1)):
        moment = ZERO + at + index * 0.1
        lines.append({"at": moment, "step": step, "loss": level - step * 0.02, "tokens_per_s": 100})
        if step % every == 0:
            lines.append({"at": moment, "checkpoint_step": step, "path": f"/ckpt/{step}"})
    return lines


def case(metrics: list[Line], events: list[Line] | None = None, **record: t.Any) -> RunModel:
    return build_run_model(build_run_folder("r", record, events or [], metrics, []))


def worker_started(at: float, node: str, rank: int, attempt: int) -> Line:
    return {"at": ZERO + at, "kind": "worker_started", "node": node, "rank": rank, "attempt": attempt}


def worker(at: float, code: int, node: str, rank: int, attempt: int) -> Line:
    common = {"at": ZERO + at, "kind": "worker_exit", "node": node, "rank": rank, "attempt": attempt}
    return {**common, "exit_code": code, "signal": max(0, code - 128)}


def run(name: str) -> RunFolder:
    return load_run(FIXTURES / name)


def statuses(found: RunFolder) -> dict[str, str]:
    return {check.name: check.status for check in build_checks(build_run_model(found))}


def advised(found: RunFolder) -> list[tuple[str, str | None]]:
    return [(item["text"], item["command"] or item["path"]) for item in build_report(found)["next"]]


def suite(found: RunFolder) -> tree.Element:
    return tree.fromstring(render_junit(found).encode())


def damage(value: t.Any, data: st.DataObject) -> None:
    """Replace one value somewhere below ``value`` by anything."""
    while True:
        keys = list(value) if isinstance(value, dict) else list(range(len(value)))
        if not keys:
            return
        key = data.draw(st.sampled_from(keys))
        if not isinstance(value[key], (dict, list)) or not value[key] or data.draw(st.booleans()):
            value[key] = data.draw(ANYTHING)
            return
        value = value[key]


class Reader(html.parser.HTMLParser):
    """Collects the elements of a page and checks that each is closed in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.names: list[str] = []
        self.attributes: list[tuple[str, str, str | None]] = []

    def handle_starttag(self, name: str, attributes: list[tuple[str, str | None]]) -> None:
        self.names.append(name)
        self.attributes += [(name, key, value) for key, value in attributes]
        if name not in ("meta", "br"):
            self.open.append(name)

    def handle_startendtag(self, name: str, attributes: list[tuple[str, str | None]]) -> None:
        self.names.append(name)
        self.attributes += [(name, key, value) for key, value in attributes]

    def handle_endtag(self, name: str) -> None:
        assert self.open.pop() == name


def read(page: str) -> Reader:
    reader = Reader()
    reader.feed(page)
    reader.close()
    assert reader.open == []
    return reader


def hostile_run() -> RunFolder:
    record = json.loads((FIXTURES / "gpu64" / "run.json").read_text())
    metrics = (FIXTURES / "crash_loop" / "metrics.jsonl").read_text().splitlines()
    segments, unit = parse_metrics([json.loads(line) for line in metrics], [])
    pairs = [{"a": HOSTILE, "b": HOSTILE + "2", "via": HOSTILE, "busbw_gb_s": 3.0, "evidence": HOSTILE}]
    cause = {"code": HOSTILE, "node": HOSTILE, "evidence": HOSTILE, "fix": HOSTILE}
    island = {"island": HOSTILE, "outcome": HOSTILE, "lane": HOSTILE, "causes": [cause], "transport": {"pairs": pairs}}
    stay = {"id": HOSTILE, "price_usd_per_hour": 2.0}
    attempt = {
        "n": HOSTILE,
        "node": HOSTILE,
        "cause": HOSTILE,
        "started_at": 1795167001,
        "nodes": [stay],
        "logs": [HOSTILE],
    }
    job = {
        "name": HOSTILE,
        "script": HOSTILE,
        "args": [HOSTILE],
        "nodes": 2,
        "gpu": {"model": HOSTILE},
        "gpus_per_node": 2,
    }
    record |= {
        "run_id": HOSTILE,
        "job": job,
        "attempts": [attempt],
        "versions": {HOSTILE: HOSTILE},
        "outcome": "failed",
    }
    events = [{"at": 1795167003, "kind": "worker_exit", "node": HOSTILE, "detail": HOSTILE}]
    usage = [{"at": 1795167000 + n, "node": HOSTILE, "cpu_percent": 50} for n in range(9)]
    fabric = {"islands": [island]}
    return RunFolder(
        HOSTILE,
        record,
        parse_events(events),
        segments,
        unit,
        parse_usage(usage),
        fabric,
        (),
        (read_text(HOSTILE) or "",),
    )


def contrast(first: str, second: str) -> float:
    """Return the WCAG 2.2 contrast ratio of two colours."""

    def luminance(colour: str) -> float:
        parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
        red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    high, low = sorted((luminance(first), luminance(second)), reverse=True)
    return (high + 0.05) / (low + 0.05)
