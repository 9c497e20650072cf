# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The tables of a run's page."""

from __future__ import annotations

import dataclasses
import datetime
import typing as t

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._report.data.format import format_time
from ansible_collections.muster.training.plugins.plugin_utils._report.data.load import (
    Log,
    RunFolder,
    Usage,
    load_run,
)
from ansible_collections.muster.training.plugins.plugin_utils._report.data.run_model import RunModel, build_run_model
from ansible_collections.muster.training.plugins.plugin_utils._report.pages import page_details
from ansible_collections.muster.training.plugins.plugin_utils._report.pages.page import render_html
from ansible_collections.muster.training.tests.unit.plugins.plugin_utils._report.runs import (
    FIXTURES,
    ZERO,
    case,
    worker_started,
)


def model(name: str) -> RunModel:
    return build_run_model(load_run(FIXTURES / name))


def with_attempts(count: int, **values: t.Any) -> RunModel:
    rows = [{"n": n, "started_at": 1795167000 + n, **values} for n in range(1, count + 1)]
    logs = tuple(Log(path, 1, (), None) for path in values.get("logs", []))
    return build_run_model(RunFolder("r", {"attempts": rows, "outcome": "failed"}, logs=logs))


def test_of_many_checks_those_that_passed_are_folded() -> None:
    (few,) = page_details.build_check_tables(model("resumed"))
    assert (few.fold, len(few.lines)) == (None, 5)
    islands = [{"island": f"i{n}", "outcome": "pass"} for n in range(20)] + [{"island": "bad", "outcome": "fail"}]
    run = RunFolder("r", {"outcome": "succeeded"}, fabric={"islands": islands})
    shown, folded = page_details.build_check_tables(build_run_model(run))
    assert [line[0] for line in shown.lines][-1] == '<span class="key">Fabric of bad</span>'
    assert folded.fold == "21 more checks passed"


def test_the_attempts_of_a_drilled_run() -> None:
    table = page_details.build_attempt_table(model("resumed"))
    assert table is not None
    assert table.lines[0][:6] == ["1", "drill", "node-2, rank 1", "137", "1–137", "17"]
    assert table.lines[1][:6] == ["2", "finished", "–", "0", "121–300", "–"]
    assert page_details.build_attempt_table(model("nulls")) is None


def test_the_last_attempt_of_a_stopped_run_ended_by_the_run_s_cause() -> None:
    rows = [{"n": n, "started_at": 1795167000 + n, "exit_code": 143} for n in (1, 2)]
    run = RunFolder("r", {"attempts": rows, "outcome": "failed", "cause": "stalled"})
    table = page_details.build_attempt_table(build_run_model(run))
    assert table is not None and [line[1] for line in table.lines] == ["not known", "stalled"]


def test_an_attempt_shows_the_notice_that_ended_it() -> None:
    notice: dict[str, t.Any] = {"at": ZERO + 3, "node": "b", "detail": "EC2 will terminate it"}
    events = [worker_started(0.5, "b", 0, 1), {**notice, "kind": "notice"}, worker_started(9, "c", 0, 2)]
    ended: dict[str, t.Any] = {"cause": "preempted", "node": "b"}
    rows = [{"n": 1, "started_at": ZERO, **ended}, {"n": 2, "started_at": ZERO + 9}]
    told = {**rows[0], "notice": notice}
    for given in ([], rows, [told, rows[1]]):
        table = page_details.build_attempt_table(case([], events, attempts=given, outcome="succeeded"))
        assert table is not None and table.lines[1][1] == "finished"
        # By the record, else by the events.
        assert table.lines[0][1] == f"preempted; notice at {format_time(ZERO + 3)}: EC2 will terminate it", given


def test_of_many_attempts_the_middle_is_left_out() -> None:
    table = page_details.build_attempt_table(with_attempts(50))
    assert table is not None
    assert [line[0] for line in table.lines] == [str(n) for n in (*range(1, 11), *range(41, 51))]
    assert "30 in the middle are left out" in table.caption


@pytest.mark.parametrize(
    ("logs", "expected"),
    [
        ([], "–"),
        (["a<b"], "<code>a&lt;b</code>"),
        (["l/1", "l/2", "l/3"], '<span title="l/1, l/2 and l/3">3 files in l/</span>'),
        (["k/1", "l/2", "l/3"], '<span title="k/1, l/2 and l/3">3 files</span>'),
    ],
)
def test_the_logs_of_an_attempt(logs: list[str], expected: str) -> None:
    table = page_details.build_attempt_table(with_attempts(1, logs=logs))
    assert table is not None and table.lines[0][-1] == expected


