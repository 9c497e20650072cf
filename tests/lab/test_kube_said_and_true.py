# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is said of a run in pods is true: runs with injected faults, compared by the judge of the runs on hosts."""

from __future__ import annotations

import pathlib
import shutil
import typing as t

import pytest

from ansible_collections.muster.training.tests.e2e.faulty_store import FaultyStore
from ansible_collections.muster.training.tests.e2e.service_world import KEYS, Store, seaweedfs
from ansible_collections.muster.training.tests.lab import kube_said
from ansible_collections.muster.training.tests.lab.kube_plays import Controller
from ansible_collections.muster.training.tests.lab.seaweedfs import services_folder
from ansible_collections.muster.training.tests.support import judge
from ansible_collections.muster.training.tests.support.kube_lab import KubeLab, Team, kube_lab, team

__all__ = ["kube_lab", "team"]
_CLAIMS = 10


class Bound(t.NamedTuple):
    """A store, the door before it, and the state home in which that is bound."""

    store: Store
    door: FaultyStore
    state: pathlib.Path


@pytest.fixture(scope="module")
def bound(kube_lab: KubeLab, tmp_path_factory: pytest.TempPathFactory) -> t.Iterator[Bound]:
    """A bucket that pods and this machine reach by one address."""
    services_folder()
    folder = tmp_path_factory.mktemp("bound")
    with seaweedfs(folder / "weed") as store, kube_lab.namespace() as team:
        door = FaultyStore(store.endpoint, kube_said.gateway(kube_lab))
        controller = Controller(kube_lab, team, folder)
        controller.programs, controller.env = services_folder(), KEYS
        resources = [{"purpose": "checkpoints", "ref": "ckpt/team"}]
        service = {
            "name": "store",
            "kind": "object_store",
            "mode": "bind",
            "endpoint": door.url,
            "resources": resources,
        }
        pods = {"namespace": team.namespace, "image": kube_lab.image}
        code, output = controller.play(
            "services", muster_services=[service], muster_services_pods=pods, muster_node_hosts="localhost"
        )
        assert code == 0, output
        yield Bound(store, door, folder / "state")
        door.close()


@pytest.fixture
def scene(
    case: kube_said.Case, request: pytest.FixtureRequest, kube_lab: KubeLab, team: Team, tmp_path: pathlib.Path
) -> t.Iterator[kube_said.PodScene]:
    """Two machines, and a bucket where the case has one."""
    controller, store, door = Controller(kube_lab, team, tmp_path), None, None
    if case.bucket:
        found = request.getfixturevalue("bound")
        controller.programs, controller.env = services_folder(), KEYS
        shutil.copytree(found.state, tmp_path / "state")
        store, door = found.store, found.door
        if not door.is_open:
            door.reopen()
        door.full_after = None
    made = kube_said.PodScene(controller, f"said-{team.namespace[2:]}", store, door)
    yield made
    made.close()


def parameter(case: kube_said.Case) -> t.Any:
    """Return a case with its marks."""
    return pytest.param(case, id=case.name.replace(" ", "-").replace(",", ""))


@pytest.mark.parametrize("case", [parameter(case) for case in kube_said.CASES])
def test_what_is_said_is_true(case: kube_said.Case, scene: kube_said.PodScene) -> None:
    truth = case.run(scene)
    if "refused" in truth.outcomes:
        assert scene.codes["train"] != 0 and not scene.folder.exists() and truth.lives == (), scene.screens["train"]
        return
    heard = scene.look()
    untrue = judge.untrue(heard, truth)
    assert not untrue, "\n".join([f"{len(untrue)} untrue words:", *untrue])
    assert judge.judged(heard) >= (_CLAIMS if heard.record else 0)


def test_the_table_is_wide() -> None:
    names = [case.name for case in kube_said.CASES]
    assert len(set(names)) == len(names) >= 8
