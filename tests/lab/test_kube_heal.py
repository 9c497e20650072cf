# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Healing on a real cluster: a node is switched off, its pods are forced off, and the gang goes on without a hand."""

from __future__ import annotations

import pathlib
import typing as t

import pytest

from ansible_collections.muster.training.tests.lab import kube_drill_proof, kube_rented
from ansible_collections.muster.training.tests.lab.kube.stages import until
from ansible_collections.muster.training.tests.lab.kube_plays import Controller, command
from ansible_collections.muster.training.tests.lab.test_kube_engines import ENGINES, Engine, kept
from ansible_collections.muster.training.tests.support.kube_lab import KubeLab, Team

COUNT = "i=0; while [ ! -e /nowhere ]; do i=$((i+1)); echo step=$i; sleep 0.2; [ $i -lt 150 ] || exit 0; done"


@pytest.fixture
def controller(kube_lab: KubeLab, team: Team, tmp_path: pathlib.Path) -> t.Iterator[Controller]:
    """A controller in the team's namespace, room on two nodes; the cluster is in order again afterwards."""
    kube_drill_proof.narrow(kube_lab)
    yield Controller(kube_lab, team, tmp_path)
    kube_drill_proof.restore(kube_lab)


def where(controller: Controller, role: str = "node") -> dict[str, str]:
    """Return where the run's living pods are."""
    found = controller.lab.pods(controller.team.namespace, f"muster.training/role={role}")
    return {pod["metadata"]["name"]: pod["spec"].get("nodeName", "") for pod in found}


def test_a_node_that_is_off_gives_its_pods_away(controller: Controller) -> None:
    """Check mode changes nothing; a second call changes nothing; the node takes pods again when it is back."""
    lab = controller.lab
    shared = {"share_machines": True}
    first = controller.start("train", command("sh", "-c", COUNT, checkpoints={"grace_s": 1}, placement=shared))
    # A gang of which no rank began leaves no attempt.
    assert until(lambda: "ranks 2/2" in first.output or first.ended, 120), first.output
    before = where(controller)
    lost = sorted(before.values())[-1]
    lab.fault("kill", lost)

    def heal(**more: t.Any) -> str:
        code, output = controller.play("heal", **more)
        assert code == 0 and "Traceback" not in output, output
        return output

    checked = heal(check=True, muster_lost_nodes=[lost])
    assert f"release {lost}: named in lost_nodes" in checked and where(controller) == before
    output = heal(muster_lost_nodes=[lost], muster_heal_wait=False)
    assert f"Node {lost} is out of service" in output and "was force-deleted" in output, output
    assert until(lambda: len(where(controller)) == 2 and lost not in where(controller).values(), 90), where(controller)
    again = heal(muster_lost_nodes=[lost], muster_heal_wait=False)
    assert "was force-deleted" not in again and "changed=0" in again.partition("PLAY RECAP")[2], again
    ready = "jsonpath={.status.conditions[?(@.type=='Ready')].status}"
    assert until(lambda: lab.kubectl("get", "node", lost, "-o", ready) != "True", 120)
    lab.fault("start", lost)
    assert until(lambda: lab.kubectl("get", "node", lost, "-o", ready) == "True", 120)
    output = heal(muster_heal_wait=False)
    assert f"Node {lost} takes pods again" in output, output
    code, output = first.wait()
    assert code == 0, output
    record, _ = controller.run()
    assert record["outcome"] == "succeeded" and len(record["attempts"]) == 2
    assert record["world_size"] == {"asked": 2, "seen": 2}


@pytest.mark.parametrize("engine", [item for item in ENGINES if item.name != "jobset"], ids=lambda item: item.name)
def test_a_lost_node_is_what_the_engine_promises(engine: Engine, controller: Controller) -> None:
    """A gang starts again on what is left; a plain Job's run ends, and says that a node was lost."""
    lab = controller.lab
    if engine.component:
        lab.cluster.install([engine.component])
    # The lab has two machines: without one of them, the gang starts again on the other.
    placed = {"placement": {"engine": engine.name, "share_machines": True}, **engine.job, **kept(controller)}
    # The MPI operator makes no difference between a crash and a lost node.
    restart = {"max_crashes": 1 if engine.name == "mpijob" else 0}
    first = controller.start("train", command("sh", "-c", COUNT, restart=restart, **placed))
    assert until(lambda: "ranks 2/2" in first.output or first.ended, 120), first.output
    lost = max(where(controller, "worker" if engine.name == "mpijob" else "node").items())[1]
    lab.fault("kill", lost)
    code, output = controller.play("heal", muster_lost_nodes=[lost], muster_heal_wait=False)
    # Pods that the taint has taken off by then need no force.
    assert code == 0 and f"Node {lost} is out of service" in output and "Traceback" not in output, output
    code, output = first.wait()
    record, _ = controller.run()
    again = engine.attempts > 1
    assert (record["outcome"], code == 0) == (("succeeded", True) if again else ("lost", False)), output
    assert [item["n"] for item in record["attempts"]] == list(range(1, engine.attempts + 1)), record["detail"]
    first_end = record["attempts"][0]
    assert first_end["cause"] == "node_lost", (first_end, record["detail"])
    assert again or record["cause"] == "node_lost", record["detail"]
    assert record["world_size"] == {"asked": 2, "seen": 2}


def test_a_rented_node_is_replaced_by_one_that_joins(controller: Controller) -> None:
    """The provider takes a machine away: a replacement is rented and joins, and the gang of two starts again on it."""
    # More than half a node: each pod has one of its own.
    wide = {"cpu": 1.2, "memory": "64Mi"}
    job = command("sh", "-c", COUNT, restart={"on_lost_node": "replace"}, checkpoints={"grace_s": 1}, resources=wide)
    with kube_rented.rented(controller) as cluster:
        first = controller.start("train", job)
        assert until(lambda: len({name for name in where(controller).values() if name}) == 2, 120), first.output
        first.process.kill()
        first.process.wait()
        kept, lost = controller.lab.nodes[:2]
        cluster.lose(lost)
        before = cluster.joined()
        code, output = controller.play("heal", inventory=cluster.inventory, **cluster.values)
        assert code == 0 and f"Node {lost} was deleted" in output, output
        joined = cluster.joined() - before
        assert len(joined) == 1, output
        (added,) = joined
        assert until(lambda: set(where(controller).values()) == {kept, added}, 120), where(controller)
        _, folder = controller.run()
        code, output = controller.play("train", muster_run_id=folder.name)
        record, _ = controller.run()
        assert code == 0 and record["outcome"] == "succeeded", output
        assert record["world_size"] == {"asked": 2, "seen": 2}
        assert cluster.world.alive == len(before)
