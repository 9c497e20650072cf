# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Elastic gangs on a real cluster: the world shrinks when a pod has no node, and grows back when it has one again."""

from __future__ import annotations

import json
import pathlib
import typing as t

import pytest

from ansible_collections.muster.training.tests.lab.kube.stages import until
from ansible_collections.muster.training.tests.lab.kube_drills import AT_STEP, LIMIT_S, Scene
from ansible_collections.muster.training.tests.lab.kube_plays import INTERVAL, Controller, training
from ansible_collections.muster.training.tests.support.kube_lab import KubeLab, Team, kube_lab, not_run, team

__all__ = ["kube_lab", "team"]

STEPS = 300


@pytest.fixture
def scene(kube_lab: KubeLab, team: Team, tmp_path: pathlib.Path) -> t.Iterator[Scene]:
    """A gang of one to two pods that trains; every node takes pods again afterwards."""
    if not kube_lab.torch:
        not_run("the cluster has no torch (MUSTER_TORCH_PYTHON)")
    controller, run_id = Controller(kube_lab, team, tmp_path), f"elastic-{team.namespace[2:]}"
    job = training(kube_lab, team.namespace, STEPS, 0.2, elastic={"min": 1})
    made = Scene(controller, run_id, controller.start("train", job, muster_run_id=run_id), job)
    try:
        yield made
    finally:
        made.play.stop()
        for node in kube_lab.nodes:
            kube_lab.kubectl("uncordon", node)


def worlds(scene: Scene) -> list[int]:
    """Return the world sizes that ranks have told, in their order."""
    place = scene.folder / "events.jsonl" if scene.folder else None
    lines = [json.loads(line) for line in place.read_text().splitlines()] if place and place.exists() else []
    told = [int(line["world_size"]) for line in lines if line.get("kind") == "worker_started"]
    return [size for number, size in enumerate(told) if number == 0 or told[number - 1] != size]


def kill(scene: Scene, rank: int) -> None:
    meta = scene.pod(rank)["metadata"]
    scene.lab.kubectl("delete", "pod", meta["name"], "-n", meta["namespace"], "--force", "--grace-period=0")


@pytest.mark.torch
def test_a_world_shrinks_while_a_pod_has_no_node_and_grows_back(scene: Scene) -> None:
    """No node takes the new pod until the other has gone on alone; then they are two again."""
    scene.reach(AT_STEP)
    for node in scene.lab.nodes:
        scene.lab.kubectl("cordon", node)
    kill(scene, 1)
    assert until(lambda: worlds(scene)[-1:] == [1] or scene.play.ended, LIMIT_S) and not scene.play.ended, worlds(scene)
    alone = scene.step()
    scene.reach(alone + 10)
    for node in scene.lab.nodes:
        scene.lab.kubectl("uncordon", node)
    assert until(lambda: worlds(scene)[-1:] == [2] or scene.play.ended, LIMIT_S) and not scene.play.ended, worlds(scene)
    code, output = scene.play.wait(LIMIT_S)
    assert code == 0, output
    record, _ = scene.controller.run(scene.run_id)
    assert worlds(scene) == [2, 1, 2] and record["outcome"] == "succeeded", record
    assert record["world_size"] == {"asked": 2, "seen": 2}
    assert {int(line["step"]) for line in scene.metrics() if "step" in line} == set(range(1, STEPS + 1))
    resumed = [item["resumed_from_step"] for item in record["attempts"]]
    assert all(step >= INTERVAL for step in resumed[1:]), resumed


@pytest.mark.torch
def test_a_gang_that_loses_its_first_pod_resumes(scene: Scene) -> None:
    """The rendezvous goes with it: the other pod ends too, and all begin again from the checkpoint."""
    scene.reach(AT_STEP)
    kill(scene, 0)
    code, output = scene.play.wait(LIMIT_S)
    assert code == 0, output
    record, _ = scene.controller.run(scene.run_id)
    assert (record["outcome"], record["world_size"]) == ("succeeded", {"asked": 2, "seen": 2}), record
    assert record["attempts"][-1]["resumed_from_step"] >= INTERVAL
    assert record["steps_lost"] <= INTERVAL * (len(record["attempts"]) - 1)
