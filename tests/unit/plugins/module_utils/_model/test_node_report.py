# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a node reports, read from the agent's own answer."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import sys

import pytest

from ansible_collections.muster.training.plugins.module_utils._model import node_report
from ansible_collections.muster.training.plugins.module_utils._model.node_report import NodeReport
from ansible_collections.muster.training.plugins.module_utils._node import host_agent

FULL = {
    "state": {"path": "/s", "exists": True, "problem": None, "free_bytes": 9},
    "training": {"executable": "/py", "version": "3.12.1", "packages": {"torch": None}, "problem": None},
    "syntax": None,
    "reserved": "",
    "claim": {"owner": "me", "controller": "here", "gpus": 8},
    "units": {"agent": {"alive": False, "exit": {"cause": "crash", "exit_code": 3, "at": 1.5, "generation": 2}}},
    "live_runs": [{"run_id": "r", "gpus": 8}],
    "ports": {"1": None, "2": {"address": "10.0.0.1", "reason": "taken", "cause": "port"}},
    "paths": {"/c": {"path": "/c", "exists": False, "problem": "is full", "free_bytes": 0}},
    "checkpoint": {"folder": "/c", "name": None},
    "addresses": {"lan": ["10.0.0.1"]},
    "unknown": 1,
}


def test_a_report_has_what_was_answered() -> None:
    report = NodeReport.from_dict(FULL)
    assert (report.syntax, report.reserved, report.packages) == ("", "", {"torch": None})
    assert report.agent.end == node_report.UnitEnd("crash", 2, 3, 1.5) and not report.is_running
    assert report.claim == node_report.RunOwner("me", "here") and report.live_runs == (node_report.LiveRun("r", 8),)
    assert report.ports == {"1": None, "2": node_report.PortProblem("10.0.0.1", "taken")}
    assert report.paths["/c"].problem == "is full" and report.state.free_bytes == 9
    with pytest.raises(dataclasses.FrozenInstanceError):
        report.user = "x"  # type: ignore[misc]


def test_what_was_not_asked_for_is_not_there() -> None:
    report = NodeReport.from_dict({})
    assert (report.syntax, report.reserved, report.training, report.claim, report.checkpoint) == (None,) * 5
    assert report.agent == node_report.UnitReport() and report.packages == {}


@pytest.mark.parametrize(
    ("answer", "is_lost"), [({"alive": True}, False), ({"alive": False, "exit": {"cause": "crash"}}, False), ({}, True)]
)
def test_a_unit_is_lost_when_its_supervisor_left_no_end(answer: dict[str, object], is_lost: bool) -> None:
    assert node_report.UnitReport.from_dict(answer).is_lost is is_lost


def test_the_answer_of_an_agent_is_read(tmp_path: pathlib.Path) -> None:
    asked = {"python": sys.executable, "packages": ["pytest"], "script": ["t.py", "("], "paths": [str(tmp_path)]}
    request = {"op": "info", "node": "a", "state_root": str(tmp_path), "run_id": "r", **asked}
    answer = json.loads(json.dumps(host_agent.answer_request(request)))
    report = NodeReport.from_dict(answer)
    assert report.training and report.training.executable == sys.executable and report.packages["pytest"]
    assert report.syntax and report.syntax.startswith("t.py, line 1") and report.reserved is None
    assert report.state_dir == str(tmp_path / "a") and report.paths[str(tmp_path)].problem is None
