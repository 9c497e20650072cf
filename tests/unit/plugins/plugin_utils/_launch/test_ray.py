# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A Ray driver gets the size of its worker group and where its checkpoints are."""

from __future__ import annotations

from ansible_collections.muster.training.plugins.module_utils._model.job import parse_job
from ansible_collections.muster.training.plugins.plugin_utils._launch import ray
from ansible_collections.muster.training.plugins.plugin_utils._launch.base import RunContext

JOB = {
    "name": "tune",
    "launcher": "ray",
    "nodes": 2,
    "script": "/app/train.py",
    "image": "registry.example/ray:1",
    "gpus_per_node": 4,
    "placement": {"backend": "kubernetes"},
}
MOUNT = {"checkpoints": {"path": "/data/ckpt"}, "mounts": [{"name": "data", "path": "/data", "pvc": "team"}]}


def test_metrics_are_beside_checkpoints_only_where_these_are_shared() -> None:
    alone = ray.pods(parse_job(JOB), RunContext("r-1", 29500, 3, None))["driver"]
    shared = ray.pods(parse_job({**JOB, **MOUNT}), RunContext("r-1", 29500, 3, "/data/ckpt/r-1"))["driver"]
    assert shared.env["MUSTER_METRICS_FILE"] == "/data/ckpt/r-1/.muster-metrics-3.jsonl"
    assert not alone.env.get("MUSTER_METRICS_FILE", "").startswith("/data")
    assert shared.env["MUSTER_RAY_STORAGE_PATH"] == shared.checkpoint_dir == "/data/ckpt/r-1"


def test_the_driver_needs_no_gpu_and_knows_its_workers() -> None:
    driver = ray.pods(parse_job(JOB), RunContext("r-1", 29500, 1, None))["driver"]
    assert (driver.gpus, driver.role, driver.ray and driver.ray["nodes"]) == (0, "launcher", 2)
    assert (driver.env["MUSTER_NUM_WORKERS"], driver.env["MUSTER_USE_GPU"]) == ("8", "1")
