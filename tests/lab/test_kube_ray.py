# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""RayJob on a real KubeRay with Ray of PyPI: the workers that Ray Train trained with are the run's ranks."""

from __future__ import annotations

import pathlib
import typing as t

import pytest

from ansible_collections.muster.training.tests.lab.host import LabError
from ansible_collections.muster.training.tests.lab.kube import images
from ansible_collections.muster.training.tests.lab.kube.stages import until
from ansible_collections.muster.training.tests.lab.kube_plays import Controller, Dict
from ansible_collections.muster.training.tests.support.kube_lab import KubeLab, Team, not_run
from ansible_collections.muster.training.tests.support.node_lab import read_lines

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


@pytest.fixture
def controller(kube_lab: KubeLab, tmp_path: pathlib.Path) -> t.Iterator[Controller]:
    """A controller in a namespace with room for a head, its workers and the submitter."""
    with kube_lab.namespace(cpu="8", memory="16Gi") as team:
        yield Controller(kube_lab, team, tmp_path)


def job(team: Team, image: str, folder: pathlib.Path, *words: int) -> Dict:
    """Return a job of two Ray workers."""
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
        "args": [str(word) for word in words],
        "mounts": [{"name": "checkpoints", "path": "/checkpoints", "host_path": "/opt/lab/shared"}],
        "checkpoints": {"path": f"/checkpoints/{team.namespace}", "grace_s": 5},
        "resources": {"cpu": 0.3, "memory": "2Gi"},
        "restart": {"max_crashes": 1},
    }


def test_the_workers_of_ray_train_are_the_ranks(controller: Controller, ray_image: str) -> None:
    """One worker fails once: Ray Train starts the group again, and both groups are attempts of the run."""
    made = job(controller.team, ray_image, controller.folder, 0, 1)
    code, output = controller.play("train", made, limit_s=LIMIT_S)
    assert code == 0, output
    record, _ = controller.run()
    assert (record["outcome"], record["engine"]) == ("succeeded", "rayjob")
    assert record["world_size"] == {"asked": 2, "seen": 2}
    assert [item["ranks"] for item in record["attempts"]] == [2, 2], record["attempts"]

    def cluster() -> list[str]:
        found = controller.lab.pods(controller.team.namespace)
        return [pod["metadata"]["name"] for pod in found if "ray.io/cluster" in pod["metadata"]["labels"]]

    # Its workers would hold their GPUs for as long as it stays.
    assert until(lambda: not cluster(), 150), cluster()


def test_what_ray_train_gives_up_goes_on_in_a_second_cluster(controller: Controller, ray_image: str) -> None:
    """The driver of the first cluster fails with its second group; the next cluster's group resumes and succeeds."""
    made = job(controller.team, ray_image, controller.folder, 0, 2)
    code, output = controller.play("train", made, limit_s=2 * LIMIT_S)
    assert code == 0, output
    record, folder = controller.run()
    assert (record["outcome"], record["world_size"]) == ("succeeded", {"asked": 2, "seen": 2})
    assert [(item["n"], item["ranks"]) for item in record["attempts"]] == [(1, 2), (2, 2), (3, 2)], record["attempts"]
    events, metrics = (read_lines(folder / f"{name}.jsonl") for name in ("events", "metrics"))
    # A submitter that KubeRay starts again reads its log from the beginning, and says the same twice.
    drivers = sorted({line["attempt"] for line in events if line["kind"] == "ray_workers"})
    assert drivers == [1, 3], events
    # Each group went on where the one before had failed, also in the second cluster.
    assert list(dict.fromkeys(line["step"] for line in metrics)) == [0, 1, 2], metrics


def test_a_world_that_is_too_small_is_no_success(controller: Controller, ray_image: str) -> None:
    """The driver ends well and has trained with one worker of two."""
    made = job(controller.team, ray_image, controller.folder, 1, 0)
    code, output = controller.play("train", made, limit_s=LIMIT_S)
    assert code != 0 and "Traceback" not in output, output
    record, _ = controller.run()
    assert (record["outcome"], record["cause"]) == ("failed", "attendance"), record["detail"]
    assert record["world_size"] == {"asked": 2, "seen": 1}


def test_a_head_that_ends_at_once_ends_the_run(kube_lab: KubeLab, controller: Controller) -> None:
    """An image without Ray: KubeRay would make the head again and again, and its submitter waits for it."""
    try:
        kube_lab.cluster.install(["kuberay"])
    except LabError as exc:
        not_run(str(exc))
    code, output = controller.play("train", job(controller.team, kube_lab.image, controller.folder, 0, 0))
    assert code not in (0, 124) and "ended before the program began" in output and "Traceback" not in output, output
    record, _ = controller.run()
    assert (record["state"], record["outcome"]) == ("ended", "failed"), record
    assert until(lambda: controller.lab.pods(controller.team.namespace) == [], 90)
