# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A file system that is deployed: recorded, and mounted by that record."""

from __future__ import annotations

import dataclasses
import pathlib
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError, RefusedError
from ansible_collections.muster.training.plugins.plugin_utils._workflows.services import bind, deploy
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared import deployed
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared.state_dir import StateHome
from ansible_collections.muster.training.tests.support.run_world import RunWorld

Dict = dict[str, t.Any]
HOSTVARS: t.Final[Dict] = {
    "storage-1": {"muster_address": "10.0.0.5"},
    "storage-2": {"muster_address": "10.0.0.6"},
    "rented-1": {"muster_address": "10.0.0.9", "muster_node": {"name": "rented-1", "ownership": "rented"}},
}


class Hostvars(dict[str, t.Any]):
    """As Ansible's own, whose get returns something for a host that is not there, which cannot be used."""

    def get(self, key: str, default: t.Any = None) -> t.Any:
        if key not in self:
            raise ReferenceError(key)
        return self[key]


@pytest.fixture
def world(tmp_path: pathlib.Path) -> t.Iterator[RunWorld]:
    found = RunWorld(tmp_path)
    yield found
    found.close()


def home(world: RunWorld) -> StateHome:
    return StateHome({"path": str(world.root / "home")}, "c")


def service(**place: t.Any) -> Dict:
    about: Dict = {"name": "nas", "kind": "shared_filesystem", "mode": "deploy"}
    changes: Dict = {key: place.pop(key) for key in ("state", "provider") if key in place}
    wanted = {"host": "storage-1", "clients": ["10.0.0.0/24"], **place}
    return {**about, "deploy": wanted, "filesystem": {"path": "/mnt/nas"}, **changes}


def run(world: RunWorld, check: bool = False, **place: t.Any) -> Dict:
    about: Dict = {"service": service(**place), "cluster": "c", "state_home": {"path": str(world.root / "home")}}
    request = world.request(None, check=check, **about)
    return deploy.run(dataclasses.replace(request, hostvars=Hostvars(HOSTVARS)), [])


def test_it_is_recorded_mounted_by_the_record_and_forgotten(world: RunWorld) -> None:
    looked = run(world, check=True)
    assert looked["changed"] and not (world.root / "home").exists()
    first, again = run(world), run(world)
    assert (first["changed"], again["changed"]) == (True, False)
    assert first["server"] == looked["server"] and first["server"]["export"] == "/srv/muster/nas"
    options = {"cluster": "c", "state_home": {"path": str(world.root / "home")}, "services": [service()]}
    (mount,) = bind.list_all(options)["mounts"]
    assert (mount["source"], mount["path"], mount["type"]) == ("10.0.0.5:/srv/muster/nas", "/mnt/nas", "nfs")
    assert "hard" in mount["options"]
    gone = run(world, state="absent")
    assert gone["changed"] and gone["kept"] == "/srv/muster/nas" and gone["endpoint"] is None
    assert deployed.read_deployed(home(world), "nas") is None and deployed.read_removed(home(world), "nas")
    assert not run(world, state="absent", delete_data=True)["changed"]
    assert deployed.read_removed(home(world), "nas") is None


def test_one_that_is_not_deployed_yet_is_not_mounted(world: RunWorld) -> None:
    options = {"cluster": "c", "state_home": {"path": str(world.root / "home")}, "services": [service()]}
    found = bind.list_all(options)
    assert (found["mounts"], found["unmounted"]) == ([], [])
    gone = bind.list_all({**options, "services": [service(state="absent")]})
    assert (gone["mounts"], gone["unmounted"]) == ([], ["nas"])


@pytest.mark.parametrize(
    ("place", "error", "words"),
    [
        ({"host": "rented-1"}, RefusedError, "deploy.host: rented-1 is rented"),
        ({"address": "10.0.0.9"}, RefusedError, "deploy.address: 10.0.0.9 is rented"),
        ({"host": "elsewhere"}, InputError, "the inventory has no host elsewhere"),
        ({"host": "storage-2"}, RefusedError, "is deployed at storage-1, and its data would not come along"),
        ({"host_path": "/data/other"}, RefusedError, "its files would not come along to /data/other"),
    ],
)
def test_a_place_that_is_refused(world: RunWorld, place: Dict, error: type[Exception], words: str) -> None:
    run(world)
    before = deployed.read_deployed(home(world), "nas")
    with pytest.raises(error, match=words):
        run(world, **place)
    assert deployed.read_deployed(home(world), "nas") == before


def test_another_server_may_export_the_same_folder(world: RunWorld) -> None:
    run(world)
    assert run(world, provider="nfs_ganesha")["server"]["provider"] == "nfs_ganesha"
