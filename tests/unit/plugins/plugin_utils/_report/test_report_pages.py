# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The pages: self-contained, escaped, readable, the same every time, small, and made by matplotlib alone."""

from __future__ import annotations

import builtins
import dataclasses
import html.parser
import json
import pathlib
import re
import typing as t

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from markupsafe import Markup, escape

from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError
from ansible_collections.muster.training.plugins.plugin_utils._report.data.load import (
    RunFolder,
    load_run,
    parse_events,
    parse_metrics,
    parse_usage,
)
from ansible_collections.muster.training.plugins.plugin_utils._report.data.parsing import read_text
from ansible_collections.muster.training.plugins.plugin_utils._report.data.run_model import build_run_model
from ansible_collections.muster.training.plugins.plugin_utils._report.pages import css, plots, rendering
from ansible_collections.muster.training.plugins.plugin_utils._report.pages.compare import render_compare
from ansible_collections.muster.training.plugins.plugin_utils._report.pages.files import write_report
from ansible_collections.muster.training.plugins.plugin_utils._report.pages.page import render_html
from ansible_collections.muster.training.plugins.plugin_utils._report.pages.timeline import (
    build_phases,
    marked_events,
    node_rows,
)

FIXTURES = pathlib.Path(__file__).parents[4] / "fixtures" / "report"
NAMES = ["resumed", "crash_loop", "cancelled", "running", "gpu64", "nulls"]
HOSTILE = "</title></style></svg><script>alert(1)</script><img src=x onerror=alert(1)>\"'&$x^2$\u202e\ud800#010101"
VOID = {"meta", "br", "hr", "path", "use", "rect"}


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


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    return {name: render_html(load_run(FIXTURES / name)) for name in NAMES}


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


@pytest.mark.parametrize("name", NAMES)
def test_a_page_is_well_formed_and_fetches_nothing(pages: dict[str, str], name: str) -> None:
    reader = read(pages[name])
    assert not {"script", "img", "link", "iframe", "object", "embed", "form", "base"} & set(reader.names)
    for element, key, value in reader.attributes:
        assert not key.startswith("on")
        if key in ("href", "src", "xlink:href"):
            assert (value or "").startswith("#"), (element, key, value)
    assert not re.search(r"url\((?!#)|@import|@font-face", pages[name])
    assert set(re.findall(r"https?://[^\"' <]*", pages[name])) <= {"http://www.w3.org/2000/svg"}


@pytest.mark.parametrize("name", NAMES)
def test_ids_are_unique_and_every_reference_has_its_id(pages: dict[str, str], name: str) -> None:
    ids = re.findall(r' id="([^"]+)"', pages[name])
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'(?:href="|url\()#([^")]+)', pages[name])) <= set(ids)


@pytest.mark.parametrize("name", NAMES)
def test_a_page_is_accessible(pages: dict[str, str], name: str) -> None:
    page = pages[name]
    reader = read(page)
    assert '<html lang="en">' in page
    assert reader.names.count("h1") == 1
    assert reader.names.count("main") == 1
    assert reader.names.count("svg") == page.count('role="img"')
    assert page.count("<svg") == len(re.findall(r"<svg[^>]*><title>[^<]+</title>", page))
    assert page.count("<th ") == page.count('scope="col"')
    assert page.count("<table") == page.count("<caption>")


@pytest.mark.parametrize(
    ("name", "texts"),
    [
        (
            "resumed",
            ["Succeeded", "on loopback of one machine", "tokens/s", "attempt 1", ">drill<", "1 resume proven"],
        ),
        ("crash_loop", ["Failed", "mat1 and mat2 shapes cannot be multiplied", "× 1–3", "logs/4/node-2.log"]),
        ("cancelled", ["Cancelled", "muster_run_id=char-lm-cancelled"]),
        (
            "running",
            ["Running", "metrics.jsonl: the last line is cut off and was left out", "Figures measured on CPUs"],
        ),
        (
            "gpu64",
            [
                "64 ranks on 8 nodes",
                "h100-6",
                "rdma_gdr",
                "$417.75",
                "--hub-token=(hidden)",
                "1\N{NO-BREAK SPACE}h 9\N{NO-BREAK SPACE}min",
            ],
        ),
        ("nulls", ["Unknown", "metrics.jsonl is missing", "No attempt was recorded."]),
    ],
)
def test_a_page_says_what_it_must(pages: dict[str, str], name: str, texts: list[str]) -> None:
    for wanted in texts:
        assert escape(wanted) if not wanted.startswith(">") else wanted in pages[name]


