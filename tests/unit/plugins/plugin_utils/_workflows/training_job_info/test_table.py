# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The table of runs: what it shows of a success, a failure, a run that works and one whose host is silent."""

from __future__ import annotations

import json
import pathlib
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError
from ansible_collections.muster.training.plugins.module_utils._model.job import parse_job, to_yaml_names
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared import run_record
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job_info import table

NOW = 100_000.0


def record(run_id: str, **values: t.Any) -> dict[str, t.Any]:
    job = to_yaml_names(parse_job({"name": "net", "script": "/t.py", "nodes": 2}))
    return {**run_record.new_record(run_id, job, NOW - 90).to_dict(), "attempts": [], **values}


def test_one_line_for_each_run(tmp_path: pathlib.Path) -> None:
    with open(tmp_path / "metrics.jsonl", "w") as handle:
        for line in ({"step": 1, "loss": 3.0}, {"step": 2, "loss": 1.23456}, {"checkpoint_step": 2}):
            handle.write(json.dumps(line) + "\n")
        handle.write('{"torn')
    attempts = [{"last_step": 5, "nodes": []}, {"last_step": None, "nodes": []}]
    ended = {"state": "ended", "ended_at": "1970-01-02T03:46:00+00:00"}
    spent = {"seconds": {"useful": 30.0, "start": 10.0}}
    rows = table.build_table(
        [
            (record("net-1", attempts=attempts, hosts=["a", "b"], live={"unreachable": {"b": "x"}}), tmp_path),
            (record("net-2", outcome="failed", cause="crash", detail="word " * 120, **ended), tmp_path / "none"),
            (record("net-3", outcome="succeeded", hosts=list("abcd"), account=spent, **ended), tmp_path / "none"),
        ],
        NOW,
    )
    assert rows[0].split() == ["run", "state", "step", "loss", "age", "duration", "useful", "nodes", "why"]
    assert rows[1].split() == [
        "net-1",
        "starting",
        "5",
        "1.235",
        "2",
        "min",
        "2",
        "min",
        "-",
        "a,b",
        "no",
        "answer",
        "from",
        "b",
    ]
    assert rows[2].split()[:10] == ["net-2", "failed", "-", "-", "2", "min", "50", "s", "-", "2"] and rows[2].endswith(
        "word…"
    )
    assert "crash: word" in rows[2] and len(rows[2]) < 280
    assert rows[3].split() == ["net-3", "succeeded", "-", "-", "2", "min", "50", "s", "75%", "4:", "a", "…", "d", "-"]


def test_a_run_that_another_controller_holds_is_not_said_to_be_running_here(tmp_path: pathlib.Path) -> None:
    taken = {"by": "she@there", "at": "2026-11-30T02:55:41.000+00:00"}
    lines = table.build_table([(record("r-1", state="running", taken_over=taken), tmp_path)], 2e9)
    words = (
        "she@there has held it since 2026-11-30 02:55 UTC: it is followed there; what is shown is as it was last read"
    )
    assert "taken over" in lines[1] and "running" not in lines[1] and words in lines[1]
    over = record("r-1", state="ended", outcome="cancelled", taken_over=taken, ended_at=taken["at"])
    assert "taken over" not in table.build_table([(over, tmp_path)], 2e9)[1]


def test_a_run_that_stands_is_named(tmp_path: pathlib.Path) -> None:
    stood = "no step for 9 min, a step usually takes 0.1 s"
    assert table.build_table([(record("net-1", live={"stalled": stood, "unreachable": {}}), tmp_path)], NOW)[
        1
    ].endswith(stood)


def test_a_loss_that_is_not_a_number_is_shown(tmp_path: pathlib.Path) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"step": 1, "loss": NaN}\n')
    row = record("net-1", attempts=[{"last_step": 1, "nodes": []}])
    assert table.build_table([(row, tmp_path)], NOW)[1].split()[3] == "nan"


def test_the_loss_that_is_shown_is_that_of_the_step_that_is_shown(tmp_path: pathlib.Path) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"step": 2, "loss": 5.0}\n{"step": 3, "loss": 3.333}\n')
    for last, shown in ((2, ["2", "5"]), (3, ["3", "3.333"]), (None, ["-", "-"])):
        row = record("net-1", attempts=[{"last_step": last, "nodes": []}])
        assert table.build_table([(row, tmp_path)], NOW)[1].split()[2:4] == shown


def test_queries() -> None:
    assert table.search("a[?b > `1`].b", {"a": [{"b": 1}, {"b": 2}]}) == [2]
    with pytest.raises(InputError, match="query: is not a JMESPath expression"):
        table.search("a[", {})


def test_the_loss_of_an_ended_run_is_that_of_its_last_step_although_an_older_one_was_read_late(
    tmp_path: pathlib.Path,
) -> None:
    lines = ({"at": 9.0, "step": 250, "loss": 0.25}, {"at": 2.0, "step": 22, "loss": 0.64})
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    ended = {"state": "ended", "ended_at": "1970-01-02T03:46:00+00:00"}
    entry = record("net-4", outcome="succeeded", attempts=[{"last_step": 250, "nodes": []}], **ended)
    assert table.build_table([(entry, tmp_path)], NOW)[1].split()[2:4] == ["250", "0.25"]


def test_the_template_has_a_column_where_a_run_is_of_one(tmp_path: pathlib.Path) -> None:
    of_one = record("net-1", catalogue_template={"name": "ours", "version": "1.2.0", "digest": "0123456789abcdef" * 4})
    rows = table.build_table([(of_one, tmp_path), (record("net-2"), tmp_path)], NOW)
    assert rows[0].split()[-3:] == ["nodes", "template", "why"]
    assert "ours 1.2.0 (0123456789ab)  -" in rows[1] and rows[2].split()[-3:] == ["2", "-", "-"]
    assert "template" not in table.build_table([(record("net-2"), tmp_path)], NOW)[0]
