# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What Ray Train says of its workers becomes ranks; Ray itself is in tests/lab, here a module in its place answers."""

from __future__ import annotations

import json
import pathlib
import sys

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.story import Story
from ansible_collections.muster.training.plugins.module_utils._node.pod_ray import Attendance

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
def init(**_): pass
def get(value, timeout=None): return value
def nodes(): return [{"NodeID": "n0", "NodeManagerHostname": "pod-0"}, {"NodeID": "n1", "NodeManagerHostname": "pod-1"}]
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
    story = Story()
    for line in events.read_text().splitlines():
        story.event(json.loads(line))
    assert [(item.n, sorted(item.ranks.items()), item.world_size) for item in story.attempts] == [
        (3, [(0, "pod-0"), (1, "pod-1")], 2),
        (4, [(0, "pod-0"), (1, "pod-1")], 2),
    ]
    assert [item.first_failure is not None for item in story.attempts] == [True, False]


def test_a_ray_that_cannot_be_asked_is_named(tmp_path: pathlib.Path) -> None:
    said = Attendance({"python": sys.executable}, tmp_path / "events.jsonl", 1).finish()
    assert "No module named 'ray'" in said
    assert not (tmp_path / "events.jsonl").exists()
