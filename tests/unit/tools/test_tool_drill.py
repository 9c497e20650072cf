# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The table that ``make drill`` writes: figures are those of the results, and a failure is shown."""

from __future__ import annotations

import typing as t

from ansible_collections.muster.training.tools import drill

NAMES = {"kill_pod": "a pod is killed", "cut_node": "a node is cut off", "never": "never done"}


def result(kind: str, seconds: float | None, **more: t.Any) -> dict[str, t.Any]:
    values = {"passed": True, "problem": "", "attempts": 2, "steps_lost": 10, "logs_kept": True, "left": []}
    return {
        "kind": kind,
        "seconds_lost": seconds,
        "duration_s": 60.0,
        "at": "2026-11-21T18:00:00Z",
        "notes": [],
        **values,
        **more,
    }


def test_shares_are_values_that_were_seen() -> None:
    values = [5.0, 1.0, None, 4.0, 2.0, 3.0]
    assert [drill.share(values, part) for part in (0.5, 0.95, 1.0)] == [3.0, 5.0, 5.0]
    assert drill.share([None], 0.5) is None and drill.share([7.0], 0.95) == 7.0


def test_the_page_says_how_often_and_what_failed() -> None:
    bad = result("cut_node", None, passed=False, problem="left behind: ranks on `node-1`", left=["x"], logs_kept=False)
    results = [result("kill_pod", float(number)) for number in (8, 9, 10)]
    text = drill.page([*results, bad], NAMES)
    assert "Repetitions of each drill: 1 to 3; 3 of 4 passed; last on 2026-11-21." in " ".join(text.split())
    assert "Not done yet: never done." in " ".join(text.split())
    rows = text.partition("left behind")[2]
    assert (
        "* - a pod is killed\n     - 3 of 3\n     - 10\n     - 10\n     - 10\n     - 9\n     - 10\n     - 10\n" in rows
    )
    assert "- a node is cut off: left behind: ranks on node-1" in text


def test_a_line_tells_a_failure_with_its_problem() -> None:
    line = drill.said(result("kill_pod", None, passed=False, problem="no step", steps_lost=None))
    assert line == "kill_pod: FAIL · 2 attempts · 60 s in all · no step"
