# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The train playbook against a real cluster: JobSet and Kueue start, restart and end gangs of real pods."""

from __future__ import annotations

import pathlib

import pytest

from ansible_collections.muster.training.tests.lab.kube.stages import until
from ansible_collections.muster.training.tests.lab.kube_plays import CANARY, INTERVAL, Controller, command, training
from ansible_collections.muster.training.tests.lab.kube_registry import registry
from ansible_collections.muster.training.tests.support.kube_lab import KubeLab, Team, kube_lab, not_run, team

__all__ = ["kube_lab", "team"]


@pytest.fixture
def controller(kube_lab: KubeLab, team: Team, tmp_path: pathlib.Path) -> Controller:
    """A controller with the rights of an administrator in the team's namespace."""
    return Controller(kube_lab, team, tmp_path)


def test_a_gang_runs_once_and_leaves_its_record(controller: Controller) -> None:
    """All ranks are seen, logs and record stay when the objects are gone, no secret is in any of them."""
    says = 'echo rank $NODE_RANK of $NNODES; test -n "$TOKEN"; echo token $TOKEN; test "$THEIRS" = kept-here'
    namespace = controller.team.namespace
    controller.lab.kubectl("create", "secret", "generic", "theirs", "--from-literal=key=kept-here", "-n", namespace)
    theirs = {"name": "THEIRS", "from": "kubernetes", "path": "theirs", "key": "key"}
    job = command("sh", "-ec", says, secret_refs=[{"name": "TOKEN", "from": "env", "key": "MUSTER_CANARY"}, theirs])
    code, output = controller.play("train", job)
    assert code == 0, output
    record, folder = controller.run()
    assert (record["outcome"], record["world_size"]) == ("succeeded", {"asked": 2, "seen": 2})
    assert (record["backend"], record["engine"]) == ("kubernetes", "jobset")
    logs = "".join(place.read_text() for place in sorted((folder / "logs").iterdir()))
    assert "rank 0 of 2" in logs and "rank 1 of 2" in logs
    code, output = controller.play("train", {**command("sh", "-ec", says), "secret_refs": job["secret_refs"]})
    assert code == 0 and "changed=0" in output.partition("PLAY RECAP")[2], output
    controller.lab.kubectl("delete", "jobset", "--all", "--namespace", controller.team.namespace, "--wait")
    left = controller.lab.kubectl(
        "get", "configmap,secret,networkpolicy", "-n", controller.team.namespace, "-o", "name"
    )
    assert "gang-" not in left and "secret/theirs" in left, "what came with the job goes with it"
    kept = [place.read_text(errors="replace") for place in controller.folder.rglob("*") if place.is_file()]
    assert CANARY not in output and not any(CANARY in text for text in kept)


def test_a_program_that_fails_is_restarted_as_a_gang_and_then_named(controller: Controller) -> None:
    fails = "echo ValueError: no such thing; test $NODE_RANK = 0 || exit 3; sleep 60"
    code, output = controller.play("train", command("sh", "-c", fails, restart={"max_crashes": 1}))
    assert code != 0 and "Traceback" not in output, output
    record, folder = controller.run()
    assert (record["outcome"], record["cause"], record["exit_code"]) == ("failed", "crash", 3), record["detail"]
    assert [item["n"] for item in record["attempts"]] == [1, 2]
    assert "ValueError: no such thing" in output and any((folder / "logs").iterdir())


def test_what_cannot_start_says_why(controller: Controller) -> None:
    """An image that its registry does not have is found by the probe, before the job takes anything."""
    with registry(controller.lab) as made:
        name = made.name("no-such-image")
        code, output = controller.play("train", command("true", image=name))
    assert code != 0 and f"job.image: {name} cannot be pulled" in output, output
    assert not list(controller.folder.glob("state/*/runs/*"))
    until(lambda: controller.lab.pods(controller.team.namespace) == [], 60)


