# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The model of a run says what its record says, whatever happened in the run."""

from __future__ import annotations

import json
import typing as t

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.module_utils._model.job import parse_job, to_yaml_names
from ansible_collections.muster.training.plugins.module_utils._model.run_history import fold
from ansible_collections.muster.training.plugins.plugin_utils._report.data.load import (
    RunFolder,
    build_run_folder,
)
from ansible_collections.muster.training.plugins.plugin_utils._report.data.run_model import RunModel, build_run_model
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared import run_record
from ansible_collections.muster.training.tests.unit.plugins.plugin_utils._report.runs import case, start, steps

Line = dict[str, t.Any]


JOB = to_yaml_names(parse_job({"name": "x", "script": "/t.py", "nodes": 2}))


ZERO = 1_700_000_000.0


TIMES = st.integers(0, 400).map(lambda tenths: ZERO + tenths / 10)


NODES = st.sampled_from("ab")


EVENTS = st.one_of(
    st.fixed_dictionaries(
        {
            "kind": st.sampled_from(["worker_started", "worker_exit"]),
            "attempt": st.integers(1, 4),
            "rank": st.integers(0, 2),
            "node": NODES,
            "at": TIMES,
        },
        optional={
            "exit_code": st.sampled_from([0, 1, 9, 137, 143]),
            "gang": st.sampled_from(["1/g", "1/h"]),
            "world_size": st.integers(1, 3),
        },
    ),
    st.fixed_dictionaries(
        {"kind": st.sampled_from(["submitted", "drill", "node_lost", "set_back", "cancelled", "ended"]), "at": TIMES},
        optional={"node": NODES, "cause": st.just("preempted"), "attempt": st.integers(1, 3)},
    ),
    st.fixed_dictionaries(
        {"kind": st.just("agent_restart"), "at": TIMES, "node": NODES, "detail": st.just("node_lost")}
    ),
)


METRICS = st.one_of(
    st.fixed_dictionaries({"at": TIMES, "step": st.integers(0, 60), "loss": st.floats(0, 9)}),
    st.fixed_dictionaries({"at": TIMES, "checkpoint_step": st.integers(0, 60), "path": st.just("/c")}),
    st.fixed_dictionaries({"at": TIMES, "resumed_from_step": st.integers(0, 60), "world_size": st.integers(1, 3)}),
)


# What the history of a run fills in; without them the report takes it from the events and the metrics itself.
FOLDED = ("attempts", "steps_lost", "seconds_lost", "first_step_at", "checkpoint")


def record_of(events: list[Line], metrics: list[Line], outcome: str | None) -> Line:
    """Return run.json as a follower of the run writes it."""
    record = run_record.new_record("x-1", JOB, ZERO)
    if outcome:
        record = run_record.end_record(record, ZERO + 60, outcome=outcome, exit_code=0, cause=outcome, detail="")
    updated = run_record.update_record(record, fold(events, metrics), {}, ZERO + 60)
    return t.cast(Line, json.loads(json.dumps(updated.to_dict())))


@given(
    events=st.lists(EVENTS, max_size=20),
    metrics=st.lists(METRICS, max_size=20),
    outcome=st.sampled_from([None, "succeeded", "failed", "cancelled", "lost"]),
    keeps_record=st.booleans(),
)
def test_the_report_says_what_the_record_says(
    events: list[Line], metrics: list[Line], outcome: str | None, keeps_record: bool
) -> None:
    record = record_of(events, metrics, outcome)
    size = record["world_size"]
    kept = record if keeps_record else {**record, **dict.fromkeys(FOLDED), "world_size": {**size, "seen": None}}
    model = build_run_model(build_run_folder("x-1", kept, events, metrics, []))
    if record["attempts"]:
        assert_attempts_agree(model, record["attempts"])
        assert (model.steps_lost, model.ranks_seen) == (record["steps_lost"], size["seen"])
        assert model.seconds_lost == pytest.approx(record["seconds_lost"], abs=0.002)
        assert (model.checkpoint.step if model.checkpoint else None) == (record["checkpoint"] or {}).get("step")
        first = run_record.format_time(model.clock.first_step) if record["first_step_at"] else None
        assert first == record["first_step_at"]
    missing = size["seen"] is not None and size["seen"] < size["asked"]
    if outcome and model.ranks_seen == size["seen"]:
        assert model.outcome == ("failed" if outcome == "succeeded" and missing else outcome)


def assert_attempts_agree(model: RunModel, rows: list[Line]) -> None:
    assert [view.label for view in model.attempts] == [str(row["n"]) for row in rows]
    for view, row in zip(model.attempts, rows, strict=True):
        assert (view.cause, view.node, view.exit_code) == (row["cause"], row["node"], row["exit_code"])
        assert (view.first_step, view.last_step) == (row["first_step"], row["last_step"])
        assert view.resumed_from == row["resumed_from_step"]
        assert run_record.format_time(view.start) == row["started_at"]
        assert row["ended_at"] in (None, run_record.format_time(view.end))
        assert sorted(stay.name for stay in view.nodes) == [node["id"] for node in row["nodes"]]


@pytest.mark.parametrize(("seen", "outcome"), [(4, "succeeded"), (2, "succeeded"), (1, "failed")])
def test_an_elastic_job_may_end_with_fewer_ranks_than_were_asked_for(seen: int, outcome: str) -> None:
    job = {"nodes": 4, "processes_per_node": 1, "elastic": {"min": 2, "max": 4}}
    record = {"outcome": "succeeded", "job": job, "world_size": {"asked": 4, "seen": seen}}
    assert build_run_model(RunFolder("r", record)).outcome == outcome


def test_fewer_ranks_than_asked_is_failed_whatever_the_record_says() -> None:
    found = case([], outcome="succeeded", world_size={"asked": 4, "seen": 3})
    assert found.outcome == "failed"


def test_the_smallest_world_size_seen_counts() -> None:
    found = case([start(0, 0, 4), *steps(1, 1, 3), start(5, 0, 3)], derived={"world_size": 4}, outcome="succeeded")
    assert (found.ranks_asked, found.ranks_seen, found.outcome) == (4, 3, "failed")


@pytest.mark.parametrize(
    ("record", "loopback"),
    [({"derived": {"connection": "local"}}, True), ({"derived": {"connection": "ssh"}}, False), ({}, False)],
)
def test_loopback_is_known_from_the_connection(record: Line, loopback: bool) -> None:
    assert case([], **record).loopback is loopback


def test_loopback_is_known_from_the_fabric() -> None:
    run = RunFolder("r", {}, fabric={"islands": [{"island": "x", "link": "loopback"}]})
    assert build_run_model(run).loopback
