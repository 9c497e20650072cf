# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Shared file systems that are bound, with real mounts in namespaces: each fault of one node is named with its fix."""

from __future__ import annotations

import dataclasses
import pathlib
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import NodeError, RefusedError
from ansible_collections.muster.training.plugins.module_utils._model.service import parse_services
from ansible_collections.muster.training.plugins.module_utils._model.shared_filesystem import MountReport
from ansible_collections.muster.training.plugins.plugin_utils._hosts.node_client import on_each_node
from ansible_collections.muster.training.plugins.plugin_utils._workflows.services import (
    bind,
    filesystem_check,
    store_check,
)
from ansible_collections.muster.training.plugins.plugin_utils._workflows.services.filesystem_check import (
    FilesystemOrder,
)
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared import bindings
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared.state_dir import StateHome
from ansible_collections.muster.training.tests.support.mount_world import MountWorld, can_mount

Dict = dict[str, t.Any]
pytestmark = pytest.mark.skipif(not can_mount(), reason="mounts in namespaces need root")


class BindWorld(MountWorld):
    def service(self, **changes: t.Any) -> Dict:
        about = {"name": "scratch", "kind": "shared_filesystem", "mode": "bind", "provider": "path"}
        return {**about, "filesystem": {"path": str(self.path), **changes.pop("filesystem", {})}, **changes}

    def bind(self, *, check: bool = False, require_all: bool = True, **changes: t.Any) -> Dict:
        request = self.request(None, check=check, services=[self.service(**changes)], require_all=require_all)
        hostvars = {name: {"muster_address": "127.0.0.1"} for name in self.shells}
        return bind.run(dataclasses.replace(request, hosts=list(self.shells), hostvars=hostvars))

    @property
    def bound(self) -> list[Dict]:
        home = StateHome({"path": str(self.root / "home")}, "default")
        return [item.to_dict() for item in bindings.list_bindings(home)]


