# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A queue whose topology has islands: Kueue admits each gang of ours to one of them."""

from __future__ import annotations

import pathlib
import typing as t

import pytest

from ansible_collections.muster.training.tests.lab.kube.stages import until
from ansible_collections.muster.training.tests.lab.kube_plays import Controller, command
from ansible_collections.muster.training.tests.support.kube_lab import KubeLab, kube_lab

__all__ = ["kube_lab"]

ISLAND = "muster.training/island"


SHARED = {"share_machines": True}


@pytest.fixture
def controller(kube_lab: KubeLab, tmp_path: pathlib.Path) -> t.Iterator[Controller]:
    """A controller of a team whose queue chooses islands; each node is an island by itself."""
    for number, node in enumerate(kube_lab.nodes):
        kube_lab.kubectl("label", "node", node, f"{ISLAND}=island-{number}", "--overwrite")
    try:
        with kube_lab.namespace(cpu="8", memory="64Gi", islands=True) as team:
            yield Controller(kube_lab, team, tmp_path)
    finally:
        kube_lab.unlabel()


def test_a_gang_is_admitted_to_one_island(controller: Controller) -> None:
    """Without the queue's topology the scheduler spreads such pods over the nodes."""
    job = command("true", placement=SHARED)
    refused, output = controller.play("train", {**job, "placement": {}})
    assert refused != 0 and "no island has room for 2 pods (island-0 has room for 1" in output, output
    code, output = controller.play("train", job)
    assert code == 0, output
    assert controller.run()[0]["sharing"] == "2 pods on 1 machine" and "2 pods on 1 machine" in output
    assert controller.run()[0]["world_size"] == {"asked": 2, "seen": 2}
    space = controller.team.namespace
    pods = [pod for pod in controller.lab.pods(space) if "-probe-" not in pod["metadata"]["name"]]
    notes = [pod["metadata"]["annotations"].get("kueue.x-k8s.io/podset-required-topology") for pod in pods]
    assert notes == [ISLAND, ISLAND]
    assert len({pod["spec"]["nodeName"] for pod in pods}) == 1
    (load,) = controller.lab.items(f"/apis/kueue.x-k8s.io/v1beta2/namespaces/{space}/workloads")
    (assigned,) = load["status"]["admission"]["podSetAssignments"]
    assert assigned["topologyAssignment"]["levels"][-1] == "kubernetes.io/hostname"


def test_an_island_without_room_is_told_and_so_is_a_fleet_without_islands(controller: Controller) -> None:
    lab = controller.lab
    mib = min(_mebibytes(item["status"]["allocatable"]["memory"]) for item in lab.items("/api/v1/nodes"))
    large = command("true", placement=SHARED, resources={"cpu": 0.1, "memory": f"{int(mib * 0.7)}Mi"})
    run = controller.start("train", large)
    try:
        assert until(lambda: "allows to fit only 1 out of 2 pod(s)" in run.output, 60), run.output
    finally:
        run.stop()
    assert "waiting in its queue" in run.output
    assert [pod for pod in lab.pods(controller.team.namespace) if "-probe-" not in pod["metadata"]["name"]] == []
    lab.unlabel()
    code, output = controller.play("train", command("true", name="other", placement=SHARED))
    assert code != 0 and "no island has room for 2 pods (no node has an island label)" in output, output


def test_nodes_are_machines_where_kueue_places_pods(controller: Controller) -> None:
    """Kueue fills a machine first: what fits on it twice is refused before the start, what does not is spread."""
    lab = controller.lab
    for node in lab.nodes:
        lab.kubectl("label", "node", node, f"{ISLAND}=island-0", "--overwrite")
    code, output = controller.play("train", command("true"))
    assert code != 0 and "2 nodes are not certain to be 2 machines in the queue" in output, output
    assert "Request more than half of a machine" in output and "share_machines: true" in output, output
    assert lab.pods(controller.team.namespace) == []
    mib = min(_mebibytes(item["status"]["allocatable"]["memory"]) for item in lab.items("/api/v1/nodes"))
    wide = command("true", resources={"cpu": 0.1, "memory": f"{int(mib * 0.6)}Mi"})
    code, output = controller.play("train", wide)
    assert code == 0 and "on 1 machine" not in output, output
    assert controller.run()[0].get("sharing") is None
    pods = [pod for pod in lab.pods(controller.team.namespace) if "-probe-" not in pod["metadata"]["name"]]
    assert len({pod["spec"]["nodeName"] for pod in pods}) == len(pods) == 2


def _mebibytes(text: str) -> float:
    assert text.endswith("Ki"), text
    return int(text[:-2]) / 1024
