# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The presets in pods, each with its real library: a gang loses a pod and resumes."""

from __future__ import annotations

import json
import os
import pathlib

import pytest

from ansible_collections.muster.training.tests.lab.kube import plan
from ansible_collections.muster.training.tests.lab.kube_plays import Controller
from ansible_collections.muster.training.tests.support import preset_jobs
from ansible_collections.muster.training.tests.support.kube_lab import KubeLab, Team, not_run
from ansible_collections.muster.training.tests.support.preset_jobs import AT_STEP, PRESETS, Preset

pytestmark = pytest.mark.torch


@pytest.mark.parametrize("preset", PRESETS, ids=lambda preset: preset.name)
def test_a_preset_resumes_when_a_pod_was_killed(
    kube_lab: KubeLab, team: Team, tmp_path: pathlib.Path, preset: Preset
) -> None:
    if not kube_lab.torch or not kube_lab.launchers:
        not_run("the cluster has no torch and launchers' libraries (MUSTER_TORCH_PYTHON, MUSTER_LAUNCHERS_PYTHON)")
    if preset.name == "mpi4py":
        kube_lab.cluster.install(["mpi-operator"])
    python = os.environ.get("MUSTER_LAUNCHERS_PYTHON", "")
    model = preset_jobs.make_model(python, tmp_path / "model") if preset.has_model else None
    folders = (kube_lab.launchers, kube_lab.torch)
    packages = [
        {"name": f"packages-{number}", "path": place, "host_path": place, "read_only": True}
        for number, place in enumerate(folders)
    ]
    job = preset_jobs.job(
        preset,
        f"/shared/{team.namespace}",
        model,
        env={"PYTHONPATH": ":".join(folders)},
        mounts=[*packages, {"name": "shared", "path": "/shared", "host_path": plan.SHARED}],
        resources={"cpu": 0.5, "memory": f"{preset.ranks}Gi"},
    )
    controller = Controller(kube_lab, team, tmp_path)
    drill = {"target": "agent", "rank": 1, "at_step": AT_STEP}
    code, output = controller.play("drill", job, muster_drill=drill)
    assert code == 0 and "Traceback" not in output, output
    record, folder = controller.run()
    preset_jobs.assert_resumed(
        record, [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()], preset.ranks
    )
