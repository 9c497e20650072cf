# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What counts as a proof of the resume: the verdict of a drill is that of the report, on the folder that a run left."""

from __future__ import annotations

import json
import pathlib
import typing as t

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.module_utils._model import run_history
from ansible_collections.muster.training.plugins.module_utils._model.job import parse_job, to_yaml_names
from ansible_collections.muster.training.plugins.plugin_utils._report.data.drills import judge_cut, judge_drill
from ansible_collections.muster.training.plugins.plugin_utils._report.data.load import load_run
from ansible_collections.muster.training.plugins.plugin_utils._report.data.run_model import build_run_model
from ansible_collections.muster.training.plugins.plugin_utils._report.rules.checks import build_checks
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared import run_record

NODES = ("a", "b")
T0 = 1_700_000_000.0
FAULT = T0 + 100


def left(
    folder: pathlib.Path,
    before: range,
    after: range | None,
    resumed_from: int | None,
    ranks: int = 4,
    interval: int | None = 10,
) -> pathlib.Path:
    """Write the folder of a run of four ranks with a drill at 100 s; the new attempt's first step is at 110 s."""
    events: list[dict[str, t.Any]] = [
        {"kind": "worker_started", "attempt": 1, "rank": rank, "node": NODES[rank // 2], "at": T0 + 10, "world_size": 4}
        for rank in range(4)
    ]
    metrics: list[dict[str, t.Any]] = [{"at": T0 + 20 + step, "step": step} for step in before]
    events.append({"kind": "drill", "at": FAULT, "node": "b"})
    for rank in range(ranks if after is not None else 0):
        values = {"attempt": 2, "rank": rank, "node": NODES[rank // 2], "at": T0 + 105, "world_size": ranks}
        events.append({"kind": "worker_started", **values})
    if resumed_from is not None:
        metrics.append({"at": T0 + 106, "resumed_from_step": resumed_from})
    metrics += [{"at": T0 + 110 + index, "step": step} for index, step in enumerate(after or ())]
    for name, lines in (("events", events), ("metrics", metrics)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    job = parse_job(
        {
            "name": "x",
            "script": "/t.py",
            "nodes": 2,
            "processes_per_node": 2,
            "checkpoints": {"interval_steps": interval},
        }
        if interval
        else {"name": "x", "script": "/t.py", "nodes": 2, "processes_per_node": 2}
    )
    story = run_history.fold(events, metrics)
    record = run_record.update_record(
        run_record.new_record("x-1", to_yaml_names(job), T0), story, {"a": 0.0, "b": 0.0}, T0 + 200
    )
    run_record.write_record(folder, run_record.end_record(record, T0 + 200, outcome="succeeded", exit_code=0))
    return folder


def test_a_step_counter_that_continues_a_recent_checkpoint_is_the_proof(tmp_path: pathlib.Path) -> None:
    assert judge_drill(left(tmp_path, range(1, 58), range(51, 60), 50), FAULT) == {
        "resumed": True,
        "steps_lost": 7,
        "seconds_to_resume": 10.0,
        "world_size": 4,
        "problem": "",
    }


def test_the_declared_interval_is_the_proof_for_a_program_that_only_prints(tmp_path: pathlib.Path) -> None:
    """Killed at step 51 and continued at 40, with a checkpoint every twenty steps."""
    found = judge_drill(left(tmp_path, range(1, 52), range(40, 60), None, interval=20), FAULT)
    assert (found["resumed"], found["steps_lost"], found["world_size"]) == (True, 12, 4)


@pytest.mark.parametrize(
    ("after", "resumed_from", "ranks", "interval", "problem"),
    [
        (None, None, 4, 10, "no attempt followed the fault"),
        (range(0), 50, 4, 10, "no step followed the restart"),
        (range(51, 60), None, 4, None, "the program did not say from which step it resumed"),
        (range(45, 60), None, 4, 10, "13 steps were repeated, the checkpoint interval is 10"),
        (range(58, 60), 50, 4, 10, "the first step afterwards is 58"),
        (range(49, 60), 50, 4, 10, "the first step afterwards is 49"),
        (range(1, 60), 0, 4, 10, "did not resume"),
        (range(1, 60), None, 4, 10, "did not resume: it began at step 1"),
        (range(41, 60), 40, 4, 10, "17 steps were lost, the checkpoint interval is 10"),
        (range(51, 60), 50, 3, 10, "world size changed from 4 to 3"),
        (range(1, 60), 0, 4, None, "no checkpoint had been saved before it"),
    ],
)
def test_what_is_no_proof(
    tmp_path: pathlib.Path,
    after: range | None,
    resumed_from: int | None,
    ranks: int,
    interval: int | None,
    problem: str,
) -> None:
    found = judge_drill(left(tmp_path, range(1, 58), after, resumed_from, ranks, interval), FAULT)
    assert found["resumed"] is False and problem in found["problem"], found


STORIES = st.tuples(
    st.integers(0, 60).map(lambda last: range(1, last + 1)),
    st.none() | st.tuples(st.integers(0, 80), st.integers(0, 5)).map(lambda pair: range(pair[0], sum(pair))),
    st.none() | st.integers(0, 80),
    st.integers(0, 4),
    st.none() | st.integers(1, 20),
)


@given(told=STORIES)
def test_the_play_and_the_report_say_the_same(
    told: tuple[t.Any, ...], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = left(tmp_path_factory.getbasetemp(), *told)
    found = judge_drill(folder, FAULT)
    assert found["resumed"] is (not found["problem"])
    checks = {check.name: check for check in build_checks(build_run_model(load_run(folder)))}
    if "resume-1" in checks:
        assert (checks["resume-1"].status == "passed") is found["resumed"]
    if found["resumed"]:
        before, after, resumed, ranks, interval = told
        assert ranks == 4 and after and (resumed is None or after[0] - resumed in (0, 1))
        assert interval is None or before[-1] - (after[0] if resumed is None else resumed) <= interval


def cut_folder(folder: pathlib.Path, last: int, silent: bool) -> pathlib.Path:
    """Write the folder of a run whose node was cut off at 100 s for 60 s; it makes a step a second from 20 s on."""
    left(folder, range(last), None, None)
    events = folder / "events.jsonl"
    lines = [line for line in events.read_text().splitlines() if '"drill"' not in line]
    lines.append(json.dumps({"kind": "cut", "at": FAULT, "node": "b"}))
    if silent:
        lines.append(json.dumps({"kind": "node_silent", "at": FAULT + 26.5, "node": "b"}))
    events.write_text("\n".join(lines) + "\n")
    return folder


@pytest.mark.parametrize("silent", [True, False])
def test_a_cut_is_proven_by_steps_after_the_link_is_back(tmp_path: pathlib.Path, silent: bool) -> None:
    proof = judge_cut(cut_folder(tmp_path, 200, silent), FAULT, 60)
    assert (proof["resumed"], proof["problem"], proof["steps_lost"], proof["world_size"]) == (True, "", 0, 4)
    assert proof["seconds_to_notice"] == (26.5 if silent else None) and 60 < proof["seconds_to_resume"] <= 62


def test_a_cut_after_which_no_step_came_is_not_proven(tmp_path: pathlib.Path) -> None:
    proof = judge_cut(cut_folder(tmp_path, 100, True), FAULT, 60)
    assert proof["resumed"] is False and proof["problem"] == "no step followed when the link was back"


def test_a_cut_that_cost_a_restart_is_judged_as_one(tmp_path: pathlib.Path) -> None:
    proof = judge_cut(left(tmp_path, range(60), range(41, 60), 40), FAULT, 60)
    assert {**proof, "seconds_to_notice": None} == {**judge_drill(tmp_path, FAULT), "seconds_to_notice": None}