def test_a_gpu_run_over_ssh_makes_no_excuse(pages: dict[str, str]) -> None:
    assert "loopback" not in pages["gpu64"]
    assert "not-for-the-report" not in pages["gpu64"]


def test_equal_input_gives_an_equal_page(pages: dict[str, str]) -> None:
    assert render_html(load_run(FIXTURES / "resumed")) == pages["resumed"]


def test_hostile_texts_stay_texts() -> None:
    run = hostile_run()
    for page in (render_html(run), render_compare([run, run])):
        reader = read(page)
        assert "script" not in reader.names
        assert "img" not in reader.names
        assert reader.names.count("title") == 1 + reader.names.count("svg")
        assert "\u202e" not in page
        page.encode("utf-8")


def test_a_hundred_thousand_steps_stay_below_a_megabyte() -> None:
    lines: list[dict[str, t.Any]] = [{"at": 1795167000.0, "resumed_from_step": 0, "world_size": 8}]
    for step in range(1, 100_001):
        loss = 9.0 - step**0.15 + (step * 7919 % 101) / 400
        lines.append({"at": 1795167000.0 + step * 0.5, "step": step, "loss": loss, "tokens_per_s": 9000 + step % 37})
        if step % 100 == 0:
            lines.append({"at": 1795167000.0 + step * 0.5, "checkpoint_step": step})
    segments, unit = parse_metrics(lines, [])
    usage = [
        {"at": 1795167000.0 + n * 60, "node": f"node-{k}", "cpu_percent": (n * 31 + k * 17) % 100}
        for n in range(800)
        for k in range(64)
    ]
    record = {"state": "running", "submitted_at": 1795167000.0}
    page = render_html(RunFolder("long", record, (), segments, unit, parse_usage(usage)))
    # The limit is 1 MB; the series themselves are cut to some hundred points, whatever their length.
    assert len(page.encode()) < 500_000
    assert len(max(re.findall(r' d="([^"]*)"', page), key=len)) < 60_000
    assert "The 32 least used of 64 nodes" in page


