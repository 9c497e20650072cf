# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Real programs in two pods: trained, one rank killed, resumed, proven, fetched and pruned without an edit.

The programs and what is asked of them are those of ``make programs`` (tests/programs). Their data lies on the mount that
also has the checkpoints. Needs MUSTER_PROGRAMS_PYTHON and the programs' sources.
"""

from __future__ import annotations

import pathlib
import shutil
import time
import typing as t

import pytest

from ansible_collections.muster.training.tests.lab.kube import plan
from ansible_collections.muster.training.tests.lab.kube.stages import until
from ansible_collections.muster.training.tests.lab.kube_drills import Scene
from ansible_collections.muster.training.tests.lab.kube_plays import Controller, Dict
from ansible_collections.muster.training.tests.programs import jobs
from ansible_collections.muster.training.tests.programs.table import PROGRAMS, Program
from ansible_collections.muster.training.tests.support.kube_lab import NOTES, KubeLab, Team, kube_lab, not_run, team
from ansible_collections.muster.training.tests.support.node_lab import read_lines

__all__ = ["kube_lab", "team"]
pytestmark = pytest.mark.torch

# One of each family: Accelerate, Lightning, transformers' Trainer, the launcher of DeepSpeed, and Orbax by ``command``.
NAMES: t.Final = ("diffusers_unconditional", "lightning_imagenet", "trl_sft", "trl_sft_deepspeed", "orbax_jax")
LIMIT_S = 600


class World:
    """What a program has in the cluster: a folder that its pods and this machine see, and the packages it imports."""

    def __init__(self, controller: Controller, python: str) -> None:
        self.controller, self.python = controller, python
        self.mounted = f"/shared/{controller.team.namespace}"
        self.folder = controller.lab.cluster.folder / "shared" / controller.team.namespace

    def job(self, program: Program) -> Dict:
        """Return the program's job, its data copied to the mount."""
        for kind in program.data:
            shutil.copytree(jobs.make_data(self.python, kind), self.folder / "data" / kind)
        lab = self.controller.lab
        folders = (lab.programs, lab.launchers, lab.torch)
        packages = [
            {"name": f"packages-{number}", "path": place, "host_path": place, "read_only": True}
            for number, place in enumerate(folders)
        ]
        job = jobs.build_job(
            program,
            "python3",
            f"{self.mounted}/checkpoints",
            env={"PYTHONPATH": ":".join(folders)},
            mounts=[*packages, {"name": "shared", "path": "/shared", "host_path": plan.SHARED}],
            resources={"cpu": 1, "memory": "3Gi"},
        )
        words = [str(word).replace("{run_dir}/data", f"{self.mounted}/data") for word in job.get("args", ())]
        return {**job, **({"args": words} if words else {})}

    def checkpoints(self, run_id: str) -> pathlib.Path:
        """Return the run's own folder, on this machine."""
        return self.folder / "checkpoints" / run_id


@pytest.fixture
def world(kube_lab: KubeLab, team: Team, tmp_path: pathlib.Path) -> t.Iterator[World]:
    python = jobs.find_python()
    if not (kube_lab.torch and kube_lab.launchers and kube_lab.programs and python):
        not_run("the cluster has no torch, launchers' libraries and programs' libraries (MUSTER_PROGRAMS_PYTHON)")
    made = World(Controller(kube_lab, team, tmp_path), python)
    yield made
    shutil.rmtree(made.folder, ignore_errors=True)


def kill_rank(scene: Scene, folder: pathlib.Path, program: Program) -> None:
    """SIGKILL to the process of rank 1 some time after the first checkpoint is whole."""
    saved = until(lambda: scene.play.ended or any(folder.glob(program.first)), LIMIT_S)
    assert saved and not scene.play.ended, scene.play.output[-4000:]
    time.sleep(program.after_s)
    assert not scene.play.ended and scene.folder, "the run ended before a rank was killed"
    started = [line for line in read_lines(scene.folder / "events.jsonl") if line["kind"] == "worker_started"]
    pid = next(line["pid"] for line in started if line["rank"] == 1)
    meta = scene.pod(1)["metadata"]
    scene.lab.kubectl("exec", meta["name"], "-n", meta["namespace"], "--", "sh", "-c", f"kill -KILL {pid}")


@pytest.mark.parametrize("program", [item for item in PROGRAMS if item.name in NAMES], ids=lambda item: item.name)
def test_a_program_in_pods_is_killed_resumes_and_is_fetched(world: World, program: Program) -> None:
    began, controller = time.monotonic(), world.controller
    job, run_id = world.job(program), f"program-{controller.team.namespace[2:]}"
    folder = world.checkpoints(run_id)
    scene = Scene(controller, run_id, controller.start("train", job, muster_run_id=run_id), job)
    try:
        kill_rank(scene, folder, program)
        code, output = scene.play.wait(LIMIT_S)
    finally:
        scene.play.stop()
    assert code == 0 and "Traceback" not in output, output[-6000:]
    record, kept = controller.run(run_id)
    trained_s = time.monotonic() - began
    jobs.keep_output(f"pods/{program.name}", kept, output)
    jobs.assert_recorded(program, record)
    name = str(pathlib.PurePath(record["checkpoint"]["path"]).relative_to(f"{world.mounted}/checkpoints/{run_id}"))
    jobs.assert_kept(program, folder, name, read_lines(kept / "events.jsonl"))
    compared, written = jobs.assert_read(program, world.python, folder, read_lines(kept / "metrics.jsonl"))
    tensors = fetch(world, program, name)
    prune(world, run_id, folder / name)
    after, read = record["attempts"][-1], record.get("steps_read") or {}
    NOTES.append(
        f"{program.name} in pods: steps of {read.get('preset') or 'patterns'}, layout {record['checkpoint']['layout']}, "
        f"went on at step {after['first_step']} to {after['last_step']}, {compared} of {written} losses as written, "
        f"{tensors} tensors loaded; {trained_s:.0f} s trained, {time.monotonic() - began:.0f} s in all"
    )


def fetch(world: World, program: Program, name: str) -> int:
    """Fetch the newest checkpoint, and load it here; return its number of tensors."""
    got = world.controller.folder / "got"
    code, output = world.controller.play("fetch", muster_fetch_dest=str(got))
    assert code == 0, output
    return jobs.assert_loads(program, world.python, got / name)


def prune(world: World, run_id: str, checkpoint: pathlib.Path) -> None:
    """Remove the run; its checkpoints are in a folder that the job names, and stay."""
    code, output = world.controller.play("prune", muster_prune_runs=[run_id], muster_prune_controller=True)
    said = f"{run_id}: on no node; {world.mounted}/checkpoints/{run_id} is left as it is"
    assert code == 0 and said in output, output
    folders = list((world.controller.folder / "state").glob(f"*/runs/{run_id}"))
    assert [(folder / "logs").exists() for folder in folders] == [False] and checkpoint.exists()
