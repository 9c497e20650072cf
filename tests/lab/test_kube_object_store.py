# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""SeaweedFS deployed in the cluster by the playbook, bound from the network of pods, used by jobs, and taken away.

The tests build on each other, in their order.
"""

from __future__ import annotations

import json
import pathlib
import re
import time
import typing as t

import pytest

from ansible_collections.muster.training.tests.lab import seaweedfs
from ansible_collections.muster.training.tests.lab.kube_plays import Controller
from ansible_collections.muster.training.tests.lab.kube_registry import registry
from ansible_collections.muster.training.tests.support.kube_lab import NOTES, KubeLab, kube_lab

__all__ = ["kube_lab"]
_DATA = "/var/tmp/muster-store"


class World(t.NamedTuple):
    """A controller with the programs for services, and the image of the store."""

    controller: Controller
    image: str

    @property
    def space(self) -> str:
        return self.controller.team.namespace

    @property
    def state(self) -> pathlib.Path:
        return self.controller.folder / "state" / "default"

    def services(self, state: str = "present", check: bool = False, **deploy: t.Any) -> tuple[int, str, float]:
        """Run the playbook; return its exit code, output and seconds."""
        place = {"namespace": self.space, "node": self.controller.lab.nodes[0], "host_path": _DATA, "size": "2Gi"}
        service = {
            "name": "store",
            "kind": "object_store",
            "mode": "deploy",
            "state": state,
            "deploy": {**place, "image": self.image, **deploy},
            "resources": [{"purpose": name, "ref": name} for name in ("datasets", "checkpoints")],
        }
        pods = {"namespace": self.space, "image": self.controller.lab.image}
        began = time.monotonic()
        code, output = self.controller.play(
            "services",
            check=check,
            muster_services=[service],
            muster_services_pods=pods,
            muster_node_hosts="localhost",
        )
        return code, output, time.monotonic() - began

    def binding(self) -> dict[str, t.Any]:
        return t.cast("dict[str, t.Any]", json.loads((self.state / "bindings" / "store.json").read_text()))


def changed(output: str) -> int:
    """Return how many tasks of a play changed something."""
    return sum(int(number) for number in re.findall(r"changed=(\d+)", output))


@pytest.fixture(scope="module")
def world(kube_lab: KubeLab, tmp_path_factory: pytest.TempPathFactory) -> t.Iterator[World]:
    programs = seaweedfs.services_folder()
    node = kube_lab.nodes[0]
    with registry(kube_lab) as images, kube_lab.namespace(cpu="4", memory="8Gi") as team:
        image = seaweedfs.push_image(images)
        # A folder of a node belongs to root: the pod is somebody else.
        kube_lab.on_node(node, "sh", "-c", f"mkdir -p {_DATA} && chown 65532 {_DATA}")
        controller = Controller(kube_lab, team, tmp_path_factory.mktemp("object-store"))
        controller.programs = programs
        try:
            yield World(controller, image)
        finally:
            kube_lab.on_node(node, "rm", "-rf", _DATA)
            kube_lab.api.ask("DELETE", f"/api/v1/persistentvolumes/{team.namespace}-muster-store-data")


def test_a_check_predicts_and_changes_nothing(world: World) -> None:
    code, output, _seconds = world.services(check=True)
    assert code == 0 and changed(output) > 0, output
    assert world.controller.lab.items(f"/apis/apps/v1/namespaces/{world.space}/statefulsets") == []
    assert not (world.state / "services").exists()


def test_the_store_is_deployed_and_bound_from_pods(world: World) -> None:
    code, output, seconds = world.services()
    assert code == 0, output
    NOTES.append(f"services.yml deploys SeaweedFS in the cluster: {seconds:.1f} s")
    binding = world.binding()
    assert {(row["vantage"], row["ok"]) for row in binding["reachable_from"]} == {("pod", True)}
    assert {row["node"] for row in binding["reachable_from"]} >= set(world.controller.lab.nodes)
    assert binding["endpoint"] == f"http://muster-store.{world.space}.svc:8333"
    text = (world.state / "services" / "store.credentials").read_text()
    secrets = [line.partition(" = ")[2] for line in text.splitlines() if " = " in line]
    assert len(secrets) == 4 and not [value for value in secrets if value in output or value in json.dumps(binding)]
    pods = world.controller.lab.items(f"/api/v1/namespaces/{world.space}/pods")
    assert [item["metadata"]["name"] for item in pods] == ["muster-store-0"]
    assert not [value for value in secrets if value in json.dumps(pods)]


def test_a_second_run_sends_nothing(world: World) -> None:
    code, output, seconds = world.services()
    NOTES.append(f"services.yml again, in the cluster: {seconds:.1f} s")
    assert code == 0 and changed(output) == 0, output
    pods = world.controller.lab.items(f"/api/v1/namespaces/{world.space}/pods")
    assert [item["metadata"]["name"] for item in pods] == ["muster-store-0"]


def test_a_removal_keeps_the_claim_unless_the_data_is_to_go(world: World) -> None:
    code, output, _seconds = world.services("absent")
    assert code == 0 and changed(output) > 0, output
    lab, space = world.controller.lab, world.space
    assert lab.items(f"/apis/apps/v1/namespaces/{space}/statefulsets") == []
    claims = lab.items(f"/api/v1/namespaces/{space}/persistentvolumeclaims")
    assert [item["metadata"]["name"] for item in claims] == ["muster-store-data"]
    assert world.services("absent")[:1] == (0,) and not (world.state / "bindings" / "store.json").exists()
    code, output, _seconds = world.services("absent", delete_data=True)
    assert code == 0, output
    left = lab.items(f"/api/v1/namespaces/{space}/persistentvolumeclaims")
    assert [item for item in left if not item["metadata"].get("deletionTimestamp")] == []
