# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every engine whose controller the lab has: its gang ends with all ranks seen, and a crash is what it promises."""

from __future__ import annotations

import dataclasses
import pathlib
import typing as t

import pytest

from ansible_collections.muster.training.tests.lab.kube import plan
from ansible_collections.muster.training.tests.lab.kube.stages import until
from ansible_collections.muster.training.tests.lab.kube_plays import Controller, Dict, command
from ansible_collections.muster.training.tests.support.kube_lab import KubeLab, Team


@dataclasses.dataclass(frozen=True)
class Engine:
    """What an engine needs on the cluster and makes of a crash. ``attempts``: with one crash allowed."""

    name: str
    component: str | None
    attempts: int
    job: t.Mapping[str, t.Any] = dataclasses.field(default_factory=dict)


ENGINES = (
    Engine("jobset", None, 2),
    # A plain Job starts no gang again.
    Engine("indexed_job", None, 1),
    Engine("trainjob", "trainer", 2),
    Engine("mpijob", "mpi-operator", 2, {"launcher": "mpi"}),
)


@pytest.fixture(params=ENGINES, ids=lambda engine: engine.name)
def engine(request: pytest.FixtureRequest, kube_lab: KubeLab) -> Engine:
    """An engine with its controller on the cluster."""
    found: Engine = request.param
    if found.component:
        kube_lab.cluster.install([found.component])
    return found


@pytest.fixture
def controller(kube_lab: KubeLab, team: Team, tmp_path: pathlib.Path) -> Controller:
    """A controller in the team's namespace."""
    return Controller(kube_lab, team, tmp_path)


def job(engine: Engine, program: str, **more: t.Any) -> Dict:
    """Return a job of two nodes on an engine, which runs a line of shell in each rank."""
    return command("sh", "-c", program, placement={"engine": engine.name}, **{**engine.job, **more})


def test_a_gang_ends_with_all_ranks_seen(engine: Engine, controller: Controller) -> None:
    says = "echo rank ${OMPI_COMM_WORLD_RANK:-$NODE_RANK} of ${OMPI_COMM_WORLD_SIZE:-$NNODES} on $MUSTER_NODE"
    code, output = controller.play("train", job(engine, says))
    assert code == 0, output
    record, folder = controller.run()
    assert (record["outcome"], record["engine"]) == ("succeeded", engine.name)
    assert record["world_size"] == {"asked": 2, "seen": 2}
    logs = "".join(place.read_text() for place in sorted((folder / "logs").iterdir()))
    assert "rank 0 of 2" in logs and "rank 1 of 2" in logs
    space = controller.team.namespace

    def held() -> list[str]:
        return [
            pod["metadata"]["name"]
            for pod in controller.lab.pods(space)
            if pod["status"]["phase"] not in ("Succeeded", "Failed")
        ]

    until(lambda: not held(), 30)
    assert held() == [], "a gang that has ended holds nothing"


def test_a_crash_is_what_the_engine_promises(engine: Engine, controller: Controller) -> None:
    fails = "test ${OMPI_COMM_WORLD_RANK:-$NODE_RANK} = 0 && sleep 60; echo ValueError: no such thing; exit 3"
    code, output = controller.play("train", job(engine, fails, restart={"max_crashes": 1, "max_lost_nodes": 0}))
    assert code != 0 and "Traceback" not in output, output
    record, _ = controller.run()
    assert (record["outcome"], record["cause"], record["exit_code"]) == ("failed", "crash", 3), record["detail"]
    assert [item["n"] for item in record["attempts"]] == list(range(1, engine.attempts + 1))
    assert "ValueError: no such thing" in output


def test_a_fatal_exit_code_is_not_tried_again(engine: Engine, controller: Controller) -> None:
    fails = "test ${OMPI_COMM_WORLD_RANK:-$NODE_RANK} = 0 && sleep 60; exit 65"
    wanted = {"max_crashes": 3, "fatal_exit_codes": [65]}
    code, output = controller.play("train", job(engine, fails, restart=wanted))
    assert code != 0, output
    record, _ = controller.run()
    assert (record["cause"], record["exit_code"]) == ("fatal_exit_code", 65), record["detail"]
    assert len(record["attempts"]) == 1


def test_a_job_that_takes_too_long_ends(engine: Engine, controller: Controller) -> None:
    code, output = controller.play("train", job(engine, "sleep 120", timeout_s=15))
    assert code != 0, output
    record, _ = controller.run()
    assert (record["outcome"], record["cause"], record["exit_code"]) == ("failed", "timeout", 124), record["detail"]
    until(lambda: not running(controller), 60)
    assert not running(controller)


def running(controller: Controller) -> list[Dict]:
    """Return the pods that still run."""
    return [pod for pod in controller.lab.pods(controller.team.namespace) if pod["status"]["phase"] == "Running"]


def kept(controller: Controller) -> Dict:
    """Return the keys of a job whose checkpoints lie on a folder that all nodes share."""
    mount = {"name": "shared", "path": "/shared", "host_path": plan.SHARED}
    return {"mounts": [mount], "checkpoints": {"path": f"/shared/{controller.team.namespace}", "grace_s": 1}}


def test_a_gang_that_nobody_followed_is_judged_by_what_it_kept(engine: Engine, controller: Controller) -> None:
    """The MPI operator removes the workers at the end, and their logs with them."""
    wanted = job(engine, "echo rank ran", **kept(controller))
    code, output = controller.play("train", wanted, training_job_wait=False)
    assert code == 0, output
    assert until(lambda: "its end is not recorded yet" in controller.play("status")[1], 120, 3)
    code, output = controller.play("train", wanted)
    assert code == 0, output
    record, _ = controller.run()
    assert (record["outcome"], record["world_size"]) == ("succeeded", {"asked": 2, "seen": 2}), record["detail"]


def test_a_lost_worker_of_mpirun_is_made_again_under_its_name(controller: Controller) -> None:
    """It is another pod, on whatever machine, and takes part when mpirun is started again."""
    controller.lab.cluster.install(["mpi-operator"])
    engine = next(item for item in ENGINES if item.name == "mpijob")
    loop = "i=0; while [ $i -lt 100 ]; do i=$((i+1)); echo step=$i; sleep 0.2; done"
    first = controller.start("train", job(engine, loop, **kept(controller)))
    assert until(lambda: "ranks 2/2" in first.output or first.ended, 120), first.output
    (worker,) = [pod["metadata"]["name"] for pod in running(controller) if pod["metadata"]["name"].endswith("worker-1")]
    space = controller.team.namespace
    controller.lab.kubectl("delete", "pod", worker, "-n", space, "--force", "--grace-period=0")
    code, output = first.wait()
    assert code == 0, output
    record, _ = controller.run()
    assert (record["outcome"], record["world_size"]) == ("succeeded", {"asked": 2, "seen": 2}), record["detail"]
    assert len(record["attempts"]) == 2, record["attempts"]
