# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the driver, CUDA and NCCL say when a program fails on a real GPU, and what the user is told."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.muster.training.tests.e2e.playbook_world import Result, World, assert_refused

MEMORY = """
import torch
held = [torch.empty(1 << 30, dtype=torch.uint8, device="cuda") for _ in range(2000)]
"""
ASSERT = """
import torch
table = torch.zeros(10, 4, device="cuda")
rows = table[torch.tensor([3, 12], device="cuda")]
torch.cuda.synchronize()
"""
ORDINAL = """
import torch
torch.zeros(1, device="cuda:7")
"""
# A kernel that writes to an address that is nobody's.
ADDRESS = """
import torch, triton, triton.language as tl
@triton.jit
def write(x, far):
    tl.store(x + far, 1.0)
x = torch.zeros(1, device="cuda")
write[(1,)](x, 1 << 44)
torch.cuda.synchronize()
"""
SAME_GPU = """
import os, torch, torch.distributed as dist
torch.cuda.set_device(0)
dist.init_process_group("nccl")
dist.all_reduce(torch.ones(1, device="cuda"))
torch.cuda.synchronize()
"""


def run(world: World, python: str, program: str, **values: t.Any) -> Result:
    code = world.root / "code"
    code.mkdir()
    (code / "fail.py").write_text(program)
    job = {
        "name": "gpu",
        "nodes": 1,
        "gpus_per_node": 1,
        "code": {"from": "path", "ref": str(code)},
        "script": "fail.py",
        "restart": {"max_crashes": 0},
        **values,
    }
    return world.play("train", job, 180, muster_training_python=python)


@pytest.mark.parametrize(
    ("program", "said", "fix"),
    [
        pytest.param(MEMORY, "CUDA out of memory", "batch", id="memory"),
        pytest.param(ASSERT, "device-side assert triggered", "CUDA_LAUNCH_BLOCKING", id="assert"),
        pytest.param(ORDINAL, "invalid device ordinal", "LOCAL_RANK", id="ordinal"),
        pytest.param(ADDRESS, "illegal memory access", "compute-sanitizer", id="address"),
    ],
)
def test_the_last_line_has_the_error_and_what_to_do(
    world: World, torch_python: str, program: str, said: str, fix: str
) -> None:
    result = run(world, torch_python, program)
    print(result.output)
    assert result.code != 0 and said in result.errors[0] and fix in result.errors[0], result.output


def test_two_nodes_that_are_one_machine_are_told(world: World, torch_python: str) -> None:
    world.inventory.write_text("plugin: muster.training.local\nnodes: 2\n")
    result = run(world, torch_python, SAME_GPU, nodes=2)
    print(result.output)
    assert result.code != 0 and "Duplicate GPU detected" in result.errors[0], result.output
    assert "two hosts of the inventory may be one machine" in result.errors[0]


def test_ranks_that_would_share_a_gpu_start_nothing(world: World, torch_python: str) -> None:
    result = run(world, torch_python, SAME_GPU, processes_per_node=2)
    assert_refused(world, result, "job.processes_per_node: 2 processes cannot share 1 GPUs per node")


def test_more_gpus_than_there_are_start_nothing(world: World, torch_python: str, gpus: list[dict[str, t.Any]]) -> None:
    result = run(world, torch_python, MEMORY, gpus_per_node=len(gpus) + 1)
    print(result.output)
    assert_refused(world, result, f"{len(gpus)} GPUs were found, {len(gpus) + 1} are needed")