def test_a_missing_matplotlib_is_one_clear_error(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    real = builtins.__import__

    def refuse(name: str, *rest: t.Any, **more: t.Any) -> t.Any:
        if name.split(".")[0] == "matplotlib":
            raise ImportError(name)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(InputError, match="pip install matplotlib"):
        render_html(load_run(FIXTURES / "resumed"))
    with pytest.raises(InputError):
        write_report(FIXTURES / "resumed", tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["junit.xml", "report.json"]


def test_matplotlib_is_imported_by_the_plots_alone() -> None:
    package = pathlib.Path(plots.__file__).parent
    eager = re.compile(r"^(?:import|from) matplotlib", re.MULTILINE)
    lazy = re.compile(r"^    +(?:import|from) matplotlib", re.MULTILINE)
    for path in package.glob("*.py"):
        source = re.sub(r"if t\.TYPE_CHECKING:\n(?:    .*\n)+", "", path.read_text())
        assert not eager.search(source), path.name
        assert path.name == "plots.py" or not lazy.search(source), path.name


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_any_damaged_run_still_makes_a_page(data: st.DataObject) -> None:
    run = load_run(FIXTURES / "resumed")
    record = {key: data.draw(JSON) if data.draw(st.integers(0, 4)) == 0 else value for key, value in run.record.items()}
    fabric = json.loads(json.dumps(run.fabric))
    fabric["islands"][0][data.draw(st.sampled_from(sorted(fabric["islands"][0])))] = data.draw(JSON)
    read(render_html(dataclasses.replace(run, record=record, fabric=fabric)))


@pytest.mark.parametrize("palette", [css.LIGHT, css.DARK], ids=["light", "dark"])
def test_texts_meet_the_contrast_of_wcag_aa(palette: dict[str, str]) -> None:
    texts = [*("ink", "muted", "accent", "ok", "warn", "bad"), *(f"series-{n}" for n in range(8))]
    for name in texts:
        assert contrast(palette[name], palette["paper"]) >= 4.5, name
    for name in ("ink", "muted"):
        assert contrast(palette[name], palette["soft"]) >= 4.5, name
    for shade in range(7):
        assert contrast(palette["paper" if shade >= 5 else "ink"], palette[f"heat-{shade}"]) >= 4.5, shade


def contrast(first: str, second: str) -> float:
    """Return the WCAG 2.2 contrast ratio of two colours."""

    def luminance(colour: str) -> float:
        parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
        red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    high, low = sorted((luminance(first), luminance(second)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_both_palettes_name_the_same_colours_and_the_pictures_use_only_those(pages: dict[str, str]) -> None:
    assert set(css.LIGHT) == set(css.DARK)
    used = set(re.findall(r"var\(--([a-z0-9-]+)", "".join(pages.values())))
    assert used <= set(css.LIGHT) | {"tone", "k"}
    assert not re.search(r"#(?:0[1-7]|1[0-6]|2[0-7]){3}\b", re.sub(r"<style>.*?</style>", "", pages["gpu64"]))


def test_text_is_escaped_and_markup_is_not() -> None:
    assert rendering.build_mark("ok", "<b>") == (
        '<span class="mark t-ok"><span aria-hidden="true">✓</span> &lt;b&gt;</span>'
    )
    assert rendering.add_note("<i>", Markup("<b>1</b>")) == "&lt;i&gt; <small><b>1</b></small>"
    assert rendering.add_note("–", "note") == "–"


def test_a_table_leaves_out_a_column_without_a_value() -> None:
    table = rendering.Table(("Name", "A", "B"), [["x", "–", "1"], ["y", "–", "–"]], "c", " nn")
    assert [(column.position, column.heading, column.numeric) for column in table.columns] == [
        (0, "Name", False),
        (2, "B", True),
    ]


def test_the_phases_of_a_resumed_run() -> None:
    found = build_phases(build_run_model(load_run(FIXTURES / "resumed")))
    assert [(bar.kind, bar.label) for bar in found] == [
        *(("wait", ""), ("start", ""), ("train", "1")),
        *(("down", ""), ("start", ""), ("train", "2")),
    ]
    assert all(left.end <= right.start + 1e-9 for left, right in zip(found, found[1:], strict=False))


def test_exits_that_a_cancelled_job_was_asked_for_are_not_marked() -> None:
    assert [event.kind for event in marked_events(build_run_model(load_run(FIXTURES / "cancelled")))] == ["cancelled"]


def test_eventful_nodes_are_shown_first() -> None:
    nodes = [{"id": f"node-{n}"} for n in range(1, 30)]
    events = parse_events([{"at": 1795167003, "kind": "node_lost", "node": "node-27"}])
    run = RunFolder("r", {"attempts": [{"n": 1, "nodes": nodes}]}, events)
    rows = node_rows(build_run_model(run))
    assert len(rows) == 8
    assert "node-27" in rows


def test_a_dollar_sign_in_a_name_is_no_formula() -> None:
    events = parse_events(
        [{"at": 1795167003, "kind": "node_lost", "node": "a$\\frac{$"}, {"at": 1795167004, "kind": "ended"}]
    )
    run = RunFolder("r", {"submitted_at": 1795167000, "attempts": [{"n": 1, "started_at": 1795167001}]}, events)
    assert render_html(run).count("a$\\frac{$") >= 2


def test_the_page_forbids_scripts_and_requests_by_policy(pages: dict[str, str]) -> None:
    policy = "default-src 'none'; style-src 'unsafe-inline';"
    assert f'<meta http-equiv="Content-Security-Policy" content="{policy}' in pages["nulls"]


def test_ranks_that_were_taken_along_are_not_marked() -> None:
    exits = [{"at": 1795167003 + n, "kind": "worker_exit", "node": "ab"[n], "exit_code": (137, 143)[n]} for n in (0, 1)]
    assert [event.node for event in marked_events(build_run_model(RunFolder("r", {}, parse_events(exits))))] == ["a"]
