# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The sharded example under real torchrun: resumes, other world sizes, damaged shards."""

from __future__ import annotations

import json
import os
import shutil
import signal
import typing as t

import pytest

pytestmark = pytest.mark.torch

SMALL = ("--layers=1", "--width=16", "--context=8", "--checkpoint-every=4", "--print-every=1")
EXACT = (*SMALL, "--batch-size=16", "--dropout=0.1")


@pytest.fixture(scope="module")
def reference(start_example: t.Any) -> t.Any:
    """Return the example after 16 steps of 2 ranks without any interruption."""
    example = start_example("fsdp")
    run = example.torchrun(2, *EXACT, "--steps=16")
    assert run.finish() == 0, run.output
    return example


def test_a_run_leaves_complete_checkpoints_and_metrics(reference: t.Any) -> None:
    losses = reference.losses()
    assert list(losses) == list(range(1, 17))
    assert losses[16] < losses[1] - 0.1
    assert [line["checkpoint_step"] for line in reference.lines("checkpoint_step")] == [4, 8, 12, 16]
    assert sorted(path.name for path in reference.checkpoints.iterdir()) == [
        "step-00000008",
        "step-00000012",
        "step-00000016",
    ]
    newest = reference.checkpoints / "step-00000016"
    manifest = json.loads((newest / "manifest.json").read_text())
    names = {path.name for path in newest.iterdir()}
    assert names == {"manifest.json", *(shard["name"] for shard in manifest["shards"])}
    assert len(names) == 4


def test_sigterm_saves_and_a_missing_shard_falls_back_to_the_one_before(reference: t.Any, start_example: t.Any) -> None:
    example = start_example("fsdp")
    run = example.torchrun(2, *EXACT, "--steps=1000", "--step-time-min=0.2")
    example.wait_for_step(5, run)
    os.kill(run.workers()[1], signal.SIGTERM)
    assert run.finish() != 0
    assert run.output.count("exitcode  : 143") == 2
    last = max(example.losses())
    newest = example.checkpoints / f"step-{last:08d}"
    assert (newest / "manifest.json").is_file()

    (newest / "__1_0.distcp").unlink()
    before = (last - 1) // 4 * 4
    resumed = example.torchrun(2, *EXACT, "--steps=16")
    assert resumed.finish() == 0, resumed.output
    assert f"checkpoint {newest.name} skipped: __1_0.distcp: No such file or directory" in resumed.output
    assert [line["resumed_from_step"] for line in example.lines("resumed_from_step")] == [0, before]
    assert example.losses() == reference.losses()


def test_the_shards_are_found_again_by_another_world_size(start_example: t.Any) -> None:
    one, changing = start_example("fsdp"), start_example("fsdp")
    assert one.alone(*SMALL, "--batch-size=32", "--steps=12").finish() == 0
    for ranks, steps in ((2, 4), (1, 8), (2, 12)):
        options = (*SMALL, f"--batch-size={32 // ranks}", f"--steps={steps}")
        runs = changing.ranks(*options, each=[{}] * ranks)
        assert [run.finish() for run in runs] == [0] * ranks, runs[0].output
    starts = [(line["resumed_from_step"], line["world_size"]) for line in changing.lines("resumed_from_step")]
    assert starts == [(0, 2), (4, 1), (8, 2)]
    assert changing.losses() == pytest.approx(one.losses(), abs=1e-3)


def test_a_full_disk_ends_all_ranks_and_leaves_the_checkpoint_before(reference: t.Any, start_example: t.Any) -> None:
    example = start_example("fsdp")
    shutil.copytree(reference.checkpoints, example.checkpoints)
    runs = example.ranks(*EXACT, "--steps=24", each=[{}, {}], limit_bytes=9000)
    assert [run.finish() for run in runs] == [74, 74], runs[0].output
    lines = [line for run in runs for line in run.output.splitlines() if "not written" in line]
    assert len(lines) == 1
    assert f"20 not written to {example.checkpoints}, the one of step 16 is intact: " in lines[0]
    assert lines[0].endswith("File too large")
    assert "Traceback" not in runs[0].output + runs[1].output
    assert not (example.checkpoints / "step-00000020" / "manifest.json").exists()
    again = example.alone(*SMALL, "--batch-size=16", "--steps=17")
    assert again.finish() == 0, again.output
    assert "checkpoint step-00000020 skipped: it was never finished, there is no manifest" in again.output
    assert example.lines("resumed_from_step")[-1]["resumed_from_step"] == 16


def test_directories_of_the_nodes_own_are_refused(start_example: t.Any) -> None:
    example = start_example("fsdp")
    each = [{"MUSTER_CHECKPOINT_DIR": str(example.checkpoints / node)} for node in "ab"]
    runs = example.ranks(*EXACT, "--steps=4", each=each)
    assert [run.finish() for run in runs] == [2, 2]
    assert "is not one directory for all nodes: sharded checkpoints need shared storage" in runs[0].output
    assert not example.metrics.exists()


def test_a_checkpoint_of_another_model_is_refused_in_one_line(reference: t.Any, start_example: t.Any) -> None:
    example = start_example("fsdp")
    shutil.copytree(reference.checkpoints, example.checkpoints)
    run = example.alone(*EXACT, "--steps=20", "--width=32", "--layers=2")
    assert run.finish() == 2
    assert run.output == "rank 0: the checkpoint of step 16 is of a model with other layers and width\n"
