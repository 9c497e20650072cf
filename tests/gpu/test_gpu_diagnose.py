# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A run that hangs on a real GPU, and a GPU whose memory another program holds."""

from __future__ import annotations

import json
import subprocess
import time
import typing as t

from ansible_collections.muster.training.plugins.module_utils._model.stall import LEAST_S
from ansible_collections.muster.training.tests.e2e.playbook_world import World, until

# After some steps a kernel that runs for minutes, while the rank waits for it.
HANGS = """
import time, torch, torch.distributed as dist
torch.cuda.set_device(0)
dist.init_process_group("nccl")
for step in range(1, 21):
    dist.all_reduce(torch.ones(1, device="cuda"))
    print(f"iter {step} train_loss 1.0", flush=True)
    time.sleep(0.1)
torch.cuda._sleep(1 << 42)
torch.cuda.synchronize()
"""
HOLDS = """
import sys, torch
held = torch.empty(60 << 30, dtype=torch.uint8, device="cuda")
print("held", flush=True)
sys.stdin.read()
"""
NEEDS = """
import torch
mine = torch.empty(30 << 30, dtype=torch.uint8, device="cuda")
"""


def job(world: World, program: str, **values: t.Any) -> dict[str, t.Any]:
    code = world.root / "code"
    code.mkdir(exist_ok=True)
    (code / "program.py").write_text(program)
    return {
        "name": "gpu",
        "nodes": 1,
        "gpus_per_node": 1,
        "code": {"from": "path", "ref": str(code)},
        "script": "program.py",
        "restart": {"max_crashes": 0},
        "checkpoints": {"grace_s": 1},
        "metrics": {"step_pattern": "iter +(?P<step>[0-9]+) train_loss (?P<loss>[0-9.]+)"},
        **values,
    }


def test_a_kernel_that_does_not_end_is_diagnosed(world: World, torch_python: str) -> None:
    """NCCL's own service (RAS) is asked, and the rank's stack is read; what is found is shown."""
    play = world.start("train", job(world, HANGS), muster_training_python=torch_python)
    until(lambda: "step 20" in play.output, "the last step", 60)
    time.sleep(LEAST_S + 1.0)
    answer = world.root / "diagnosis.json"
    found = world.play("diagnose", muster_training_python=torch_python, diagnose_out=str(answer))
    print(found.output)
    assert found.code == 0 and "hanging, step 20" in found.output and "stalled: step 20" in found.output, found.output
    seen = json.loads(answer.read_text())["nodes"]["node-1"]["seen"]
    assert "Communicators" in seen["ras"]["text"] and seen["ranks"][0]["nccl"] is True
    # A kernel runs: that tells this hang from a program that waits for its data.
    (gpu,) = seen["gpus"]
    assert gpu["busy_percent"] > 90 and gpu["memory_used_gib"] > 0 and "GPUs: 1" in found.output, found.output
    cancelled = world.play("cancel")
    assert cancelled.code == 0, cancelled.output
    play.wait(30)
    assert not world.processes()


def test_memory_that_another_program_holds_is_told_before_it_is_missing(world: World, torch_python: str) -> None:
    holder = subprocess.Popen([torch_python, "-c", HOLDS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout and holder.stdout.readline() == "held\n"
        result = world.play("train", job(world, NEEDS), 120, muster_training_python=torch_python)
    finally:
        holder.kill()
        holder.wait()
    print(result.output)
    assert "warning: node-1: another program uses the memory of GPU 0 (6" in result.output, result.output
    assert result.code != 0 and "CUDA out of memory" in result.errors[0]
