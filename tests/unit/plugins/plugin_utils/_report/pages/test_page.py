# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The page of a run: self-contained, escaped, accessible, small, and the same every time."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import pathlib
import re
import shutil
import typing as t

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from markupsafe import escape

from ansible_collections.muster.training.plugins.plugin_utils._report.data.load import (
    RunFolder,
    load_run,
    parse_events,
    parse_metrics,
    parse_usage,
)
from ansible_collections.muster.training.plugins.plugin_utils._report.pages.compare import render_compare
from ansible_collections.muster.training.plugins.plugin_utils._report.pages.files import write_report
from ansible_collections.muster.training.plugins.plugin_utils._report.pages.page import render_html
from ansible_collections.muster.training.plugins.plugin_utils._report.rules.summary import build_report
from ansible_collections.muster.training.tests.unit.plugins.plugin_utils._report.runs import (
    FIXTURES,
    JSON,
    NAMES,
    hostile_run,
    read,
)


@pytest.mark.parametrize("name", NAMES)
def test_a_page_is_well_formed_and_fetches_nothing(pages: dict[str, str], name: str) -> None:
    reader = read(pages[name])
    assert not {"script", "img", "link", "iframe", "object", "embed", "form", "base"} & set(reader.names)
    for element, key, value in reader.attributes:
        assert not key.startswith("on")
        if key in ("href", "src", "xlink:href"):
            is_log = element == "a" and (value or "").startswith("../logs/")
            assert is_log or (value or "").startswith("#"), (element, key, value)
    assert not re.search(r"url\((?!#)|@import|@font-face", pages[name])
    assert set(re.findall(r"https?://[^\"' <]*", pages[name])) <= {"http://www.w3.org/2000/svg"}


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
            [
                "Trained · proven 5 of 5",
                "on loopback of one machine",
                "tokens/s",
                "attempt 1",
                ">drill<",
                "1 resume proven",
            ],
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
        assert (wanted if wanted.startswith(">") else escape(wanted)) in pages[name]


def test_a_failed_run_shows_its_log_under_the_verdict(pages: dict[str, str]) -> None:
    page = pages["crash_loop"]
    places = [page.index(mark) for mark in ('class="verdict t-bad"', 'class="log"', 'class="figures"', "<h2>")]
    assert places == sorted(places)
    assert page.index("RuntimeError: mat1 and mat2") < places[2], "its last lines stand before all figures"
    assert '<a href="../logs/4/node-2.log"' in page


def test_run_id_and_commands_are_copied_as_one() -> None:
    run = load_run(FIXTURES / "crash_loop")
    page = render_html(dataclasses.replace(run, record={**run.record, "inventory": "/home/me/my hosts.yml"}))
    assert f'<code class="id">{run.record["run_id"]}</code>' in page and ".id,pre.command code{user-select:all" in page
    command = (
        f"ansible-playbook -i '/home/me/my hosts.yml' muster.training.train -e muster_run_id={run.record['run_id']}"
    )
    assert escape(command) in page and "INVENTORY" not in page


def test_every_number_is_drawn_with_its_unit_and_a_stall_is_hatched() -> None:
    """One that ends in ``_per_s`` is the throughput; memory and GPU of the nodes are drawn over time."""
    begin = 1795167000.0
    at = [begin + step + (120 if step > 30 else 0) for step in range(60)]
    lines = [
        {"at": at[step], "step": step + 1, "loss": 2.0 - step / 60, "grad_norm": 2.0, "images_per_s": 50.0}
        for step in range(60)
    ]
    segments, unit = parse_metrics([{"at": begin, "resumed_from_step": 0, "world_size": 2}, *lines], [])
    usage = parse_usage(
        {"at": moment, "node": node, "cpu_percent": 5, "memory_gib": 3.5, "gpu_percent": 60}
        for moment in at
        for node in "ab"
    )
    page = render_html(RunFolder("r", {"state": "running", "submitted_at": begin}, (), segments, unit, usage))
    for words in ("grad_norm by step", "Throughput in images/s", "GPU use", "Memory in use on each node", "no step"):
        assert words in page, words
    assert "hatched where no step was made" in page


@pytest.mark.parametrize("name", NAMES)
def test_ids_are_unique_and_every_reference_has_its_id(pages: dict[str, str], name: str) -> None:
    ids = re.findall(r' id="([^"]+)"', pages[name])
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'(?:href="|url\()#([^")]+)', pages[name])) <= set(ids)


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


def test_without_matplotlib_the_page_has_all_but_its_plots(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    drawn = render_html(load_run(FIXTURES / "resumed"))
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name == "matplotlib" else real(name))
    page = render_html(load_run(FIXTURES / "resumed"))
    assert "Not drawn: matplotlib is not installed." in page and "Not drawn" not in drawn
    told = [re.sub(r"<svg.*?</svg>", "", text, flags=re.DOTALL) for text in (drawn, page)]
    assert told[0] == told[1]
    write_report(FIXTURES / "resumed", tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["junit.xml", "report.html", "report.json"]


@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_any_damaged_run_still_makes_a_page(data: st.DataObject) -> None:
    run = load_run(FIXTURES / "resumed")
    record = {key: data.draw(JSON) if data.draw(st.integers(0, 4)) == 0 else value for key, value in run.record.items()}
    fabric = json.loads(json.dumps(run.fabric))
    fabric["islands"][0][data.draw(st.sampled_from(sorted(fabric["islands"][0])))] = data.draw(JSON)
    read(render_html(dataclasses.replace(run, record=record, fabric=fabric)))


def test_the_page_forbids_scripts_and_requests_by_policy(pages: dict[str, str]) -> None:
    policy = "default-src 'none'; style-src 'unsafe-inline';"
    assert f'<meta http-equiv="Content-Security-Policy" content="{policy}' in pages["nulls"]


def test_a_dollar_sign_in_a_name_is_no_formula() -> None:
    events = parse_events(
        [{"at": 1795167003, "kind": "node_lost", "node": "a$\\frac{$"}, {"at": 1795167004, "kind": "ended"}]
    )
    run = RunFolder("r", {"submitted_at": 1795167000, "attempts": [{"n": 1, "started_at": 1795167001}]}, events)
    assert render_html(run).count("a$\\frac{$") >= 2


def test_the_seconds_of_site_are_shown_where_it_led_to_the_run(tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "resumed"
    shutil.copytree(FIXTURES / "resumed", folder)
    assert "Bring-up" not in render_html(load_run(folder)) and load_run(folder).notes == ()
    phases = [{"name": "cluster", "seconds": 61.25}, {"name": "report", "seconds": None}, {"name": 3, "seconds": "x"}]
    (folder / "site.json").write_text(json.dumps({"schema": 1, "phases": phases}))
    found = load_run(folder)
    page = render_html(found)
    assert (
        "Bring-up" in page and "<span>cluster</span>" in page and "61.2 s" in page and "<span>report</span>" not in page
    )
    assert build_report(found)["site"] == [{"name": "cluster", "seconds": 61.25}]