def test_bad_placement_is_refused_before_anything_is_made(controller: Controller) -> None:
    name = controller.team.namespace
    for job, said in (
        (command("true", placement={"queue": "nowhere"}), f"no LocalQueue nowhere in the namespace {name}"),
        (command("true", gpus_per_node=8), "of 3 nodes fit"),
        (command("true", placement={"priority": "urgent"}), "no WorkloadPriorityClass urgent"),
        (
            command("true", mounts=[{"name": "x", "path": "/x", "pvc": "missing"}]),
            "PersistentVolumeClaim missing does not exist",
        ),
        (command("true", resources={"memory": "8gb"}), "job.resources.memory"),
    ):
        code, output = controller.play("train", job)
        assert code != 0 and said in output and "Traceback" not in output, output
    assert controller.lab.pods(name) == []
    assert not list((controller.folder / "state").glob("*/runs/*"))


def test_check_mode_asks_the_server_and_makes_nothing(controller: Controller) -> None:
    code, output = controller.play("train", command("true"), check=True)
    assert code == 0 and "changed=1" in output.partition("PLAY RECAP")[2], output
    left = controller.lab.kubectl("get", "all,configmap", "-n", controller.team.namespace, "-o", "name").split()
    assert left == ["configmap/kube-root-ca.crt"]


@pytest.mark.torch
def test_a_killed_pod_resumes_from_the_checkpoint(controller: Controller) -> None:
    """DDP over gloo in two pods: the gang is started again as a whole and resumes from its checkpoint."""
    lab = controller.lab
    if not lab.torch:
        not_run("the cluster has no torch (MUSTER_TORCH_PYTHON)")
    job = training(lab, controller.team.namespace)
    code, output = controller.play("train", job, muster_drill={"target": "agent", "rank": 1, "at_step": 50})
    assert code == 0, output
    record, _ = controller.run()
    assert (record["outcome"], record["world_size"]) == ("succeeded", {"asked": 2, "seen": 2})
    assert record["drill"]["resumed"] is True and record["steps_lost"] <= INTERVAL, record["drill"]
    assert len(record["attempts"]) == 2 and record["attempts"][1]["resumed_from_step"] >= 20


@pytest.mark.torch
def test_an_attempt_that_nobody_followed_is_read_back(controller: Controller) -> None:
    """The first attempt dies while no controller looks; its words and steps lie beside the checkpoints."""
    lab, space = controller.lab, controller.team.namespace
    if not lab.torch:
        not_run("the cluster has no torch (MUSTER_TORCH_PYTHON)")
    job = training(lab, space, 160, 0.1)
    code, output = controller.play("train", job, training_job_wait=False)
    assert code == 0, output
    shared = lab.cluster.folder / "shared" / space
    assert until(lambda: list(shared.glob("*/step-00000040.*")), 120), "no checkpoint"
    first = {pod["metadata"]["name"] for pod in lab.pods(space) if "-probe-" not in pod["metadata"]["name"]}
    lab.kubectl("delete", "pod", sorted(first)[1], "-n", space, "--force", "--grace-period=0")
    assert until(lambda: not first & {pod["metadata"]["name"] for pod in lab.pods(space)}, 60)
    until(lambda: len([pod for pod in lab.pods(space) if pod["status"]["phase"] == "Running"]) == 2, 60)
    code, output = controller.play("train", job)
    assert code == 0 and "The logs of attempt 1 were not read to their end" in output, output
    record, folder = controller.run()
    attempts = record["attempts"]
    assert [item["n"] for item in attempts] == [1, 2] and attempts[0]["first_step"] == 1, attempts
    assert attempts[1]["resumed_from_step"] >= INTERVAL and record["steps_lost"] <= INTERVAL
    kept = "".join(place.read_text() for place in (folder / "logs").glob("*.attempt-1.log"))
    assert "attempt 1: starts at step 1" in kept
