# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The run record as a value: what is read is written back, and a damaged one is refused."""

from __future__ import annotations

import json
import pathlib
import typing as t

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError
from ansible_collections.muster.training.plugins.module_utils._model.run_record import (
    BackendRef,
    RunAttempt,
    RunCost,
    RunNode,
    RunRecord,
    SavedCheckpoint,
    WorldSize,
    release_outcome,
)

FIXTURES = sorted((pathlib.Path(__file__).resolve().parents[4] / "fixtures").rglob("run.json"))
FIELDS = {"schema": 1, "run_id": "x-1", "job": {"name": "x"}, "state": "starting", "submitted_at": "2026-11-20T09:30"}

_texts = st.text(max_size=8)
_some = st.none() | _texts
_counts = st.integers(0, 2**31 - 1)
_steps = st.none() | st.integers(-(2**53), 2**53)
_dollars = st.none() | st.floats(0, 1e9)
_extra = st.dictionaries(st.sampled_from(["later", "other"]), st.integers() | _texts, max_size=2)
_nodes = st.builds(RunNode, _texts, _some, _some, _some, _dollars, extra=_extra)
_attempts = st.builds(
    RunAttempt,
    _counts,
    cause=_some,
    exit_code=st.none() | st.integers(-255, 255),
    first_step=_steps,
    ranks=st.none() | _counts,
    rank_list=st.lists(_counts, max_size=3).map(tuple),
    nodes=st.lists(_nodes, max_size=2).map(tuple),
    logs=st.lists(_texts, max_size=2).map(tuple),
    extra=_extra,
)
_refs = st.builds(BackendRef, _texts, _texts, _texts, _texts, _some, _some, _some, extra=_extra)
_records = st.builds(
    RunRecord,
    st.integers(1, 3),
    st.sampled_from(["x-1", "y"]),
    st.fixed_dictionaries({"name": st.just("x")}),
    st.sampled_from(["queued", "starting", "running", "restarting", "ended"]),
    st.just("2026-11-20T09:30:00.000+00:00"),
    backend_ref=st.none() | _refs,
    outcome=st.sampled_from([None, "succeeded", "failed", "cancelled", "lost"]),
    exit_code=st.none() | st.integers(-255, 255),
    detail=_some,
    attempts=st.lists(_attempts, max_size=3).map(tuple),
    world_size=st.builds(WorldSize, st.none() | _counts, st.none() | _counts, extra=_extra),
    checkpoint=st.none() | st.builds(SavedCheckpoint, _steps, _some, extra=_extra),
    cost=st.builds(RunCost, _dollars, st.booleans(), extra=_extra),
    hosts=st.lists(_texts, max_size=2).map(tuple),
    generation=_counts,
    drill=st.none() | st.just({"resumed": True}),
    extra=_extra,
)


@given(record=_records)
def test_what_is_written_is_read_back(record: RunRecord) -> None:
    assert RunRecord.from_dict(json.loads(json.dumps(record.to_dict()))) == record


@pytest.mark.parametrize("path", FIXTURES, ids=lambda path: path.parent.name)
def test_recorded_runs_load_and_keep_their_values(path: pathlib.Path) -> None:
    values = json.loads(path.read_text())
    if values["run_id"] is None:
        with pytest.raises(InputError, match=r"^run\.schema: is required"):
            RunRecord.from_dict(values)
        return
    written = RunRecord.from_dict(values).to_dict()
    assert {key: written[key] for key in values if key != "attempts"} == {
        key: value for key, value in values.items() if key != "attempts"
    }
    for old, new in zip(values["attempts"], written["attempts"], strict=True):
        assert {key: new[key] for key in old} == old


def test_there_are_recorded_runs() -> None:
    assert len(FIXTURES) >= 6


def test_keys_of_another_version_survive() -> None:
    values = {**FIELDS, "later": {"a": [1]}, "attempts": [{"n": 1, "beside": 2, "nodes": [{"id": "a", "zone": "b"}]}]}
    written = RunRecord.from_dict(values).to_dict()
    assert written["later"] == {"a": [1]} and written["attempts"][0]["beside"] == 2
    assert written["attempts"][0]["nodes"][0]["zone"] == "b"


@pytest.mark.parametrize(
    ("changes", "option"),
    [
        ({"state": "gone"}, "run.state"),
        ({"run_id": None}, "run.run_id"),
        ({"job": []}, "run.job"),
        ({"attempts": {}}, "run.attempts"),
        ({"attempts": [{}]}, "run.attempts[0].n"),
        ({"attempts": [{"n": 1, "nodes": [{"id": 3}]}]}, "run.attempts[0].nodes[0].id"),
        ({"cost": {"usd": "much"}}, "run.cost.usd"),
        ({"backend_ref": {"kind": "JobSet"}}, "run.backend_ref.api_version"),
        ({"outcome": "won"}, "run.outcome"),
    ],
)
def test_a_damaged_record_names_its_field(changes: dict[str, t.Any], option: str) -> None:
    with pytest.raises(InputError) as caught:
        RunRecord.from_dict({**FIELDS, **changes})
    assert caught.value.option == option


@given(value=st.recursive(st.none() | st.booleans() | st.floats() | st.text(), lambda s: st.lists(s)))
def test_any_value_is_a_record_or_refused(value: t.Any) -> None:
    with pytest.raises(InputError):
        RunRecord.from_dict(value)


def test_the_numbers_of_a_new_start_follow_all_former_ones() -> None:
    record = RunRecord.from_dict({**FIELDS, "generation": 2, "attempts": [{"n": 4}]})
    assert record.last_attempt == 4 and not record.is_ended
    assert RunRecord.from_dict(FIELDS).last_attempt == 1


def test_the_hosts_of_a_run_are_the_present_ones_and_then_the_former() -> None:
    attempts = [{"n": 1, "nodes": [{"id": "b"}, {"id": "c"}]}]
    record = RunRecord.from_dict({**FIELDS, "hosts": ["a", "b"], "attempts": attempts})
    assert record.node_names == ("a", "b", "c")


def test_the_kind_of_an_object_with_its_version() -> None:
    assert BackendRef("jobset.x-k8s.io/v1alpha2", "JobSet", "r", "n").kind_name == "jobset.x-k8s.io/v1alpha2/JobSet"


@pytest.mark.parametrize(
    ("backend", "outcome", "unstored", "released"),
    [
        ("hosts", "succeeded", "checkpoint 9 is not stored", "unstored"),
        ("hosts", "succeeded", None, "succeeded"),
        ("hosts", "failed", "checkpoint 9 is not stored", "failed"),
        # What was in its pods is gone with them.
        ("kubernetes", "succeeded", "checkpoint 9 is not stored", "succeeded"),
        ("hosts", None, None, None),
    ],
)
def test_machines_that_have_the_only_copy_are_not_released_by_a_success(
    backend: str, outcome: str | None, unstored: str | None, released: str | None
) -> None:
    assert release_outcome({"backend": backend, "outcome": outcome, "unstored": unstored}) == released
