# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Steps and losses of programs that print them: those of one rank, and none that the program did not make."""

from __future__ import annotations

import pathlib
import sys
import typing as t

import pytest

from ansible_collections.muster.training.tests.e2e.playbook_world import World

PROGRAM = pathlib.Path(__file__).parents[1] / "fakes" / "printing_program.py"
PATTERNS = {
    "epochs": {"step_pattern": r"pass \d+: (?P<step>\d+)/12 .*loss=(?P<loss>[\d.]+)"},
    "ranks": {"step_pattern": r"step: (?P<step>[\d,]+) loss: (?P<loss>[\d.]+) tok/s: (?P<tokens_per_s>[\d,]+)"},
    "trainer": {},
}


def train(world: World, form: str) -> tuple[str, dict[str, t.Any], list[dict[str, t.Any]]]:
    command = [sys.executable, "-I", "-S", str(PROGRAM), form]
    result = world.play(job=world.job(command=command, metrics=PATTERNS[form]))
    assert result.code == 0, result.output
    return result.output, world.record(), [line for line in world.metrics() if "step" in line]


@pytest.mark.parametrize("form", PATTERNS)
def test_the_figures_of_a_run_are_those_that_one_rank_printed(world: World, form: str) -> None:
    output, record, steps = train(world, form)
    losses, attempt, read = [line.get("loss") for line in steps], record["attempts"][0], record.get("steps_read")
    if form == "epochs":
        assert losses == [round(6.0 / (1 + number), 3) for number in (*range(13), *range(12, 25), *range(24, 37))]
        assert (attempt["first_step"], attempt["last_step"]) == (None, None) and "12 to 0" in read["problem"]
        assert "the step counter went back from 12 to 0" in output and "step 36" not in output
    elif form == "ranks":
        assert losses == [2.0] * 30 and {line["tokens_per_s"] for line in steps} == {1000}
        assert (attempt["first_step"], attempt["last_step"]) == (990, 1019) and read["node"] == "node-1"
    else:
        assert "reading the steps as transformers prints them" in output and read["preset"] == "transformers"
        assert [loss for loss in losses if loss is not None] == [0.4, 0.2, 0.1333, 0.1] and attempt["last_step"] == 40
