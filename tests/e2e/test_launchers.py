# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The presets beside PyTorch's own, each with its real library: a gang trains, loses a rank, resumes and learns on."""

from __future__ import annotations

import os
import pathlib
import shutil

import pytest

from ansible_collections.muster.training.tests.e2e.conftest import lacking
from ansible_collections.muster.training.tests.e2e.playbook_world import World, assert_refused
from ansible_collections.muster.training.tests.support import debian, preset_jobs
from ansible_collections.muster.training.tests.support.preset_jobs import AT_STEP, PRESETS, ROOT, Preset


@pytest.fixture(scope="module")
def launchers_python() -> str:
    """The interpreter with the launchers' libraries."""
    named = os.environ.get("MUSTER_LAUNCHERS_PYTHON", "")
    if not named or not shutil.which(named):
        lacking("MUSTER_LAUNCHERS_PYTHON names no interpreter with the launchers' libraries (make venv-launchers)")
    return named


@pytest.mark.torch
@pytest.mark.parametrize("preset", PRESETS, ids=lambda preset: preset.name)
def test_a_preset_resumes_when_a_rank_was_killed(
    world: World, launchers_python: str, preset: Preset, request: pytest.FixtureRequest
) -> None:
    """On two hosts, with the preset's own settings; nothing but the program and its folders is added."""
    if preset.name == "mpi4py":
        request.getfixturevalue("sshd_works")
        problem = debian.obtain("mpirun", "openmpi-bin")
        if problem:
            lacking(problem)
    model = preset_jobs.make_model(launchers_python, world.root / "model") if preset.has_model else None
    job = preset_jobs.job(preset, str(world.root / "shared"), model, python=launchers_python)
    result = world.play("drill", job=job, muster_drill={"rank": 1, "at_step": AT_STEP}, limit_s=240)
    assert result.code == 0 and "Traceback" not in result.output, result.output
    preset_jobs.assert_resumed(world.record(), world.metrics())
    if preset.name == "deepspeed_zero3":
        assert [line["stage"] for line in world.metrics() if "stage" in line] == [3, 3]
    assert world.processes() == {}


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"launcher": "megatron"}, ("job.launcher", "torchrun starts Megatron-LM")),
        ({"template": "horovod"}, ("job.template", "does not build with PyTorch", "pytorch_ddp")),
        ({"args": ["--tensor-model-parallel-size", 4]}, ("job.args", "does not divide the world size 2")),
    ],
    ids=["megatron", "horovod", "parallel sizes"],
)
def test_what_would_not_run_is_refused(world: World, values: dict[str, object], words: tuple[str, ...]) -> None:
    job = {"name": "e2e", "nodes": 2, "script": "accelerate_train.py", **values}
    result = world.play(job={**job, "code": {"ref": str(pathlib.Path(ROOT, "examples", "presets"))}})
    assert_refused(world, result, *words)