def test_the_log_of_a_failure_is_shown_and_of_a_success_is_not() -> None:
    log = page_details.pick_failure_log(model("crash_loop"))
    assert log is not None and log.path == "logs/4/node-2.log"
    assert page_details.pick_failure_log(model("resumed")) is None


def test_the_use_of_many_nodes_is_folded() -> None:
    samples = tuple(Usage(1795167000.0 + n % 3, f"n{n}", 10.0 * (n % 3), 1.5, None) for n in range(13))
    run = dataclasses.replace(load_run(FIXTURES / "running"), usage=samples)
    _plot, table = page_details.build_usage(build_run_model(run))
    assert table is not None and table.fold == "Figures of all 13 nodes"
    assert table.lines[1] == ["n1", "–", "10\N{NO-BREAK SPACE}% (10)", "1.50 GiB"]


def test_an_island_is_summed_up_in_one_line() -> None:
    (island,) = page_details.build_islands(model("gpu64"))
    assert island.summary.replace("\N{NO-BREAK SPACE}", " ") == (
        "lane A; transport rdma_gdr; 318 GB/s bus bandwidth, 86 % of the 370 expected (computed); 64 of 64 ranks; "
        "0 wrong values."
    )
    assert island.causes is not None and island.causes.lines[0][0] == "h100-6"
    assert island.pairs is not None and island.pairs.fold == "Evidence of 28 pairs"


def test_which_gpus_and_rdma_devices_each_node_gave() -> None:
    given = {"gpus": 2, "model": "NVIDIA H100 <b>", "driver": "595.91.07", "rdma": ["mlx5_0", "mlx5_1"]}
    record = {"job": {"gpus_per_node": 2}, "devices": {"a": given, "b": {**given, "rdma": []}, "c": None}}
    table = page_details.build_device_table(build_run_model(RunFolder("r", record)))
    assert table is not None and table.headings == ("Node", "GPUs", "Model", "Driver", "RDMA devices")
    assert table.lines[0] == ["a", "2", "NVIDIA H100 <b>", "595.91.07", "mlx5_0 and mlx5_1"]
    assert table.lines[1][4] == "none" and table.lines[2] == ["c", *["not known"] * 4]
    page = render_html(RunFolder("r", record))
    assert "mlx5_0 and mlx5_1" in page and "NVIDIA H100 &lt;b&gt;" in page and "not known" in page
    old = RunFolder("r", {"job": {"gpus_per_node": 2}, "attempts": [{"n": 1, "nodes": [{"id": "a"}]}]})
    table = page_details.build_device_table(build_run_model(old))
    assert table is not None and table.lines == [["a", *["not known"] * 4]], "the record of an earlier version"
    assert page_details.build_device_table(model("resumed")) is None, "a job without GPUs has no such table"


def test_ranks_that_were_waited_for_are_in_the_page() -> None:
    who = "rank 1 on node-2 stands at train.py:212 (lock), 3 others wait in all_reduce"
    rows = [{"attempt": 1, "since": format_stamp(ZERO + 60.0), "seconds": 45.0, "text": who}]
    rows.append({"attempt": 2, "since": format_stamp(ZERO + 200.0), "seconds": None, "text": "<b>"})
    record = {"submitted_at": format_stamp(ZERO), "outcome": "cancelled", "hangs": rows}
    table = page_details.build_hang_table(build_run_model(RunFolder("r", record)))
    assert table is not None
    assert [line[0] for line in table.lines] == ["1", "2"] and table.lines[0][3] == who
    assert table.lines[1][2] == "to the end of the attempt"
    page = render_html(RunFolder("r", record))
    assert who in page and "&lt;b&gt;" in page and page_details.build_hang_table(model("resumed")) is None
    many = build_run_model(RunFolder("r", {**record, "hangs": rows * 20}))
    assert "30 more are in run.json" in (page_details.build_hang_table(many) or table).caption


def format_stamp(at: float) -> str:
    return datetime.datetime.fromtimestamp(at, datetime.UTC).isoformat()
