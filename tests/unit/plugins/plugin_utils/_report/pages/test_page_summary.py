# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a run's page says in words and figures."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._report.data import format as fmt
from ansible_collections.muster.training.plugins.plugin_utils._report.data.load import (
    RunFolder,
    build_run_folder,
    load_run,
)
from ansible_collections.muster.training.plugins.plugin_utils._report.data.run_model import RunModel, build_run_model
from ansible_collections.muster.training.plugins.plugin_utils._report.pages import page_summary
from ansible_collections.muster.training.tests.unit.plugins.plugin_utils._report.runs import FIXTURES


def model(**record: t.Any) -> RunModel:
    return build_run_model(RunFolder("r", record))


def test_the_figures_of_a_run_carry_their_notes() -> None:
    resumed = build_run_model(load_run(FIXTURES / "resumed"))
    found = dict(page_summary.build_figures(resumed))
    share = str(found["Useful time"]).partition("\N{NO-BREAK SPACE}")[0]
    assert f"useful {share} %" in page_summary.describe_account(resumed), "one page says one figure"
    assert dict(page_summary.build_figures(model()))["Useful time"] == fmt.UNKNOWN
    assert found["Restarts"] == "1 <small>1 resume proven</small>"
    assert str(found["Steps lost"]).startswith("17 <small>3.6")
    assert "So far" in dict(page_summary.build_figures(build_run_model(load_run(FIXTURES / "running"))))


def test_what_did_not_happen_takes_no_place() -> None:
    names = [name for name, _value in page_summary.build_figures(model(cost={"usd": 0}))]
    assert not {"Cost", "Restarts", "Steps lost"} & {*names} and "Last step" in names
    assert "Cost" in dict(page_summary.build_figures(model(cost={"usd": 3}))), "what was paid is shown"
    assert "Cost" in dict(page_summary.build_figures(model(cost={"usd": None}))), "and what is not known"


def test_the_final_loss_and_the_pace_are_those_that_were_read() -> None:
    """Steps of a tenth of a second with a restart of a minute between: ten steps a second, and the last loss."""
    lines = [{"at": 1000.0 + n / 10 + (60 if n >= 50 else 0), "step": n, "loss": 2.0 - n / 100} for n in range(100)]
    events = [
        {"kind": "worker_started", "rank": 0, "node": "a", "attempt": n, "gang": f"g{n}", "at": at}
        for n, at in ((1, 999.0), (2, 1064.0))
    ]
    lines.insert(50, {"at": 1064.5, "resumed_from_step": 49})
    run = build_run_model(build_run_folder("r", {"state": "ended", "outcome": "succeeded"}, events, lines, []))
    assert run.final_loss == pytest.approx(1.01) and run.steps_per_s == pytest.approx(10, rel=0.03)


@pytest.mark.parametrize(
    ("cost", "sentence", "short"),
    [
        ({"usd": None}, "The cost is not known.", "–"),
        ({"usd": 0}, "No rented node took part: the run cost nothing.", "$0.00 <small>no rented node</small>"),
        ({"usd": 3, "complete": True}, "$3.00. The record is complete.", "$3.00"),
        ({"usd": 3, "complete": False}, "$3.00. The record is not complete yet.", "$3.00 <small>known so far</small>"),
    ],
)
def test_the_cost_in_words(cost: dict[str, t.Any], sentence: str, short: str) -> None:
    case = model(cost=cost)
    assert (page_summary.describe_cost(case), page_summary.format_cost(case)) == (sentence, short)


def test_the_cost_of_each_node_counts_the_time_in_its_attempts() -> None:
    stay = {"id": "n1", "from": 1795167000, "to": 1795170600, "price_usd_per_hour": 2.5}
    rows = [{"n": 1, "nodes": [stay]}, {"n": 2, "nodes": [{**stay, "from": 1795170600, "to": 1795174200}]}]
    table = page_summary.build_cost_table(model(attempts=rows))
    assert table is not None and table.lines == [["n1", "2\N{NO-BREAK SPACE}h", "$2.50", "$5.00"]]
    assert page_summary.build_cost_table(model(attempts=[{"n": 1, "nodes": [{"id": "n1"}]}])) is None


