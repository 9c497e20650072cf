# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A volume that is deployed: what its host is asked, what is recorded, and how nodes mount it by that record."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.binding import Binding
from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError, MusterError, RefusedError
from ansible_collections.muster.training.plugins.plugin_utils._workflows.services import bind, deploy
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared import bindings, deployed
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared.state_dir import StateHome
from ansible_collections.muster.training.tests.support.run_world import RunWorld

Dict = dict[str, t.Any]
HOSTVARS: t.Final[Dict] = {
    "storage-1": {"muster_address": "10.0.0.5"},
    "storage-2": {"muster_address": "10.0.0.6"},
    "rented-1": {"muster_address": "10.0.0.9", "muster_node": {"name": "rented-1", "ownership": "rented"}},
}
ACCESS, SECRET = "AKcanaryaccess0001", "SKcanary-secret/9f2+Qx77k"
UNFORMATTED: t.Final = (
    "x <FATAL>: load setting: database is not formatted, please run `juicefs format ...` first [a@b:1]"
)


class Host:
    """The host's answers: a volume is there after it was formatted."""

    def __init__(self) -> None:
        self.asked: list[Dict] = []
        self.setting: Dict | None = None

    def call(self, op: str, **values: t.Any) -> Dict:
        assert op == "volume"
        self.asked.append(values)
        if values["step"] == "format":
            self.setting = {"Name": values["name"], "Bucket": values["bucket"], "UUID": "u-1"}
        if values["step"] == "destroy":
            self.setting = None
        text = json.dumps({"Setting": self.setting, "Sessions": []}) if self.setting else ""
        is_missing = values["step"] == "status" and self.setting is None
        return {"code": int(is_missing), "stdout": text, "stderr": UNFORMATTED if is_missing else ""}

    def steps(self) -> list[str]:
        return [item["step"] for item in self.asked]


@pytest.fixture
def world(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> t.Iterator[RunWorld]:
    found = RunWorld(tmp_path)
    store = {"name": "store", "component": "object_store", "mode": "bind", "endpoint": "http://10.0.0.7:8333",
             "secret_ref": {"from": "env"}, "ca": None, "resources": [{"purpose": "files", "ref": "jfs"}]}  # fmt: skip
    for name, ref in (("store", "jfs"), ("other", "jfs/part")):
        about = {**store, "name": name, "resources": [{"purpose": "files", "ref": ref}]}
        bindings.write_binding(home(found), Binding.from_dict(about))
    monkeypatch.setenv("JUICEFS_META_URL", "redis://:canary-meta-0001@10.0.0.8:6379/1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    yield found
    found.close()


def home(world: RunWorld) -> StateHome:
    return StateHome({"path": str(world.root / "home")}, "c")


def service(**place: t.Any) -> Dict:
    changes: Dict = {key: place.pop(key) for key in ("state", "provider") if key in place}
    about: Dict = {"name": "far", "kind": "shared_filesystem", "mode": "deploy", "provider": "juicefs"}
    wanted = {"host": "storage-1", "store": "store", "database": {"from": "env"}, **place}
    return {**about, "deploy": wanted, "filesystem": {"path": "/mnt/far", "cache_gb": 100}, **changes}


def run(world: RunWorld, machine: Host, check: bool = False, **place: t.Any) -> Dict:
    about: Dict = {"service": service(**place), "cluster": "c", "state_home": {"path": str(world.root / "home")}}
    request = world.request(None, check=check, **about)
    connect: t.Any = lambda names: [machine]  # noqa: E731
    return deploy.run(dataclasses.replace(request, hostvars=HOSTVARS, connect=connect), [])


def test_it_is_made_once_recorded_mounted_by_the_record_and_deleted(world: RunWorld) -> None:
    host = Host()
    looked = run(world, host, check=True)
    assert looked["changed"] and host.asked == []
    first, again = run(world, host), run(world, host)
    assert (first["changed"], again["changed"]) == (True, False)
    assert host.steps() == ["status", "format", "status"]
    made = host.asked[1]
    assert (made["address"], made["password"], made["bucket"]) == (
        "redis://:@10.0.0.8:6379/1", "canary-meta-0001", "http://10.0.0.7:8333/jfs")  # fmt: skip
    assert made["keys"] == {"ACCESS_KEY": ACCESS, "SECRET_KEY": SECRET}
    texts = [json.dumps([first, again, looked]), *(path.read_text() for path in (world.root / "home").rglob("*.json"))]
    assert not [text for text in texts if "canary" in text]
    options = {"cluster": "c", "state_home": {"path": str(world.root / "home")}, "services": [service()]}
    (mount,) = bind.list_all(options)["mounts"]
    assert (mount["source"], mount["path"]) == ("redis://:@10.0.0.8:6379/1", "/mnt/far")
    assert mount["volume"] == {
        "unit": "muster-far.service", "version": "1.4.2", "cache_mib": 95367, "region": "us-east-1", "ca": ""}  # fmt: skip
    assert mount["variables"] == {"url": "JUICEFS_META_URL"}
    gone = run(world, host, state="absent")
    assert gone["changed"] and gone["kept"] == "http://10.0.0.7:8333/jfs" and not gone["server"]["needs_program"]
    assert len(host.asked) == 3, "what stays is not even asked"
    assert not run(world, host, state="absent")["changed"]
    deleted = run(world, host, state="absent", delete_data=True)
    assert deleted["changed"] and host.steps()[3:] == ["status", "destroy"] and deleted["server"]["needs_program"]
    assert not run(world, host, state="absent", delete_data=True)["changed"] and len(host.asked) == 5
    assert deployed.read_removed(home(world), "far") is None


@pytest.mark.parametrize(
    ("place", "error", "words"),
    [
        ({"host": "rented-1"}, RefusedError, "deploy.host: rented-1 is rented"),
        ({"host": "elsewhere"}, InputError, "the inventory has no host elsewhere"),
        ({"store": "other"}, InputError, "'jfs/part' is a part of a bucket"),
        ({"store": "none"}, InputError, "'none' is not a binding of cluster c"),
        (
            {"database": {"from": "env", "keys": {"url": "NOT_THERE"}}},
            InputError,
            "NOT_THERE is not in the environment",
        ),
        ({"provider": "nfs"}, MusterError, "has no effect for a file system that is deployed"),
    ],
)
def test_a_place_that_is_refused(world: RunWorld, place: Dict, error: type[Exception], words: str) -> None:
    host = Host()
    with pytest.raises(error, match=words):
        run(world, host, **place)
    assert host.asked == [] and deployed.read_deployed(home(world), "far") is None


def test_another_database_is_refused_and_another_host_is_not(world: RunWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    host = Host()
    run(world, host)
    assert run(world, host, host="storage-2")["changed"], "files are not on the host"
    monkeypatch.setenv("JUICEFS_META_URL", "redis://:canary-meta-0001@10.0.0.9:6379/1")
    with pytest.raises(
        RefusedError, match=r"database: far is at redis://:@10\.0\.0\.8:6379/1, and its files would not"
    ):
        run(world, host)


def test_a_volume_that_is_not_made_is_not_recorded(world: RunWorld) -> None:
    host = Host()
    host.setting = {"Name": "other", "Bucket": "b"}
    with pytest.raises(RefusedError, match="the metadata of the volume other is there"):
        run(world, host)
    assert host.steps() == ["status"] and deployed.read_deployed(home(world), "far") is None
