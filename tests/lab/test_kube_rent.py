# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The whole walk on a cluster: rent, join, train in pods on the rented machines, report, teardown with proof.

The provider is a fake on loopback built from its specification; the machines are nodes of the lab that join it as real
ones. Every stage gets what the one before it made: the inventory plugin lists the provider's own answer.
"""

from __future__ import annotations

import json
import pathlib
import typing as t

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._provision.ledger.ledger_store import read_ledger
from ansible_collections.muster.training.tests.e2e.rent_world import RentWorld
from ansible_collections.muster.training.tests.fakes.lambda_cloud import FakeLambda
from ansible_collections.muster.training.tests.lab import kube_rented
from ansible_collections.muster.training.tests.lab.kube_plays import Controller, command, training
from ansible_collections.muster.training.tests.support.kube_lab import KubeLab, Team


@pytest.fixture
def controller(kube_lab: KubeLab, team: Team, tmp_path: pathlib.Path) -> t.Iterator[Controller]:
    """A controller in the team's namespace; the lab's own nodes take no pods meanwhile."""
    own = kube_lab.nodes
    for name in own:
        kube_lab.kubectl("cordon", name)
    try:
        yield Controller(kube_lab, team, tmp_path)
    finally:
        for name in set(kube_lab.nodes) - set(own):
            kube_lab.cluster.remove(name)
            kube_lab.api.ask("DELETE", f"/api/v1/nodes/{name}")
        for name in own:
            kube_lab.kubectl("uncordon", name)


def _inventory(world: RentWorld, place: pathlib.Path) -> pathlib.Path:
    options = {"plugin": "muster.training.lambda_cloud", "api_url": world.url, "states": ["running"]}
    groups = {"muster_nodes": True, "muster_rented": "muster_node.owner.token is not none"}
    secret = {"api_token_file": str(world.root / "token")}
    place.write_text(json.dumps({**options, **secret, "groups": groups}))
    return place


def test_rented_machines_join_train_and_go(controller: Controller) -> None:
    lab, folder = controller.lab, controller.folder / "rent"
    folder.mkdir()
    world = RentWorld(folder, lambda clock: FakeLambda(clock, boot_s=30.0), "lambda")
    home = {"muster_cluster": "default", "muster_state": {"path": str(controller.folder / "state")}}
    with world.running():
        values = world.values(rented_nodes_count=2, **home)
        done = world.play("rent", rented_nodes_count=2, **home)
        assert done.code == 0 and world.alive == 2, done.output
        state = controller.folder / "state" / "default"
        kube_rented.let_age(state / "ledger.jsonl")
        leases = {lease.name: lease for lease in read_ledger(state).leases.values() if lease.machine}
        for name in leases:
            lab.cluster.add(name)

        inventory = _inventory(world, controller.folder / "fleet.lambda.yml")
        job = training(lab, controller.team.namespace, 60) if lab.torch else command("sh", "-c", "echo rank $NODE_RANK")
        job["resources"] = {"cpu": 1.1, "memory": "1Gi"}
        code, output = controller.play("train", job, inventory=inventory, **values)
        assert code == 0, output
        record, _folder = controller.run()
        assert (record["outcome"], record["world_size"]) == ("succeeded", {"asked": 2, "seen": 2})
        (attempt,) = record["attempts"]
        stays = {stay["id"]: stay for stay in attempt["nodes"]}
        assert set(stays) == set(leases), "the gang was not on the rented machines"
        assert {stay["token"] for stay in stays.values()} == {lease.token for lease in leases.values()}
        assert record["cost"]["usd"] and record["cost"]["complete"] is True, record["cost"]

        code, output = controller.play("report", muster_run_id=record["run_id"])
        assert code == 0 and "report.html" in output, output

        code, output = controller.play("teardown", inventory=inventory, **values, muster_stop_runs=False)
        assert code == 0 and "2 proved gone" in output, output
        assert world.alive == 0 and not set(leases) & set(lab.api.nodes())
        proof = json.loads((state / "teardown.json").read_text())
        assert proof["residual_usd_per_hour"] == 0 and len(proof["leases"]) == 2, proof
        assert all(len(item["absent_at"]) == 2 for item in proof["leases"]), proof
