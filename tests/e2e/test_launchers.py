# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The presets, each with its real library: a gang trains, loses a rank, resumes and learns on."""

from __future__ import annotations

import os
import pathlib
import shutil

import pytest

from ansible_collections.muster.training.tests.e2e.conftest import lacking
from ansible_collections.muster.training.tests.e2e.playbook_world import World, assert_refused
from ansible_collections.muster.training.tests.support import debian, preset_jobs
from ansible_collections.muster.training.tests.support.preset_jobs import AT_STEP, PRESETS, ROOT, Preset

FAILS_ONCE = """
import os, pathlib
once = pathlib.Path(os.environ["MUSTER_CHECKPOINT_DIR"], "was-here")
again = once.exists()
if os.environ["OMPI_COMM_WORLD_RANK"] == "1" and not again:
    once.parent.mkdir(parents=True, exist_ok=True)
    once.touch()
    raise ValueError("the first attempt fails")
"""


# One that torchrun starts, and the one that mpirun does.
SHORT = ("deepspeed_zero3", "mpi4py")


@pytest.fixture(scope="module")
def launchers_python() -> str:
    """The interpreter with the launchers' libraries."""
    named = os.environ.get("MUSTER_LAUNCHERS_PYTHON", "")
    if not named or not shutil.which(named):
        lacking("MUSTER_LAUNCHERS_PYTHON names no interpreter with the launchers' libraries (make venv-launchers)")
    return named


@pytest.fixture
def mpirun(sshd_works: None) -> None:
    """Open MPI, and the sshd that it starts its daemons over."""
    problem = debian.obtain("mpirun", "openmpi-bin")
    if problem:
        lacking(problem)


@pytest.mark.torch
@pytest.mark.parametrize(
    "preset",
    # Each of the others starts by torchrun, too.
    [pytest.param(preset, marks=[] if preset.name in SHORT else [pytest.mark.long]) for preset in PRESETS],
    ids=lambda preset: preset.name,
)
def test_a_preset_resumes_when_a_rank_was_killed(
    world: World, launchers_python: str, preset: Preset, request: pytest.FixtureRequest
) -> None:
    """On two hosts, with the preset's own settings; nothing but the program and its folders is added."""
    if preset.name == "mpi4py":
        request.getfixturevalue("mpirun")
    model = preset_jobs.make_model(launchers_python, world.root / "model") if preset.has_model else None
    job = preset_jobs.job(preset, str(world.root / "shared"), model, python=launchers_python)
    result = world.play("drill", job=job, muster_drill={"rank": 1, "at_step": AT_STEP}, limit_s=240)
    assert result.code == 0 and "Traceback" not in result.output, result.output
    preset_jobs.assert_resumed(world.record(), world.metrics(), preset.ranks)
    assert world.processes() == {}


@pytest.mark.long
def test_a_rank_that_fails_under_mpirun_takes_the_gang_along(world: World, mpirun: None) -> None:
    """Not killed but ended by its own error; the gang starts again as a whole."""
    (world.root / "code").mkdir()
    (world.root / "code" / "train.py").write_text(FAILS_ONCE)
    shared = str(world.root / "shared")
    job = {"name": "e2e", "nodes": 2, "launcher": "mpi", "script": "train.py", "checkpoints": {"path": shared}}
    result = world.play(job={**job, "code": {"ref": str(world.root / "code")}}, limit_s=240)
    assert result.code == 0, result.output
    record = world.record()
    assert (record["outcome"], record["world_size"]) == ("succeeded", {"asked": 2, "seen": 2})
    assert [item["cause"] for item in record["attempts"]] == ["crash", None]


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (
            {"launcher": "megatron", "parallel": {"tensor": 4}},
            ("job.parallel", "tensor 4 x pipeline 1 x context 1 = 4 does not divide the world size 2"),
        ),
        ({"template": "horovod"}, ("job.template", "does not build with PyTorch", "pytorch_ddp")),
        ({"args": ["--tensor-model-parallel-size", 4]}, ("job.args", "does not divide the world size 2")),
    ],
    ids=["megatron", "horovod", "parallel sizes"],
)
def test_what_would_not_run_is_refused(world: World, values: dict[str, object], words: tuple[str, ...]) -> None:
    job = {"name": "e2e", "nodes": 2, "script": "accelerate_train.py", **values}
    result = world.play(job={**job, "code": {"ref": str(pathlib.Path(ROOT, "examples", "presets"))}})
    assert_refused(world, result, *words)
