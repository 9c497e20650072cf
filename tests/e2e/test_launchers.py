# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The launchers beside torchrun, each with its own real library: a job of two nodes learns, and all ranks are seen."""

from __future__ import annotations

import os
import shutil
import typing as t

import pytest

from ansible_collections.muster.training.tests.e2e.conftest import lacking
from ansible_collections.muster.training.tests.e2e.playbook_world import World
from ansible_collections.muster.training.tests.support import debian

NOTE = """
import json, os, time
def note(**values):
    with open(os.environ["MUSTER_METRICS_FILE"], "a") as file:
        file.write(json.dumps({"at": time.time(), **values}) + "\\n")
"""
ACCELERATE = (
    NOTE
    + """
import torch
from accelerate import Accelerator
accelerator = Accelerator(cpu=True)
torch.manual_seed(accelerator.process_index)
model = torch.nn.Linear(8, 1)
model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.05))
for step in range(1, 6):
    batch = torch.randn(32, 8)
    loss = ((model(batch) - batch.sum(1, keepdim=True)) ** 2).mean()
    accelerator.backward(loss)
    optimizer.step()
    optimizer.zero_grad()
    seen = accelerator.reduce(torch.ones(1), reduction="sum").item()
    if accelerator.is_main_process:
        note(step=step, loss=loss.item(), seen=seen)
accelerator.end_training()
"""
)
DEEPSPEED = (
    NOTE
    + """
import sys
import torch, deepspeed
deepspeed.init_distributed(dist_backend="gloo")
torch.manual_seed(0)
model = torch.nn.Linear(8, 1)
engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=sys.argv[1])
batch = torch.randn(4, 8)
for step in range(1, 6):
    loss = ((engine(batch) - batch.sum(1, keepdim=True)) ** 2).mean()
    engine.backward(loss)
    engine.step()
    if torch.distributed.get_rank() == 0:
        note(step=step, loss=loss.item(), seen=torch.distributed.get_world_size(), stage=engine.zero_optimization_stage())
"""
)
DEEPSPEED_CONFIG = {
    "train_micro_batch_size_per_gpu": 4,
    "optimizer": {"type": "SGD", "params": {"lr": 0.05}},
    "zero_allow_untested_optimizer": True,
    "zero_optimization": {"stage": 1},
}
MPI = (
    NOTE
    + """
import os, pathlib, sys
once = pathlib.Path(os.environ["MUSTER_CHECKPOINT_DIR"], "was-here")
again = once.exists()
print("rank", os.environ["RANK"], "of", os.environ["OMPI_COMM_WORLD_SIZE"], flush=True)
note(step=2 if again else 1, seen=int(os.environ["OMPI_COMM_WORLD_SIZE"]))
if os.environ["OMPI_COMM_WORLD_RANK"] == "1" and not again:
    once.parent.mkdir(parents=True, exist_ok=True)
    once.touch()
    raise ValueError("the first attempt fails")
"""
).replace('os.environ["RANK"]', 'os.environ["OMPI_COMM_WORLD_RANK"]')


@pytest.fixture
def launchers_python() -> str:
    """The interpreter with Accelerate and DeepSpeed."""
    named = os.environ.get("MUSTER_LAUNCHERS_PYTHON", "")
    if not named or not shutil.which(named):
        lacking("MUSTER_LAUNCHERS_PYTHON names no interpreter with accelerate and deepspeed (make venv-launchers)")
    return named


def play(world: World, text: str, **job: t.Any) -> list[dict[str, t.Any]]:
    """Run a program of two nodes to its end; return the metrics that it noted."""
    code = world.root / "code"
    code.mkdir()
    (code / "train.py").write_text(text)
    values = {"name": "e2e", "nodes": 2, "code": {"ref": str(code)}, "script": "train.py", **job}
    result = world.play(job=values, limit_s=300)
    assert result.code == 0, result.output
    record = world.record()
    assert (record["outcome"], record["world_size"]) == ("succeeded", {"asked": 2, "seen": 2})
    assert record["launcher"] == job["launcher"]
    return [line for line in world.metrics() if "step" in line]


@pytest.mark.torch
def test_accelerate(world: World, launchers_python: str) -> None:
    noted = play(world, ACCELERATE, launcher="accelerate", python=launchers_python)
    assert [line["step"] for line in noted] == [1, 2, 3, 4, 5] and {line["seen"] for line in noted} == {2}
    assert noted[-1]["loss"] < noted[0]["loss"]


@pytest.mark.long
@pytest.mark.torch
def test_deepspeed(world: World, launchers_python: str) -> None:
    """Without GPUs: gloo and ZeRO stage 1, configured by the JSON file that was made of deepspeed_config.

    Long because DeepSpeed compiles a part of itself first, two minutes on a busy machine.
    """
    noted = play(
        world,
        DEEPSPEED,
        launcher="deepspeed",
        python=launchers_python,
        args=["{deepspeed_config}"],
        env={"DS_ACCELERATOR": "cpu"},
        deepspeed_config=DEEPSPEED_CONFIG,
    )
    assert [(line["step"], line["seen"], line["stage"]) for line in noted] == [(step, 2, 1) for step in range(1, 6)]
    assert noted[-1]["loss"] < noted[0]["loss"]


@pytest.mark.long
def test_mpi(world: World, sshd_works: None) -> None:
    """Open MPI over the run's own sshd: the rank that fails takes the gang along, which starts again as a whole.

    Long because mpirun may have to be installed first.
    """
    problem = debian.obtain("mpirun", "openmpi-bin")
    if problem:
        lacking(problem)
    noted = play(world, MPI, launcher="mpi", checkpoints={"path": str(world.root / "shared")})
    assert {line["seen"] for line in noted} == {2} and [line["step"] for line in noted][-2:] == [2, 2]
    assert [item["cause"] for item in world.record()["attempts"]] == ["crash", None]
