# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The checks of a run."""

from __future__ import annotations

import dataclasses

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._report.data.load import (
    RunFolder,
)
from ansible_collections.muster.training.plugins.plugin_utils._report.rules.summary import build_report
from ansible_collections.muster.training.tests.unit.plugins.plugin_utils._report.runs import run, statuses


def test_the_checks_of_a_resumed_run() -> None:
    assert statuses(run("resumed")) == {
        "outcome": "passed",
        "attendance": "passed",
        "resume-1": "passed",
        "steps-lost-1": "passed",
        "fabric-local": "passed",
    }


def test_the_checks_of_a_record_of_nothing() -> None:
    assert statuses(run("nulls")) == {"outcome": "unproven", "attendance": "unproven", "fabric": "skipped"}


def test_more_steps_lost_than_an_interval_fails() -> None:
    found = run("resumed")
    job = {**found.record["job"], "checkpoints": {"interval_steps": 10}}
    changed = dataclasses.replace(found, record={**found.record, "job": job})
    assert statuses(changed)["steps-lost-1"] == "failed"
    assert any("more than the 10 between checkpoints" in item["text"] for item in build_report(changed)["next"])


@pytest.mark.parametrize(
    ("outcome", "status"),
    [("pass", "passed"), ("warn", "passed"), ("fail", "failed"), ("unproven", "unproven"), (None, "unproven")],
)
def test_the_fabric_verdict_is_a_check(outcome: str | None, status: str) -> None:
    found = RunFolder("r", {}, fabric={"islands": [{"island": "a", "outcome": outcome}]})
    assert statuses(found)["fabric-a"] == status


def test_a_fabric_file_with_one_bare_verdict_is_understood() -> None:
    assert statuses(RunFolder("r", {}, fabric={"island": "a", "outcome": "pass"}))["fabric-a"] == "passed"


def test_a_network_that_is_not_the_tested_one_is_a_failed_check() -> None:
    seen = {"verdict": "tcp", "drift": ["the run's collectives use tcp"]}
    assert statuses(RunFolder("r", {"transport": seen}))["transport"] == "failed"
    assert statuses(RunFolder("r", {"transport": {**seen, "drift": []}}))["transport"] == "passed"
    assert "transport" not in statuses(RunFolder("r", {"transport": {"verdict": "unproven", "drift": "foreign"}}))


def test_different_images_are_a_failed_check() -> None:
    assert statuses(RunFolder("r", {"differences": ["image differs between nodes: …"]}))["software"] == "failed"
    assert "software" not in statuses(RunFolder("r", {"differences": []}))


def test_pods_that_shared_machines_are_named_and_prove_no_network() -> None:
    """In the headline, the job's table, the checks and report.json."""
    found = run("resumed")
    changed = dataclasses.replace(found, record={**found.record, "sharing": "2 pods on 1 machine"})
    assert statuses(changed)["machines"] == "unproven"
    report = build_report(changed)
    verdict: dict[str, str] = dict(report["verdict"])
    assert (
        "in 2 pods on 1 machine trained to step" in verdict["sentence"] and " nodes trained" not in verdict["sentence"]
    )
    assert report["job"]["sharing"] == "2 pods on 1 machine"


@pytest.mark.parametrize(
    ("places", "sharing", "status"),
    [
        (["a"], "2 pods on 1 machine", "unproven"),
        (["a"], None, "skipped"),
        (["a", "b"], None, "passed"),
        (["a", "b"], "4 pods on 2 machines", "passed"),
        ([], None, "passed"),
    ],
)
def test_a_tested_network_proves_nothing_of_a_run_that_did_not_use_it(
    places: list[str], sharing: str | None, status: str
) -> None:
    record = {"attempts": [{"n": 1, "nodes": [{"name": name} for name in places]}], "sharing": sharing}
    found = RunFolder("r", record, fabric={"islands": [{"island": "i", "outcome": "pass"}]})
    assert statuses(found)["fabric-i"] == status
    (message,) = [check["message"] for check in build_report(found)["checks"] if check["name"] == "fabric-i"]
    assert ("used no network" in message) == (status != "passed")
