# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""JobSet: the gang fails and restarts as a whole, with separate budgets for crashes and lost nodes."""

from __future__ import annotations

import dataclasses
import json
import re
import typing as t

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._kube.jobs import (
    registry,
)
from ansible_collections.muster.training.tests.unit.plugins.plugin_utils._kube.jobs.plans import (
    build,
    plan,
)


def test_a_jobsets_gang_fails_and_starts_as_a_whole_with_two_budgets() -> None:
    restart = {"fatal_exit_codes": [65, 3], "max_crashes": 2, "max_lost_nodes": 4}
    spec = build(restart=restart, nodes=4)[-1]["spec"]
    job = spec["replicatedJobs"][0]["template"]["spec"]
    assert (job["completions"], job["parallelism"], job["backoffLimit"]) == (4, 4, 0)
    assert job["completionMode"] == "Indexed" and job["podReplacementPolicy"] == "Failed"
    rules = job["podFailurePolicy"]["rules"]
    assert rules[0]["onExitCodes"]["values"] == [3, 65, 78] and {rule["action"] for rule in rules} == {"FailJob"}
    assert rules[1]["onPodConditions"] == [{"type": "DisruptionTarget", "status": "True"}]
    policy = spec["failurePolicy"]
    # A lost node that is noticed after the errors of ranks elsewhere is counted, and takes no crash of the job.
    assert policy["maxRestarts"] == 6
    assert [(rule["name"], rule["action"]) for rule in policy["rules"]] == [
        ("fatal", "FailJobSet"),
        ("lost", "RestartJobSetAndIgnoreMaxRestarts"),
        ("deadline", "FailJobSet"),
    ]
    # What the Job controller writes, of which only the second is a lost node.
    fatal = "Container node for pod t/x failed with exit code 3 matching FailJob rule at index 0"
    lost = "Pod t/x has condition DisruptionTarget matching FailJob rule at index 1"
    pattern = policy["rules"][0]["onJobFailureMessagePatterns"][0]
    assert re.search(pattern, fatal) and not re.search(pattern, lost)


def test_where_nobody_counts_lost_nodes_both_budgets_are_one() -> None:
    """A JobSet bounds only what it counts: it would restart without end."""
    wanted = plan(restart={"max_crashes": 2, "max_lost_nodes": 5})
    policy = registry.build(dataclasses.replace(wanted, followed=False))[-1]["spec"]["failurePolicy"]
    assert policy["maxRestarts"] == 7
    assert [rule["action"] for rule in policy["rules"]] == ["FailJobSet", "RestartJobSet", "FailJobSet"]
    none = plan(restart={"max_crashes": 2, "max_lost_nodes": 5, "on_lost_node": "fail"})
    policy = registry.build(dataclasses.replace(none, followed=False))[-1]["spec"]["failurePolicy"]
    assert (policy["maxRestarts"], policy["rules"][1]["action"]) == (2, "FailJobSet")


@pytest.mark.parametrize("restart", [{"max_lost_nodes": 0}, {"on_lost_node": "fail"}])
def test_a_lost_node_ends_a_jobset_that_may_lose_none(restart: dict[str, t.Any]) -> None:
    rules = build(restart=restart)[-1]["spec"]["failurePolicy"]["rules"]
    assert {rule["action"] for rule in rules} == {"FailJobSet"}


@pytest.mark.parametrize("engine", ["jobset", "indexed_job"])
def test_an_elastic_gang_lets_single_pods_come_and_go(engine: str) -> None:
    restart = {"max_crashes": 1, "max_lost_nodes": 2}
    objects = build(nodes=4, elastic={"min": 2}, restart=restart, placement={"engine": engine})
    job = objects[-1]["spec"]
    job = job["replicatedJobs"][0]["template"]["spec"] if engine == "jobset" else job
    assert job["backoffLimit"] == 3 and job["successPolicy"] == {"rules": [{"succeededCount": 2}]}
    assert job["podFailurePolicy"]["rules"][1]["action"] == "Ignore"
    told = json.loads(objects[0]["data"]["node.json"])
    assert told["elastic"] and told["env"]["PET_NNODES"] == "2:4" and "is_host={first}" in told["env"]["PET_RDZV_CONF"]