def test_the_job_hides_secrets_and_leaves_out_what_is_not_known() -> None:
    job = {"module": "a.b", "args": ["--token=x", "--steps", "3"], "nodes": 2, "gpus_per_node": 0}
    terms = page_summary.build_job_terms(model(job=job, code_sha256="<" * 64))
    assert terms == [
        ("Program", "a.b"),
        ("Arguments", "--token=(hidden) --steps 3"),
        ("Nodes", "2"),
        ("GPUs per node", "none, CPU only"),
        ("Code", f'<code title="{"&lt;" * 64}">{"&lt;" * 16}</code> (sha256)'),
    ]
    assert page_summary.build_job_terms(model()) == []


@pytest.mark.parametrize(
    ("connection", "gpus", "words"),
    [("local", 0, "on CPUs, on loopback"), ("local", 8, "measured on loopback"), ("ssh", 0, "asked for no GPU")],
)
def test_figures_that_say_nothing_about_a_network_have_a_caveat(connection: str, gpus: int, words: str) -> None:
    assert words in (
        page_summary.describe_caveat(model(job={"gpus_per_node": gpus}, derived={"connection": connection})) or ""
    )
    assert page_summary.describe_caveat(model(job={"gpus_per_node": 8}, derived={"connection": "ssh"})) is None


@pytest.mark.parametrize(
    ("tracking", "cell"),
    [
        (
            {"url": 'https://m:5000/#/experiments/1/runs/a"b'},
            '<a href="https://m:5000/#/experiments/1/runs/a&#34;b">https://m:5000</a>',
        ),
        ({"url": "javascript:alert(1)"}, None),
        ({"sent": 0}, None),
        (None, None),
    ],
)
def test_a_run_that_is_logged_elsewhere_links_to_it(tracking: dict[str, t.Any] | None, cell: str | None) -> None:
    run = RunFolder("r", {"job": {"launcher": "torchrun"}}, tracking=tracking)
    terms = dict(page_summary.build_job_terms(build_run_model(run)))
    assert (str(terms["Tracked in"]) if cell else terms.get("Tracked in")) == cell


def test_a_run_with_a_dashboard_links_to_it() -> None:
    kept = {"dashboard": "https://g:3000/d/muster-job?var-run=r&from=1&to=now"}
    run = RunFolder("r", {"job": {"launcher": "torchrun"}}, monitoring=kept)
    terms = dict(page_summary.build_job_terms(build_run_model(run)))
    shown = '<a href="https://g:3000/d/muster-job?var-run=r&amp;from=1&amp;to=now">https://g:3000</a>'
    assert str(terms["Dashboard"]) == shown


def test_where_the_time_went_is_what_the_record_says() -> None:
    """A bar whose parts are as wide as they are long, and a line for each, the useful one first."""
    spent = {"seconds": {"useful": 700.0, "restart": 299.0, "stop": 1.0}, "usd": {"useful": 7.0, "restart": 2.99}}
    run = model(account=spent)
    assert [(part.name, part.percent, part.is_useful) for part in page_summary.build_account_bar(run)] == [
        ("useful", 70.0, True),
        ("restart", 29.9, False),
    ]
    table = page_summary.build_account_table(run)
    assert table is not None
    assert [line[0] for line in table.lines] == ["useful", "restart", "stop"]
    assert [line[3] for line in table.lines] == ["$7.00", "$2.99", "$0.00"]


def test_of_a_run_without_an_account_in_its_record_its_events_tell() -> None:
    run = build_run_model(load_run(FIXTURES / "resumed"))
    seconds, usd = run.account or ({}, {})
    assert sum(seconds.values()) == pytest.approx(run.clock.duration or 0.0, abs=1e-3) and usd is None
    assert seconds["redone"] > 0 and seconds["restart"] > 0 and max(seconds, key=seconds.__getitem__) == "useful"
    assert page_summary.build_account_table(model()) is None and page_summary.build_account_bar(model()) == []


def test_the_page_names_the_template_of_the_job() -> None:
    digest = "0123456789abcdef" * 4
    found = dict(
        page_summary.build_job_terms(model(catalogue_template={"name": "<x>", "version": "1", "digest": digest}))
    )
    assert found["Template"] == f'&lt;x&gt; 1, <code title="{digest}">0123456789abcdef</code> (sha256)'
    assert "Template" not in dict(page_summary.build_job_terms(model()))
