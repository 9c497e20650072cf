# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""RayJob on a real KubeRay with Ray of PyPI: the workers that Ray Train trained with are the run's ranks."""

from __future__ import annotations

import pathlib
import typing as t

import pytest

from ansible_collections.muster.training.tests.lab.host import LabError
from ansible_collections.muster.training.tests.lab.kube.stages import until
from ansible_collections.muster.training.tests.lab.kube_plays import Controller, Dict
from ansible_collections.muster.training.tests.lab.kube_ray import LIMIT_S, ray_image, ray_job
from ansible_collections.muster.training.tests.support.kube_lab import KubeLab, Team, not_run
from ansible_collections.muster.training.tests.support.node_lab import read_lines

__all__ = ["ray_image"]


@pytest.fixture
def controller(kube_lab: KubeLab, tmp_path: pathlib.Path) -> t.Iterator[Controller]:
    """A controller in a namespace with room for a head, its workers and the submitter."""
    with kube_lab.namespace(cpu="8", memory="16Gi") as team:
        yield Controller(kube_lab, team, tmp_path)


def job(team: Team, image: str, folder: pathlib.Path, workers: int, fails: int) -> Dict:
    """Return a job whose storage path is a folder that all nodes share."""
    mounts = [{"name": "checkpoints", "path": "/checkpoints", "host_path": "/opt/lab/shared"}]
    checkpoints = {"path": f"/checkpoints/{team.namespace}", "grace_s": 5}
    return ray_job(image, folder, workers, fails, mounts=mounts, checkpoints=checkpoints)


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
