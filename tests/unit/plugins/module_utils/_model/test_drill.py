# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Drills: what may be asked, when it is due, and whether a kill could prove anything."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model import drill as drills
from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError
from ansible_collections.muster.training.plugins.module_utils._model.job import parse_job
from ansible_collections.muster.training.plugins.module_utils._model.run_history import RunHistory

NODES = ("a", "b")
FAULT = 100.0


def told(before: range, after: range | None, resumed_from: int | None, ranks: int = 4) -> RunHistory:
    """Return a run of four ranks with a fault at 100 s; a step a second, the new attempt's first step at 110 s."""
    story = RunHistory()
    for rank in range(4):
        story.event({"kind": "worker_started", "attempt": 1, "rank": rank, "node": NODES[rank // 2], "at": 10.0})
    for step in before:
        story.metric({"at": 20.0 + step, "step": step})
    story.event({"kind": "drill", "at": FAULT, "node": "b"})
    if after is None:
        return story
    for rank in range(ranks):
        story.event({"kind": "worker_started", "attempt": 2, "rank": rank, "node": NODES[rank // 2], "at": 105.0})
    if resumed_from is not None:
        story.metric({"at": 106.0, "resumed_from_step": resumed_from})
    for index, step in enumerate(after):
        story.metric({"at": 110.0 + index, "step": step})
    return story


def test_a_kill_proves_something_after_the_first_checkpoint() -> None:
    story = told(range(1, 12), None, None)
    assert not drills.can_prove(story, None) and not drills.can_prove(story, 11)
    assert drills.can_prove(story, 10), "the declared interval has passed"
    assert not drills.can_prove(RunHistory(), 1)
    story.metric({"at": 40.0, "checkpoint_step": 5})
    assert drills.can_prove(story, None)


@pytest.mark.parametrize(
    ("metrics", "interval", "refused"),
    [
        ({}, None, False),
        ({"step_pattern": "(?P<step>[0-9]+)"}, None, True),
        ({"step_pattern": "(?P<step>[0-9]+)"}, 20, False),
        ({"step_pattern": "(?P<step>[0-9]+)", "resume_pattern": "resumed at (?P<step>[0-9]+)"}, None, False),
        ({"step_pattern": "(?P<step>[0-9]+)", "checkpoint_pattern": "saved (?P<step>[0-9]+)"}, None, False),
    ],
)
def test_a_drill_of_a_program_that_only_prints_its_steps_is_refused(
    metrics: dict[str, str], interval: int | None, refused: bool
) -> None:
    job = parse_job(
        {"name": "x", "script": "/t.py", "metrics": metrics, "checkpoints": {"interval_steps": interval}}
        if interval
        else {"name": "x", "script": "/t.py", "metrics": metrics}
    )
    if not refused:
        drills.check_provable(job)
        return
    with pytest.raises(InputError, match="nothing could be proven.*interval_steps.*resume_pattern"):
        drills.check_provable(job)


def test_the_time_of_a_drill_in_words() -> None:
    assert drills.describe_time(drills.Drill(at_step=50)) == "step 50"
    assert drills.describe_time(drills.Drill(after_s=2.5)) == "2.5 s after its first step"


@pytest.mark.parametrize(
    ("value", "node", "rank"),
    [
        ({"at_step": 5}, "b", 3),
        ({}, "b", 3),
        ({"at_step": 5, "rank": 1}, "a", 1),
        ({"after_s": 0.5, "target": "host", "node": "a"}, "a", None),
    ],
)
def test_node_and_rank_are_resolved(value: dict[str, t.Any], node: str, rank: int | None) -> None:
    drill = drills.parse_drill(value, 4, NODES, 2)
    assert (drill.node, drill.rank) == (node, rank)


@pytest.mark.parametrize(
    ("value", "option"),
    [
        ({"at_step": 1, "after_s": 1}, "drill.at_step"),
        ({"at_step": 1, "rank": 4}, "drill.rank"),
        ({"at_step": 1, "node": "c"}, "drill.node"),
        ({"at_step": 1, "target": "disk"}, "drill.target"),
        ("worker", "drill"),
    ],
)
def test_a_drill_that_cannot_be_is_refused(value: t.Any, option: str) -> None:
    with pytest.raises(InputError) as caught:
        drills.parse_drill(value, 4, NODES, 2)
    assert caught.value.option == option


def test_a_drill_without_a_time_is_with_the_first_checkpoint() -> None:
    """A step that is assumed may lie after the job's end."""
    drill = drills.parse_drill({}, 4, NODES, 2)
    story = told(range(1, 4), None, None)
    assert drills.is_due(drill, story, 1e12) and drill.at_step is None
    assert not drills.can_prove(story, None), "it waits for a checkpoint"
    assert drills.describe_time(drill) == "its first checkpoint"
    assert drills.describe_time(drills.parse_drill({"target": "cut"}, 4, NODES, 2)) == "its first step"


def test_a_drill_is_due_at_its_step_or_after_its_time() -> None:
    story = told(range(1, 6), None, None)
    by_step = drills.Drill(at_step=5)
    assert not drills.is_due(drills.Drill(at_step=6), story, 0.0) and drills.is_due(by_step, story, 0.0)
    assert not drills.is_due(by_step, RunHistory(), 1e9)
    by_time = drills.Drill(after_s=3.0)
    assert not drills.is_due(by_time, RunHistory(), 1e9)
    assert not drills.is_due(by_time, story, 23.9) and drills.is_due(by_time, story, 24.0)


def test_a_worker_drill_with_only_a_node_kills_a_rank_of_that_node() -> None:
    drill = drills.parse_drill({"at_step": 1, "target": "worker", "node": "a"}, 4, NODES, 2)
    assert drill.rank in (None, 0, 1)


def test_a_cut_lasts_a_minute_or_as_asked() -> None:
    cut = {"target": "cut", "node": "b", "at_step": 5}
    assert drills.parse_drill(cut, 4, NODES, 2).cut_s == drills.DEFAULT_CUT_S == 60
    assert drills.parse_drill({**cut, "seconds": 5}, 4, NODES, 2).cut_s == 5
    kill = drills.parse_drill({"target": "host", "at_step": 5}, 4, NODES, 2)
    assert kill.cut_s is None
    with pytest.raises(InputError, match=r"drill.seconds: has no effect with target: host"):
        drills.parse_drill({"target": "host", "at_step": 5, "seconds": 5}, 4, NODES, 2)


def test_a_script_of_which_no_step_could_be_read_is_refused() -> None:
    """An interval of checkpoints alone says nothing of a program whose steps are not read."""
    job = {"name": "x", "script": "train.py", "code": {"from": "path", "ref": "."}}
    job["checkpoints"] = {"interval_steps": 50}
    with pytest.raises(InputError, match="no step would be read.*Set job.metrics.preset"):
        drills.check_reported(parse_job(job), ["print('step 1')"])
    drills.check_reported(parse_job(job), ["", "open(os.environ['MUSTER_METRICS_FILE'])"])
    drills.check_reported(parse_job({**job, "args": ["--metrics", "$MUSTER_METRICS_FILE"]}), [""])
    drills.check_reported(parse_job({**job, "metrics": {"preset": "nanogpt"}}), [""])
    drills.check_reported(parse_job({"name": "x", "module": "pkg.train"}), [])


def test_a_preset_that_reads_no_step_is_not_advised_again() -> None:
    assert "Set job.metrics.preset" in drills.describe_no_step(None)[1]
    problem, fix = drills.describe_no_step("lightning")
    assert "preset lightning" in problem and "job.metrics.preset" not in fix and "step_pattern" in fix
