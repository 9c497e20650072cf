# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""report.json: the run as values for machines."""

from __future__ import annotations

import dataclasses
import json
import typing as t

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.plugin_utils._report.data.load import (
    RunFolder,
)
from ansible_collections.muster.training.plugins.plugin_utils._report.rules.summary import build_report
from ansible_collections.muster.training.tests.unit.plugins.plugin_utils._report.runs import (
    ANYTHING,
    FIXTURES,
    NAMES,
    damage,
    run,
    suite,
)


@given(st.dictionaries(st.sampled_from(list(json.loads((FIXTURES / "nulls" / "run.json").read_text()))), ANYTHING))
def test_any_record_can_be_summarised(record: dict[str, t.Any]) -> None:
    found = RunFolder("r", record, fabric=record)
    json.dumps(build_report(found), allow_nan=False).encode()
    suite(found)


@given(st.data())
def test_any_damage_to_a_real_record_can_be_summarised(data: st.DataObject) -> None:
    found = run("gpu64")
    record, fabric = json.loads(json.dumps(found.record)), json.loads(json.dumps(found.fabric))
    for root in (record, fabric):
        damage(root, data)
    json.dumps(
        build_report(dataclasses.replace(found, record=record, fabric=fabric, usage=())), allow_nan=False
    ).encode()


@pytest.mark.parametrize("name", NAMES)
def test_the_summary_holds_its_keys(name: str) -> None:
    found = build_report(run(name))
    assert set(found) == {
        *("schema", "run_id", "name", "outcome", "verdict", "measured_on_loopback", "cpu_only", "job", "figures"),
        *("devices", "attempts", "faults", "checks", "fabric", "cost", "account", "hangs", "next", "notes", "site"),
    }
    assert found["schema"] == 1


def test_the_figures_of_a_resumed_run() -> None:
    figures = build_report(run("resumed"))["figures"]
    expected = {
        "last_step": 300,
        "steps_lost": 17,
        "restarts": 1,
        "faults_proven": 1,
        "ranks_seen": 2,
        "checkpoint_step": 300,
        "checkpoint_interval_steps": 20,
        "throughput_unit": "tokens_per_s",
        "start_to_first_step_s": 4.9,
    }
    assert {key: figures[key] for key in expected} == expected
    assert figures["final_loss"] < figures["first_loss"]


def test_no_environment_value_reaches_the_summary() -> None:
    found = run("resumed")
    job = {**found.record["job"], "env": {"WANDB_API_KEY": "do-not-show"}}
    assert "do-not-show" not in json.dumps(
        build_report(dataclasses.replace(found, record={**found.record, "job": job}))
    )


def test_a_start_of_which_no_rank_was_seen_counts_as_a_restart() -> None:
    """A node can be lost before its pod's program starts; the next attempt's number tells of it."""
    second = RunFolder("r", {"submitted_at": 1795167000, "attempts": [{"n": 2, "started_at": 1795167001}]}, ())
    assert build_report(second)["figures"]["restarts"] == 1


def test_what_a_node_gave_is_in_the_summary_and_what_is_not_known_is_null() -> None:
    given = {"gpus": 8, "model": "NVIDIA H100 80GB HBM3", "driver": "595.91.07", "rdma": ["mlx5_0"]}
    record = {"job": {"gpus_per_node": 8}, "devices": {"b": None, "a": given, "c": {"gpus": "many", "rdma": 5}}}
    found = build_report(dataclasses.replace(run("nulls"), record=record))["devices"]
    unknown = dict.fromkeys(("gpus", "model", "driver", "rdma"))
    assert found == [{"node": "a", **given}, {"node": "b", **unknown}, {"node": "c", **unknown}]
    on_cpus = {**record, "job": {"gpus_per_node": 0}}
    assert build_report(dataclasses.replace(run("nulls"), record=on_cpus))["devices"] == []


def test_the_report_names_the_template_and_not_its_answers() -> None:
    template = {"name": "ours", "version": "1", "digest": "d", "inputs": {"note": "s3cret"}}
    job = t.cast("dict[str, t.Any]", build_report(RunFolder("r", {"catalogue_template": template}))["job"])
    assert job["catalogue_template"] == {"name": "ours", "version": "1", "digest": "d"}
    assert build_report(RunFolder("r", {}))["job"]["catalogue_template"] is None  # type: ignore[index]
