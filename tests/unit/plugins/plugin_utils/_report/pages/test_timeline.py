# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The time line of a run: its phases, its marks and its rows."""

from __future__ import annotations

from ansible_collections.muster.training.plugins.plugin_utils._report.data.load import (
    RunFolder,
    load_run,
    parse_events,
)
from ansible_collections.muster.training.plugins.plugin_utils._report.data.run_model import build_run_model
from ansible_collections.muster.training.plugins.plugin_utils._report.pages.timeline import (
    build_phases,
    marked_events,
    node_rows,
)
from ansible_collections.muster.training.tests.unit.plugins.plugin_utils._report.runs import FIXTURES


def test_the_phases_of_a_resumed_run() -> None:
    found = build_phases(build_run_model(load_run(FIXTURES / "resumed")))
    assert [(bar.kind, bar.label) for bar in found] == [
        *(("wait", ""), ("start", ""), ("train", "1")),
        *(("down", ""), ("start", ""), ("train", "2")),
    ]
    assert all(left.end <= right.start + 1e-9 for left, right in zip(found, found[1:], strict=False))


def test_exits_that_a_cancelled_job_was_asked_for_are_not_marked() -> None:
    assert [event.kind for event in marked_events(build_run_model(load_run(FIXTURES / "cancelled")))] == ["cancelled"]


def test_eventful_nodes_are_shown_first() -> None:
    nodes = [{"id": f"node-{n}"} for n in range(1, 30)]
    events = parse_events([{"at": 1795167003, "kind": "node_lost", "node": "node-27"}])
    run = RunFolder("r", {"attempts": [{"n": 1, "nodes": nodes}]}, events)
    rows = node_rows(build_run_model(run))
    assert len(rows) == 8
    assert "node-27" in rows


def test_a_notice_of_preemption_is_marked_at_its_node() -> None:
    notice = {"at": 1795167003, "kind": "notice", "node": "a", "detail": "it goes"}
    found = marked_events(build_run_model(RunFolder("r", {}, parse_events([notice]))))
    assert [(event.kind, event.node) for event in found] == [("notice", "a")]


def test_ranks_that_were_taken_along_are_not_marked() -> None:
    exits = [{"at": 1795167003 + n, "kind": "worker_exit", "node": "ab"[n], "exit_code": (137, 143)[n]} for n in (0, 1)]
    assert [event.node for event in marked_events(build_run_model(RunFolder("r", {}, parse_events(exits))))] == ["a"]
