# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A run that trains nothing: a loss that is not a number, and steps that no longer come."""

from __future__ import annotations

import sys
import typing as t

import pytest

from ansible_collections.muster.training.tests.e2e.playbook_world import NODES, World

# Rank 0 reports or prints a step every tenth of a second; from step 5 on its loss is not a number. It ends or stands at
# the last step; both ranks end at once when they are told to.
PROGRAM = """
import faulthandler, json, os, signal, sys, time
faulthandler.register(signal.SIGUSR1)
how, last, then = sys.argv[1], int(sys.argv[2]), sys.argv[3]
for step in range(last):
    loss = float("nan") if step >= 5 else 1 / (step + 1)
    if os.environ["RANK"] == "0" and how == "metrics":
        with open(os.environ["MUSTER_METRICS_FILE"], "a") as handle:
            handle.write(json.dumps({"at": time.time(), "step": step, "loss": loss}) + "\\n")
    elif os.environ["RANK"] == "0":
        print(f"iter {step} loss {loss:.4f}", flush=True)
    time.sleep(0.1)
while then == "stand":
    time.sleep(0.1)
"""
PRINTED = {"step_pattern": r"iter (?P<step>[0-9]+) loss (?P<loss>\S+)"}


def nan_job(world: World, how: str, last: int, then: str = "end", **values: t.Any) -> dict[str, t.Any]:
    argv = [sys.executable, "-I", "-S", "-c", PROGRAM, how, str(last), then]
    metrics = {"metrics": PRINTED} if how == "printed" else {}
    return world.job(command=argv, **metrics, **values)


@pytest.mark.parametrize("how", ["metrics", "printed"])
def test_a_loss_of_nan_is_a_warning_and_in_the_last_line(world: World, how: str) -> None:
    result = world.play(job=nan_job(world, how, 30))
    assert result.code == 0, result.output
    assert "warning: the loss is not a number (NaN or infinite) since step 5; the run continues" in result.output
    assert "succeeded with a loss of NaN since step 5" in result.output, result.output
    assert world.record()["problems"] == ["the loss is not a number (NaN or infinite) since step 5"]


@pytest.mark.parametrize("how", ["metrics", "printed"])
def test_stop_on_nan_ends_the_run_with_its_cause(world: World, how: str) -> None:
    result = world.play(job=nan_job(world, how, 100_000, stop_on={"nan": True}))
    assert result.code != 0 and "the loss is not a number (NaN or infinite) since step 5" in result.errors[0]
    record = world.record()
    assert (record["outcome"], record["cause"]) == ("failed", "nan") and not world.processes()
    world.play("report", muster_run_id=record["run_id"])
    page = next(world.run_folder().glob("report/*.html")).read_text()
    assert "Loss is NaN" in page and "lower the learning rate" in page


def test_stop_on_a_stall_ends_the_run_with_its_cause(world: World) -> None:
    result = world.play(job=nan_job(world, "metrics", 4, "stand", stop_on={"nan": True, "stalled_s": 3}))
    assert result.code != 0 and "stalled at step 3: no step for 3 s (job.stop_on.stalled_s)" in result.errors[0]
    record = world.record()
    assert (record["outcome"], record["cause"]) == ("failed", "stalled") and not world.processes()
    # Where each rank stood was taken before it was stopped, and nothing tells to look for it afterwards.
    for rank, node in enumerate(NODES):
        assert f"rank {rank} on {node}: <module> (<string>:" in record["detail"], record["detail"]
        assert f"rank {rank} (pid" in (world.run_folder() / "logs" / f"{node}.stacks").read_text()
    assert "while they stand" not in record["detail"] and "logs/NODE.stacks" in record["detail"]
    world.play("report", muster_run_id=record["run_id"])
    page = next(world.run_folder().glob("report/*.html")).read_text()
    assert f"logs/{NODES[0]}.stacks" in page and "exit code 1" not in page and "death signal" not in page


def test_a_stop_that_nothing_carries_out_is_refused(world: World) -> None:
    result = world.play(job=nan_job(world, "metrics", 4, stop_on={"stalled_s": 3}), training_job_wait=False)
    assert result.code != 0 and "job.stop_on.stalled_s: requires wait: true" in result.errors[0], result.output
    assert not world.processes()
