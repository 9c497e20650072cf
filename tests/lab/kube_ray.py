# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ray for the lab: the image, and a job whose Ray Train stores a checkpoint and fails as often as it is asked to."""

from __future__ import annotations

import pathlib
import typing as t

import pytest

from ansible_collections.muster.training.tests.lab.host import LabError
from ansible_collections.muster.training.tests.lab.kube import images
from ansible_collections.muster.training.tests.support.kube_lab import KubeLab, not_run

LIMIT_S = 420
# argv: workers to train with (0: as many as the job has), how often rank 1 fails. The checkpoint counts how often it
# has. Ray Train asks its workers every two seconds: what it was not told by then goes with a worker that fails.
PROGRAM = """
import json, os, sys, tempfile, time
import ray
from ray import train
from ray.train import Checkpoint, FailureConfig, RunConfig, ScalingConfig
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

def loop(config):
    context = train.get_context()
    found = train.get_checkpoint()
    failed = 0
    if found:
        with found.as_directory() as folder:
            failed = int(open(os.path.join(folder, "state")).read())
    print("rank", context.get_world_rank(), "of", context.get_world_size(), "resumed" if found else "new")
    if context.get_world_rank() == 0:
        with open(os.environ["MUSTER_METRICS_FILE"], "a") as metrics:
            metrics.write(json.dumps({"at": time.time(), "step": failed}) + chr(10))
    if failed == config["fails"]:
        return
    if context.get_world_rank() == 0:
        with tempfile.TemporaryDirectory() as folder:
            open(os.path.join(folder, "state"), "w").write(str(failed + 1))
            train.report({"step": failed + 1}, checkpoint=Checkpoint.from_directory(folder))
    else:
        train.report({"step": failed + 1})
        time.sleep(10)
        raise ValueError("no such thing")

workers = int(sys.argv[1]) or int(os.environ["MUSTER_NUM_WORKERS"])
DataParallelTrainer(
    loop,
    train_loop_config={"fails": int(sys.argv[2])},
    scaling_config=ScalingConfig(num_workers=workers, resources_per_worker={"CPU": 0.1}),
    run_config=RunConfig(
        name=os.environ["MUSTER_RAY_RUN_NAME"],
        storage_path=os.environ["MUSTER_RAY_STORAGE_PATH"],
        failure_config=FailureConfig(max_failures=int(os.environ["MUSTER_RAY_MAX_FAILURES"])),
    ),
).fit()
"""


@pytest.fixture(scope="module")
def ray_image(kube_lab: KubeLab) -> str:
    """The name of the image with Ray, on all nodes."""
    try:
        kube_lab.cluster.install(["kuberay"])
        return kube_lab.cluster.load(images.RAY)
    except LabError as exc:
        not_run(str(exc))


def ray_job(image: str, folder: pathlib.Path, workers: int, fails: int, **values: t.Any) -> dict[str, t.Any]:
    """Return a job of two Ray workers; ``workers`` and ``fails`` are the program's arguments."""
    code = folder / "code"
    code.mkdir()
    (code / "train.py").write_text(PROGRAM)
    return {
        "name": "ray",
        "nodes": 2,
        "launcher": "ray",
        "image": image,
        "code": {"ref": str(code)},
        "script": "train.py",
        "args": [str(workers), str(fails)],
        "resources": {"cpu": 0.3, "memory": "2Gi"},
        "restart": {"max_crashes": 1},
        **values,
    }
