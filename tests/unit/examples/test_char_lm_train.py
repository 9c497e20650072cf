# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The transformer example under real torchrun: its results, its interruptions, its refusals."""

from __future__ import annotations

import os
import shutil
import signal
import typing as t
from pathlib import Path

import pytest

pytestmark = pytest.mark.torch

SMALL = ("--layers=1", "--width=16", "--heads=2", "--context=16", "--checkpoint-every=4", "--print-every=1")
EXACT = (*SMALL, "--batch-size=4", "--accumulation=2", "--dropout=0.1")


@pytest.fixture(scope="module")
def reference(start_example: t.Any) -> t.Any:
    """Return the example after 16 steps of 2 ranks without any interruption."""
    example = start_example("char_lm")
    run = example.torchrun(2, *EXACT, "--steps=16")
    assert run.finish() == 0, run.output
    example.output = run.output
    return example


def copy_of(example: t.Any, start_example: t.Any) -> t.Any:
    """Return an example with the same checkpoints."""
    copy = start_example("char_lm")
    shutil.copytree(example.checkpoints, copy.checkpoints)
    return copy


def steps_of(directory: Path) -> list[int]:
    """Return the steps whose checkpoints lie in ``directory``."""
    return sorted(int(path.name[5:13]) for path in directory.glob("step-*"))


def test_a_run_reports_each_step_and_each_checkpoint(reference: t.Any) -> None:
    losses = reference.losses()
    assert list(losses) == list(range(1, 17))
    assert losses[16] < losses[1] - 0.1
    assert f"step=16 loss={losses[16]:.4f} tokens_per_s=" in reference.output
    (start,) = reference.lines("resumed_from_step")
    assert (start["resumed_from_step"], start["world_size"]) == (0, 2)
    assert all(set(line) == {"at", "step", "loss", "tokens_per_s", "lr"} for line in reference.lines("step"))
    saved = reference.lines("checkpoint_step")
    assert [line["checkpoint_step"] for line in saved] == [4, 8, 12, 16]
    assert Path(saved[-1]["path"]).is_file()
    assert steps_of(reference.checkpoints) == [8, 12, 16]


def test_sigterm_to_one_rank_saves_and_ends_all_and_a_torn_file_is_skipped(
    reference: t.Any, start_example: t.Any
) -> None:
    example = start_example("char_lm")
    run = example.torchrun(2, *EXACT, "--steps=1000", "--step-time-min=0.2")
    example.wait_for_step(5, run)
    os.kill(run.workers()[1], signal.SIGTERM)
    assert run.finish() != 0
    last = max(example.losses())
    assert run.output.count("exitcode  : 143") == 2
    assert f"stopped by SIGTERM after step {last}" in run.output
    newest = max(example.checkpoints.glob("step-*"))
    assert newest.name.startswith(f"step-{last:08d}.")

    newest.write_bytes(newest.read_bytes()[:-100])
    before = max(step for step in steps_of(example.checkpoints) if step < last)
    resumed = example.torchrun(2, *EXACT, "--steps=16")
    assert resumed.finish() == 0, resumed.output
    assert f"checkpoint {newest.name} skipped" in resumed.output
    assert [line["resumed_from_step"] for line in example.lines("resumed_from_step")] == [0, before]
    assert example.losses() == reference.losses()


def test_a_killed_rank_is_restarted_and_the_losses_are_the_same(reference: t.Any, start_example: t.Any) -> None:
    example = start_example("char_lm")
    run = example.torchrun(2, *EXACT, "--steps=16", "--step-time-min=0.2", restarts=2)
    example.wait_for_step(6, run)
    os.kill(run.workers()[1], signal.SIGKILL)
    assert run.finish() == 0, run.output
    first, second = (line["resumed_from_step"] for line in example.lines("resumed_from_step"))
    assert first == 0
    assert 4 <= second <= 12
    assert second % 4 == 0
    assert example.losses() == reference.losses()


def test_the_world_size_may_change_between_attempts(start_example: t.Any) -> None:
    one, changing = start_example("char_lm"), start_example("char_lm")
    assert one.alone(*SMALL, "--batch-size=8", "--steps=12").finish() == 0
    for ranks, steps in ((2, 4), (1, 8), (2, 12)):
        options = (*SMALL, f"--batch-size={8 // ranks}", f"--steps={steps}")
        assert [run.finish() for run in changing.ranks(*options, each=[{}] * ranks)] == [0] * ranks
    starts = [(line["resumed_from_step"], line["world_size"]) for line in changing.lines("resumed_from_step")]
    assert starts == [(0, 2), (4, 1), (8, 2)]
    assert changing.losses() == pytest.approx(one.losses(), abs=1e-3)


