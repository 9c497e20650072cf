# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What Ray Train says of its workers becomes ranks; Ray itself is in tests/lab, here a module in its place answers."""

from __future__ import annotations

import json
import pathlib
import sys
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.run_history import RunHistory
from ansible_collections.muster.training.plugins.module_utils._node import pod_fence
from ansible_collections.muster.training.plugins.module_utils._node.pod_ray import Attendance
from ansible_collections.muster.training.tests.unit.plugins.module_utils._node.pod_lab import PodLab

STATE = """
import types
def worker(rank):
    return types.SimpleNamespace(world_rank=rank, local_rank=0, pid=7, node_id=f"n{rank}", node_ip="10.0.0.1")
def attempt(name, start, end, status):
    return types.SimpleNamespace(attempt_id=name, start_time_ns=start * 10**9, end_time_ns=end and end * 10**9,
                                 status=types.SimpleNamespace(name=status), workers=[worker(0), worker(1)])
class Answer:
    def remote(self):
        return {"run": {"b": attempt("b", 20, 30, "FINISHED"), "a": attempt("a", 10, 19, "ERRORED")}}
def get_state_actor():
    return types.SimpleNamespace(get_train_run_attempts=Answer())
"""
RAY = """
__version__ = "2.60"
def init(**_): pass
def get(value, timeout=None): return value
def node(rank):
    return {"NodeID": f"n{rank}", "NodeManagerHostname": f"pod-{rank}", "Alive": True, "Resources": {}}
def nodes(): return [node(0), node(1)]
"""


@pytest.fixture
def python(tmp_path: pathlib.Path) -> str:
    """An interpreter that finds something called ray."""
    state = tmp_path / "site" / "ray" / "train" / "v2" / "_internal" / "state"
    state.mkdir(parents=True)
    for folder in (state, *state.parents[:3]):
        (folder / "__init__.py").write_text("")
    (tmp_path / "site" / "ray" / "__init__.py").write_text(RAY)
    (state / "state_actor.py").write_text(STATE)
    place = tmp_path / "python"
    place.write_text(f'#!/bin/sh\nPYTHONPATH={tmp_path}/site exec {sys.executable} "$@"\n')
    place.chmod(0o755)
    return str(place)


def test_worker_groups_are_the_attempts_of_the_run(tmp_path: pathlib.Path, python: str) -> None:
    events = tmp_path / "events.jsonl"
    assert Attendance({"python": python}, events, 3).finish() == ""
    story = RunHistory()
    for line in events.read_text().splitlines():
        story.event(json.loads(line))
    assert [(item.n, sorted(item.ranks.items()), item.world_size) for item in story.attempts] == [
        (3, [(0, "pod-0"), (1, "pod-1")], 2),
        (4, [(0, "pod-0"), (1, "pod-1")], 2),
    ]
    assert [item.first_failure is not None for item in story.attempts] == [True, False]


@pytest.fixture
def lab(tmp_path: pathlib.Path) -> t.Iterator[PodLab]:
    made = PodLab(tmp_path / "lab")
    yield made
    made.close()


def test_a_second_cluster_goes_on_counting_where_the_first_one_ended(
    lab: PodLab, tmp_path: pathlib.Path, python: str
) -> None:
    """Each cluster trains with two worker groups; KubeRay tells neither driver which of the clusters is its own."""
    kept = tmp_path / "shared" / ".muster" / "x-1" / "logs"
    metrics = tmp_path / "metrics.jsonl"
    told = {
        "keep_logs": str(kept),
        "role": "launcher",
        "ray": {"python": python, "nodes": 2},
        "env": {"MUSTER_METRICS_FILE": str(metrics)},
    }

    def cluster(number: int, **changes: t.Any) -> tuple[int, list[int], list[int]]:
        """Return what the driver counts as its own attempt, those of its workers, and the steps that it told."""
        argv = ["sh", "-c", f"""echo '{{"at": 1, "step": {number}}}' >> {metrics}; echo $MUSTER_ATTEMPT"""]
        spec = lab.spec(number, argv, **{"begun": 100, **told, **changes})
        end = lab.run(spec, MUSTER_POD=f"x-{number}-head")
        assert end.code == 0, end.text
        own = end.events("pod_ready")[0]["attempt"]
        assert end.lines == [str(own)] and {mark["attempt"] for mark in end.marks} == {own}
        steps = [mark["data"]["step"] for mark in end.marks if mark["stream"] == "metrics"]
        return own, sorted({line["attempt"] for line in end.events("worker_started")}), steps

    assert cluster(1) == (1, [1, 2], [1])
    assert cluster(2) == (3, [3, 4], [2])
    assert sorted(place.parent.name for place in kept.glob("*/*.log")) == ["attempt-1", "attempt-3"]
    assert pod_fence.read(kept.parent / pod_fence.NEWEST) == (100, 4)
    # Submitted again, the run says itself from where it counts.
    assert cluster(3, begun=200, attempt=9) == (9, [9, 10], [3])
    # Where nothing is shared, nothing is known of another cluster.
    assert cluster(4, keep_logs=None)[:2] == (1, [1, 2])


def test_an_older_driver_does_not_take_a_newer_ones_place(tmp_path: pathlib.Path) -> None:
    place = tmp_path / pod_fence.NEWEST
    old = pod_fence.Fence(place, (100, 1), print)
    pod_fence.Fence(place, (100, 3), print)
    old.begin(4)
    assert (pod_fence.read(place), old.life) == ((100, 3), (100, 1))


def test_a_ray_that_cannot_be_asked_is_named(tmp_path: pathlib.Path) -> None:
    said = Attendance({"python": sys.executable}, tmp_path / "events.jsonl", 1).finish()
    assert "No module named 'ray'" in said
    assert not (tmp_path / "events.jsonl").exists()