@pytest.fixture
def world(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> t.Iterator[BindWorld]:
    monkeypatch.setattr(store_check, "_WAIT_S", {"host": 6, "pod": 6})
    found = BindWorld(tmp_path)
    yield found
    found.close()


def refused(world: BindWorld, **changes: t.Any) -> str:
    with pytest.raises(RefusedError) as caught:
        world.bind(**changes)
    assert world.bound == [], "nothing is half bound"
    return str(caught.value)


def test_four_nodes_share_one_file_system(world: BindWorld) -> None:
    system = world.system("one")
    for name in "abcd":
        world.node(name, system)
    assert world.bind(check=True)["changed"] and world.hold(f"ls -A {system}") == "" and not world.bound
    made = world.bind()
    assert made["changed"] and not world.bind()["changed"]
    (binding,) = world.bound
    assert [row["ok"] for row in binding["reachable_from"]] == [True] * 4
    assert all(row["mb_per_s"] > 0 and row["latency_ms"] > 0 for row in binding["reachable_from"])
    marker = world.hold(f"cat {system}/.muster-filesystem").strip()
    (service,) = parse_services([world.service()])
    assert bind.is_bound(StateHome({"path": str(world.root / "home")}, "default"), world.root, service)
    assert binding["filesystem"]["marker"] == marker and binding["endpoint"] == str(world.path)
    assert world.hold(f"ls -A {system}").split() == [".muster-filesystem"], "nothing else is left"


def test_a_path_that_is_not_mounted_on_one_of_four_nodes(world: BindWorld) -> None:
    system = world.system("one")
    for name in "abd":
        world.node(name, system)
    world.node("c", None)
    text = refused(world)
    assert f"c (host): {world.path} is on the node's own disk" in text and "nothing is mounted there" in text
    assert "a (host): ok" in text and "Mount it there on this node" in text
    assert world.hold(f"ls -A {system}") == "" and list(world.path.iterdir()) == []
    # Asked for, it is bound for the others.
    world.bind(require_all=False)
    assert {row["node"]: row["ok"] for row in world.bound[0]["reachable_from"]}["c"] is False
    assert list(world.path.iterdir()) == []


def test_two_nodes_that_see_different_servers_under_one_path(world: BindWorld) -> None:
    one, other = world.system("one"), world.system("other")
    for name in "abc":
        world.node(name, one)
    world.node("d", other)
    text = refused(world)
    assert f"d (host): {world.path} is another file system than on a, b, c" in text
    assert "Mount the same one on all nodes" in text
    assert world.hold(f"ls -A {one} {other}").split() == [f"{one}:", f"{other}:"]


@pytest.mark.parametrize(
    ("options", "fill", "words", "fix"),
    [
        ("size=1m", "", "is full", "Delete files, or use a larger file system"),
        ("size=64m,nr_inodes=5", "touch {0}/1 {0}/2 {0}/3 {0}/4; true", "has no inodes left", "with more inodes"),
    ],
)
def test_a_full_one(world: BindWorld, options: str, fill: str, words: str, fix: str) -> None:
    system = world.system("one", options)
    if fill:
        world.hold(fill.format(system))
    for name in "ab":
        world.node(name, system)
    text = refused(world)
    assert f"{world.path} {words}" in text and fix in text
    assert ".muster" not in world.hold(f"ls -A {system}")


def test_one_node_has_it_for_reading(world: BindWorld) -> None:
    system = world.system("one")
    world.node("a", system)
    world.node("b", system, "ro")
    text = refused(world)
    assert f"b (host): {world.path} is mounted read-only" in text and "set access_modes: [read]" in text
    # Without a marker yet, what is only read is known by its type.
    assert world.bind(access_modes=["read"])["changed"] and world.hold(f"ls -A {system}") == ""


def test_a_type_that_is_another_one(world: BindWorld) -> None:
    world.node("a", world.system("one"))
    text = refused(world, filesystem={"type": "lustre"})
    assert f"{world.path} is on tmpfs (one), not on lustre" in text
    assert world.hold(f"ls -A {world.store}/one") == ""
    assert world.bind(filesystem={"type": "tmpfs"})["changed"]


def test_another_file_system_than_the_one_that_was_bound(world: BindWorld) -> None:
    world.node("a", world.system("one"))
    world.bind()
    world.shells["a"].run(f"umount {world.path} && mount --bind {world.system('new')} {world.path}")
    with pytest.raises(RefusedError, match=r"is not the file system that was bound.*state: absent"):
        world.bind()
    assert world.hold(f"ls -A {world.store}/new") == ""


def test_a_path_that_does_not_exist_and_one_that_is_a_file(world: BindWorld) -> None:
    world.node("a", world.system("one"))
    assert f"{world.path}/no does not exist" in refused(world, filesystem={"path": f"{world.path}/no"})
    (world.root / "file").touch()
    assert "is not a folder" in refused(world, filesystem={"path": str(world.root / "file")})


def test_an_export_that_is_not_mounted(world: BindWorld) -> None:
    """Where the kernel has no NFS, what is there is something else, and nothing is written to it."""
    world.node("a", world.system("one"))
    text = refused(world, provider="nfs", endpoint="nfs://10.0.0.5/data")
    assert f"{world.path} is on tmpfs (one), not on nfs" in text
    assert f"mount -t nfs -o nfsvers=4.2,hard,noatime,nconnect=8,_netdev 10.0.0.5:/data {world.path}" in text
    assert world.hold(f"ls -A {world.store}/one") == ""


class Visits:
    """Short pods, in the namespaces of the nodes; one whose folder does not exist does not start."""

    def __init__(self, world: BindWorld, lacking: str = "") -> None:
        self.world, self.lacking = world, lacking
        self.folders: list[t.Sequence[str]] = []

    def list_nodes(self) -> list[str]:
        return sorted(self.world.shells)

    def read_cluster_id(self) -> str:
        return "c-1"

    def ask(self, requests: Dict, folders: t.Sequence[str] = ()) -> tuple[Dict, Dict]:
        self.folders.append(folders)
        errors = {name: NodeError(name, "FailedMount", "") for name in requests if name == self.lacking and folders}
        nodes = self.world.connect([name for name in requests if name not in errors])
        answers, others = on_each_node(nodes, lambda node: node.call(**requests[node.name]))
        return answers, {**errors, **others}


def test_pods_are_asked_for_each_file_system_by_itself(world: BindWorld) -> None:
    """A pod of a node that lacks the path of one does not start, and the others are seen all the same."""
    system = world.system("one")
    for name in "ab":
        world.node(name, system)
    (service,) = parse_services([world.service()])
    orders = [FilesystemOrder(service.to_binding(None), True, None) for _number in range(2)]
    visits = Visits(world, lacking="b")
    results = store_check.check_from_pods(orders, t.cast(t.Any, visits))
    assert visits.folders[:2] == [[str(world.path)], [str(world.path)]]
    for result in results:
        rows = {row.node: row for row in result.rows}
        assert rows["a"].ok and rows["a"].vantage == "pod" and rows["a"].cluster_id == "c-1"
        assert not rows["b"].ok and rows["b"].problem == "b: FailedMount"
    both = store_check.check_from_pods(orders[:1], t.cast(t.Any, Visits(world)))
    assert [row.ok for row in both[0].rows] == [True, True]


def test_what_is_not_bound_in_the_end_keeps_no_marker(world: BindWorld) -> None:
    """Another service of the list is refused."""
    system = world.system("one")
    world.node("a", system)
    tracker = {"name": "mlflow", "kind": "tracking", "mode": "bind", "endpoint": "http://127.0.0.1:9"}
    request = world.request(None, services=[world.service(), tracker], require_all=True)
    with pytest.raises(RefusedError, match="service mlflow cannot be used"):
        bind.run(dataclasses.replace(request, hosts=["a"]))
    assert world.hold(f"ls -A {system}") == "" and world.bound == []


def test_an_owner_who_is_another(world: BindWorld) -> None:
    """The rule alone: no file system here changes owners."""
    (note,) = filesystem_check._describe_owners(
        {"a": MountReport(user=0, owner=65534), "b": MountReport(user=0, owner=0)}, {"a": "a"}
    )
    assert "files that uid 0 writes on a belong to uid 65534 (root_squash" in note