def test_a_replaced_node_with_an_empty_disk_is_served_by_the_other(reference: t.Any, start_example: t.Any) -> None:
    example = start_example("char_lm")
    disks = [example.checkpoints / "a", example.checkpoints / "b"]
    each = [{"MUSTER_CHECKPOINT_DIR": str(disk)} for disk in disks]
    assert [run.finish() for run in example.ranks(*EXACT, "--steps=8", each=each)] == [0, 0]
    assert [steps_of(disk) for disk in disks] == [[4, 8], [4, 8]]
    shutil.rmtree(disks[0])
    assert [run.finish() for run in example.ranks(*EXACT, "--steps=16", each=each)] == [0, 0]
    assert [line["resumed_from_step"] for line in example.lines("resumed_from_step")] == [0, 8]
    assert [steps_of(disk) for disk in disks] == [[12, 16], [8, 12, 16]]
    assert example.losses() == reference.losses()


def test_a_full_disk_ends_all_ranks_and_leaves_the_checkpoint_before(reference: t.Any, start_example: t.Any) -> None:
    example = copy_of(reference, start_example)
    before = sorted(path.name for path in example.checkpoints.iterdir())
    runs = example.ranks(*EXACT, "--steps=24", each=[{}, {}], limit_bytes=9000)
    assert [run.finish() for run in runs] == [74, 74]
    lines = [line for run in runs for line in run.output.splitlines() if "not written" in line]
    assert len(lines) == 1
    place = f"rank 0: checkpoint of step 20 not written to {example.checkpoints}, the one of step 16 is intact: "
    assert lines[0].startswith(place)
    assert lines[0].endswith("File too large")
    assert "Traceback" not in runs[0].output + runs[1].output
    assert sorted(path.name for path in example.checkpoints.iterdir()) == before


def test_sigterm_ends_a_rank_whose_peer_no_longer_answers(start_example: t.Any) -> None:
    example = start_example("char_lm")
    runs = example.ranks(*EXACT, "--steps=1000", "--step-time-min=0.05", "--grace=0.5", each=[{}, {}])
    example.wait_for_step(2, runs[0])
    runs[1].popen.send_signal(signal.SIGSTOP)
    runs[0].popen.send_signal(signal.SIGTERM)
    assert runs[0].finish() == 143
    assert "the step did not end within 0.5 s" in runs[0].output
    runs[1].popen.kill()
    runs[1].finish()


def test_a_finished_run_has_nothing_left_to_do(reference: t.Any, start_example: t.Any) -> None:
    example = copy_of(reference, start_example)
    run = example.alone(*EXACT, "--steps=16", MUSTER_RUN_ID="r1", MUSTER_ATTEMPT="2")
    assert run.finish() == 0
    assert run.output == "run r1 attempt 2: continues after step 16, world size 1\n"
    assert example.losses() == {}


@pytest.mark.parametrize(
    ("options", "code", "line"),
    [
        (("--width=32",), 2, "the checkpoint of step 16 is of a model with other width"),
        (("--data=/nowhere",), 2, "no text to learn at /nowhere: give one with --data FILE"),
        (("--lr=1e30",), 65, "is nan: try a lower --lr"),
    ],
)
def test_a_refusal_is_one_line(
    reference: t.Any, start_example: t.Any, options: tuple[str, ...], code: int, line: str
) -> None:
    example = copy_of(reference, start_example)
    run = example.alone(*EXACT, "--steps=40", *options)
    assert run.finish() == code
    assert line in run.output.splitlines()[-1]
    assert "Traceback" not in run.output
    assert steps_of(example.checkpoints) == [8, 12, 16]


def test_a_checkpoint_directory_that_cannot_be_made_ends_before_the_first_step(start_example: t.Any) -> None:
    example = start_example("char_lm")
    example.checkpoints.write_text("a file where the directory should be")
    run = example.alone(*EXACT, "--steps=4")
    assert run.finish() == 74
    assert run.output.startswith("rank 0: the checkpoint directory cannot be used: ")
    assert len(run.output.splitlines()) == 1
    assert not example.metrics.exists()
