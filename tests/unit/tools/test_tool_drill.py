# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The table that ``make drill`` writes: figures are those of the results, and a failure is shown."""

from __future__ import annotations

import contextlib
import pathlib
import types
import typing as t

import pytest

from ansible_collections.muster.training.tests.lab import kube_drill_proof, kube_drills
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
    assert "Not done this time: never done." in " ".join(text.split())
    assert "With one repetition p50, p95 and max are the same figure." in " ".join(text.split())
    assert "With one repetition" not in " ".join(drill.page(results, NAMES).split())
    rows = text.partition("left behind")[2]
    assert (
        "* - a pod is killed\n     - 3 of 3\n     - 10\n     - 10\n     - 10\n     - 9\n     - 10\n     - 10\n" in rows
    )
    assert "- a node is cut off: left behind: ranks on node-1" in text


def test_a_line_tells_a_failure_with_its_problem() -> None:
    line = drill.said(result("kill_pod", None, passed=False, problem="no step", steps_lost=None))
    assert line == "kill_pod: FAIL · 2 attempts · 60 s in all · no step"


class Lab:
    """A cluster of which nothing is asked."""

    nodes = ()
    torch = "/torch"

    @contextlib.contextmanager
    def namespace(self, **_quota: t.Any) -> t.Iterator[t.Any]:
        yield types.SimpleNamespace(namespace="t-1")

    @contextlib.contextmanager
    def priorities(self, **_values: int) -> t.Iterator[None]:
        yield


class Played:
    """A play that has ended well."""

    def __init__(self, *_given: t.Any) -> None:
        self.lab, self.team, self.output = *_given[:2], ""

    def start(self, *_given: t.Any, **_more: t.Any) -> Played:
        return self

    def wait(self, _limit_s: float) -> tuple[int, str]:
        return 0, ""

    def stop(self) -> None:
        return


def test_a_drill_that_did_nothing_has_failed(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    """However well its run ended."""
    nothing = kube_drills.Kind("nothing is done", lambda _scene: None, restarts=False)
    monkeypatch.setitem(kube_drills.KINDS, "nothing", nothing)
    monkeypatch.setattr(kube_drill_proof, "Controller", Played)
    result = kube_drill_proof.perform(t.cast(t.Any, Lab()), "nothing", tmp_path)
    assert (result.passed, result.problem) == (False, "nothing was done to the run")


def test_a_resume_is_judged_as_the_report_does(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    """Two attempts and a checkpoint's step prove nothing to it: the words are those of the report."""
    kind = kube_drills.Kind("x", lambda _scene: None)
    attempts = [{"n": 1}, {"n": 2, "resumed_from_step": 40}]
    record = {"attempts": attempts, "steps_lost": 3, "outcome": "succeeded", "world_size": {"seen": 2, "asked": 2}}
    steps = [{"at": float(step), "step": step} for step in range(1, kube_drills.STEPS + 1)]
    play = types.SimpleNamespace(run=lambda _run_id: ({**record, "detail": ""}, tmp_path))
    scene: t.Any = types.SimpleNamespace(controller=play, run_id="r", fault_at=50.0, metrics=lambda: steps)
    asked: list[t.Any] = []

    def judge(folder: pathlib.Path, at: float) -> dict[str, t.Any]:
        asked.append((folder, at))
        return {"resumed": False, "problem": "21 steps were repeated, the checkpoint interval is 20"}

    monkeypatch.setattr(kube_drill_proof.drills, "judge_drill", judge)
    monkeypatch.setattr(kube_drill_proof, "_logs_kept", lambda *_given: True)
    result = kube_drill_proof.Result("x", "")
    with pytest.raises(kube_drills.Failed, match="no resume was proven: 21 steps were repeated, the checkpoint interv"):
        kube_drill_proof._judge(scene, kind, result)
    assert asked == [(tmp_path, 50.0)] and result.resumed is False
