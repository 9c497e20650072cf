# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Training on a real GPU: from an inventory to a report, and ranks that are killed."""

from __future__ import annotations

import json
import pathlib
import re
import typing as t

import pytest

from ansible_collections.muster.training.tests.e2e.playbook_world import World
from ansible_collections.muster.training.tests.support import preset_jobs
from ansible_collections.muster.training.tests.support.preset_jobs import PRESETS, Preset

ROOT = pathlib.Path(__file__).parents[2]
INTERVAL = 50
ON_ONE_GPU = ("accelerate", "huggingface_finetune")


def job(example: str = "char_lm", **values: t.Any) -> dict[str, t.Any]:
    """Return a job that trains an example on one GPU; ``values`` replace its keys."""
    return {
        "name": "gpu",
        "nodes": 1,
        "gpus_per_node": 1,
        "code": {"from": "path", "ref": str(ROOT / "examples" / example)},
        "script": "train.py",
        "args": ["--data", str(ROOT / "LICENSE"), "--device", "cuda", "--checkpoint-every", INTERVAL, "--steps", 600],
        "checkpoints": {"interval_steps": INTERVAL, "grace_s": 5},
        **values,
    }


def test_site_trains_and_resumes_on_a_gpu(world: World, torch_python: str, gpus: list[dict[str, t.Any]]) -> None:
    drill = {"target": "worker", "at_step": 130}
    # At least 20 ms a step: usage of the GPU is read every ten seconds.
    paced = job(args=[*job()["args"], "--step-time-min", "0.04"])
    site = world.play("site", paced, 240, muster_training_python=torch_python)
    print(site.output)
    assert "one node with one rank; there is no network between ranks to verify" in site.output, site.output
    assert site.code == 0, site.output
    record = world.record()
    assert record["outcome"] == "succeeded" and record["world_size"] == {"asked": 1, "seen": 1}
    usage = [json.loads(line) for line in (world.run_folder() / "usage.jsonl").read_text().splitlines()]
    print([line["gpu_percent"] for line in usage])
    assert any(line["gpu_percent"] for line in usage), "the GPU was seen at work"
    logs = list(world.node_folder("node-1").rglob("nccl*"))
    assert logs, "NCCL's own words are kept for a diagnosis"
    drilled = world.play("drill", paced, 240, muster_training_python=torch_python, muster_drill=drill)
    print(drilled.output)
    assert drilled.code == 0 and re.search(r"resumed in [0-9.]+ s with all 1 ranks", drilled.output), drilled.output


@pytest.mark.parametrize("example", ["char_lm", "fsdp"])
def test_the_loss_after_a_kill_is_that_of_an_undisturbed_run(world: World, torch_python: str, example: str) -> None:
    """The state of the GPU's random numbers is part of the checkpoint: dropout draws the same masks again."""
    values = {"muster_training_python": torch_python}
    args = [*job()["args"][:-1], 150, "--dropout", "0.1"]
    plain = world.play("train", job(example, args=args), 180, **values, muster_run_id="plain")
    assert plain.code == 0, plain.output
    paced = job(example, args=[*args, "--step-time-min", "0.02"])
    drill = {"target": "worker", "at_step": 80}
    killed = world.play("drill", paced, 180, **values, muster_run_id="killed", muster_drill=drill)
    assert killed.code == 0, killed.output
    losses = []
    for name in ("plain", "killed"):
        (run,) = world.run_folder("x").parent.glob(f"{name}*")
        lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        losses.append({line["step"]: line["loss"] for line in lines if "loss" in line})
    difference = {step: abs(losses[0][step] - losses[1][step]) for step in (1, 40, 100, 150)}
    print(example, difference, losses[0][150])
    assert max(difference.values()) < 1e-3


@pytest.mark.parametrize(
    "preset", [preset for preset in PRESETS if preset.name in ON_ONE_GPU], ids=lambda item: item.name
)
def test_a_preset_resumes_on_a_gpu(world: World, torch_python: str, preset: Preset) -> None:
    model = preset_jobs.make_model(torch_python, world.root / "model") if preset.has_model else None
    one = {"nodes": 1, "gpus_per_node": 1}
    wanted = preset_jobs.job(preset, str(world.root / "shared"), model, python=torch_python, **one)
    result = world.play("drill", wanted, 180, muster_drill={"rank": 0, "at_step": preset_jobs.AT_STEP})
    print(result.output)
    assert result.code == 0, result.output
    record = world.record()
    assert (record["outcome"], record["world_size"]) == ("succeeded", {"asked": 1, "seen": 1})
    assert record["drill"]["resumed"] is True and record["drill"]["steps_lost"] <= preset_jobs.INTERVAL
    usage = [json.loads(line) for line in (world.run_folder() / "usage.jsonl").read_text().splitlines()]
    print(preset.name, [line["gpu_percent"] for line in usage])
