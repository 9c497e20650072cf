# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The verdict on scaling: gates, negative scaling, the largest loss, stragglers."""

from __future__ import annotations

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._fabric.verdict import scaling as subject
from ansible_collections.muster.training.tests.unit.plugins.plugin_utils._fabric.bench.test_scaling import (
    document,
    points,
)


@pytest.mark.parametrize(
    ("points", "found"),
    [
        ({1: 100.0, 2: 190.0, 4: 370.0}, False),
        ({1: 231.0, 2: 57.0, 3: 32.0}, True),
        ({1: 100.0, 2: 99.0}, False),
        ({1: 100.0, 2: 150.0, 4: 120.0}, True),
        ({}, False),
        ({8: 1.0}, False),
        ({1: 0.0, 2: 0.0}, False),
    ],
)
def test_negative_scaling(points: dict[int, float], found: bool) -> None:
    assert bool(subject.find_negative_scaling(points)) == found


@pytest.mark.parametrize(
    ("step_s", "outcome"), [(0.1, "pass"), (0.1 / 0.86, "pass"), (0.1 / 0.84, "warn"), (0.1 / 0.59, "fail")]
)
def test_the_gates(step_s: float, outcome: str) -> None:
    judged = subject.judge_scaling(points(document(1, 0.1), document(8, step_s)))
    assert judged.outcome == outcome
    assert f"efficiency {0.1 / step_s:.0%} from 1 node (1 rank) to 8 nodes (8 ranks)" in judged.summary
    assert bool(judged.reasons) is (outcome != "pass")


def test_more_nodes_that_do_less_fail_whatever_the_gate() -> None:
    """The rule of the fabric's causes is asked: negative scaling with its fix."""
    slow = points(document(1, 0.1), document(2, 0.11), document(4, 0.4))
    judged = subject.judge_scaling(slow, passes=0.0, fails=0.0)
    assert judged.outcome == "fail"
    assert judged.reasons[0].startswith(
        "negative_scaling: 4 nodes do 1000 samples or tokens per second, 2 nodes did 1818"
    )
    assert "enlarge the batch" in judged.reasons[0]


@pytest.mark.parametrize("part", ["compute", "input", "straggler", "communication"])
def test_the_part_that_took_the_loss_is_named(part: str) -> None:
    """Each part is lengthened by 50 ms; communication that nothing hides shows in the step alone."""
    base = document(1, 0.1)
    longer = {} if part == "communication" else {f"{part}_s": base[f"{part}_s"] + 0.05}
    judged = subject.judge_scaling(points(base, document(2, 0.15, **longer)))
    assert judged.outcome == "warn" and f"most of the loss is {part} " in judged.reasons[0]
    assert judged.rows[-1]["loss"][part] == pytest.approx(0.05)


def test_a_rank_that_holds_the_others_up_is_named() -> None:
    judged = subject.judge_scaling(points(document(1, 0.1, 2), document(4, 0.2, 2, slow=5)))
    assert "rank 5 on node-2 computes 2.00 × as long as the median rank" in judged.reasons


def test_what_was_not_measured_is_unproven() -> None:
    assert subject.judge_scaling([]).outcome == "unproven"
    one = subject.judge_scaling(points(document(1, 0.1)))
    assert one.outcome == "unproven" and "nothing to compare" in one.summary
