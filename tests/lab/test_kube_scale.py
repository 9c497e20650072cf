# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The fleet grows and shrinks while a queue waits and another gang works: neither is disturbed."""

from __future__ import annotations

import json
import pathlib
import typing as t

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._provision.ledger.ledger_store import read_ledger
from ansible_collections.muster.training.tests.lab import kube_drill_proof, kube_rented
from ansible_collections.muster.training.tests.lab.kube.stages import until
from ansible_collections.muster.training.tests.lab.kube_plays import Controller, command
from ansible_collections.muster.training.tests.support.kube_lab import KubeLab

# More than half a node: each pod has one of its own.
WIDE = {"cpu": 1.2, "memory": "64Mi"}


@pytest.fixture
def controller(kube_lab: KubeLab, tmp_path: pathlib.Path) -> t.Iterator[Controller]:
    """A controller whose queue has quota for two gangs, room for one; the cluster is in order again afterwards."""
    kube_drill_proof.narrow(kube_lab)
    with kube_lab.namespace(cpu="6", memory="4Gi") as team:
        yield Controller(kube_lab, team, tmp_path)
        kube_drill_proof.restore(kube_lab)


def where(controller: Controller, name: str) -> dict[str, str]:
    """Return uid -> node ("" while it has none) of the pods of a job's run."""
    found = controller.lab.pods(controller.team.namespace, "muster.training/role=node")
    named = [pod for pod in found if pod["metadata"]["name"].startswith(name)]
    return {pod["metadata"]["uid"]: pod["spec"].get("nodeName", "") for pod in named}


def _inventory(cluster: kube_rented.Rented, names: t.Iterable[str], place: pathlib.Path) -> pathlib.Path:
    """Write the inventory of rented machines that are known by their rented names."""
    leases = {lease.name: lease for lease in read_ledger(cluster.ledger).leases.values()}
    hosts = {
        name: {
            "ansible_connection": "local",
            "muster_node": {
                "name": name,
                "id": leases[name].id,
                "ownership": "rented",
                "owner": {"token": leases[name].token},
            },
        }
        for name in names
    }
    place.write_text(json.dumps({"muster_rented": {"hosts": hosts}}))
    return place


def test_the_fleet_grows_for_a_gang_that_waits_and_shrinks_after_it(controller: Controller) -> None:
    lab = controller.lab
    with kube_rented.rented(controller) as cluster:
        first = controller.start("train", command("sleep", "900", name="first", resources=WIDE))
        assert until(lambda: len(set(where(controller, "first").values()) - {""}) == 2, 120), first.output
        worked = where(controller, "first")
        says = command("sh", "-c", "echo rank $NODE_RANK", name="second", resources=WIDE)
        second = controller.start("train", says)
        assert until(lambda: "Insufficient cpu" in second.output or second.ended, 120), second.output
        assert set(where(controller, "second").values()) == {""}

        before = cluster.joined()
        code, output = controller.play("rent", **{**cluster.values, "rented_nodes_count": len(before) + 2})
        added = sorted(cluster.joined() - before)
        assert code == 0 and len(added) == 2 and cluster.world.alive == len(before) + 2, output
        for name in added:
            lab.cluster.add(name)
        code, output = second.wait()
        assert code == 0, output
        record, _ = controller.run(next(pathlib.Path(controller.folder / "state").glob("*/runs/second*")).name)
        assert record["world_size"] == {"asked": 2, "seen": 2} and len(record["attempts"]) == 1

        inventory = _inventory(cluster, added, controller.folder / "added.json")
        values = {**cluster.values, "muster_remove_nodes": ",".join(added), "muster_stop_runs": False}
        code, output = controller.play("remove_nodes", inventory=inventory, **values)
        assert code == 0 and "Traceback" not in output, output
        assert cluster.world.alive == len(before) and not set(added) & set(lab.api.nodes())
        assert cluster.joined() == before
        # Nothing of this was felt by the gang that worked all the time.
        assert where(controller, "first") == worked and not first.ended
        first.stop()
        (run_id,) = (place.name for place in (controller.folder / "state").glob("*/runs/first*"))
        code, output = controller.play("cancel", muster_run_id=run_id)
        assert code == 0 and until(lambda: not where(controller, "first"), 60), output
